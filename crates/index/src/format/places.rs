//! Whose vector lies at each place of [`GroupLayout`], and its checksum: what a search has to know that reads vectors alone, without the
//! pages that say it.
//!
//! For each place, in their order, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the vector's id; `4294967295` for a place that holds none |
//! | 4 | CRC-32C of the index's identity (8 bytes), of the place's number (8 bytes) and of the vector; 0 where there is none |

use super::groups::{GroupLayout, NO_ID};

/// Bytes that are kept of a place.
pub const PLACE_BYTES: usize = 8;

/// The places of an index, as the file has them.
#[derive(Debug)]
pub struct Places(Vec<u8>);

impl Places {
    /// Whether an index of this layout has them: where a page is a vector, the page itself is as short.
    pub fn are_needed(layout: &GroupLayout) -> bool {
        layout.page_vectors() > 1
    }

    /// Bytes of the file of `groups` groups.
    pub fn file_bytes(layout: &GroupLayout, groups: u64) -> u64 {
        groups.saturating_mul((layout.group_vectors() * PLACE_BYTES) as u64)
    }

    /// Appends what is known of the `groups` whole groups of `pages`, the first of which is number `first`.
    pub fn encode(layout: &GroupLayout, first: u32, pages: &[u8], out: &mut Vec<u8>) {
        let first_page = first as usize * layout.group_pages();
        for (number, page) in (first_page..).zip(pages.chunks_exact(layout.page_bytes())) {
            for slot in 0..layout.page_vectors() {
                let (id, checksum) = of_slot(layout, number, page, slot);
                out.extend(id.to_le_bytes());
                out.extend(checksum.to_le_bytes());
            }
        }
    }

    /// Takes what the file has, whose length and checksum are right. `count` is the number of vectors of each group, for which
    /// its first places are.
    ///
    /// # Errors
    /// A sentence.
    pub fn from_bytes(
        bytes: Vec<u8>,
        layout: &GroupLayout,
        ids_end: u64,
        count: impl Fn(u32) -> usize,
    ) -> Result<Places, String> {
        let places = Places(bytes);
        for place in 0..(places.0.len() / PLACE_BYTES) as u32 {
            let (group, rank) = layout.group_rank(place);
            let (id, _) = places.get(place).unwrap_or((NO_ID, 0));
            // Places of no vector are at the end of a group, and are never asked for.
            let held = id != NO_ID;
            if held != (rank < count(group)) || held && u64::from(id) >= ids_end {
                return Err(format!("place {place} does not hold what the index says"));
            }
        }
        Ok(places)
    }

    /// The places that hold a vector, and its id.
    pub fn ids(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(ids_in(&self.0)).filter(|(_, id)| *id != NO_ID)
    }

    #[inline]
    fn get(&self, place: u32) -> Option<(u32, u32)> {
        let bytes = self.0.get(place as usize * PLACE_BYTES..)?.first_chunk::<PLACE_BYTES>()?;
        let both = u64::from_le_bytes(*bytes);
        Some((both as u32, (both >> 32) as u32))
    }

    /// The id of the vector that was read from `place`, if it is the one that was written there.
    ///
    /// # Errors
    /// A sentence.
    #[inline]
    pub fn check(&self, layout: &GroupLayout, place: u32, vector: &[u8]) -> Result<u32, String> {
        let Some((id, stored)) = self.get(place).filter(|(id, _)| *id != NO_ID) else {
            return Err("no vector is there".into());
        };
        let found = layout.vector_checksum(place, vector);
        if found != stored {
            return Err(format!("checksum {found:08x}, its place says {stored:08x}"));
        }
        Ok(id)
    }

    /// What these say otherwise than page `number` does, whose own checksum is right or was complained of.
    pub fn differ(&self, layout: &GroupLayout, number: u64, page: &[u8]) -> Option<String> {
        let first = number as usize * layout.page_vectors();
        let differs = |slot: &usize| {
            self.get((first + slot) as u32) != Some(of_slot(layout, number as usize, page, *slot))
        };
        let slot = (0..layout.page_vectors()).find(differs)?;
        Some(format!("what is kept of place {} is not what lies there", first + slot))
    }
}

/// The ids in whole places of the file, one after the other.
pub fn ids_in(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let places = bytes.as_chunks::<PLACE_BYTES>().0.iter();
    places.map(|place| u64::from_le_bytes(*place) as u32)
}

/// The id in a slot of page `number`, and the checksum of its vector.
fn of_slot(layout: &GroupLayout, number: usize, page: &[u8], slot: usize) -> (u32, u32) {
    let Some(id) = layout.id(page, slot) else { return (NO_ID, 0) };
    let place = (number * layout.page_vectors() + slot) as u32;
    let vector = &layout.vectors(page)[slot * layout.vector_bytes()..][..layout.vector_bytes()];
    (id, layout.vector_checksum(place, vector))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::Element;

    /// Two groups of two pages, the second with a vector alone.
    fn pages(layout: &GroupLayout) -> Vec<u8> {
        let mut pages = vec![0; 4 * layout.page_bytes()];
        for (number, (page, count)) in
            pages.chunks_exact_mut(layout.page_bytes()).zip([2, 2, 1, 0]).enumerate()
        {
            let ids: Vec<u32> = (0..count).map(|slot| 10 * number as u32 + slot).collect();
            let rows: Vec<Vec<u8>> = ids.iter().map(|id| vec![*id as u8; layout.vector_bytes()]).collect();
            layout.encode(page, number as u32, &ids, rows.iter().map(|row| &row[..]));
        }
        pages
    }

    #[test]
    fn a_vector_is_taken_from_its_place_alone() {
        let layout = GroupLayout::new(Element::U8, 100, 256, 2).expect("a layout");
        let pages = pages(&layout);
        let mut bytes = Vec::new();
        Places::encode(&layout, 0, &pages, &mut bytes);
        assert_eq!(bytes.len() as u64, Places::file_bytes(&layout, 2));
        let count = |group: u32| [4, 1][group as usize];
        let places = Places::from_bytes(bytes.clone(), &layout, 21, count).expect("sound");
        let vector = |place: u32| {
            let span = layout.vector_span(place);
            &pages[span.offset as usize..][..span.len as usize]
        };
        for (place, id) in [(0, 0), (1, 1), (2, 10), (3, 11), (4, 20)] {
            assert_eq!(places.check(&layout, place, vector(place)), Ok(id));
        }
        assert!(places.check(&layout, 5, vector(5)).is_err(), "nothing is there");
        assert!(places.check(&layout, 8, vector(0)).is_err(), "behind the last");
        assert!(places.check(&layout, 0, vector(1)).is_err(), "another's vector");
        assert!(places.check(&layout, 0, &vector(0)[1..]).is_err(), "a short one");
        for (number, page) in (0..).zip(pages.chunks_exact(layout.page_bytes())) {
            assert_eq!(places.differ(&layout, number, page), None);
        }
        assert!(places.differ(&layout, 1, &pages[..layout.page_bytes()]).is_some(), "another page");
        assert!(Places::from_bytes(bytes.clone(), &layout, 20, count).is_err(), "an id that there is not");
        assert!(Places::from_bytes(bytes, &layout, 21, |_| 4).is_err(), "fewer vectors than a group has");
    }
}
