//! The pages of a cluster index: groups of near vectors. Each group is a whole number of pages.
//!
//! A page, all little-endian, holds `records` vectors:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), the page's number (8 bytes) and the rest of the page |
//! | 4 x records | the vectors' ids; `4294967295` for a place without a vector |
//! | records x dim x element size | the vectors; zeros at a place without a vector |
//! | the rest | zeros |
//!
//! The checksum begins with the identity and the page's number, so a page of another index and a page from a
//! wrong offset are detected like damage.

use super::identity::Identity;
use super::packing::{LARGEST_ALIGNMENT, buffer_bytes, stride};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::SCAN_BLOCK;
use bathyal_tier::Span;

/// The id at a place without a vector.
pub const NO_ID: u32 = u32::MAX;
/// Blocks of codes per run, for the centroids of its groups.
const RUN_BLOCKS: u64 = 2;
/// Bytes of a page's checksum.
const CRC_BYTES: usize = 4;
/// Largest page: a vector of the largest dimension in the widest element, and its id.
const MOST_PAGE_BYTES: u32 = 1 << 20;
/// Most pages of a group: far more than any sensible group has, and few enough that products cannot overflow.
const MOST_GROUP_PAGES: u32 = 4096;

/// The positions of vectors. Pure arithmetic; all sizes are checked once, in [`GroupLayout::new`].
///
/// A *place* is the number of a vector's position: its group's number times [`GroupLayout::group_vectors`]
/// plus its rank in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLayout {
    page_bytes: usize,
    vector_bytes: usize,
    /// Vectors of a page.
    records: usize,
    group_pages: usize,
    dim: usize,
    identity: Identity,
}

impl GroupLayout {
    /// Returns the layout for vectors of `dim` elements in groups of `group_pages` pages.
    ///
    /// # Errors
    /// A sentence if a number is out of range.
    pub fn new(element: Element, dim: u32, page_bytes: u32, group_pages: u32) -> Result<GroupLayout, String> {
        if dim == 0 || dim > super::manifest::MAX_DIM {
            return Err(format!("dim {dim} is not between 1 and {}", super::manifest::MAX_DIM));
        }
        if !(CRC_BYTES as u32..=MOST_PAGE_BYTES).contains(&page_bytes) {
            return Err(format!("page_bytes {page_bytes} is not between {CRC_BYTES} and {MOST_PAGE_BYTES}"));
        }
        if !(1..=MOST_GROUP_PAGES).contains(&group_pages) {
            return Err(format!("group_pages {group_pages} is not between 1 and {MOST_GROUP_PAGES}"));
        }
        let vector_bytes = element.row_bytes(dim as usize);
        let records = (page_bytes as usize - CRC_BYTES) / (4 + vector_bytes);
        if records == 0 {
            return Err(format!("a page of {page_bytes} bytes holds no vector of {vector_bytes} bytes"));
        }
        Ok(GroupLayout {
            page_bytes: page_bytes as usize,
            vector_bytes,
            records,
            group_pages: group_pages as usize,
            dim: dim as usize,
            identity: Identity::NONE,
        })
    }

    /// Returns the layout with about `wanted` vectors per group: pages of as many vectors as fit in 4 KiB, or
    /// of one longer vector, and whole blocks of codes with few empty lanes.
    ///
    /// # Errors
    /// As [`GroupLayout::new`].
    pub fn choose(element: Element, dim: u32, wanted: usize) -> Result<GroupLayout, String> {
        let record = 4 + element.row_bytes(dim as usize);
        let records = ((super::pages::PAGE_BYTES as usize - CRC_BYTES) / record).max(1);
        let page_bytes = stride(CRC_BYTES + records * record);
        let one = GroupLayout::new(element, dim, u32::try_from(page_bytes).unwrap_or(u32::MAX), 1)?;
        let cost = |pages: usize| {
            let vectors = pages * one.records;
            let waste = vectors.next_multiple_of(SCAN_BLOCK) as f64 / vectors as f64;
            // A group of another size than wanted has a cost too, or else a single odd size would always win.
            waste + 0.1 * (vectors as f64 / wanted as f64).ln().abs()
        };
        let most = (2 * wanted / one.records).clamp(1, MOST_GROUP_PAGES as usize);
        let pages = (1..=most).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(1);
        Ok(GroupLayout { group_pages: pages, ..one })
    }

    /// Returns the same layout for the index with this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> GroupLayout {
        GroupLayout { identity, ..self }
    }

    /// Returns the identity of the index.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the number of dimensions.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the bytes of a page, the unit of reads.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the number of vectors of a page.
    pub fn page_vectors(&self) -> usize {
        self.records
    }

    /// Returns the number of pages of a group.
    pub fn group_pages(&self) -> usize {
        self.group_pages
    }

    /// Returns the number of vectors of a full group.
    pub fn group_vectors(&self) -> usize {
        self.records * self.group_pages
    }

    /// Returns the bytes of a group's pages.
    pub fn group_bytes(&self) -> usize {
        self.group_pages * self.page_bytes
    }

    /// Returns the bytes of the file of `groups` groups. Zeros at its end align a file that follows on a
    /// device.
    pub fn file_bytes(&self, groups: u64) -> u64 {
        groups.saturating_mul(self.group_bytes() as u64).next_multiple_of(LARGEST_ALIGNMENT as u64)
    }

    /// Returns the bytes of a buffer for a page, for any alignment of a device.
    pub fn buffer_bytes(&self) -> usize {
        buffer_bytes(self.page_bytes, self.page_bytes)
    }

    /// Returns the number of blocks of codes of a group.
    pub fn group_blocks(&self) -> usize {
        self.group_vectors().div_ceil(SCAN_BLOCK)
    }

    /// Returns the bytes of a vector.
    pub fn vector_bytes(&self) -> usize {
        self.vector_bytes
    }

    /// Returns the bytes of the rows of `groups` centroids.
    pub fn row_bytes(&self, groups: u64) -> u64 {
        groups * 2 * self.dim as u64
    }

    /// Returns the bytes of the file of centroids with their rows, as `docs/format/index.md` specifies.
    pub fn centroid_bytes(&self, groups: u64, runs: u64, code_bytes: u64) -> u64 {
        4 * (self.dim as u64 + 1)
            + self.row_bytes(groups + runs)
            + 4 * runs
            + 8 * groups
            + runs * RUN_BLOCKS * SCAN_BLOCK as u64 * code_bytes
    }

    /// Returns the page of `place`.
    #[inline]
    pub fn page_of(&self, place: u32) -> u32 {
        // Groups are whole pages, so places count through pages without gaps.
        place / self.records as u32
    }

    /// Returns the page of the vector of rank `rank` in `group`, and its slot there.
    pub fn page_in(&self, group: u32, rank: usize) -> (usize, usize) {
        (group as usize * self.group_pages + rank / self.records, rank % self.records)
    }

    /// Returns the number of places of `groups` groups.
    pub fn places(&self, groups: usize) -> usize {
        groups * self.group_vectors()
    }

    /// Returns the group of `place` and its rank there.
    #[inline]
    pub fn group_rank(&self, place: u32) -> (u32, usize) {
        (place / self.group_vectors() as u32, place as usize % self.group_vectors())
    }

    /// Returns the span of `pages` pages from `page` on.
    #[inline]
    pub fn span(&self, page: u32, pages: u32) -> Span {
        Span { offset: u64::from(page) * self.page_bytes as u64, len: pages * self.page_bytes as u32 }
    }

    /// Returns the span of the vector at `place` alone.
    #[inline]
    pub fn vector_span(&self, place: u32) -> Span {
        let (page, slot) = (place as usize / self.records, place as usize % self.records);
        let start = CRC_BYTES + 4 * self.records + slot * self.vector_bytes;
        Span { offset: page as u64 * self.page_bytes as u64 + start as u64, len: self.vector_bytes as u32 }
    }

    /// Returns the checksum of the vector at `place`, for a search that reads it alone.
    #[inline]
    pub fn vector_checksum(&self, place: u32, vector: &[u8]) -> u32 {
        crc32c::crc32c_append(self.identity.checksum(&u64::from(place).to_le_bytes()), vector)
    }

    /// Writes page number `page`: `ids` and their `rows`, at most as many as fit a page.
    pub fn encode<'a>(&self, out: &mut [u8], page: u32, ids: &[u32], rows: impl Iterator<Item = &'a [u8]>) {
        let (head, vectors) = out.split_at_mut(CRC_BYTES + 4 * self.records);
        vectors.fill(0);
        let slots = head[CRC_BYTES..].chunks_exact_mut(4);
        let ids = ids.iter().copied().chain(std::iter::repeat(NO_ID));
        slots.zip(ids).for_each(|(slot, id)| slot.copy_from_slice(&id.to_le_bytes()));
        for (slot, row) in vectors.chunks_exact_mut(self.vector_bytes).zip(rows) {
            slot.copy_from_slice(row);
        }
        let crc = self.crc(page, out);
        out[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    fn crc(&self, page: u32, bytes: &[u8]) -> u32 {
        let crc = self.identity.checksum(&u64::from(page).to_le_bytes());
        crc32c::crc32c_append(crc, &bytes[CRC_BYTES..self.page_bytes])
    }

    /// Checks the length and the checksum of page number `page`.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    pub fn check(&self, page: u32, bytes: &[u8]) -> Result<(), String> {
        let Some(stored) = bytes.first_chunk::<CRC_BYTES>().filter(|_| bytes.len() >= self.page_bytes) else {
            return Err(format!("{} bytes are too few for a page of {}", bytes.len(), self.page_bytes));
        };
        let (stored, found) = (u32::from_le_bytes(*stored), self.crc(page, bytes));
        if stored != found {
            return Err(format!("checksum {found:08x} differs from the stored {stored:08x}"));
        }
        Ok(())
    }

    /// Returns the id in slot `slot` of a page; `None` if there is no vector.
    #[inline]
    pub fn id(&self, page: &[u8], slot: usize) -> Option<u32> {
        let bytes = page.get(CRC_BYTES + 4 * slot..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes)).filter(|id| *id != NO_ID)
    }

    /// Returns the vectors of a page, one after the other.
    #[inline]
    pub fn vectors<'a>(&self, page: &'a [u8]) -> &'a [u8] {
        let start = CRC_BYTES + 4 * self.records;
        page.get(start..start + self.records * self.vector_bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_sift_descriptors_are_full_to_the_last_byte() {
        let layout = GroupLayout::choose(Element::U8, 128, 96).expect("a layout");
        assert_eq!((layout.page_bytes(), layout.page_vectors(), layout.group_pages()), (4096, 31, 3));
        assert_eq!((layout.group_vectors(), layout.group_blocks()), (93, 3));
    }

    #[test]
    fn long_vectors_get_longer_pages() {
        for (dim, page_bytes, records) in
            [(768, 3080, 1), (1016, 4096, 1), (1024, 4104, 1), (1536, 6152, 1), (65_536, 266_240, 1)]
        {
            let layout = GroupLayout::choose(Element::F32, dim, 96).expect("a layout");
            assert_eq!((layout.page_bytes(), layout.page_vectors()), (page_bytes, records), "{dim}");
            assert_eq!(layout.group_vectors(), 96, "{dim}");
        }
    }

    #[test]
    fn pages_round_trip_and_damage_is_detected() {
        let layout = GroupLayout::new(Element::U8, 16, 512, 2).expect("a layout");
        let rows: Vec<[u8; 16]> = (0..5).map(|i| [i; 16]).collect();
        let mut page = vec![7_u8; 512];
        layout.encode(&mut page, 9, &[4, 3, 2, 1, 0], rows.iter().map(|r| &r[..]));
        layout.check(9, &page).expect("sound");
        assert_eq!(layout.id(&page, 1), Some(3));
        assert_eq!(layout.id(&page, 5), None);
        assert_eq!(layout.vectors(&page)[16..32], [1; 16]);
        assert!(layout.check(8, &page).is_err(), "another page's number");
        for at in [0, 5, 100, 511] {
            page[at] ^= 1;
            assert!(layout.check(9, &page).is_err(), "byte {at}");
            page[at] ^= 1;
        }
        assert!(layout.check(9, &page[..511]).is_err());
    }
}
