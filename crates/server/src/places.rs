//! Limits how many requests do the same at once.

use crate::failure::Refusal;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of places, of which each request takes one.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicUsize,
    most: usize,
    /// The name of those that take places, for messages.
    what: &'static str,
}

/// A place that is taken until it is dropped.
#[derive(Debug)]
pub(crate) struct TakenPlace<'a>(&'a AtomicUsize);

impl Places {
    pub(crate) fn new(most: usize, what: &'static str) -> Places {
        Places { taken: AtomicUsize::new(0), most, what }
    }

    /// Takes a place, or refuses the request if all are taken.
    pub(crate) fn take(&self) -> Result<TakenPlace<'_>, Refusal> {
        let before = self.taken.fetch_add(1, Ordering::AcqRel);
        let place = TakenPlace(&self.taken);
        if before >= self.most { Err(Refusal::overloaded(self.what)) } else { Ok(place) }
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    #[test]
    fn a_place_is_free_again_after_its_request() {
        let places = Places::new(2, "requests");
        let (one, _other) = (places.take().unwrap(), places.take().unwrap());
        assert_eq!(places.take().unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        drop(one);
        places.take().unwrap();
        assert_eq!(places.taken(), 1);
    }
}
