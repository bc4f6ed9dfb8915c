//! A draft of a generation in a bucket. It is a local folder until it is complete; then it is uploaded and
//! published.

use super::BucketStore;
use super::generation::BucketObject;
use super::layout::Spelling;
use super::record::{GenerationRecord, SMALL_BYTES, fresh_id};
use super::upload::{Upload, UploadJournal, UploadSource};
use crate::client::Version;
use crate::runtime::wait_for;
use crate::tier;
use bathyal_store::check_name;
use bathyal_store::{
    Append, CancelScope, Draft, DraftExt, Generation, GenerationExt, Object, ObjectExt, ProgressFn, Replace,
    StoreError,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time for removing the uploaded objects of a dropped draft; what is left then is removed by a
/// prune.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The local object that lists what was uploaded to the bucket.
const JOURNAL: &str = "upload";

/// The longest name in bytes that a file system accepts with the suffix of a draft's folder.
const MAX_NAME_BYTES: usize = 160;

/// Returns the name of the drafts of `name` on this machine, where names are shorter than keys can be.
pub(super) fn scratch_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let is_boundary = |at: &usize| name.is_char_boundary(*at);
    let begin = (0..=MAX_NAME_BYTES - 17).rev().find(is_boundary).unwrap_or(0);
    Cow::Owned(format!("{}-{:016x}", &name[..begin], xxhash_rust::xxh3::xxh3_64(name.as_bytes())))
}

/// A draft of a generation in a bucket.
#[derive(Debug)]
pub(super) struct BucketDraft {
    store: BucketStore,
    name: String,
    path: PathBuf,
    replace: Replace,
    /// The local draft; `None` once the draft is kept for a later process.
    local: Option<Box<dyn Draft>>,
    journal: Mutex<UploadJournal>,
    /// The note of a draft whose writer was killed while it was published.
    sealed: Option<String>,
    /// True once it was published or kept.
    ended: bool,
}

impl BucketDraft {
    /// Makes the draft over the local draft `local`. Objects that were already uploaded keep their keys, and
    /// with them the spelling of the name.
    pub(super) fn new(
        store: BucketStore,
        name: &str,
        replace: Replace,
        local: Box<dyn Draft>,
    ) -> BucketDraft {
        let found =
            local.read(JOURNAL).ok().and_then(|bytes| serde_json::from_slice::<UploadJournal>(&bytes).ok());
        let sealed = found.as_ref().and_then(|journal| journal.note.clone());
        let store = match &found {
            Some(journal) if !journal.is_empty() => store.with_spelling(journal.spelling()),
            _ => store.with_spelling(store.layout.spelling()),
        };
        let mut journal = found.unwrap_or_else(|| UploadJournal::new(fresh_id()));
        journal.set_spelling(store.layout.spelling());
        let path = store.layout.path(name);
        BucketDraft {
            store,
            name: name.to_owned(),
            path,
            replace,
            local: Some(local),
            journal: Mutex::new(journal),
            sealed,
            ended: false,
        }
    }

    /// Returns the spelling of its name in keys.
    pub(super) fn spelling(&self) -> Spelling {
        self.store.layout.spelling()
    }

    fn local(&self) -> Result<&dyn Draft, StoreError> {
        let missing = || StoreError::Missing { what: "draft", path: self.path.clone() };
        self.local.as_deref().ok_or_else(missing)
    }

    /// Removes the uploaded objects from the bucket, as far as that is done within [`REMOVAL_TIMEOUT`], so
    /// that Ctrl-C does not wait long.
    fn remove_uploaded(&self) -> Result<(), StoreError> {
        let journal = self.journal().clone();
        if journal.is_empty() {
            return Ok(());
        }
        let prefix = self.store.layout.generation(&self.name, &journal.id);
        let BucketStore { client, traffic, .. } = &self.store;
        let upload = Upload { client, prefix: prefix.clone(), path: &self.path, traffic };
        // The thread's cancellation flag may already be set; it must not cancel the removal.
        let _no_cancellation = CancelScope::new(None);
        let remove_uploaded = async {
            upload.abort(&journal).await?;
            let listed = client.list(&prefix, traffic).await?;
            client.delete(listed.into_iter().map(|object| object.location).collect(), traffic).await
        };
        let removed = wait_for(async { tokio::time::timeout(REMOVAL_TIMEOUT, remove_uploaded).await })?;
        removed.unwrap_or(Ok(())).map_err(|fault| fault.error("remove the unfinished upload of", &self.path))
    }

    fn journal(&self) -> MutexGuard<'_, UploadJournal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save_journal(&self, journal: &UploadJournal) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(journal)
            .map_err(|e| StoreError::io("write", self.path.join(JOURNAL), std::io::Error::other(e)))?;
        self.local()?.replace(JOURNAL, &bytes)
    }

    /// Uploads those of the objects `names` of `from` that are too large for a record.
    fn upload_large(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<(), StoreError> {
        let mut sources = Vec::new();
        for name in names {
            check_name(name)?;
            let object = from.get(name)?;
            if object.len() > SMALL_BYTES {
                sources.push(UploadSource { name: (*name).to_owned(), object });
            }
        }
        let prefix = self.store.layout.generation(&self.name, &self.journal().id);
        let upload =
            Upload { client: &self.store.client, prefix, path: &self.path, traffic: &self.store.traffic };
        let mut journal = self.journal().clone();
        let result = upload.run(&sources, &mut journal, progress, &mut |journal| self.save_journal(journal));
        *self.journal() = journal;
        result
    }

    /// Copies an object that is too small to be uploaded into the local draft. Returns the checksum of the
    /// object, copied or uploaded.
    fn copy_small(&self, from: &dyn Generation, name: &str) -> Result<u32, StoreError> {
        if let Some(checksum) = self.journal().checksum(name) {
            return Ok(checksum);
        }
        let bytes = from.get(name)?.read_all()?;
        self.local()?.put(name, &bytes)?;
        Ok(crc32c::crc32c(&bytes))
    }

    /// Makes the record of the objects `names`; the large ones must be uploaded.
    fn record(&self, names: &[&str]) -> Result<GenerationRecord, StoreError> {
        let journal = self.journal();
        let mut record = GenerationRecord::new(journal.id.clone());
        for name in names {
            if let Some(entry) = journal.uploaded(name) {
                record.objects.insert((*name).to_owned(), entry);
                continue;
            }
            let bytes = self.local()?.read(name)?;
            record.add_small(name, &bytes);
        }
        Ok(record)
    }

    /// Returns the small objects that do not fit into the record together with the others.
    fn overflowing<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let mut record = GenerationRecord::new(String::new());
        let mut overflowing = Vec::new();
        for name in names {
            let Some(len) =
                self.local().ok().and_then(|local| local.len_of(name)).filter(|len| *len <= SMALL_BYTES)
            else {
                continue;
            };
            if record.fits(len) {
                record.add_small(name, &vec![0; len as usize]);
            } else {
                overflowing.push(*name);
            }
        }
        overflowing
    }
}

impl Generation for BucketDraft {
    fn address(&self) -> &Path {
        self.local.as_deref().map_or(&self.path, |local| local.address())
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.local()?.list()?;
        names.retain(|name| name != JOURNAL);
        Ok(names)
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let uploaded = self.journal().uploaded(name);
        match (self.local()?.get(name), uploaded) {
            (Err(StoreError::Missing { .. }), Some(entry)) => {
                let source = tier::ObjectSource {
                    client: self.store.client.clone(),
                    key: self.store.layout.generation(&self.name, &self.journal().id).join(name),
                    len: entry.bytes,
                    version: Arc::new(Version::recorded(entry.etag, entry.bytes)),
                    cached: None,
                    traffic: self.store.traffic.clone(),
                };
                Ok(Arc::new(BucketObject::new(None, self.path.join(name), source)))
            }
            (found, _) => found,
        }
    }
}

impl Draft for BucketDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        check_name(name)?;
        self.local()?.append(name, from)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_name(name)?;
        self.local()?.replace(name, bytes)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.local()?.delete(name)
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.upload_large(from, names, progress)?;
        names.iter().map(|name| self.copy_small(from, name)).collect()
    }

    fn upload(&self, names: &[&str], note: &str, progress: &ProgressFn<'_>) -> Result<(), StoreError> {
        let mut journal = self.journal().clone();
        journal.note = Some(note.to_owned());
        self.save_journal(&journal)?;
        *self.journal() = journal;
        let not_uploaded: Vec<&str> =
            names.iter().copied().filter(|name| self.journal().uploaded(name).is_none()).collect();
        self.upload_large(self.local()?, &not_uploaded, progress)
    }

    fn publication_note(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    fn publish(mut self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        let record = match self.prepare(names, note) {
            // A later process can continue the upload.
            Err(error) if error.is_remote() => {
                self.leave()?;
                return Err(error);
            }
            prepared => prepared?,
        };
        let published = self.store.publish(&self.name, record, self.replace);
        match &published {
            Ok(()) => self.ended = true,
            // Another generation has the name, so this one will never be read and is removed.
            Err(StoreError::Exists { .. }) => {}
            // The record may exist although its creation failed, so the objects that it names are kept.
            Err(_) => self.leave()?,
        }
        published
    }

    fn leave(mut self: Box<Self>) -> Result<(), StoreError> {
        self.ended = true;
        self.local.take().map_or(Ok(()), Draft::leave)
    }
}

impl BucketDraft {
    /// Uploads the objects that are not in the bucket yet, and makes the record.
    fn prepare(&self, names: &[&str], note: &str) -> Result<GenerationRecord, StoreError> {
        if !names.contains(&self.store.mark) {
            let path = self.path.join(self.store.mark);
            return Err(StoreError::Missing { what: "file", path });
        }
        for name in names {
            check_name(name)?;
            if self.journal().uploaded(name).is_none() {
                self.local()?.get(name)?;
            }
        }
        self.upload(names, note, &|_, _| true)?;
        let overflowing = self.overflowing(names);
        if !overflowing.is_empty() {
            let prefix = self.store.layout.generation(&self.name, &self.journal().id);
            let upload =
                Upload { client: &self.store.client, prefix, path: &self.path, traffic: &self.store.traffic };
            let mut journal = self.journal().clone();
            let get =
                |name: &&str| Ok(UploadSource { name: (*name).to_owned(), object: self.local()?.get(name)? });
            let sources = overflowing.iter().map(get).collect::<Result<Vec<_>, StoreError>>()?;
            upload.run(&sources, &mut journal, &|_, _| true, &mut |journal| self.save_journal(journal))?;
            *self.journal() = journal;
        }
        self.check_uploaded()?;
        self.record(names)
    }

    /// Checks that all uploaded objects still exist: a prune with a short retention removes unpublished
    /// objects.
    fn check_uploaded(&self) -> Result<(), StoreError> {
        let mut journal = self.journal().clone();
        if journal.is_empty() {
            return Ok(());
        }
        let prefix = self.store.layout.generation(&self.name, &journal.id);
        let listed = wait_for(self.store.client.list(&prefix, &self.store.traffic))?;
        let listed = listed.map_err(|fault| fault.error("publish", &self.path))?;
        let exists = |name: &str, bytes: u64| {
            listed.iter().any(|object| object.location.filename() == Some(name) && object.size == bytes)
        };
        let Some(missing) = journal.remove_missing(exists) else { return Ok(()) };
        self.save_journal(&journal)?;
        *self.journal() = journal;
        let reason = "it was removed before it was published: by a prune that keeps too little, or by a rule \
                      of the bucket";
        let path = self.path.join(missing);
        Err(StoreError::Remote { operation: "publish", path, reason: reason.into() })
    }
}

impl Drop for BucketDraft {
    fn drop(&mut self) {
        if !self.ended {
            // The uploaded objects will not be published. If their removal fails, a prune removes them later.
            let _ = self.remove_uploaded();
        }
    }
}
