//! What generations and objects may be called.

use crate::error::StoreError;

/// Refuses names that are paths, or hidden.
///
/// # Errors
/// [`StoreError::Name`].
pub fn check_name(name: &str) -> Result<(), StoreError> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(StoreError::Name { name: name.to_string() });
    }
    Ok(())
}
