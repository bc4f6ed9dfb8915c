//! The keys of clients: a file that the server reads again when it changes.

use crate::failure::ServerError;
use crate::names::EntryName;
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// The shortest secret in a file of keys: shorter ones can be found by trying.
const MIN_SECRET_CHARACTERS: usize = 16;
/// The name of the first key.
const FIRST_KEY: &str = "admin";
/// The permissions that others may not have to a file of keys.
#[cfg(unix)]
const OTHERS: u32 = 0o077;

/// The rights of the owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Read and search.
    Read,
    /// Read, search, change, create and delete.
    Write,
}

/// A key of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The name of the key, for logs and for its owner.
    pub name: String,
    /// The secret that a client sends.
    pub secret: String,
    /// The right of its owner.
    pub right: Right,
    /// The beginning of the names of collections and indexes that it is for; empty means all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The second since 1970 at which it ends; `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// The content of a file of keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// The keys.
    #[serde(default, rename = "key")]
    pub keys: Vec<Key>,
}

/// A key without its secret.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) right: Right,
    pub(crate) prefix: String,
}

impl Grant {
    /// Returns true if the key has a right to the collection or index `name`.
    pub(crate) fn allows(&self, right: Right, name: &EntryName) -> bool {
        self.right >= right && name.as_str().starts_with(&self.prefix)
    }

    /// Returns true if the key may know that `name` exists.
    pub(crate) fn sees(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }
}

/// The reason why a secret is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretRefusal {
    Unknown,
    Expired,
}

impl Key {
    fn has_expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.expires.is_some_and(|end| end <= now)
    }

    fn grant(&self) -> Grant {
        Grant { name: self.name.clone(), right: self.right, prefix: self.prefix.clone() }
    }
}

impl Keys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// [`ServerError::File`]; [`ServerError::Content`] for a file that is malformed, that has no keys, or
    /// that other users of the machine can read.
    pub fn read(path: &Path) -> Result<Keys, ServerError> {
        let failed = |action| move |source| ServerError::File { path: path.to_path_buf(), action, source };
        let refuse = |reason: String| ServerError::Content { path: path.to_path_buf(), reason };
        check_permissions(path)?;
        let text = std::fs::read_to_string(path).map_err(failed("read the file of keys"))?;
        let keys: Keys = toml::from_str(&text).map_err(|error| refuse(error.message().to_owned()))?;
        if keys.keys.is_empty() {
            return Err(refuse("has no keys; remove the file, and the server makes a new one".into()));
        }
        for (at, key) in keys.keys.iter().enumerate() {
            let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_plain(&key.name) || !is_plain(&key.secret) {
                let reason = "a name and a secret consist of printable ASCII characters without spaces";
                return Err(refuse(format!("key number {}: {reason}", at + 1)));
            }
            if key.secret.len() < MIN_SECRET_CHARACTERS {
                return Err(refuse(format!(
                    "the secret of key {:?} is too short; it needs {MIN_SECRET_CHARACTERS} characters",
                    key.name
                )));
            }
            if keys.keys[..at].iter().any(|other| other.name == key.name) {
                return Err(refuse(format!("two keys have the name {:?}", key.name)));
            }
        }
        Ok(keys)
    }

    /// Reads a file of keys. If it does not exist, makes one with a new key that may do everything, and
    /// returns true.
    ///
    /// # Errors
    /// As [`Keys::read`].
    pub fn read_or_create(path: &Path) -> Result<(Keys, bool), ServerError> {
        if path.exists() {
            return Ok((Keys::read(path)?, false));
        }
        let failed = |action| move |source| ServerError::File { path: path.to_path_buf(), action, source };
        let mut random = [0; SECRET_BYTES];
        OsRng
            .try_fill_bytes(&mut random)
            .map_err(|error| failed("make a secret for")(std::io::Error::other(error)))?;
        let secret = hexadecimal(&random);
        let key =
            Key { name: FIRST_KEY.into(), secret, right: Right::Write, prefix: String::new(), expires: None };
        let keys = Keys { keys: vec![key] };
        let mut text = String::from("# Keys of clients. The server reads this file again when it changes.\n");
        for key in &keys.keys {
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "\n[[key]]\nname = \"{}\"\nsecret = \"{}\"\nright = \"write\"  # or \"read\"\n\
                 # prefix = \"team-\"       # only names that begin so\n\
                 # expires = 1798761600    # seconds since 1970\n",
                key.name, key.secret
            );
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed("make the folder of the file of keys"))?;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options.open(path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(failed("write the file of keys"))?;
        Ok((keys, true))
    }
}

/// Keys with the hashes of their secrets, by which they are found.
#[derive(Debug, Clone)]
pub(crate) struct KeyRing(Vec<HashedKey>);

#[derive(Debug, Clone)]
struct HashedKey {
    hash: [u8; 32],
    key: Key,
}

impl KeyRing {
    pub(crate) fn new(keys: Keys) -> KeyRing {
        let hashed = |key: Key| HashedKey { hash: Sha256::digest(key.secret.as_bytes()).into(), key };
        KeyRing(keys.keys.into_iter().map(hashed).collect())
    }

    /// Finds the key of a secret. The time does not depend on how much of a secret is right.
    pub(crate) fn find(&self, secret: &[u8]) -> Result<Grant, SecretRefusal> {
        let given = Sha256::digest(secret);
        let mut found = None;
        for HashedKey { hash, key } in &self.0 {
            if bool::from(hash.as_slice().ct_eq(given.as_slice())) {
                found = Some(key);
            }
        }
        let key = found.ok_or(SecretRefusal::Unknown)?;
        if key.has_expired() {
            return Err(SecretRefusal::Expired);
        }
        Ok(key.grant())
    }

    /// Returns the rights and the secret of the key with this name, if it is valid now.
    pub(crate) fn named(&self, name: &str) -> Option<(Grant, String)> {
        let key = self.0.iter().map(|hashed| &hashed.key).find(|key| key.name == name)?;
        (!key.has_expired()).then(|| (key.grant(), key.secret.clone()))
    }
}

/// Returns the file of keys of this user: `bathyal/keys.toml` in the folder of configuration.
///
/// # Errors
/// [`ServerError::Option`] if the environment names no such folder.
pub fn default_keys_file() -> Result<PathBuf, ServerError> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let advice =
        "there is no folder for the file of keys: neither XDG_CONFIG_HOME nor HOME is set; give --keys";
    folder
        .map(|folder| folder.join("bathyal").join("keys.toml"))
        .ok_or_else(|| ServerError::Option(advice.into()))
}

/// Refuses a file that other users of the machine can read.
#[cfg(unix)]
fn check_permissions(path: &Path) -> Result<(), ServerError> {
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::metadata(path).map_err(|source| ServerError::File {
        path: path.to_path_buf(),
        action: "find the file of keys",
        source,
    })?;
    if !found.is_file() {
        // Reading a pipe would wait for ever.
        let reason = "is a folder, a pipe or a device; name a file of keys".into();
        return Err(ServerError::Content { path: path.to_path_buf(), reason });
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        let path = path.to_path_buf();
        let reason = format!("other users can read these keys (mode {mode:o}); run `chmod 600` on the file");
        return Err(ServerError::Content { path, reason });
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_permissions(_: &Path) -> Result<(), ServerError> {
    Ok(())
}

/// Writes bytes in hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Result<Keys, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        std::fs::write(&path, text).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        Keys::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_first_key_is_made_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/keys.toml");
        let (made, is_new) = Keys::read_or_create(&path).unwrap();
        assert!(is_new && made.keys[0].secret.len() == 2 * SECRET_BYTES);
        let (read, is_new) = Keys::read_or_create(&path).unwrap();
        assert!(!is_new);
        let read = KeyRing::new(read);
        let grant = read.find(made.keys[0].secret.as_bytes()).unwrap();
        assert!(grant.allows(Right::Write, &"any".parse().unwrap()));
        assert_eq!(read.find(b"").unwrap_err(), SecretRefusal::Unknown);
        assert_eq!(read.find(&made.keys[0].secret.as_bytes()[1..]).unwrap_err(), SecretRefusal::Unknown);
    }

    #[test]
    fn keys_are_for_names_and_for_a_time() {
        let keys = keys(
            "[[key]]\nname = \"a\"\nsecret = \"0123456789abcdef\"\nright = \"read\"\nprefix = \"team-\"\n\
             [[key]]\nname = \"b\"\nsecret = \"0123456789abcdeg\"\nright = \"write\"\nexpires = 5\n",
        );
        let keys = KeyRing::new(keys.unwrap());
        let grant = keys.find(b"0123456789abcdef").unwrap();
        assert!(grant.allows(Right::Read, &"team-x".parse().unwrap()));
        assert!(!grant.allows(Right::Write, &"team-x".parse().unwrap()));
        assert!(!grant.allows(Right::Read, &"other".parse().unwrap()));
        assert!(grant.sees("team-y") && !grant.sees("tea"));
        assert_eq!(keys.find(b"0123456789abcdeg").unwrap_err(), SecretRefusal::Expired);
    }

    #[test]
    fn files_that_give_no_safety_are_refused() {
        let secret = "secret = \"0123456789abcdef\"\nright = \"read\"\n";
        for (text, reason) in [
            (String::new(), "has no keys"),
            ("[[key]]\nname = \"a\"\nsecret = \"short\"\nright = \"read\"\n".into(), "too short"),
            (format!("[[key]]\nname = \"a b\"\n{secret}"), "printable"),
            (format!("[[key]]\nname = \"a\"\n{secret}[[key]]\nname = \"a\"\n{secret}"), "two keys"),
            (format!("[[key]]\nname = \"a\"\nrights = 1\n{secret}"), "unknown field"),
        ] {
            let error = keys(&text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_in_anything_but_a_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), Path::new("/dev/null")] {
            let error = Keys::read(path).unwrap_err().to_string();
            assert!(error.contains("name a file of keys"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn keys_that_others_can_read_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        Keys::read_or_create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Keys::read(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
}
