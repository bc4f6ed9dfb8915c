//! Memory for much at once, which the system may refuse: as much as a set, or as a manifest says, needs.

use crate::error::NoMemory;

/// Room for `count` values of `what`, none of which is there yet.
///
/// # Errors
/// [`NoMemory`].
pub(crate) fn try_with_capacity<T>(what: &'static str, count: usize) -> Result<Vec<T>, NoMemory> {
    let mut values = Vec::new();
    match values.try_reserve_exact(count) {
        Ok(()) => Ok(values),
        Err(_) => {
            let bytes = (count as u64).saturating_mul(size_of::<T>() as u64);
            Err(NoMemory { what, bytes })
        }
    }
}

/// `count` zeros of `what`.
///
/// # Errors
/// As [`try_with_capacity`].
pub(crate) fn try_zeros<T: Default + Clone>(what: &'static str, count: usize) -> Result<Vec<T>, NoMemory> {
    let mut values = try_with_capacity(what, count)?;
    values.resize(count, T::default());
    Ok(values)
}

/// All that `values` gives, of which it knows how many there are.
///
/// # Errors
/// As [`try_with_capacity`].
pub(crate) fn try_collect<T>(
    what: &'static str,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, NoMemory> {
    let mut held = try_with_capacity(what, values.len())?;
    held.extend(values);
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{IndexError, Unreadable};

    #[test]
    fn what_no_machine_has_is_refused() {
        for count in [usize::MAX, isize::MAX as usize / 8, 1 << 58] {
            let refused = try_zeros::<u64>("a test", count).unwrap_err();
            assert_eq!(refused.what, "a test");
            let refused = try_collect("a test", (0..count).map(|i| i as u64)).unwrap_err();
            let error = Unreadable::from(refused).at("table.bin", "a table");
            assert!(matches!(error, IndexError::NoMemory { what: "a test", .. }), "{error}");
        }
        assert_eq!(try_zeros::<u32>("a test", 3).unwrap(), [0; 3]);
        assert_eq!(try_collect("a test", [1, 2].into_iter()).unwrap(), [1, 2]);
    }

    #[test]
    fn what_is_damaged_names_its_file() {
        let error = Unreadable::from("it ends too early").at("table.bin", "a table").to_string();
        assert!(error.contains("table.bin") && error.contains("it ends too early"), "{error}");
    }
}
