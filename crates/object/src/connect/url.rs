//! Addresses of objects: `s3://bucket/path/name`, `gs://...`, `az://...`, `memory://...`.

use bathyal_store::StoreError;
use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes of a key: what Amazon S3, Google and Azure take at most.
pub(crate) const MOST_KEY_BYTES: usize = 1024;
/// Bytes of the key of an index of which a store may have anything: `/records/` and 20 digits follow.
const MOST_INDEX_BYTES: usize = MOST_KEY_BYTES - 29;

/// Whose interface a store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Amazon S3, or what is compatible with it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// The memory of this process.
    Memory,
}

impl Provider {
    /// Its name in profiles and messages.
    pub fn name(self) -> &'static str {
        match self {
            Provider::S3 => "s3",
            Provider::Gcs => "gs",
            Provider::Azure => "az",
            Provider::Memory => "memory",
        }
    }
}

/// Where an index is in an object store.
///
/// Names are byte for byte what was typed: nothing is encoded or decoded, and no part of an address holds options, so `?`, `#`
/// and `%` are letters like others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectUrl {
    /// Whose interface is spoken.
    pub provider: Provider,
    /// The scheme and what stands between `://` and the first slash: `s3://bucket`.
    pub root: String,
    /// The names between the bucket and the last one.
    pub folder: Vec<String>,
    /// The last name: the index.
    pub name: String,
}

const KNOWN: &str = "s3://BUCKET/NAME, gs://BUCKET/NAME, az://CONTAINER/NAME, remote://HOST:PORT/NAME (or HOST:PORT,HOST:PORT), \
     memory://NAME, or a folder of this machine";

impl ObjectUrl {
    /// Whether a path is meant as an address and not as a folder.
    pub fn is_url(path: &Path) -> bool {
        path.as_os_str().as_encoded_bytes().windows(3).any(|three| three == b"://")
    }

    /// Reads an address.
    ///
    /// # Errors
    /// [`StoreError::Address`] for schemes that are not known, buckets and names that none can have, and addresses with
    /// credentials in them.
    pub fn parse(path: &Path) -> Result<ObjectUrl, StoreError> {
        let refuse = |what: String| Err(StoreError::Address(what));
        let Some(text) = path.to_str() else {
            return refuse(format!("{}: is not UTF-8, as the keys of every store are", path.display()));
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse(format!("{}: is no address; it is one of {KNOWN}", path.display()));
        };
        let provider = match scheme {
            "s3" | "s3a" => Provider::S3,
            "gs" => Provider::Gcs,
            "az" | "abfs" | "abfss" | "azure" | "adl" => Provider::Azure,
            "memory" => Provider::Memory,
            other => return refuse(format!("{other}://: is no store that is known; it is one of {KNOWN}")),
        };
        let (host, names) = match provider {
            Provider::Memory => ("", rest),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        if host.contains(':') || (host.contains('@') && provider != Provider::Azure) {
            // Not repeated: what stands there may be a secret.
            return refuse(format!(
                "{scheme}://: an address has no credentials and no port in it; name credentials in the environment or in a \
                 profile, and an endpoint as the store option endpoint=URL"
            ));
        }
        if host.is_empty() && provider != Provider::Memory {
            return refuse(format!("{}: names no bucket: {scheme}://BUCKET/NAME", path.display()));
        }
        check_bucket(provider, host)
            .map_err(|reason| StoreError::Address(format!("{}: {reason}", path.display())))?;
        let names = names.strip_suffix('/').unwrap_or(names);
        let mut folder: Vec<String> = names.split('/').map(str::to_owned).collect();
        let name = folder.pop().unwrap_or_default();
        if names.is_empty() {
            return refuse(format!(
                "{}: names a bucket, not an index in it: {scheme}://{host}/NAME",
                path.display()
            ));
        }
        check_key(names).map_err(|reason| StoreError::Address(format!("{}: {reason}", path.display())))?;
        Ok(ObjectUrl { provider, root: format!("{scheme}://{host}"), folder, name })
    }

    /// The folder that the index is in, as it is typed.
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

/// Why a bucket cannot have this name. The store's library would drop or change the other characters.
fn check_bucket(provider: Provider, host: &str) -> Result<(), String> {
    let more: &[u8] = if provider == Provider::Azure { b"-._@$" } else { b"-._" };
    let other = host
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || u8::try_from(*c).is_ok_and(|c| more.contains(&c))));
    match other {
        None => Ok(()),
        Some(other) => Err(format!(
            "a bucket has letters, digits, '-', '.' and '_' in its name, and no {other:?}; options of a store are given beside \
             the address, not in it"
        )),
    }
}

/// Why no index can have the names of `path` as its key.
fn check_key(path: &str) -> Result<(), String> {
    for name in path.split('/') {
        if name.is_empty() {
            return Err("has an empty name in it: two slashes follow each other, or it begins or ends with one too many".into());
        }
        if matches!(name, "." | "..") {
            return Err(format!(
                "has the name '{name}' in it, which would mean a folder and is no part of a key"
            ));
        }
        // Answers of stores are XML, which has no such characters.
        let unfit = |c: &char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
        if let Some(control) = name.chars().find(unfit) {
            return Err(format!(
                "has the control character {control:?} in it, which stores do not take in keys"
            ));
        }
    }
    if path.len() > MOST_INDEX_BYTES {
        return Err(format!(
            "is too long: its key has {} bytes, and stores take {MOST_KEY_BYTES} with what its files add; shorten the names",
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
    fn addresses_are_read_and_written_alike() {
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
    fn what_is_no_address_is_refused_and_secrets_are_not_repeated() {
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
