//! Ending what a thread waits for in a store that is elsewhere: opening and reading take no flag of their own, since where
//! bytes are here nobody waits.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static FLAG: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// While it lives, the thread that made it waits in no store once the flag is raised.
#[derive(Debug)]
pub struct Cancelling {
    before: Option<Arc<AtomicBool>>,
}

impl Cancelling {
    /// By `flag`, in the place of whatever flag the thread had before; `None` waits for as long as it takes.
    #[must_use]
    pub fn by(flag: Option<Arc<AtomicBool>>) -> Cancelling {
        Cancelling { before: FLAG.replace(flag) }
    }

    /// The flag of this thread, for threads that work for it.
    pub fn flag() -> Option<Arc<AtomicBool>> {
        FLAG.with_borrow(Option::clone)
    }

    /// Whether this thread's flag is raised.
    pub fn is_asked() -> bool {
        FLAG.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
    }
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        FLAG.set(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_of_a_thread_and_of_a_time() {
        let flag = Arc::new(AtomicBool::new(true));
        let held = Cancelling::by(Some(flag.clone()));
        assert!(Cancelling::is_asked());
        let inner = Cancelling::by(None);
        assert!(!Cancelling::is_asked());
        drop(inner);
        assert!(Cancelling::is_asked());
        let of_other = std::thread::spawn(Cancelling::is_asked).join().expect("ends");
        assert!(!of_other);
        drop(held);
        assert!(!Cancelling::is_asked());
    }
}
