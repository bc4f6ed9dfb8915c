//! What is opened at the first need, by whoever comes first, and may be closed while nobody uses it.

use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

/// A value that is made at the first need, and kept until it is let go of. Who has it keeps it for as long as it is used.
#[derive(Debug)]
pub(super) struct Lazily<T> {
    value: RwLock<Option<Arc<T>>>,
    making: Mutex<()>,
}

impl<T> Lazily<T> {
    pub(super) fn new() -> Lazily<T> {
        Lazily { value: RwLock::new(None), making: Mutex::new(()) }
    }

    /// The value, if it is there.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value; `make` makes it where it is not there, one caller at a time.
    pub(super) fn get_or<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        *self.value.write().unwrap_or_else(PoisonError::into_inner) = Some(value.clone());
        Ok(value)
    }

    /// Puts what `make` makes in the place of the value, if it makes one, unless somebody makes one at the moment. Who has the old
    /// one keeps it.
    pub(super) fn replace(&self, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let _making = match self.making.try_lock() {
            Ok(making) => making,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let value = Arc::new(make()?);
        let before = self.value.write().unwrap_or_else(PoisonError::into_inner).replace(value.clone());
        // Without the lock of the value: closing it may take its time.
        drop(before);
        Some(value)
    }

    /// Whether somebody uses it now.
    pub(super) fn is_used(&self) -> bool {
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        value.as_ref().is_some_and(|value| Arc::strong_count(value) > 1)
    }

    /// Lets go of the value, which is made again at the next need.
    pub(super) fn take(&self) -> Option<Arc<T>> {
        self.value.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_and_what_was_made_is_kept_until_it_is_taken() {
        let lazily = Lazily::new();
        assert_eq!(lazily.get_or(|| Err::<u32, _>("no")), Err("no"));
        assert_eq!((lazily.get(), lazily.get_or(|| Ok::<_, &str>(7))), (None, Ok(Arc::new(7))));
        let held = lazily.get_or(|| Err("not asked")).unwrap();
        assert!(lazily.is_used());
        drop(held);
        assert!(!lazily.is_used());
        assert_eq!((lazily.take(), lazily.get()), (Some(Arc::new(7)), None));
        assert_eq!(lazily.get_or(|| Ok::<_, &str>(8)), Ok(Arc::new(8)));
        let held = lazily.get().unwrap();
        assert_eq!((lazily.replace(|| None), lazily.get()), (None, Some(Arc::new(8))));
        // Whoever makes one is not waited for.
        let within = || lazily.replace(|| panic!("two at the same time")).is_none().then_some(9);
        assert_eq!((lazily.replace(within), lazily.get()), (Some(Arc::new(9)), Some(Arc::new(9))));
        assert_eq!(*held, 8);
    }
}
