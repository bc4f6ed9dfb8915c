//! A draft of a generation in a bucket: it lies in a folder of this machine until it is whole, and is then brought to the
//! bucket and given its name.

use super::BucketStore;
use super::generation::BucketObject;
use super::layout::Spelling;
use super::record::{Record, SMALL_BYTES, fresh_id};
use super::upload::{Journal, Source, Upload};
use crate::client::Version;
use crate::runtime::wait_for;
use crate::tier;
use bathyal_store::check_name;
use bathyal_store::{
    Append, Attend, Cancelling, Draft, DraftExt, Generation, GenerationExt, Object, ObjectExt, Replace,
    StoreError,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time for removing what nobody will publish; what is left then is pruned some day.
const TAKE_BACK_TIME: Duration = Duration::from_secs(2);
/// The local object that says what was brought to the bucket.
const JOURNAL: &str = "upload";

/// Bytes of a name that a file system takes together with what the folder of a draft adds.
const MOST_NAME_BYTES: usize = 160;

/// What the drafts of `name` are called on this machine, where names are shorter than keys can be.
pub(super) fn scratch_name(name: &str) -> Cow<'_, str> {
    if name.len() <= MOST_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let whole = |at: &usize| name.is_char_boundary(*at);
    let begin = (0..=MOST_NAME_BYTES - 17).rev().find(whole).unwrap_or(0);
    Cow::Owned(format!("{}-{:016x}", &name[..begin], xxhash_rust::xxh3::xxh3_64(name.as_bytes())))
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct BucketDraft {
    store: BucketStore,
    name: String,
    path: PathBuf,
    replace: Replace,
    /// Gone once it is left.
    local: Option<Box<dyn Draft>>,
    journal: Mutex<Journal>,
    /// The note of one whose writer was killed while it was published.
    sealed: Option<String>,
    /// Whether it was published or left.
    ended: bool,
}

impl BucketDraft {
    /// On what lies in `local`. What was brought already stays where it is: its keys say how the name is spelled.
    pub(super) fn new(
        store: BucketStore,
        name: &str,
        replace: Replace,
        local: Box<dyn Draft>,
    ) -> BucketDraft {
        let found = local.read(JOURNAL).ok().and_then(|bytes| serde_json::from_slice::<Journal>(&bytes).ok());
        let sealed = found.as_ref().and_then(|journal| journal.note.clone());
        let store = match &found {
            Some(journal) if !journal.is_empty() => store.spelled(journal.spelling()),
            _ => store.spelled(store.layout.spelling()),
        };
        let mut journal = found.unwrap_or_else(|| Journal::new(fresh_id()));
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

    /// How its name becomes keys.
    pub(super) fn spelling(&self) -> Spelling {
        self.store.layout.spelling()
    }

    fn local(&self) -> Result<&dyn Draft, StoreError> {
        let gone = || StoreError::Missing { what: "draft", path: self.path.clone() };
        self.local.as_deref().ok_or_else(gone)
    }

    /// Removes from the bucket what was brought there, as far as that is done soon: Ctrl-C does not wait for it.
    fn take_back(&self) -> Result<(), StoreError> {
        let journal = self.journal().clone();
        if journal.is_empty() {
            return Ok(());
        }
        let prefix = self.store.layout.generation(&self.name, &journal.id);
        let BucketStore { client, traffic, .. } = &self.store;
        let upload = Upload { client, prefix: prefix.clone(), path: &self.path, traffic };
        // Whoever gave up has raised the flag already.
        let _patient = Cancelling::by(None);
        let take_back = async {
            upload.abort(&journal).await?;
            let listed = client.list(&prefix, traffic).await?;
            client.delete(listed.into_iter().map(|object| object.location).collect(), traffic).await
        };
        let taken_back = wait_for(async { tokio::time::timeout(TAKE_BACK_TIME, take_back).await })?;
        taken_back.unwrap_or(Ok(())).map_err(|fault| fault.error("take back", &self.path))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, journal: &Journal) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(journal)
            .map_err(|e| StoreError::io("write", self.path.join(JOURNAL), std::io::Error::other(e)))?;
        self.local()?.replace(JOURNAL, &bytes)
    }

    /// Brings those of the objects `names` of `from` to the bucket that are too large for a record.
    fn bring(&self, from: &dyn Generation, names: &[&str], attend: &Attend<'_>) -> Result<(), StoreError> {
        let mut sources = Vec::new();
        for name in names {
            check_name(name)?;
            let object = from.get(name)?;
            if object.len() > SMALL_BYTES {
                sources.push(Source { name: (*name).to_owned(), object });
            }
        }
        let prefix = self.store.layout.generation(&self.name, &self.journal().id);
        let upload =
            Upload { client: &self.store.client, prefix, path: &self.path, traffic: &self.store.traffic };
        let mut journal = self.journal().clone();
        let result = upload.run(&sources, &mut journal, attend, &mut |journal| self.keep(journal));
        *self.journal() = journal;
        result
    }

    /// Copies an object that is too small to be brought to where drafts lie. Returns the checksum of whatever was taken over.
    fn keep_small(&self, from: &dyn Generation, name: &str) -> Result<u32, StoreError> {
        if let Some(checksum) = self.journal().checksum(name) {
            return Ok(checksum);
        }
        let bytes = from.get(name)?.read_all()?;
        self.local()?.put(name, &bytes)?;
        Ok(crc32c::crc32c(&bytes))
    }

    /// The record of the objects `names`, all of which were brought.
    fn record(&self, names: &[&str]) -> Result<Record, StoreError> {
        let journal = self.journal();
        let mut record = Record::new(journal.id.clone());
        for name in names {
            if let Some(entry) = journal.brought(name) {
                record.objects.insert((*name).to_owned(), entry);
                continue;
            }
            let bytes = self.local()?.read(name)?;
            record.add_small(name, &bytes);
        }
        Ok(record)
    }

    /// Those of the objects that do not fit into the record, although they are small.
    fn crowded<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        let mut record = Record::new(String::new());
        let mut crowded = Vec::new();
        for name in names {
            let Some(len) =
                self.local().ok().and_then(|local| local.len_of(name)).filter(|len| *len <= SMALL_BYTES)
            else {
                continue;
            };
            if record.has_room(len) {
                record.add_small(name, &vec![0; len as usize]);
            } else {
                crowded.push(*name);
            }
        }
        crowded
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
        let brought = self.journal().brought(name);
        match (self.local()?.get(name), brought) {
            (Err(StoreError::Missing { .. }), Some(entry)) => {
                let source = tier::Source {
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
        attend: &Attend<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        self.bring(from, names, attend)?;
        names.iter().map(|name| self.keep_small(from, name)).collect()
    }

    fn upload(&self, names: &[&str], note: &str, attend: &Attend<'_>) -> Result<(), StoreError> {
        let mut journal = self.journal().clone();
        journal.note = Some(note.to_owned());
        self.keep(&journal)?;
        *self.journal() = journal;
        let here: Vec<&str> =
            names.iter().copied().filter(|name| self.journal().brought(name).is_none()).collect();
        self.bring(self.local()?, &here, attend)
    }

    fn sealed(&self) -> Option<&str> {
        self.sealed.as_deref()
    }

    fn publish(mut self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        let record = match self.prepare(names, note) {
            // Whoever goes on finds it.
            Err(error) if error.is_of_elsewhere() => {
                self.leave()?;
                return Err(error);
            }
            prepared => prepared?,
        };
        let published = self.store.publish(&self.name, record, self.replace);
        match &published {
            Ok(()) => self.ended = true,
            // It is another one that stands there, so nobody will ever read this one.
            Err(StoreError::Exists { .. }) => {}
            // The record may be there all the same: nothing that it names is taken away.
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
    /// Brings what is not in the bucket yet, and makes the record.
    fn prepare(&self, names: &[&str], note: &str) -> Result<Record, StoreError> {
        if !names.contains(&self.store.mark) {
            let path = self.path.join(self.store.mark);
            return Err(StoreError::Missing { what: "file", path });
        }
        for name in names {
            check_name(name)?;
            if self.journal().brought(name).is_none() {
                self.local()?.get(name)?;
            }
        }
        self.upload(names, note, &|_, _| true)?;
        let crowded = self.crowded(names);
        if !crowded.is_empty() {
            let prefix = self.store.layout.generation(&self.name, &self.journal().id);
            let upload =
                Upload { client: &self.store.client, prefix, path: &self.path, traffic: &self.store.traffic };
            let mut journal = self.journal().clone();
            let get = |name: &&str| Ok(Source { name: (*name).to_owned(), object: self.local()?.get(name)? });
            let sources = crowded.iter().map(get).collect::<Result<Vec<_>, StoreError>>()?;
            upload.run(&sources, &mut journal, &|_, _| true, &mut |journal| self.keep(journal))?;
            *self.journal() = journal;
        }
        self.check_brought()?;
        self.record(names)
    }

    /// Looks whether all that was brought is still there: a prune that keeps nothing takes away what is not published yet.
    fn check_brought(&self) -> Result<(), StoreError> {
        let mut journal = self.journal().clone();
        if journal.is_empty() {
            return Ok(());
        }
        let prefix = self.store.layout.generation(&self.name, &journal.id);
        let listed = wait_for(self.store.client.list(&prefix, &self.store.traffic))?;
        let listed = listed.map_err(|fault| fault.error("publish", &self.path))?;
        let there = |name: &str, bytes: u64| {
            listed.iter().any(|object| object.location.filename() == Some(name) && object.size == bytes)
        };
        let Some(gone) = journal.forget_unless(there) else { return Ok(()) };
        self.keep(&journal)?;
        *self.journal() = journal;
        let reason = "something removed it again before it was published: a prune that keeps too little, or a rule of the bucket";
        let path = self.path.join(gone);
        Err(StoreError::Remote { operation: "publish", path, reason: reason.into() })
    }
}

impl Drop for BucketDraft {
    fn drop(&mut self) {
        if !self.ended {
            // Nobody will publish what was brought. What is left of it all the same is pruned.
            let _ = self.take_back();
        }
    }
}
