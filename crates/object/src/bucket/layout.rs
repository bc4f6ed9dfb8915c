//! Which keys are what.
//!
//! ```text
//! FOLDER/NAME/records/18446744073709551614      the newest record sorts first
//! FOLDER/NAME/latest                             a copy of it, for those who come to read
//! FOLDER/NAME/<id>/<object>                      objects of the generation <id>
//! FOLDER/NAME/<id>/changes/<log>/<number>        pieces of a log
//! ```

use crate::connect::ObjectUrl;
use object_store::path::Path as Key;
use std::path::{Path, PathBuf};

const RECORDS: &str = "records";
const LATEST: &str = "latest";
const CHANGES: &str = "changes";

/// Whether a name is one that generations are given: anything else below an index may be an index of its own.
pub(super) fn is_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The keys of a folder of a bucket, and the paths by which people know them.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    folder: Key,
    address: PathBuf,
    root: String,
}

impl Layout {
    pub(super) fn new(url: &ObjectUrl) -> Layout {
        Layout { folder: url.folder_key(), address: url.folder_address(), root: url.root.clone() }
    }

    /// The folder's key.
    pub(super) fn folder(&self) -> &Key {
        &self.folder
    }

    /// The folder as people know it.
    pub(super) fn address(&self) -> &Path {
        &self.address
    }

    /// An index as people know it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match self.address.as_os_str().as_encoded_bytes() {
            b"memory://" => PathBuf::from(format!("memory://{name}")),
            _ => self.address.join(name),
        }
    }

    /// Any key as people know it.
    pub(super) fn path_of(&self, key: &Key) -> PathBuf {
        match self.root.ends_with('/') {
            true => PathBuf::from(format!("{}{key}", self.root)),
            false => PathBuf::from(format!("{}/{key}", self.root)),
        }
    }

    /// All that belongs to an index.
    pub(super) fn index(&self, name: &str) -> Key {
        self.folder.clone().join(name)
    }

    /// The records of an index.
    pub(super) fn records(&self, name: &str) -> Key {
        self.index(name).join(RECORDS)
    }

    /// The copy of the record that was published last.
    pub(super) fn latest(&self, name: &str) -> Key {
        self.index(name).join(LATEST)
    }

    /// Record number `number` of an index.
    pub(super) fn record(&self, name: &str, number: u64) -> Key {
        self.records(name).join(format!("{:020}", u64::MAX - number))
    }

    /// The objects of a generation.
    pub(super) fn generation(&self, name: &str, id: &str) -> Key {
        self.index(name).join(id)
    }

    /// The pieces of a log of a generation.
    pub(super) fn log(&self, name: &str, id: &str, log: &str) -> Key {
        self.generation(name, id).join(CHANGES).join(log)
    }

    /// Which generation a key of the index belongs to; `None` of records and of what is no part of one.
    pub(super) fn id_of(&self, name: &str, key: &Key) -> Option<String> {
        let mut parts = key.prefix_match(&self.index(name))?;
        let first = parts.next()?;
        parts.next()?;
        is_id(first.as_ref()).then(|| first.as_ref().to_owned())
    }
}
