//! The folder of Bathyal's own files on this machine.

use crate::error::StoreError;
use std::path::PathBuf;

/// Returns Bathyal's folder within the user's cache folder. `option` is the store option that sets another
/// folder, for the message.
///
/// # Errors
/// [`StoreError::Address`] if neither XDG_CACHE_HOME nor HOME is an absolute path.
pub fn default_cache_folder(option: &str) -> Result<PathBuf, StoreError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| {
        StoreError::Address(format!(
            "this user has no home folder for cached files: set HOME, or give a folder as the store option \
             {option}"
        ))
    })?;
    Ok(cache.join("bathyal"))
}
