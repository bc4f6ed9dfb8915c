//! Memory for much at once, which the system may refuse: as much as a set, or as a manifest says, needs.

use crate::error::IndexError;

/// Room for `count` values of `what`, none of which is there yet.
///
/// # Errors
/// [`IndexError::NoMemory`].
pub(crate) fn room<T>(what: &'static str, count: usize) -> Result<Vec<T>, IndexError> {
    let mut values = Vec::new();
    match values.try_reserve_exact(count) {
        Ok(()) => Ok(values),
        Err(_) => {
            let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
            Err(IndexError::NoMemory { what, bytes })
        }
    }
}

/// `count` zeros of `what`.
///
/// # Errors
/// As [`room`].
pub(crate) fn zeros<T: Default + Clone>(what: &'static str, count: usize) -> Result<Vec<T>, IndexError> {
    let mut values = room(what, count)?;
    values.resize(count, T::default());
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused() {
        for count in [usize::MAX, isize::MAX as usize / 8, 1 << 58] {
            let refused = zeros::<u64>("a test", count).unwrap_err();
            assert!(matches!(refused, IndexError::NoMemory { what: "a test", .. }), "{refused}");
        }
        assert_eq!(zeros::<u32>("a test", 3).unwrap(), [0; 3]);
    }
}
