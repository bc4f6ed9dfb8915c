//! What is opened at the first need, by whoever comes first.

use std::sync::{Mutex, OnceLock, PoisonError};

/// A value that is made at the first need, and kept if that succeeds.
#[derive(Debug, Default)]
pub(super) struct Lazily<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Lazily<T> {
    pub(super) fn new() -> Lazily<T> {
        Lazily { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, if it was made.
    pub(super) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value; `make` makes it, one caller at a time.
    pub(super) fn get_or<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = make()?;
        Ok(self.value.get_or_init(|| value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_and_what_was_made_is_kept() {
        let lazily = Lazily::new();
        assert_eq!(lazily.get_or(|| Err::<u32, _>("no")), Err("no"));
        assert_eq!((lazily.get(), lazily.get_or(|| Ok::<_, &str>(7))), (None, Ok(&7)));
        assert_eq!(lazily.get_or(|| Err("not asked")), Ok(&7));
    }
}
