//! Rules for the names of generations and objects.

use crate::error::StoreError;

/// Refuses names that are empty, begin with a dot, or contain a slash or a NUL.
///
/// # Errors
/// [`StoreError::Name`].
pub fn check_name(name: &str) -> Result<(), StoreError> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(StoreError::Name { name: name.to_string() });
    }
    Ok(())
}
