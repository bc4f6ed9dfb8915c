//! Cancellation of requests to remote stores, per thread. Opening and reading take no cancellation flag as a
//! parameter, since local stores never wait.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static FLAG: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Installs a cancellation flag for the current thread until it is dropped: once the flag is set, the thread
/// no longer waits for any store.
#[derive(Debug)]
pub struct CancelScope {
    before: Option<Arc<AtomicBool>>,
}

impl CancelScope {
    /// Installs `flag` in place of the thread's previous flag; with `None`, requests cannot be cancelled.
    #[must_use]
    pub fn new(flag: Option<Arc<AtomicBool>>) -> CancelScope {
        CancelScope { before: FLAG.replace(flag) }
    }

    /// Returns the flag of this thread, for helper threads to install.
    pub fn flag() -> Option<Arc<AtomicBool>> {
        FLAG.with_borrow(Option::clone)
    }

    /// Returns true if this thread has a flag and it is set.
    pub fn is_cancelled() -> bool {
        FLAG.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        FLAG.set(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_affects_its_own_thread_until_it_is_dropped() {
        let flag = Arc::new(AtomicBool::new(true));
        let outer = CancelScope::new(Some(flag.clone()));
        assert!(CancelScope::is_cancelled());
        let inner = CancelScope::new(None);
        assert!(!CancelScope::is_cancelled());
        drop(inner);
        assert!(CancelScope::is_cancelled());
        let other_thread = std::thread::spawn(CancelScope::is_cancelled).join().expect("the thread ends");
        assert!(!other_thread);
        drop(outer);
        assert!(!CancelScope::is_cancelled());
    }
}
