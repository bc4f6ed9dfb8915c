//! An append-only buffer of vectors: those already appended can be read while others are appended.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bathyal_kernels::Element;
use memmap2::MmapMut;

use super::error::VectorError;
use super::file::{FileBytes, IN_MEMORY, Storage, VectorFile};
#[cfg(test)]
use super::format::FileFormat;
use super::format::RowLayout;

/// Size from which a buffer is an anonymous map. Its pages take no memory before they are filled, and go back
/// to the system at once when the buffer is dropped.
const MAPPED_BYTES: usize = 128 << 10;
/// Size from which a buffer asks for huge pages. The first touch of each small page is a fault, which takes
/// longer than filling the page.
const HUGE_BYTES: usize = 4 << 20;

/// An append-only buffer for a fixed number of vectors of one element and dim. Clones share it.
#[derive(Clone)]
pub struct VectorBuffer {
    storage: Arc<Storage>,
    element: Element,
    dim: usize,
}

impl fmt::Debug for VectorBuffer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "VectorBuffer({} more x {} {})", self.remaining(), self.dim, self.element.name())
    }
}

impl VectorBuffer {
    /// Reserves a buffer for `rows` vectors of `dim` elements.
    ///
    /// # Errors
    /// [`VectorError::Io`] if the system has no memory for them.
    pub fn new(element: Element, dim: usize, rows: usize) -> Result<VectorBuffer, VectorError> {
        let bytes = AppendOnlyBytes::allocate(rows.saturating_mul(element.row_bytes(dim)))
            .map_err(VectorError::io(IN_MEMORY.as_ref(), "reserve memory for vectors"))?;
        let storage = Arc::new(Storage { bytes: FileBytes::Appended(bytes), path: PathBuf::from(IN_MEMORY) });
        Ok(VectorBuffer { storage, element, dim })
    }

    fn bytes(&self) -> Option<&AppendOnlyBytes> {
        if let FileBytes::Appended(bytes) = &self.storage.bytes { Some(bytes) } else { None }
    }

    /// Returns the number of vectors that still fit.
    pub fn remaining(&self) -> usize {
        let bytes = self.bytes().map_or(0, AppendOnlyBytes::remaining);
        bytes.checked_div(self.element.row_bytes(self.dim)).unwrap_or(0)
    }

    /// Appends a copy of `vectors` and returns it. It begins where the vectors of the previous push end, so
    /// [`VectorFile::followed_by`] can join the two.
    ///
    /// Returns `None` and copies nothing if the vectors do not fit, or have another element or dim.
    pub fn push(&self, vectors: &VectorFile) -> Option<VectorFile> {
        if vectors.element() != self.element || vectors.dim() != self.dim {
            return None;
        }
        let (count, row_bytes) = (vectors.count(), vectors.row_bytes());
        let start = match vectors.rows(0..count) {
            Some(all) => self.bytes()?.push(std::iter::once(all)),
            None => self.bytes()?.push((0..count).map(|row| vectors.row(row))),
        }?;
        let layout = RowLayout { element: self.element, count, dim: self.dim, start, stride: row_bytes };
        Some(VectorFile::view(self.storage.clone(), layout))
    }
}

/// Memory that is filled from its beginning on. Filled bytes never change.
pub(crate) struct AppendOnlyBytes {
    /// Owner of the memory. All accesses go through `start`.
    _memory: BufferMemory,
    start: *mut u8,
    len: usize,
    /// All bytes before this offset are filled.
    filled: AtomicUsize,
    /// Held by the thread that appends.
    append_lock: Mutex<()>,
}

enum BufferMemory {
    Small(Vec<u8>),
    Mapped(MmapMut),
}

// SAFETY: this value alone owns the memory. Bytes before `filled` are only read. Bytes from `filled` on are
// written only by the thread that holds `append_lock`, before it moves `filled`, and are not read.
unsafe impl Send for AppendOnlyBytes {}
// SAFETY: as above.
unsafe impl Sync for AppendOnlyBytes {}

impl AppendOnlyBytes {
    fn allocate(len: usize) -> io::Result<AppendOnlyBytes> {
        let mut memory = match len {
            MAPPED_BYTES.. => BufferMemory::Mapped(MmapMut::map_anon(len)?),
            _ => BufferMemory::Small(vec![0; len]),
        };
        let start = match &mut memory {
            BufferMemory::Small(bytes) => bytes.as_mut_ptr(),
            BufferMemory::Mapped(map) => {
                #[cfg(target_os = "linux")]
                if len >= HUGE_BYTES {
                    // A hint: a failure changes only the speed.
                    let _ = map.advise(memmap2::Advice::HugePage);
                }
                map.as_mut_ptr()
            }
        };
        let (filled, append_lock) = (AtomicUsize::new(0), Mutex::new(()));
        Ok(AppendOnlyBytes { _memory: memory, start, len, filled, append_lock })
    }

    /// Returns the filled bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `filled` bytes were written before `filled` was stored, are within the memory
        // that `self` owns, and never change again.
        unsafe { std::slice::from_raw_parts(self.start, self.filled.load(Ordering::Acquire)) }
    }

    fn remaining(&self) -> usize {
        self.len - self.filled.load(Ordering::Acquire)
    }

    /// Appends copies of `parts` and returns the offset of the first; `None` if they do not all fit.
    fn push<'a>(&self, parts: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Option<usize> {
        let _guard = self.append_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = self.filled.load(Ordering::Acquire);
        let bytes = parts.clone().try_fold(0_usize, |sum, part| sum.checked_add(part.len()))?;
        if bytes > self.len - begin {
            return None;
        }
        let mut at = begin;
        for part in parts {
            // SAFETY: all parts together fit between `begin` and the end of the memory. No other thread
            // writes there while `append_lock` is held. No slice of this memory reaches beyond `begin`, so
            // `part` does not overlap the target.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), self.start.add(at), part.len()) };
            at += part.len();
        }
        self.filled.store(at, Ordering::Release);
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(values: std::ops::Range<u8>) -> VectorFile {
        VectorFile::from_rows(Element::U8, 2, values.flat_map(|value| [value, value + 100]).collect())
            .unwrap()
    }

    #[test]
    fn consecutive_pushes_are_adjacent_and_can_be_joined() {
        for rows in [8, MAPPED_BYTES, HUGE_BYTES] {
            let buffer = VectorBuffer::new(Element::U8, 2, rows).unwrap();
            let one = buffer.push(&vectors(0..3)).unwrap();
            let slice = one.rows(0..3).unwrap();
            let two = buffer.clone().push(&vectors(3..5)).unwrap();
            let three = buffer.push(&vectors(5..8)).unwrap();
            assert_eq!((buffer.remaining(), slice), (rows - 8, &[0, 100, 1, 101, 2, 102][..]));
            let both = one.followed_by(&two).unwrap();
            let all = both.followed_by(&three).unwrap();
            assert_eq!((both.count(), all.count(), all.rows(0..8)), (5, 8, vectors(0..8).rows(0..8)));
            assert_eq!(
                (both.row(4), two.row(1), three.row(0)),
                (&[4, 104][..], &[4, 104][..], &[5, 105][..])
            );
            assert!(one.followed_by(&three).is_none() && two.followed_by(&one).is_none());
            assert!(one.followed_by(&vectors(3..5)).is_none(), "other memory");
        }
    }

    #[test]
    fn a_push_that_does_not_fit_or_has_another_shape_copies_nothing() {
        let buffer = VectorBuffer::new(Element::U8, 2, 4).unwrap();
        let one = buffer.push(&vectors(0..3)).unwrap();
        assert!(buffer.push(&vectors(3..5)).is_none(), "too many");
        assert!(buffer.push(&VectorFile::from_rows(Element::U8, 1, vec![1]).unwrap()).is_none());
        assert!(buffer.push(&VectorFile::from_rows(Element::I8, 2, vec![1, 2]).unwrap()).is_none());
        let two = buffer.push(&vectors(3..4)).unwrap();
        assert_eq!((buffer.remaining(), one.followed_by(&two).unwrap().count()), (0, 4));
        drop(buffer);
        assert_eq!(one.row(2), [2, 102]);
    }

    #[test]
    fn rows_with_prefixes_are_stored_without_gaps() {
        let rows = [2, 0, 0, 0, 7, 107, 2, 0, 0, 0, 8, 108];
        let given = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), rows.to_vec()).unwrap();
        let buffer = VectorBuffer::new(Element::U8, 2, 2).unwrap();
        assert_eq!(buffer.push(&given).unwrap().rows(0..2), vectors(7..9).rows(0..2));
    }

    #[test]
    fn each_of_several_pushing_threads_gets_its_own_vectors() {
        let buffer = VectorBuffer::new(Element::U8, 2, 8 * 20 * 5).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for turn in 0..20 {
                        let expected = vectors(thread * 12..thread * 12 + 5);
                        let pushed = buffer.push(&expected).unwrap();
                        assert_eq!(pushed.rows(0..5), expected.rows(0..5), "{turn}");
                    }
                });
            }
        });
        assert_eq!(buffer.remaining(), 0);
    }
}
