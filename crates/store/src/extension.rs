//! Extension traits with operations that are derived from the traits of a store.

use crate::contract::{Draft, Generation, Object, ProgressFn, Replace, Store};
use crate::error::StoreError;
use crate::stripe::PartBytes;
use bathyal_tier::Tier;
use bathyal_tier::backend::file::FileOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Derived operations of every [`Store`].
pub trait StoreExt: Store {
    /// Continues the first abandoned draft of `name` in which `state` finds progress to continue from, or
    /// begins a new draft. The other abandoned drafts are removed.
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn resume<S>(
        &self,
        name: &str,
        replace: Replace,
        state: impl Fn(&dyn Draft) -> Option<S>,
    ) -> Result<(Box<dyn Draft>, Option<S>), StoreError> {
        let mut found = None;
        for draft in self.abandoned(name, replace)? {
            if found.is_none()
                && let Some(state) = state(draft.as_ref())
            {
                found = Some((draft, Some(state)));
            }
        }
        match found {
            Some(found) => Ok(found),
            None => Ok((self.begin(name, replace)?, None)),
        }
    }
}

impl<T: Store + ?Sized> StoreExt for T {}

/// Derived operations of every [`Generation`].
pub trait GenerationExt: Generation {
    /// Reads all bytes of the object `name`.
    ///
    /// # Errors
    /// As [`Generation::get`] and [`ObjectExt::read_all`].
    fn read(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        self.get(name)?.read_all()
    }

    /// Returns the length of the object `name` in bytes; `None` if it cannot be opened.
    fn len_of(&self, name: &str) -> Option<u64> {
        self.get(name).ok().map(|object| object.len())
    }
}

impl<T: Generation + ?Sized> GenerationExt for T {}

/// Derived operations of every [`Draft`].
pub trait DraftExt: Draft {
    /// Writes `bytes` as the whole object `name` and syncs it.
    ///
    /// # Errors
    /// As [`Draft::append`].
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let mut object = self.append(name, 0)?;
        object.append(bytes)?;
        object.sync()
    }
}

impl<T: Draft + ?Sized> DraftExt for T {}

/// Derived operations of every [`Object`].
pub trait ObjectExt: Object {
    /// Reads all bytes into memory.
    ///
    /// # Errors
    /// [`StoreError::Memory`] if the memory cannot be allocated; as [`Object::read_at`].
    fn read_all(&self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = self.allocate(self.len(), 0)?;
        bytes.resize(self.len() as usize, 0);
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Allocates an empty vector with a capacity of `len` bytes of the object and `more`.
    ///
    /// # Errors
    /// [`StoreError::Memory`].
    fn allocate(&self, len: u64, more: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let wanted = usize::try_from(len).ok().and_then(|len| len.checked_add(more));
        match wanted.map(|wanted| bytes.try_reserve_exact(wanted)) {
            Some(Ok(())) => Ok(bytes),
            _ => Err(StoreError::Memory { path: self.address().to_path_buf(), bytes: len }),
        }
    }
}

impl<T: Object + ?Sized> ObjectExt for T {}

/// An object of any store can be a part of a striped object.
impl PartBytes for Arc<dyn Object> {
    fn address(&self) -> &Path {
        self.as_ref().address()
    }

    fn len(&self) -> u64 {
        self.as_ref().len()
    }

    fn is_empty(&self) -> bool {
        self.as_ref().is_empty()
    }

    fn piece_bytes(&self) -> usize {
        self.as_ref().piece_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.as_ref().read_at(offset, out)
    }

    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        self.as_ref().tier(options)
    }
}

/// Bytes per step of a copy.
const COPIED_BYTES: u64 = 4 << 20;

/// Copies objects by appending them to those of `draft`. This is the default implementation of
/// [`Draft::adopt`], for stores with no faster way.
///
/// # Errors
/// As [`Draft::adopt`].
pub(crate) fn append_objects(
    draft: &dyn Draft,
    from: &dyn Generation,
    names: &[&str],
    progress: &ProgressFn<'_>,
) -> Result<Vec<u32>, StoreError> {
    let objects = names.iter().map(|name| from.get(name)).collect::<Result<Vec<_>, _>>()?;
    let total = objects.iter().map(|object| object.len()).sum();
    let (mut done, mut checksums, mut bytes) = (0, Vec::new(), Vec::new());
    for (name, object) in names.iter().zip(objects) {
        let earlier = draft.get(name).ok().filter(|earlier| earlier.len() <= object.len());
        let begun = earlier.as_ref().map_or(0, |earlier| earlier.len());
        let mut checksum = 0;
        let mut copy = draft.append(name, begun)?;
        for at in (0..object.len()).step_by(COPIED_BYTES as usize) {
            if !progress(done + at, total) {
                return Err(StoreError::Cancelled);
            }
            bytes.resize(COPIED_BYTES.min(object.len() - at) as usize, 0);
            // An earlier process copied the first `old` bytes of this step; they are read only for the
            // checksum.
            let old = begun.saturating_sub(at).min(bytes.len() as u64) as usize;
            let (old, new) = bytes.split_at_mut(old);
            if let Some(earlier) = earlier.as_ref().filter(|_| !old.is_empty()) {
                earlier.read_at(at, old)?;
            }
            object.read_at(at + old.len() as u64, new)?;
            copy.append(new)?;
            checksum = crc32c::crc32c_append(checksum, &bytes);
        }
        copy.sync()?;
        checksums.push(checksum);
        done += object.len();
    }
    if progress(total, total) { Ok(checksums) } else { Err(StoreError::Cancelled) }
}

/// Bytes per read of an [`ObjectReader`].
const PART_BYTES: usize = 256 << 10;

/// A reader of an object from its first byte to its last.
#[derive(Debug)]
pub struct ObjectReader {
    object: Arc<dyn Object>,
    at: u64,
}

impl ObjectReader {
    /// Makes a reader at the first byte.
    pub fn new(object: Arc<dyn Object>) -> ObjectReader {
        ObjectReader { object, at: 0 }
    }
}

impl ObjectReader {
    fn left(&self) -> usize {
        usize::try_from(self.object.len().saturating_sub(self.at)).unwrap_or(usize::MAX)
    }
}

impl io::Read for ObjectReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let part = out.len().min(self.left());
        self.object.read_at(self.at, &mut out[..part]).map_err(|error| match error {
            StoreError::Io { source, .. } => source,
            error => io::Error::other(error),
        })?;
        self.at += part as u64;
        Ok(part)
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let (before, left) = (bytes.len(), self.left());
        bytes.try_reserve(left)?;
        while self.left() > 0 {
            // `resize` writes zeros to the memory before the read fills it. Small steps keep that memory in
            // the processor's cache.
            let filled = bytes.len();
            bytes.resize(filled + self.left().min(PART_BYTES), 0);
            let read = self.read(&mut bytes[filled..]);
            bytes.truncate(filled + *read.as_ref().unwrap_or(&0));
            read?;
        }
        Ok(bytes.len() - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Backing;
    use crate::memory::MemoryStore;
    use std::io::Read;

    /// An object with the largest length that a damaged file could claim.
    #[derive(Debug)]
    struct Endless;

    impl Object for Endless {
        fn address(&self) -> &Path {
            Path::new("endless")
        }

        fn len(&self) -> u64 {
            1 << 62
        }

        fn read_at(&self, _: u64, out: &mut [u8]) -> Result<(), StoreError> {
            out.fill(7);
            Ok(())
        }

        fn backing(&self) -> Result<Backing, StoreError> {
            Ok(Backing::Elsewhere)
        }

        fn tier(&self, _: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
            Err(StoreError::Name { name: "endless".into() })
        }
    }

    #[test]
    fn memory_that_cannot_be_allocated_is_an_error() {
        let error = Endless.read_all().expect_err("no machine has so much memory");
        assert!(matches!(error, StoreError::Memory { bytes, .. } if bytes == 1 << 62), "{error}");
        let error = ObjectReader::new(Arc::new(Endless)).read_to_end(&mut Vec::new()).expect_err("the same");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn objects_are_read_to_their_end_and_no_further() {
        let draft = MemoryStore::new("memory").begin("index", Replace::Never).expect("begins");
        let bytes: Vec<u8> = (0..3 * PART_BYTES + 5).map(|i| (i / 7) as u8).collect();
        draft.put("data", &bytes).expect("writes");
        let mut reader = ObjectReader::new(draft.get("data").expect("is there"));
        let mut found = vec![0; 3];
        reader.read_exact(&mut found).expect("reads");
        assert_eq!(reader.read_to_end(&mut found).expect("reads"), bytes.len() - 3);
        assert_eq!((reader.read(&mut [0; 9]).expect("reads"), found == bytes), (0, true));
    }
}
