//! Vectors that come over time and lie one after the other: those that came can be read while more come.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bathyal_kernels::Element;
use memmap2::MmapMut;

use super::error::VectorError;
use super::file::{Bytes, IN_MEMORY, Shared, VectorFile};
#[cfg(test)]
use super::format::FileFormat;
use super::format::Layout;

/// Rooms that are as large have pages of their own, which go back to the system at once, and take no memory before they are filled.
const MAPPED_BYTES: usize = 128 << 10;
/// Rooms that are as large have huge pages, where the system gives them: the first touch of each of the small ones is a fault, which
/// takes longer than filling it.
const HUGE_BYTES: usize = 4 << 20;

/// Room for so many vectors of one shape, which is filled from its beginning on. Clones share it.
#[derive(Clone)]
pub struct VectorRoom {
    shared: Arc<Shared>,
    element: Element,
    dim: usize,
}

impl fmt::Debug for VectorRoom {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "VectorRoom({} more x {} {})", self.left(), self.dim, self.element.name())
    }
}

impl VectorRoom {
    /// Room for `rows` vectors of `dim` elements.
    ///
    /// # Errors
    /// [`VectorError::Io`] where the system has no memory for them.
    pub fn new(element: Element, dim: usize, rows: usize) -> Result<VectorRoom, VectorError> {
        let filling = Filling::of(rows.saturating_mul(element.row_bytes(dim)))
            .map_err(VectorError::io(IN_MEMORY.as_ref(), "reserve memory for vectors"))?;
        let shared = Arc::new(Shared { bytes: Bytes::Filling(filling), path: PathBuf::from(IN_MEMORY) });
        Ok(VectorRoom { shared, element, dim })
    }

    fn filling(&self) -> Option<&Filling> {
        if let Bytes::Filling(filling) = &self.shared.bytes { Some(filling) } else { None }
    }

    /// How many more it has room for.
    pub fn left(&self) -> usize {
        let left = self.filling().map_or(0, Filling::left);
        left.checked_div(self.element.row_bytes(self.dim)).unwrap_or(0)
    }

    /// Copies vectors behind what is there: they follow those that were pushed before ([`VectorFile::followed_by`]). `None`, and
    /// nothing is copied, where there is not enough room, or they are of another shape.
    pub fn push(&self, vectors: &VectorFile) -> Option<VectorFile> {
        if vectors.element() != self.element || vectors.dim() != self.dim {
            return None;
        }
        let (count, row_bytes) = (vectors.count(), vectors.row_bytes());
        let start = match vectors.rows(0..count) {
            Some(all) => self.filling()?.push(std::iter::once(all)),
            None => self.filling()?.push((0..count).map(|row| vectors.row(row))),
        }?;
        let layout = Layout { element: self.element, count, dim: self.dim, start, stride: row_bytes };
        Some(VectorFile::view(self.shared.clone(), layout))
    }
}

/// Memory that is filled from its beginning on; what was filled never changes.
pub(crate) struct Filling {
    /// What keeps the memory. It is touched through `start` only.
    _memory: Memory,
    start: *mut u8,
    len: usize,
    /// All before this byte is filled.
    filled: AtomicUsize,
    /// Held by the one who fills.
    turn: Mutex<()>,
}

enum Memory {
    Small(Vec<u8>),
    Mapped(MmapMut),
}

// SAFETY: the memory belongs to this alone. What is before `filled` is only read; what is behind is written by the holder of `turn`
// only, before `filled` is moved, and read by nobody.
unsafe impl Send for Filling {}
// SAFETY: as above.
unsafe impl Sync for Filling {}

impl Filling {
    fn of(len: usize) -> io::Result<Filling> {
        let mut memory = match len {
            MAPPED_BYTES.. => Memory::Mapped(MmapMut::map_anon(len)?),
            _ => Memory::Small(vec![0; len]),
        };
        let start = match &mut memory {
            Memory::Small(bytes) => bytes.as_mut_ptr(),
            Memory::Mapped(map) => {
                #[cfg(target_os = "linux")]
                if len >= HUGE_BYTES {
                    // A hint: without it all is the same, but slower.
                    let _ = map.advise(memmap2::Advice::HugePage);
                }
                map.as_mut_ptr()
            }
        };
        Ok(Filling { _memory: memory, start, len, filled: AtomicUsize::new(0), turn: Mutex::new(()) })
    }

    /// What is filled.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: so many bytes were written before `filled` said so, lie within the memory that `self` keeps, and never change again.
        unsafe { std::slice::from_raw_parts(self.start, self.filled.load(Ordering::Acquire)) }
    }

    fn left(&self) -> usize {
        self.len - self.filled.load(Ordering::Acquire)
    }

    /// Copies parts of the same length behind what is filled. Returns where they begin; `None` if there is no room for all.
    fn push<'a>(&self, parts: impl ExactSizeIterator<Item = &'a [u8]> + Clone) -> Option<usize> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = self.filled.load(Ordering::Acquire);
        let bytes = parts.clone().try_fold(0_usize, |sum, part| sum.checked_add(part.len()))?;
        if bytes > self.len - begin {
            return None;
        }
        let mut at = begin;
        for part in parts {
            // SAFETY: all parts together fit between `begin` and the end of the memory, which nobody else writes to as long as the
            // turn is held, and no slice reaches beyond `begin`; so `part` is elsewhere.
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
    fn what_is_pushed_one_after_the_other_lies_so_and_is_one() {
        for rows in [8, MAPPED_BYTES, HUGE_BYTES] {
            let room = VectorRoom::new(Element::U8, 2, rows).unwrap();
            let one = room.push(&vectors(0..3)).unwrap();
            let slice = one.rows(0..3).unwrap();
            let two = room.clone().push(&vectors(3..5)).unwrap();
            let three = room.push(&vectors(5..8)).unwrap();
            assert_eq!((room.left(), slice), (rows - 8, &[0, 100, 1, 101, 2, 102][..]));
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
    fn a_room_takes_all_or_nothing_of_its_own_shape() {
        let room = VectorRoom::new(Element::U8, 2, 4).unwrap();
        let one = room.push(&vectors(0..3)).unwrap();
        assert!(room.push(&vectors(3..5)).is_none(), "too many");
        assert!(room.push(&VectorFile::from_rows(Element::U8, 1, vec![1]).unwrap()).is_none());
        assert!(room.push(&VectorFile::from_rows(Element::I8, 2, vec![1, 2]).unwrap()).is_none());
        let two = room.push(&vectors(3..4)).unwrap();
        assert_eq!((room.left(), one.followed_by(&two).unwrap().count()), (0, 4));
        drop(room);
        assert_eq!(one.row(2), [2, 102]);
    }

    #[test]
    fn rows_with_gaps_between_them_lie_without_gaps() {
        let rows = [2, 0, 0, 0, 7, 107, 2, 0, 0, 0, 8, 108];
        let given = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), rows.to_vec()).unwrap();
        let room = VectorRoom::new(Element::U8, 2, 2).unwrap();
        assert_eq!(room.push(&given).unwrap().rows(0..2), vectors(7..9).rows(0..2));
    }

    #[test]
    fn many_push_at_the_same_time_and_each_finds_its_own() {
        let room = VectorRoom::new(Element::U8, 2, 8 * 20 * 5).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let room = &room;
                scope.spawn(move || {
                    for turn in 0..20 {
                        let own = vectors(thread * 12..thread * 12 + 5);
                        let there = room.push(&own).unwrap();
                        assert_eq!(there.rows(0..5), own.rows(0..5), "{turn}");
                    }
                });
            }
        });
        assert_eq!(room.left(), 0);
    }
}
