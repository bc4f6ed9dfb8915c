//! The padded page layout of a graph: whole records in pages. A record crosses a page only if it is longer
//! than one.
//!
//! A record of vector `id`, all little-endian (DiskANN's layout with a checksum of its own):
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity, of `id` and of the degree, the neighbours in use and the vector |
//! | 4 | degree |
//! | 4 x max_degree | neighbours; unused ones are zero |
//! | dim x element size | the vector |
//! | 0 to 3 | zeros up to a multiple of four |
//!
//! The checksum covers the bytes that a search uses, so a flipped bit, a misplaced page or a page of another
//! index is detected.

use super::identity::Identity;
use super::packing::{buffer_bytes, stride};
use bathyal_kernels::Element;
use bathyal_tier::Span;

/// Bytes of a page: the smallest read that an SSD serves at full speed (second-tier-memory, Figure 6).
pub const PAGE_BYTES: u32 = 4096;
/// Bytes before the neighbours.
const HEADER_BYTES: usize = 8;
/// Most neighbours that the format allows.
pub const MAX_DEGREE: u32 = 4096;

/// The positions of records. Pure arithmetic; all sizes are checked once, in [`PageLayout::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    page_bytes: usize,
    max_degree: usize,
    vector_bytes: usize,
    record_bytes: usize,
    /// Records in one page; 0 when a record takes several.
    records_per_page: usize,
    pages_per_record: usize,
    identity: Identity,
}

/// A record in a page, whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The vector's bytes.
    pub vector: &'a [u8],
    /// The neighbours' ids, 4 bytes each.
    neighbors: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns the number of neighbours.
    pub fn degree(&self) -> usize {
        self.neighbors.len() / 4
    }

    /// Returns the neighbours' ids.
    #[inline]
    pub fn neighbors(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.neighbors.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b))
    }
}

impl PageLayout {
    /// Returns the layout for vectors of `dim` elements with up to `max_degree` neighbours.
    ///
    /// # Errors
    /// A sentence if a number is out of range.
    pub fn new(element: Element, dim: u32, max_degree: u32, page_bytes: u32) -> Result<PageLayout, String> {
        if dim == 0 || dim > super::manifest::MAX_DIM {
            return Err(format!("dim {dim} is not between 1 and {}", super::manifest::MAX_DIM));
        }
        if max_degree == 0 || max_degree > MAX_DEGREE {
            return Err(format!("max_degree {max_degree} is not between 1 and {MAX_DEGREE}"));
        }
        let page_bytes = page_bytes as usize;
        let vector_bytes = element.row_bytes(dim as usize);
        let record_bytes = (HEADER_BYTES + 4 * max_degree as usize + vector_bytes).next_multiple_of(4);
        let fits = page_bytes.is_power_of_two() || page_bytes >= record_bytes;
        if !fits || !(512..=1 << 20).contains(&page_bytes) {
            return Err(format!(
                "page_bytes {page_bytes} is not between 512 and 1048576, or it is neither a power of two nor \
                 enough for a record of {record_bytes} bytes"
            ));
        }
        Ok(PageLayout {
            page_bytes,
            max_degree: max_degree as usize,
            vector_bytes,
            record_bytes,
            records_per_page: page_bytes / record_bytes,
            pages_per_record: record_bytes.div_ceil(page_bytes),
            identity: Identity::NONE,
        })
    }

    /// Returns the layout with as many records per page as fit in 4 KiB, or with one longer record.
    ///
    /// # Errors
    /// A sentence if a number is out of range.
    pub fn choose(element: Element, dim: u32, max_degree: u32) -> Result<PageLayout, String> {
        let with_pages = |page_bytes: usize| {
            let page_bytes = u32::try_from(page_bytes).unwrap_or(u32::MAX);
            PageLayout::new(element, dim, max_degree, page_bytes)
        };
        let paged = with_pages(PAGE_BYTES as usize)?;
        if paged.records_per_page > 1 { Ok(paged) } else { with_pages(stride(paged.record_bytes)) }
    }

    /// Returns the bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the bytes of a buffer for one read, for any alignment of a device.
    pub fn buffer_bytes(&self) -> usize {
        buffer_bytes(self.read_bytes(), self.page_bytes)
    }

    /// Returns the same layout for the index with this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> PageLayout {
        PageLayout { identity, ..self }
    }

    /// Returns the number of records in one page; 0 if a record takes several pages.
    pub fn records_per_page(&self) -> usize {
        self.records_per_page
    }

    /// Returns the bytes of one record.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Returns the bytes of one read: the pages of a record.
    pub fn read_bytes(&self) -> usize {
        self.pages_per_record * self.page_bytes
    }

    /// Returns the bytes of the file for `vectors` records.
    pub fn file_bytes(&self, vectors: u64) -> u64 {
        let pages = match self.records_per_page {
            0 => vectors * self.pages_per_record as u64,
            per_page => vectors.div_ceil(per_page as u64),
        };
        pages * self.page_bytes as u64
    }

    /// Returns the span of the pages of record `id`.
    #[inline]
    pub fn span(&self, id: u32) -> Span {
        let first = match self.records_per_page {
            0 => u64::from(id) * self.pages_per_record as u64,
            per_page => u64::from(id) / per_page as u64,
        };
        Span { offset: first * self.page_bytes as u64, len: self.read_bytes() as u32 }
    }

    /// Returns the start of record `id` within its span.
    #[inline]
    fn start(&self, id: u32) -> usize {
        match self.records_per_page {
            0 => 0,
            per_page => (id as usize % per_page) * self.record_bytes,
        }
    }

    /// Writes record `id` into the bytes of its span.
    ///
    /// # Panics
    /// If the vector, the neighbours or the pages do not fit the layout, which is a builder's bug.
    pub fn encode(&self, pages: &mut [u8], id: u32, vector: &[u8], neighbors: &[u32]) {
        assert!(neighbors.len() <= self.max_degree && vector.len() == self.vector_bytes);
        let start = self.start(id);
        let record = &mut pages[start..start + self.record_bytes];
        record.fill(0);
        record[4..8].copy_from_slice(&(neighbors.len() as u32).to_le_bytes());
        for (slot, id) in record[HEADER_BYTES..].chunks_exact_mut(4).zip(neighbors) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        let at = HEADER_BYTES + 4 * self.max_degree;
        record[at..at + self.vector_bytes].copy_from_slice(vector);
        let crc = self.checksum(record, id, neighbors.len());
        record[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the checksum of a record with `degree` neighbours.
    #[inline]
    fn checksum(&self, record: &[u8], id: u32, degree: usize) -> u32 {
        let at = HEADER_BYTES + 4 * self.max_degree;
        let crc = self.identity.checksum(&id.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &record[4..HEADER_BYTES + 4 * degree]);
        crc32c::crc32c_append(crc, &record[at..at + self.vector_bytes])
    }

    /// Finds record `id` in the bytes of its span and checks it.
    ///
    /// # Errors
    /// A sentence that states what is wrong with the bytes.
    #[inline]
    pub fn decode<'a>(&self, pages: &'a [u8], id: u32) -> Result<Record<'a>, String> {
        let start = self.start(id);
        let Some(record) = pages.get(start..start + self.record_bytes) else {
            return Err(format!("{} bytes are too few for a record", pages.len()));
        };
        let degree = u32::from_le_bytes([record[4], record[5], record[6], record[7]]) as usize;
        if degree > self.max_degree {
            return Err(format!("degree {degree} is above the maximum {}", self.max_degree));
        }
        let stored = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let found = self.checksum(record, id, degree);
        if stored != found {
            return Err(format!("checksum {found:08x} differs from the stored {stored:08x}"));
        }
        let at = HEADER_BYTES + 4 * self.max_degree;
        Ok(Record {
            vector: &record[at..at + self.vector_bytes],
            neighbors: &record[HEADER_BYTES..HEADER_BYTES + 4 * degree],
        })
    }

    /// Returns true if the unused bytes of record `id` are zero, for `verify`.
    pub fn padding_is_zero(&self, pages: &[u8], id: u32, degree: usize) -> bool {
        let start = self.start(id);
        let record = &pages[start..start + self.record_bytes];
        let at = HEADER_BYTES + 4 * self.max_degree;
        let unused = &record[HEADER_BYTES + 4 * degree..at];
        unused.iter().chain(&record[at + self.vector_bytes..]).all(|b| *b == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_at_every_place_and_size() {
        for (dim, max_degree) in [(1, 1), (128, 32), (100, 64), (1536, 64), (4000, 96)] {
            let layout = PageLayout::choose(Element::F32, dim, max_degree).unwrap();
            for id in [0_u32, 1, 9, 10, 1234] {
                let mut pages = vec![0_u8; layout.read_bytes()];
                let vector: Vec<u8> = (0..dim * 4).map(|i| (i as u8).wrapping_mul(7)).collect();
                let neighbors: Vec<u32> = (0..max_degree / 2 + 1).map(|i| i * 3).collect();
                layout.encode(&mut pages, id, &vector, &neighbors);
                let record = layout.decode(&pages, id).unwrap();
                assert_eq!(record.vector, vector);
                assert!(record.neighbors().eq(neighbors.iter().copied()));
                assert!(layout.padding_is_zero(&pages, id, neighbors.len()));
                assert!(layout.decode(&pages, id + layout.records_per_page().max(1) as u32).is_err());
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_full_record_is_detected() {
        let layout = PageLayout::new(Element::U8, 16, 4, PAGE_BYTES).unwrap();
        let mut pages = vec![0_u8; layout.read_bytes()];
        layout.encode(&mut pages, 3, &[7; 16], &[1, 2, 3, 4]);
        let start = layout.start(3);
        for bit in 0..layout.record_bytes() * 8 {
            pages[start + bit / 8] ^= 1 << (bit % 8);
            assert!(layout.decode(&pages, 3).is_err(), "bit {bit}");
            pages[start + bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert!(PageLayout::new(Element::F32, 0, 8, PAGE_BYTES).is_err());
        assert!(PageLayout::new(Element::F32, 8, 0, PAGE_BYTES).is_err());
        assert!(PageLayout::new(Element::F32, 8, 8, 500).is_err());
        assert!(PageLayout::new(Element::F32, 250, 8, 1000).is_err(), "too short for a record");
        assert!(PageLayout::new(Element::F32, u32::MAX, u32::MAX, PAGE_BYTES).is_err());
    }
}
