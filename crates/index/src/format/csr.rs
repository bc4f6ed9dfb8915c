//! The packed layout of a graph: records of different lengths, back to back (compressed sparse rows;
//! second-tier-memory, section 5).
//!
//! Places count the records in the order of the file, in which near vectors are close together. Links are
//! places, so they take few bits. The offset of the record of place `p` is in [`super::offsets`]. A record,
//! all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), of `p` (4 bytes) and of the rest up to the next record |
//! | 1 to 4 | the vector's id, in as many bytes as the largest takes |
//! | 1, or 2 if max_degree is above 255 | degree |
//! | dim x element size | the vector |
//! | the rest | the links, ascending, in the code of [`super::packed`], in whole bytes |
//! | less than a line | zeros, if the next record begins on a line of its own |
//!
//! A record that would extend over one line of memory more than its length requires begins on the next line,
//! if that does not lose many bytes.

use super::identity::Identity;
use super::packed::Buckets;
use super::packing::buffer_bytes;
use super::pages::MAX_DEGREE;
use bathyal_kernels::Element;

/// Bytes of a line of memory: the unit that a processor loads and that most second-tier memory serves.
pub const LINE_BYTES: u32 = 64;
/// A record is shifted by at most this many bytes to save a line. Up to here, each saved line costs some 11
/// bytes of the file; beyond, it costs more (`docs/format/csr.md`).
const MOST_SHIFT: usize = 16;
/// Bytes of the checksum.
const CRC_BYTES: usize = 4;

/// The code of records. Pure arithmetic; all sizes are checked once, in [`CsrLayout::new`].
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
    /// Returns the first bit of the links.
    pub fn links_start(&self) -> usize {
        8 * self.links_at
    }
}

impl CsrLayout {
    /// Returns the layout for `vectors` vectors of `dim` elements with up to `max_degree` neighbours.
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

    /// Returns the same layout for the index with this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> CsrLayout {
        CsrLayout { identity, ..self }
    }

    /// Returns the bytes before the vector.
    fn head_bytes(&self) -> usize {
        CRC_BYTES + self.id_bytes + self.degree_bytes
    }

    /// Returns the bytes of a record without links.
    fn least_bytes(&self) -> usize {
        self.head_bytes() + self.vector_bytes
    }

    /// Returns the most bytes from one record to the next.
    fn most_bytes(&self) -> usize {
        self.least_bytes() + (self.max_degree * self.buckets.most_bits() + 4).div_ceil(8) + self.line_bytes
    }

    /// Returns the bytes of a buffer for any record, for any alignment of a device.
    pub fn read_bytes(&self) -> usize {
        buffer_bytes(self.most_bytes(), 1)
    }

    /// Returns the least and the most bytes of a file of `vectors` records.
    pub fn file_bytes(&self, vectors: u64) -> std::ops::RangeInclusive<u64> {
        let all_vectors = |bytes: usize| vectors.saturating_mul(bytes as u64);
        all_vectors(self.least_bytes())..=all_vectors(self.most_bytes())
    }

    /// Returns the number of zeros before a record of `length` bytes if the previous record ends at `end`.
    pub fn shift(&self, end: u64, length: usize) -> usize {
        let line = self.line_bytes;
        let into = (end % line as u64) as usize;
        let (lines_here, lines_next) = ((into + length).div_ceil(line), length.div_ceil(line));
        if into > 0 && lines_next < lines_here && line - into <= MOST_SHIFT { line - into } else { 0 }
    }

    /// Appends the record of vector `id` to `out`, without its checksum; `links` ascend.
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

    /// Sets the checksum of a record, whose `bytes` extend to the next record.
    pub fn seal(&self, place: u32, bytes: &mut [u8]) {
        let crc = self.checksum(place, bytes);
        bytes[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    #[inline]
    fn checksum(&self, place: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.identity.checksum(&place.to_le_bytes()), &bytes[CRC_BYTES..])
    }

    /// Checks the record of `place`, whose `bytes` extend to the next record.
    ///
    /// # Errors
    /// A sentence that states what is wrong with the bytes.
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

    /// Reads the links of a record, ascending places, into `out`. Returns the position of their end, in bits
    /// from the start of the record.
    ///
    /// # Errors
    /// A sentence if they are not valid places.
    #[inline]
    pub fn links(&self, record: &CsrRecord<'_>, out: &mut Vec<u32>) -> Result<usize, String> {
        self.buckets.decode(record.bytes, record.links_at, record.degree, out)
    }

    /// Returns true if all bits of a record behind its links, which end at bit `end`, are zero, for `verify`.
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
    fn every_flipped_bit_is_detected() {
        let layout = layout(1000, 8);
        let mut bytes = sealed(&layout, 3, 77, &[1, 2, 500, 999], 3);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(layout.decode(&bytes, 3).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn records_are_shifted_if_that_saves_a_line() {
        let layout = layout(1000, 8);
        assert_eq!(layout.shift(0, 100), 0);
        assert_eq!(layout.shift(60, 64), 4, "one line in place of two");
        assert_eq!(layout.shift(60, 66), 0, "two lines either way");
        assert_eq!(layout.shift(64 + 60, 128), 4);
        assert_eq!(layout.shift(30, 64), 0, "too much would be lost");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let new = CsrLayout::new;
        assert!(new(Element::F32, 0, 1, 8, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, 0, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, MAX_DEGREE + 1, LINE_BYTES).is_err());
        assert!(new(Element::F32, 8, 1, 8, 4096).is_err());
        assert!(new(Element::F32, u32::MAX, 1, u32::MAX, LINE_BYTES).is_err());
    }
}
