//! The id and the checksum of the vector at each place of a [`GroupLayout`]. Searches need them to read
//! vectors alone, without the pages that contain both.
//!
//! For each place, in order, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | the vector's id; `4294967295` for a place without a vector |
//! | 4 | CRC-32C of the index's identity (8 bytes), the place's number (8 bytes) and the vector; or 0 |

use super::groups::{GroupLayout, NO_ID};

/// Bytes of one place in the file.
pub const PLACE_BYTES: usize = 8;

/// The ids and checksums of all places of an index, in the bytes of the file.
#[derive(Debug)]
pub struct Places(Vec<u8>);

impl Places {
    /// Returns true if an index of this layout has such a file. If each page has a single vector, a page is
    /// as short as the vector, so there is no file.
    pub fn are_needed(layout: &GroupLayout) -> bool {
        layout.page_vectors() > 1
    }

    /// Returns the bytes of the file of `groups` groups.
    pub fn file_bytes(layout: &GroupLayout, groups: u64) -> u64 {
        groups.saturating_mul((layout.group_vectors() * PLACE_BYTES) as u64)
    }

    /// Appends the entries of `pages`, which are whole groups; the first of them is group number `first`.
    pub fn encode(layout: &GroupLayout, first: u32, pages: &[u8], out: &mut Vec<u8>) {
        let first_page = first as usize * layout.group_pages();
        for (number, page) in (first_page..).zip(pages.chunks_exact(layout.page_bytes())) {
            for slot in 0..layout.page_vectors() {
                let (id, checksum) = slot_entry(layout, number, page, slot);
                out.extend(id.to_le_bytes());
                out.extend(checksum.to_le_bytes());
            }
        }
    }

    /// Creates the places from the bytes of the file, whose length and checksum are right. `count` returns
    /// the number of vectors of each group, which have the group's first places.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
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
            // Places without a vector are at the end of a group, and are never read.
            let has_vector = id != NO_ID;
            if has_vector != (rank < count(group)) || has_vector && u64::from(id) >= ids_end {
                return Err(format!(
                    "place {place} contradicts the number of vectors in its group, or has an id beyond the \
                     last"
                ));
            }
        }
        Ok(places)
    }

    /// Returns the places that have a vector, with its id.
    pub fn ids(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).zip(ids_in(&self.0)).filter(|(_, id)| *id != NO_ID)
    }

    #[inline]
    fn get(&self, place: u32) -> Option<(u32, u32)> {
        let bytes = self.0.get(place as usize * PLACE_BYTES..)?.first_chunk::<PLACE_BYTES>()?;
        let both = u64::from_le_bytes(*bytes);
        Some((both as u32, (both >> 32) as u32))
    }

    /// Returns the id of the vector that was read from `place`, if it is the vector that was written there.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    #[inline]
    pub fn check(&self, layout: &GroupLayout, place: u32, vector: &[u8]) -> Result<u32, String> {
        let Some((id, stored)) = self.get(place).filter(|(id, _)| *id != NO_ID) else {
            return Err("there is no vector at this place".into());
        };
        let found = layout.vector_checksum(place, vector);
        if found != stored {
            return Err(format!("checksum {found:08x}, but the file of places has {stored:08x}"));
        }
        Ok(id)
    }

    /// Returns how these entries differ from page `number`, if they do. The page's own checksum is right, or
    /// its fault was reported.
    pub fn differ(&self, layout: &GroupLayout, number: u64, page: &[u8]) -> Option<String> {
        let first = number as usize * layout.page_vectors();
        let differs = |slot: &usize| {
            self.get((first + slot) as u32) != Some(slot_entry(layout, number as usize, page, *slot))
        };
        let slot = (0..layout.page_vectors()).find(differs)?;
        Some(format!("the entry of place {} differs from the page", first + slot))
    }
}

/// Returns the ids in whole entries of the file, in order.
pub fn ids_in(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let places = bytes.as_chunks::<PLACE_BYTES>().0.iter();
    places.map(|place| u64::from_le_bytes(*place) as u32)
}

/// Returns the id in a slot of page `number`, and the checksum of its vector.
fn slot_entry(layout: &GroupLayout, number: usize, page: &[u8], slot: usize) -> (u32, u32) {
    let Some(id) = layout.id(page, slot) else { return (NO_ID, 0) };
    let place = (number * layout.page_vectors() + slot) as u32;
    let vector = &layout.vectors(page)[slot * layout.vector_bytes()..][..layout.vector_bytes()];
    (id, layout.vector_checksum(place, vector))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::Element;

    /// Returns two groups of two pages, the second with a single vector.
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
    fn a_vector_is_accepted_at_its_own_place_only() {
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
        assert!(places.check(&layout, 5, vector(5)).is_err(), "a place without a vector");
        assert!(places.check(&layout, 8, vector(0)).is_err(), "a place behind the last");
        assert!(places.check(&layout, 0, vector(1)).is_err(), "the vector of another place");
        assert!(places.check(&layout, 0, &vector(0)[1..]).is_err(), "a short vector");
        for (number, page) in (0..).zip(pages.chunks_exact(layout.page_bytes())) {
            assert_eq!(places.differ(&layout, number, page), None);
        }
        assert!(places.differ(&layout, 1, &pages[..layout.page_bytes()]).is_some(), "another page");
        assert!(Places::from_bytes(bytes.clone(), &layout, 20, count).is_err(), "an id beyond the last");
        assert!(Places::from_bytes(bytes, &layout, 21, |_| 4).is_err(), "fewer vectors than a group has");
    }
}
