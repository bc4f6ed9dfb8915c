//! The packed layout of a graph: records back to back, as long as they are (compressed sparse rows;
//! second-tier-memory, section 5).
//!
//! Places count the records in the order of the file, in which near vectors lie together, so that links, which are
//! places, take few bits. The record of place `p` lies where [`super::offsets`] says, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), of `p` (4 bytes) and of the rest up to the next record |
//! | 1 to 4 | the vector's id, in as many bytes as the largest takes |
//! | 1, or 2 where max_degree is above 255 | degree |
//! | dim x element size | the vector |
//! | the rest | the links, rising, as [`super::packed`] codes them, in whole bytes |
//! | less than a line | zeros, where the next record begins on a line of its own |
//!
//! A record that would touch one line of memory more than it must begins on the next line, if not much is lost by that.

use super::identity::Identity;
use super::packed::Buckets;
use super::packing::buffer_bytes;
use super::pages::MAX_DEGREE;
use bathyal_kernels::Element;

/// Bytes of a line of memory: what a processor loads, and most second-tier memory serves, at once.
pub const LINE_BYTES: u32 = 64;
/// A record is moved by so many bytes at most to save a line: each line saved costs some 11 bytes of file up to here, and
/// more beyond (`docs/format/csr.md`).
const MOST_SHIFT: usize = 16;
/// Bytes of the checksum.
const CRC_BYTES: usize = 4;

/// How records are coded. Pure arithmetic; all sizes are checked once, in [`CsrLayout::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsrLayout {
    vector_bytes: usize,
    max_degree: usize,
    id_bytes: usize,
    degree_bytes: usize,
    line_bytes: usize,
    buckets: Buckets,
    identity: Identity,
}

/// A record whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct CsrRecord<'a> {
    /// The user's id of the vector.
    pub id: u32,
    /// The vector's bytes.
    pub vector: &'a [u8],
    /// Number of links.
    pub degree: usize,
    bytes: &'a [u8],
    links_at: usize,
}

impl CsrRecord<'_> {
    /// The first bit of the links.
    pub fn links_start(&self) -> usize {
        8 * self.links_at
    }
}

impl CsrLayout {
    /// The layout for `vectors` vectors of `dim` elements with up to `max_degree` neighbours.
    ///
    /// # Errors
    /// A sentence when a number is out of range.
    pub fn new(
        element: Element,
        dim: u32,
        vectors: u32,
        max_degree: u32,
        line_bytes: u32,
    ) -> Result<CsrLayout, String> {
        if dim == 0 || dim > super::manifest::MAX_DIM {
            return Err(format!("dim {dim} is not between 1 and {}", super::manifest::MAX_DIM));
        }
        if max_degree == 0 || max_degree > MAX_DEGREE {
            return Err(format!("max_degree {max_degree} is not between 1 and {MAX_DEGREE}"));
        }
        if line_bytes != LINE_BYTES {
            return Err(format!("page_bytes {line_bytes} is not {LINE_BYTES}, the line of packed records"));
        }
        let bits = (u32::BITS - vectors.saturating_sub(1).leading_zeros()).max(1);
        Ok(CsrLayout {
            vector_bytes: element.row_bytes(dim as usize),
            max_degree: max_degree as usize,
            id_bytes: bits.div_ceil(8) as usize,
            degree_bytes: if max_degree > 255 { 2 } else { 1 },
            line_bytes: line_bytes as usize,
            buckets: Buckets::new(vectors),
            identity: Identity::NONE,
        })
    }

    /// The same of the index that has this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> CsrLayout {
        CsrLayout { identity, ..self }
    }

    /// Bytes before the vector.
    fn head_bytes(&self) -> usize {
        CRC_BYTES + self.id_bytes + self.degree_bytes
    }

    /// Bytes of a record without links.
    fn least_bytes(&self) -> usize {
        self.head_bytes() + self.vector_bytes
    }

    /// Bytes from one record to the next at most.
    fn most_bytes(&self) -> usize {
        self.least_bytes() + (self.max_degree * self.buckets.most_bits() + 4).div_ceil(8) + self.line_bytes
    }

    /// Bytes of a buffer that holds any record, whatever a device aligns reads to.
    pub fn read_bytes(&self) -> usize {
        buffer_bytes(self.most_bytes(), 1)
    }

    /// Bytes that a file of `vectors` records can have.
    pub fn file_bytes(&self, vectors: u64) -> std::ops::RangeInclusive<u64> {
        let of = |bytes: usize| vectors.saturating_mul(bytes as u64);
        of(self.least_bytes())..=of(self.most_bytes())
    }

    /// Zeros before a record of `length` bytes whose predecessor ends at `end`.
    pub fn shift(&self, end: u64, length: usize) -> usize {
        let line = self.line_bytes;
        let into = (end % line as u64) as usize;
        let (here, next) = ((into + length).div_ceil(line), length.div_ceil(line));
        if into > 0 && next < here && line - into <= MOST_SHIFT { line - into } else { 0 }
    }

    /// Appends the record of vector `id` to `out`, the checksum not yet known; `links` rise.
    ///
    /// # Panics
    /// If the vector or the links do not fit the layout, which is a builder's bug.
    pub fn encode(&self, id: u32, vector: &[u8], links: &[u32], out: &mut Vec<u8>) {
        assert!(links.len() <= self.max_degree && vector.len() == self.vector_bytes);
        out.extend_from_slice(&[0; CRC_BYTES]);
        out.extend_from_slice(&id.to_le_bytes()[..self.id_bytes]);
        out.extend_from_slice(&(links.len() as u16).to_le_bytes()[..self.degree_bytes]);
        out.extend_from_slice(vector);
        self.buckets.encode(links, out);
    }

    /// Sets the checksum of a record, its `bytes` up to the next one.
    pub fn seal(&self, place: u32, bytes: &mut [u8]) {
        let crc = self.checksum(place, bytes);
        bytes[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    #[inline]
    fn checksum(&self, place: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.identity.checksum(&place.to_le_bytes()), &bytes[CRC_BYTES..])
    }

    /// Checks the record of `place`, whose `bytes` go up to the next one.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the bytes.
    #[inline]
    pub fn decode<'a>(&self, bytes: &'a [u8], place: u32) -> Result<CsrRecord<'a>, String> {
        let links_at = self.least_bytes();
        if bytes.len() < links_at {
            return Err(format!("{} bytes are too few for a record", bytes.len()));
        }
        let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let found = self.checksum(place, bytes);
        if stored != found {
            return Err(format!("checksum {found:08x} differs from the stored {stored:08x}"));
        }
        let number = |at: usize, len: usize| {
            bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
        };
        let id = number(CRC_BYTES, self.id_bytes);
        let degree = number(CRC_BYTES + self.id_bytes, self.degree_bytes) as usize;
        if degree > self.max_degree {
            return Err(format!("degree {degree} is above the maximum {}", self.max_degree));
        }
        Ok(CsrRecord { id, vector: &bytes[self.head_bytes()..links_at], degree, bytes, links_at })
    }

    /// Reads the links of a record, rising places, into `out`, and returns the bits from its start to their end.
    ///
    /// # Errors
    /// A sentence when they are no places.
    #[inline]
    pub fn links(&self, record: &CsrRecord<'_>, out: &mut Vec<u32>) -> Result<usize, String> {
        self.buckets.decode(record.bytes, record.links_at, record.degree, out)
    }

    /// Whether all bits of a record behind its links, which end at bit `end`, are zero, for `verify`.
    pub fn padding_is_zero(&self, record: &CsrRecord<'_>, end: usize) -> bool {
        let rest = &record.bytes[(end / 8).min(record.bytes.len())..];
        rest.iter().enumerate().all(|(i, byte)| if i == 0 { byte >> (end % 8) == 0 } else { *byte == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(vectors: u32, max_degree: u32) -> CsrLayout {
        CsrLayout::new(Element::U8, 16, vectors, max_degree, LINE_BYTES).unwrap()
    }

    fn sealed(layout: &CsrLayout, place: u32, id: u32, links: &[u32], shift: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        layout.encode(id, &[7; 16], links, &mut bytes);
        bytes.resize(bytes.len() + shift, 0);
        layout.seal(place, &mut bytes);
        bytes
    }

    #[test]
    fn records_round_trip_at_every_size() {
        for (vectors, max_degree) in [(1, 1), (200, 8), (300, 8), (1 << 20, 64), (u32::MAX, 400)] {
            let layout = layout(vectors, max_degree);
            for (place, degree, shift) in [(0, 0, 0), (vectors - 1, max_degree.min(vectors), 5)] {
                let links: Vec<u32> = (vectors - degree..vectors).collect();
                let bytes = sealed(&layout, place, vectors - 1, &links, shift);
                assert!(bytes.len() <= layout.most_bytes() && bytes.len() >= layout.least_bytes());
                let record = layout.decode(&bytes, place).unwrap();
                assert_eq!((record.id, record.vector), (vectors - 1, &[7; 16][..]));
                let mut found = Vec::new();
                let end = layout.links(&record, &mut found).unwrap();
                assert_eq!(found, links);
                assert!(layout.padding_is_zero(&record, end));
                assert!(layout.decode(&bytes, place ^ 1).is_err(), "a record of another place");
                assert!(layout.decode(&bytes[..bytes.len() - 1], place).is_err());
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let layout = layout(1000, 8);
        let mut bytes = sealed(&layout, 3, 77, &[1, 2, 500, 999], 3);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(layout.decode(&bytes, 3).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn records_are_moved_where_that_saves_a_line() {
        let layout = layout(1000, 8);
        assert_eq!(layout.shift(0, 100), 0);
        assert_eq!(layout.shift(60, 64), 4, "one line in place of two");
        assert_eq!(layout.shift(60, 66), 0, "two lines either way");
        assert_eq!(layout.shift(64 + 60, 128), 4);
        assert_eq!(layout.shift(30, 64), 0, "too much would be lost");
    }

    #[test]
    fn lying_parameters_are_refused() {
        let new = CsrLayout::new;
        assert!(new(Element::F32, 0, 1, 8, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, 0, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, MAX_DEGREE + 1, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, 8, 4096).is_err());
        assert!(new(Element::F32, u32::MAX, 1, u32::MAX, LINE_BYTES).is_err());
    }
}
