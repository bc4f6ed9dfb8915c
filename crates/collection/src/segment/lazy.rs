//! A value that is created when it is first needed, and can be dropped while it is not in use.

use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

/// A value that is created when it is first needed. Callers keep it alive while they use it.
#[derive(Debug)]
pub(super) struct Lazy<T> {
    value: RwLock<Option<Arc<T>>>,
    making: Mutex<()>,
}

impl<T> Lazy<T> {
    pub(super) fn new() -> Lazy<T> {
        Lazy { value: RwLock::new(None), making: Mutex::new(()) }
    }

    /// Returns the value, if it exists.
    pub(super) fn get(&self) -> Option<Arc<T>> {
        self.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the value. If it does not exist, `make` creates it; only one caller at a time does so.
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

    /// Replaces the value by the one that `make` returns, if any, unless another caller is creating one.
    /// Users of the old value keep it.
    pub(super) fn replace(&self, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let _making = match self.making.try_lock() {
            Ok(making) => making,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let value = Arc::new(make()?);
        let before = self.value.write().unwrap_or_else(PoisonError::into_inner).replace(value.clone());
        // The lock of the value is released: dropping the old value may take time.
        drop(before);
        Some(value)
    }

    /// Returns true if the value is in use.
    pub(super) fn is_used(&self) -> bool {
        let value = self.value.read().unwrap_or_else(PoisonError::into_inner);
        value.as_ref().is_some_and(|value| Arc::strong_count(value) > 1)
    }

    /// Removes the value; it is created again when it is next needed.
    pub(super) fn take(&self) -> Option<Arc<T>> {
        self.value.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_created_once_and_again_after_it_was_taken() {
        let lazy = Lazy::new();
        assert_eq!(lazy.get_or(|| Err::<u32, _>("no")), Err("no"));
        assert_eq!((lazy.get(), lazy.get_or(|| Ok::<_, &str>(7))), (None, Ok(Arc::new(7))));
        let in_use = lazy.get_or(|| Err("not asked")).unwrap();
        assert!(lazy.is_used());
        drop(in_use);
        assert!(!lazy.is_used());
        assert_eq!((lazy.take(), lazy.get()), (Some(Arc::new(7)), None));
        assert_eq!(lazy.get_or(|| Ok::<_, &str>(8)), Ok(Arc::new(8)));
        let in_use = lazy.get().unwrap();
        assert_eq!((lazy.replace(|| None), lazy.get()), (None, Some(Arc::new(8))));
        // A caller that is creating a value is not waited for.
        let within = || lazy.replace(|| panic!("two at the same time")).is_none().then_some(9);
        assert_eq!((lazy.replace(within), lazy.get()), (Some(Arc::new(9)), Some(Arc::new(9))));
        assert_eq!(*in_use, 8);
    }
}
