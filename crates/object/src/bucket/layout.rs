//! The keys of an index in a bucket.
//!
//! ```text
//! FOLDER/NAME/records/18446744073709551614      the newest record sorts first
//! FOLDER/NAME/latest                             a copy of it, which saves readers a request
//! FOLDER/NAME/<id>/<object>                      objects of the generation <id>
//! FOLDER/NAME/<id>/changes/<log>/<number>        pieces of a log
//! ```

use crate::connect::ObjectUrl;
use object_store::path::{Path as Key, PathPart};
use std::path::{Path, PathBuf};

const RECORDS: &str = "records";
const LATEST: &str = "latest";
const CHANGES: &str = "changes";

/// Returns true if `name` has the form of a generation's id. Any other folder below an index may be an index
/// of its own.
pub(super) fn is_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the key of `name` in `folder`, byte for byte. Names were checked before; a name that is not a
/// valid key is encoded.
fn typed_key(folder: &Key, name: &str) -> Key {
    let text = if folder.is_root() { name.to_owned() } else { format!("{folder}/{name}") };
    match name.contains('/') {
        true => None,
        false => Key::parse(text).ok(),
    }
    .unwrap_or_else(|| folder.clone().join(name))
}

/// The spelling of names in keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// As typed, byte for byte.
    Typed,
    /// With `~ % ? # * [ ] | "` and others, and all characters outside ASCII, as `%` and two digits, as
    /// earlier versions wrote them.
    Encoded,
}

/// The keys of a folder of a bucket, and the addresses that messages show for them.
#[derive(Debug, Clone)]
pub(super) struct BucketLayout {
    spelling: Spelling,
    names: Vec<String>,
    folder: Key,
    address: PathBuf,
    root: String,
}

impl BucketLayout {
    /// Makes the layout of the folder of `url`, with names spelled as typed.
    pub(super) fn new(url: &ObjectUrl) -> BucketLayout {
        let address = url.folder_address();
        let folder = url.folder.iter().fold(Key::ROOT, |folder, name| typed_key(&folder, name));
        BucketLayout {
            spelling: Spelling::Typed,
            names: url.folder.clone(),
            folder,
            address,
            root: url.root.clone(),
        }
    }

    /// Returns the layout of the same folder with names in this spelling. Messages show the keys as they are.
    pub(super) fn with_spelling(&self, spelling: Spelling) -> BucketLayout {
        let below = |folder: Key, name: &String| match spelling {
            Spelling::Typed => typed_key(&folder, name),
            Spelling::Encoded => folder.join(name.as_str()),
        };
        let folder = self.names.iter().fold(Key::ROOT, below);
        let mut layout = BucketLayout { spelling, folder, ..self.clone() };
        layout.address = match layout.folder.is_root() {
            true => PathBuf::from(&layout.root),
            false => layout.path_of(&layout.folder),
        };
        layout
    }

    /// Returns the spelling of its names.
    pub(super) fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// Returns the layout of the folder `name` in this one.
    pub(super) fn subfolder(&self, name: &str) -> BucketLayout {
        let names = self.names.iter().cloned().chain([name.to_owned()]).collect();
        BucketLayout { names, folder: self.index(name), address: self.path(name), ..self.clone() }
    }

    /// Returns the name that the last part of a key in this folder was made from; `None` if no name gives
    /// that key.
    pub(super) fn name_of(&self, key: &Key) -> Option<String> {
        let last = key.filename()?;
        match self.spelling {
            Spelling::Typed => Some(last.to_owned()),
            Spelling::Encoded => {
                let name: String = Key::from_url_path(last).ok()?.into();
                (PathPart::from(name.as_str()).as_ref() == last).then_some(name)
            }
        }
    }

    /// Returns the folder's key.
    pub(super) fn folder(&self) -> &Key {
        &self.folder
    }

    /// Returns the folder's address, for messages.
    pub(super) fn address(&self) -> &Path {
        &self.address
    }

    /// Returns the address of an index, for messages.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self.spelling {
            Spelling::Typed => self.address.join(name),
            Spelling::Encoded => self.address.join(PathPart::from(name).as_ref()),
        }
    }

    /// Returns the address of a key, for messages.
    pub(super) fn path_of(&self, key: &Key) -> PathBuf {
        match self.root.ends_with('/') {
            true => PathBuf::from(format!("{}{key}", self.root)),
            false => PathBuf::from(format!("{}/{key}", self.root)),
        }
    }

    /// Returns the prefix of all keys of an index.
    pub(super) fn index(&self, name: &str) -> Key {
        match self.spelling {
            Spelling::Typed => typed_key(&self.folder, name),
            Spelling::Encoded => self.folder.clone().join(name),
        }
    }

    /// Returns the prefix of the records of an index.
    pub(super) fn records(&self, name: &str) -> Key {
        self.index(name).join(RECORDS)
    }

    /// Returns the key of the copy of the newest record.
    pub(super) fn latest(&self, name: &str) -> Key {
        self.index(name).join(LATEST)
    }

    /// Returns the key of record number `number` of an index.
    pub(super) fn record(&self, name: &str, number: u64) -> Key {
        self.records(name).join(format!("{:020}", u64::MAX - number))
    }

    /// Returns the prefix of the objects of a generation.
    pub(super) fn generation(&self, name: &str, id: &str) -> Key {
        self.index(name).join(id)
    }

    /// Returns the prefix of the pieces of a log of a generation.
    pub(super) fn log(&self, name: &str, id: &str, log: &str) -> Key {
        self.generation(name, id).join(CHANGES).join(log)
    }

    /// Returns the id of the generation that a key of the index belongs to; `None` for records and foreign
    /// keys.
    pub(super) fn id_of(&self, name: &str, key: &Key) -> Option<String> {
        let mut parts = key.prefix_match(&self.index(name))?;
        let first = parts.next()?;
        parts.next()?;
        is_id(first.as_ref()).then(|| first.as_ref().to_owned())
    }
}
