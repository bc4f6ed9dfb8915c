//! Where files of this program's own lie on this machine.

use crate::error::StoreError;
use std::path::PathBuf;

/// Bathyal's place in the user's cache folder; `option` names another one.
///
/// # Errors
/// [`StoreError::Address`] without a home.
pub fn usual_folder(option: &str) -> Result<PathBuf, StoreError> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        StoreError::Address(format!(
            "there is no folder of this user's to keep files in: set HOME, or name one as the store option {option}"
        ))
    })?;
    Ok(cache.join("bathyal"))
}
