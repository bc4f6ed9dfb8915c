//! The page-local layout of a graph: near vectors share a page, and a page links to others as a whole.
//!
//! One page is one node of the graph that a search walks (PageANN; Starling's block search): one read gives
//! all its vectors to score and all its links. Places count the vectors in the order of the file; page `p`
//! has the places from `p * records` on. A link is the place of a vector of another page. A page, all
//! little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), the page's number (4 bytes) and the rest of the page |
//! | 4 | number of links |
//! | 4 | low bits of a link's code, 0 to 31 |
//! | 4 x records | the vectors' ids; `4294967295` for a place without a vector |
//! | records x dim x element size | the vectors; zeros at a place without a vector |
//! | the rest | the links, in the code of [`super::links`], then zeros |

use super::groups::NO_ID;
use super::identity::Identity;
use super::links;
use super::packing::{SECTOR_BYTES, buffer_bytes};
use bathyal_kernels::Element;
use bathyal_tier::Span;

/// Bytes before the ids.
const HEADER_BYTES: usize = 12;
/// Largest page: several of the longest vectors fit.
const MOST_PAGE_BYTES: u32 = 1 << 20;
/// Links that a page of many vectors should have space for; more links would leave space for fewer vectors
/// (`docs/reads.md`).
const WANTED_LINKS: usize = 256;

/// The positions of pages and vectors. Pure arithmetic; all sizes are checked once, in [`LocalLayout::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalLayout {
    page_bytes: usize,
    vector_bytes: usize,
    records: usize,
    vectors: u32,
    identity: Identity,
}

/// A page whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct LocalPage<'a> {
    ids: &'a [u8],
    /// The vectors' bytes, one after the other.
    pub vectors: &'a [u8],
    links: &'a [u8],
    link_count: usize,
    low_bits: u32,
    limit: u32,
}

impl<'a> LocalPage<'a> {
    /// Returns the users' ids of the vectors, by place.
    #[inline]
    pub fn ids(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.ids.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b))
    }

    /// Returns the number of links.
    pub fn link_count(&self) -> usize {
        self.link_count
    }

    /// Reads the links, ascending places, into `out`, and returns the number of bits that they take.
    ///
    /// # Errors
    /// A sentence if they are not valid places.
    pub fn links(&self, out: &mut Vec<u32>) -> Result<usize, String> {
        links::decode(self.links, self.link_count, self.low_bits, self.limit, out)
    }

    /// Returns true if all bits behind the links, which take `used` bits, are zero, for `verify`.
    pub fn padding_is_zero(&self, used: usize) -> bool {
        let rest = &self.links[(used / 8).min(self.links.len())..];
        rest.iter().enumerate().all(|(i, byte)| if i == 0 { byte >> (used % 8) == 0 } else { *byte == 0 })
    }
}

impl LocalLayout {
    /// Returns the layout of `vectors` vectors of `dim` elements, `records` per page.
    ///
    /// # Errors
    /// A sentence when a number is out of range.
    pub fn new(
        element: Element,
        dim: u32,
        vectors: u32,
        page_bytes: u32,
        records: u32,
    ) -> Result<LocalLayout, String> {
        if dim == 0 || dim > super::manifest::MAX_DIM {
            return Err(format!("dim {dim} is not between 1 and {}", super::manifest::MAX_DIM));
        }
        if !page_bytes.is_multiple_of(512) || !(512..=MOST_PAGE_BYTES).contains(&page_bytes) {
            return Err(format!("page_bytes {page_bytes} is not a multiple of 512 up to {MOST_PAGE_BYTES}"));
        }
        let vector_bytes = element.row_bytes(dim as usize);
        let most = (page_bytes as usize - HEADER_BYTES) / (4 + vector_bytes);
        if records == 0 || records as usize > most {
            return Err(format!("page_vectors {records} is not between 1 and {most}"));
        }
        let (page_bytes, records) = (page_bytes as usize, records as usize);
        Ok(LocalLayout { page_bytes, vector_bytes, records, vectors, identity: Identity::NONE })
    }

    /// Returns the layout with as many vectors per page as leave enough space for links.
    ///
    /// # Errors
    /// A sentence when no page is large enough.
    pub fn choose(element: Element, dim: u32, vectors: u32, max_degree: u32) -> Result<LocalLayout, String> {
        let record = 4 + element.row_bytes(dim as usize);
        let link_bytes = |records: usize| {
            let wanted = WANTED_LINKS.min(max_degree as usize * records);
            let bits = (f64::from(vectors) / wanted as f64).max(1.0).log2() + 2.0;
            (bits * wanted as f64 / 8.0).ceil() as usize
        };
        for page_bytes in (super::pages::PAGE_BYTES..=MOST_PAGE_BYTES).step_by(SECTOR_BYTES) {
            let available = page_bytes as usize - HEADER_BYTES;
            let fits = |records: &usize| records * record + link_bytes(*records) <= available;
            if let Some(records) = (1..=available / record).rev().find(fits) {
                return LocalLayout::new(element, dim, vectors, page_bytes, records as u32);
            }
        }
        Err(format!("no page of up to {MOST_PAGE_BYTES} bytes holds a vector and its links"))
    }

    /// Returns the same layout for the index with this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> LocalLayout {
        LocalLayout { identity, ..self }
    }

    /// Returns the number of vectors of a full page.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Returns the bytes of a page, which one read fetches.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the bytes of a buffer for a page, for any alignment of a device.
    pub fn buffer_bytes(&self) -> usize {
        buffer_bytes(self.page_bytes, self.page_bytes)
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u32 {
        self.vectors.div_ceil(self.records as u32)
    }

    /// Returns the bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.pages()) * self.page_bytes as u64
    }

    /// Returns the page of `place`.
    #[inline]
    pub fn page_of(&self, place: u32) -> u32 {
        place / self.records as u32
    }

    /// Returns the places on `page`.
    #[inline]
    pub fn places(&self, page: u32) -> std::ops::Range<u32> {
        let first = u64::from(page) * self.records as u64;
        let limit = u64::from(self.vectors);
        first.min(limit) as u32..(first + self.records as u64).min(limit) as u32
    }

    /// Returns the span of `page` in the file.
    #[inline]
    pub fn span(&self, page: u32) -> Span {
        Span { offset: u64::from(page) * self.page_bytes as u64, len: self.page_bytes as u32 }
    }

    /// Returns the bits that the links of a page may take.
    pub fn link_bits(&self) -> usize {
        8 * (self.page_bytes - HEADER_BYTES - self.records * (4 + self.vector_bytes))
    }

    /// Writes page number `page`: `ids` with their `rows`, at most as many as fit a page, and `links` in
    /// ascending order.
    ///
    /// # Panics
    /// If these do not fit the page, which is a builder's bug.
    pub fn encode<'a>(
        &self,
        out: &mut [u8],
        page: u32,
        ids: &[u32],
        rows: impl Iterator<Item = &'a [u8]>,
        links: &[u32],
    ) {
        out.fill(0);
        let (bits, low) = links::encoded_bits(links);
        assert!(ids.len() <= self.records && bits <= self.link_bits());
        let (head, body) = out[..self.page_bytes].split_at_mut(HEADER_BYTES + 4 * self.records);
        let (vectors, coded) = body.split_at_mut(self.records * self.vector_bytes);
        head[4..8].copy_from_slice(&(links.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&low.to_le_bytes());
        let all = ids.iter().copied().chain(std::iter::repeat(NO_ID));
        for (slot, id) in head[HEADER_BYTES..].chunks_exact_mut(4).zip(all) {
            slot.copy_from_slice(&id.to_le_bytes());
        }
        for (slot, row) in vectors.chunks_exact_mut(self.vector_bytes).zip(rows) {
            slot.copy_from_slice(row);
        }
        links::encode(links, low, coded);
        let crc = self.checksum(out, page);
        out[..4].copy_from_slice(&crc.to_le_bytes());
    }

    #[inline]
    fn checksum(&self, bytes: &[u8], page: u32) -> u32 {
        crc32c::crc32c_append(self.identity.checksum(&page.to_le_bytes()), &bytes[4..self.page_bytes])
    }

    /// Checks the bytes of page number `page`.
    ///
    /// # Errors
    /// A sentence that states what is wrong with the bytes.
    #[inline]
    pub fn decode<'a>(&self, bytes: &'a [u8], page: u32) -> Result<LocalPage<'a>, String> {
        let Some(bytes) = bytes.get(..self.page_bytes) else {
            return Err(format!("{} bytes are too few for a page", bytes.len()));
        };
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (stored, found) = (word(0), self.checksum(bytes, page));
        if stored != found {
            return Err(format!("checksum {found:08x} differs from the stored {stored:08x}"));
        }
        let (link_count, low_bits) = (word(4) as usize, word(8));
        // Every link takes at least one bit.
        if link_count > self.link_bits() || low_bits > links::MOST_LOW_BITS {
            return Err(format!("{link_count} links of {low_bits} low bits do not fit the page"));
        }
        let present = self.places(page).len();
        let (ids, body) = bytes[HEADER_BYTES..].split_at(4 * self.records);
        let (vectors, links) = body.split_at(self.records * self.vector_bytes);
        Ok(LocalPage {
            ids: &ids[..4 * present],
            vectors: &vectors[..present * self.vector_bytes],
            links,
            link_count,
            low_bits,
            limit: self.vectors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_partial_pages_round_trip() {
        for (element, dim, vectors) in [
            (Element::U8, 128, 1000),
            (Element::F32, 100, 57),
            (Element::F32, 3000, 3),
            (Element::I8, 1, 5000),
        ] {
            let layout = LocalLayout::choose(element, dim, vectors, 32).unwrap();
            assert_eq!(layout.file_bytes(), u64::from(layout.pages()) * layout.page_bytes() as u64);
            for page in [0, layout.pages() - 1] {
                let places = layout.places(page);
                let ids: Vec<u32> = places.clone().map(|place| place ^ 1).collect();
                let row_bytes = element.row_bytes(dim as usize);
                let rows: Vec<Vec<u8>> = places
                    .map(|place| (0..row_bytes).map(|i| (place as usize + i) as u8).collect())
                    .collect();
                let links: Vec<u32> = (0..vectors).step_by(vectors as usize / 30 + 1).collect();
                let mut bytes = vec![7; layout.page_bytes()];
                layout.encode(&mut bytes, page, &ids, rows.iter().map(Vec::as_slice), &links);
                let decoded = layout.decode(&bytes, page).unwrap();
                assert!(decoded.ids().eq(ids.iter().copied()));
                assert_eq!(decoded.vectors, rows.concat());
                let mut found = Vec::new();
                let used = decoded.links(&mut found).unwrap();
                assert_eq!(found, links);
                assert!(decoded.padding_is_zero(used));
                assert!(layout.decode(&bytes, page + 1).is_err());
                assert!(layout.decode(&bytes[1..], page).is_err());
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_page_is_detected() {
        let layout = LocalLayout::new(Element::U8, 16, 100, 512, 20).unwrap();
        let mut bytes = vec![0; 512];
        layout.encode(&mut bytes, 3, &[5, 6, 7], std::iter::repeat_n([9; 16].as_slice(), 3), &[1, 90]);
        for bit in 0..512 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(layout.decode(&bytes, 3).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn many_vectors_share_a_page_that_still_has_space_for_links() {
        let layout = LocalLayout::choose(Element::U8, 128, 1_000_000, 64).unwrap();
        assert_eq!((layout.page_bytes(), layout.records()), (4096, 27));
        let layout = LocalLayout::choose(Element::F32, 1536, 1_000_000, 64).unwrap();
        assert_eq!((layout.page_bytes(), layout.records()), (6656, 1));
        let layout = LocalLayout::choose(Element::F32, 65_536, 1_000_000, 64).unwrap();
        assert!(layout.records() >= 1);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert!(LocalLayout::new(Element::F32, 0, 1, 4096, 1).is_err());
        assert!(LocalLayout::new(Element::F32, 8, 1, 1000, 1).is_err());
        assert!(LocalLayout::new(Element::F32, 8, 1, 4096, 0).is_err());
        assert!(LocalLayout::new(Element::F32, 8, 1, 4096, 200).is_err());
        assert!(LocalLayout::new(Element::F32, u32::MAX, 1, u32::MAX, u32::MAX).is_err());
    }
}
