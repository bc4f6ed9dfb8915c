//! Addresses of objects: `s3://bucket/path/name`, `gs://...`, `az://...`, `memory://...`.

use bathyal_store::StoreError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest key in bytes that Amazon S3, Google and Azure allow.
pub(crate) const MOST_KEY_BYTES: usize = 1024;
/// The longest key of an index, to which a store appends at least `/records/` and 20 digits.
const MAX_INDEX_KEY_BYTES: usize = MOST_KEY_BYTES - 29;

/// The provider whose interface a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Amazon S3, or a compatible store.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// The memory of this process.
    Memory,
}

impl Provider {
    /// Returns its name in tier profiles and messages.
    pub fn name(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Gcs => "gs",
            Provider::Azure => "az",
            Provider::Memory => "memory",
        }
    }
}

/// The address of an index in an object store.
///
/// Names are taken byte for byte as typed: nothing is encoded or decoded, and no part of an address holds
/// options, so `?`, `#` and `%` are ordinary characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUrl {
    /// The provider of the store.
    pub provider: Provider,
    /// The scheme and the text between `://` and the first slash: `s3://bucket`.
    pub root: String,
    /// The names between the bucket and the last name.
    pub folder: Vec<String>,
    /// The last name, which is that of the index.
    pub name: String,
}

const KNOWN: &str = "s3://BUCKET/NAME, gs://BUCKET/NAME, az://CONTAINER/NAME, remote://HOST:PORT/NAME (or \
                     HOST:PORT,HOST:PORT), memory://NAME, or a folder of this machine";

impl ObjectUrl {
    /// Returns true if a path has the form of an address and not of a folder.
    pub fn is_url(path: &Path) -> bool {
        path.as_os_str().as_encoded_bytes().windows(3).any(|three| three == b"://")
    }

    /// Parses an address.
    ///
    /// # Errors
    /// [`StoreError::Address`] for unknown schemes, invalid buckets and names, and addresses that contain
    /// credentials.
    pub fn parse(path: &Path) -> Result<ObjectUrl, StoreError> {
        let refuse = |what: String| Err(StoreError::Address(what));
        let Some(text) = path.to_str() else {
            return refuse(format!("{}: is not UTF-8, but the keys of all stores are", path.display()));
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse(format!("{}: is not an address; write {KNOWN}", path.display()));
        };
        let provider = match scheme {
            "s3" | "s3a" => Provider::S3,
            "gs" => Provider::Gcs,
            "az" | "abfs" | "abfss" | "azure" | "adl" => Provider::Azure,
            "memory" => Provider::Memory,
            other => return refuse(format!("{other}://: is not a known kind of store; write {KNOWN}")),
        };
        let (host, names) = match provider {
            Provider::Memory => ("", rest),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        if host.contains(':') || (host.contains('@') && provider != Provider::Azure) {
            // The text is not repeated in the message, since it may contain a secret.
            return refuse(format!(
                "{scheme}://: an address cannot contain credentials or a port; put credentials into the \
                 environment or a profile, and give an endpoint as the store option endpoint=URL"
            ));
        }
        if host.is_empty() && provider != Provider::Memory {
            return refuse(format!("{}: has no bucket; write {scheme}://BUCKET/NAME", path.display()));
        }
        check_bucket(provider, host)
            .map_err(|reason| StoreError::Address(format!("{}: {reason}", path.display())))?;
        let names = names.strip_suffix('/').unwrap_or(names);
        let mut folder: Vec<String> = names.split('/').map(str::to_owned).collect();
        let name = folder.pop().unwrap_or_default();
        if names.is_empty() {
            return refuse(format!(
                "{}: is a bucket, not an index in it; write {scheme}://{host}/NAME",
                path.display()
            ));
        }
        check_key(names).map_err(|reason| StoreError::Address(format!("{}: {reason}", path.display())))?;
        Ok(ObjectUrl { provider, root: format!("{scheme}://{host}"), folder, name })
    }

    /// Returns the address of the folder that the index is in, as typed.
    pub fn folder_address(&self) -> PathBuf {
        let mut text = self.root.clone();
        for (i, name) in self.folder.iter().enumerate() {
            if i > 0 || self.provider != Provider::Memory {
                text.push('/');
            }
            text.push_str(name);
        }
        PathBuf::from(text)
    }
}

/// Returns an error if a bucket cannot have this name. The store's library would drop or change other
/// characters.
fn check_bucket(provider: Provider, host: &str) -> Result<(), String> {
    let more: &[u8] = if provider == Provider::Azure { b"-._@$" } else { b"-._" };
    let other = host
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || u8::try_from(*c).is_ok_and(|c| more.contains(&c))));
    match other {
        None => Ok(()),
        Some(other) => Err(format!(
            "the name of a bucket has letters, digits, '-', '.' and '_', but no {other:?}; give store \
             options separately, not in the address"
        )),
    }
}

/// Returns an error if the names of `path` cannot be the key of an index.
fn check_key(path: &str) -> Result<(), String> {
    for name in path.split('/') {
        if name.is_empty() {
            return Err("contains an empty name: it has two slashes in a row, or one too many at its \
                        beginning or end"
                .into());
        }
        if matches!(name, "." | "..") {
            return Err(format!(
                "contains the name '{name}', which stands for a folder and cannot be part of a key"
            ));
        }
        // Responses of stores are XML, which cannot contain these characters.
        let unfit = |c: &char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
        if let Some(control) = name.chars().find(unfit) {
            return Err(format!(
                "contains the control character {control:?}, which stores do not allow in keys"
            ));
        }
    }
    if path.len() > MAX_INDEX_KEY_BYTES {
        return Err(format!(
            "is too long: its key has {} bytes, and stores allow {MOST_KEY_BYTES} including those that its \
             files add; shorten the names",
            path.len()
        ));
    }
    Ok(())
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder_address();
        let separator = if folder.as_os_str() == "memory://" { "" } else { "/" };
        write!(formatter, "{}{separator}{}", folder.display(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed_alike() {
        for (text, root, folder, name) in [
            ("s3://bucket/my.index", "s3://bucket", vec![], "my.index"),
            ("s3://bucket/a/b c/my.index", "s3://bucket", vec!["a", "b c"], "my.index"),
            ("gs://bucket/x", "gs://bucket", vec![], "x"),
            (
                "abfss://container@account.dfs.core.windows.net/x",
                "abfss://container@account.dfs.core.windows.net",
                vec![],
                "x",
            ),
            ("memory://x", "memory://", vec![], "x"),
            ("memory://tests/x", "memory://", vec!["tests"], "x"),
        ] {
            let url = ObjectUrl::parse(Path::new(text)).expect(text);
            assert_eq!((url.root.as_str(), url.name.as_str()), (root, name));
            assert_eq!(url.folder, folder);
            assert_eq!(url.to_string(), text);
        }
        assert_eq!(ObjectUrl::parse(Path::new("s3://bucket/x/")).unwrap().name, "x");
    }

    #[test]
    fn invalid_addresses_are_refused_without_repeating_secrets() {
        for text in [
            "x",
            "ftp://x/y",
            "s3://",
            "s3://bucket",
            "s3://bucket/",
            "s3://bucket//x",
            "s3:///x",
            "s3://b/../x",
            "s3://b/a\nb",
        ] {
            let error = ObjectUrl::parse(Path::new(text)).expect_err(text);
            assert!(matches!(error, StoreError::Address(_)), "{error}");
        }
        for text in ["s3://KEY:SECRET@bucket/x", "s3://SECRET@bucket/x", "az://a:SECRET@b/x"] {
            let error = ObjectUrl::parse(Path::new(text)).expect_err(text).to_string();
            assert!(!error.contains("SECRET"), "{error}");
        }
    }
}
