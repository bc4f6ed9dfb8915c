//! Where the vector of each id lies, so that one which is asked for by its id is found without reading all others.
//!
//! Blocks of 4096 bytes, the last of which may be shorter, all little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | CRC-32C of the index's identity (8 bytes), of the block's number (8 bytes) and of what follows |
//! | 4 each | the places ([`GroupLayout`]) of the ids from 1023 x the block's number on |

use super::groups::GroupLayout;
use super::identity::Identity;
use super::manifest::{FileEntry, Manifest};
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::ranges::read_runs;
use bathyal_store::{Generation, Object};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;
/// Bytes of a place, and of the checksum before those of a block.
const PLACE_BYTES: usize = 4;
/// Places of a block.
pub const BLOCK_PLACES: usize = BLOCK_BYTES / PLACE_BYTES - 1;
/// What is said of all this where there is no memory for it.
const WHERE: &str = "where vectors lie";
/// Bytes that are read at once of what is read whole: whole blocks.
const READ_BYTES: u64 = 1 << 20;

/// Bytes of the file of so many vectors.
pub fn file_bytes(vectors: u64) -> u64 {
    (vectors + vectors.div_ceil(BLOCK_PLACES as u64)) * PLACE_BYTES as u64
}

/// Appends the blocks of `places`, those of the ids from `first` x [`BLOCK_PLACES`] on.
pub fn encode(identity: Identity, first: u64, places: &[u32], out: &mut Vec<u8>) {
    for (number, places) in (first..).zip(places.chunks(BLOCK_PLACES)) {
        let begin = out.len();
        out.extend([0; PLACE_BYTES]);
        out.extend(places.iter().flat_map(|place| place.to_le_bytes()));
        let sum = checksum(identity, number, &out[begin + PLACE_BYTES..]);
        out[begin..begin + PLACE_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The places in block `number`, which has these bytes.
///
/// # Errors
/// A sentence.
pub fn decode(
    identity: Identity,
    number: u64,
    block: &[u8],
) -> Result<impl ExactSizeIterator<Item = u32> + '_, String> {
    let (stored, places) = block.split_first_chunk::<PLACE_BYTES>().ok_or("it has no checksum")?;
    let (stored, found) = (u32::from_le_bytes(*stored), checksum(identity, number, places));
    if stored != found {
        return Err(format!("checksum {found:08x}, it says {stored:08x}"));
    }
    Ok(places.as_chunks::<PLACE_BYTES>().0.iter().map(|place| u32::from_le_bytes(*place)))
}

/// The places of all ids, from all bytes of the file.
///
/// # Errors
/// The number of a block, and what is wrong with it.
pub fn decode_all(identity: Identity, bytes: &[u8]) -> Result<Vec<u32>, (u64, String)> {
    let mut places =
        try_with_capacity(WHERE, bytes.len() / PLACE_BYTES).map_err(|error| (0, error.to_string()))?;
    for (number, block) in (0..).zip(bytes.chunks(BLOCK_BYTES)) {
        places.extend(decode(identity, number, block).map_err(|reason| (number, reason))?);
    }
    Ok(places)
}

fn checksum(identity: Identity, number: u64, places: &[u8]) -> u32 {
    crc32c::crc32c_append(identity.checksum(&number.to_le_bytes()), places)
}

/// The file of an open index.
pub(crate) struct Positions {
    object: Arc<dyn Object>,
    layout: GroupLayout,
    vectors: u64,
    /// Places are below it.
    places: u64,
}

impl Positions {
    /// Of an index of so many groups.
    ///
    /// # Errors
    /// As [`Manifest::open_file`].
    pub(crate) fn open(
        (directory, manifest): (&dyn Generation, &Manifest),
        file: &FileEntry,
        layout: GroupLayout,
        groups: usize,
    ) -> Result<Positions, IndexError> {
        let object = manifest.open_file(directory, file)?;
        Ok(Positions { object, layout, vectors: manifest.vectors, places: layout.places(groups) as u64 })
    }

    /// Where block `number` is in the file.
    fn span(&self, number: u64) -> Range<u64> {
        let start = number * BLOCK_BYTES as u64;
        start..file_bytes(self.vectors).min(start + BLOCK_BYTES as u64)
    }

    /// The places in block `number`, which has these bytes.
    fn of_block<'a>(
        &self,
        number: u64,
        block: &'a [u8],
    ) -> Result<impl ExactSizeIterator<Item = u32> + use<'a>, IndexError> {
        decode(self.layout.identity(), number, block).map_err(|reason| self.damaged(number, reason))
    }

    fn damaged(&self, number: u64, reason: String) -> IndexError {
        IndexError::damaged(self.object.address(), format!("block {number}"), reason)
    }

    /// The page of a place that block `number` holds.
    fn page(&self, number: u64, place: u32) -> Result<u32, IndexError> {
        if u64::from(place) >= self.places {
            let reason = format!("place {place} is none of the {} of the index", self.places);
            return Err(self.damaged(number, reason));
        }
        Ok(self.layout.page_of(place))
    }

    /// The pages of the vectors with these ids, which rise, in their order; of blocks that are `far` away near ones are read together
    /// and many at once.
    ///
    /// # Errors
    /// Damage, and what reading fails with.
    pub(crate) fn pages_of(&self, ids: &[u32], far: bool) -> Result<Vec<u32>, IndexError> {
        let mut pages = try_with_capacity(WHERE, ids.len())?;
        let number_of = |id: &u32| u64::from(*id) / BLOCK_PLACES as u64;
        let blocks = ids.chunk_by(|a, b| number_of(a) == number_of(b));
        let runs = read_runs(&*self.object, blocks.clone().map(|ids| self.span(number_of(&ids[0]))), far)?;
        let mut runs = runs.iter().peekable();
        for ids in blocks {
            let number = number_of(&ids[0]);
            while runs.peek().is_some_and(|run| run.get(self.span(number)).is_none()) {
                runs.next();
            }
            let block = runs.peek().and_then(|run| run.get(self.span(number)));
            let block = block.ok_or_else(|| IndexError::Internal("a block was not read".into()))?;
            let places: Vec<u32> = self.of_block(number, &block)?.collect();
            for id in ids {
                let place = places.get(*id as usize % BLOCK_PLACES).copied();
                let place = place.ok_or_else(|| self.damaged(number, format!("id {id} is not there")))?;
                pages.push(self.page(number, place)?);
            }
        }
        Ok(pages)
    }

    /// Tells `each` of all ids, as they rise, and of their places; `go_on` fails where the caller waits no longer.
    ///
    /// # Errors
    /// Damage, what reading fails with, and what `go_on` does.
    pub(crate) fn read_all(
        &self,
        go_on: &dyn Fn() -> Result<(), IndexError>,
        mut each: impl FnMut(u32, u32),
    ) -> Result<(), IndexError> {
        let (bytes, mut id) = (file_bytes(self.vectors), 0);
        for start in (0..bytes).step_by(READ_BYTES as usize) {
            go_on()?;
            let mut some = vec![0; READ_BYTES.min(bytes - start) as usize];
            self.object.read_at(start, &mut some)?;
            for (number, block) in (start / BLOCK_BYTES as u64..).zip(some.chunks(BLOCK_BYTES)) {
                for place in self.of_block(number, block)? {
                    self.page(number, place)?;
                    each(id, place);
                    id += 1;
                }
            }
        }
        Ok(())
    }

    /// The page of each vector, by id.
    ///
    /// # Errors
    /// As [`Positions::read_all`].
    pub(crate) fn pages(&self, go_on: &dyn Fn() -> Result<(), IndexError>) -> Result<Vec<u32>, IndexError> {
        let mut pages = try_with_capacity(WHERE, self.vectors as usize)?;
        self.read_all(go_on, |_, place| pages.push(self.layout.page_of(place)))?;
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_where_each_lies_and_are_not_taken_for_one_another() {
        let identity = Identity::of("an index");
        let places: Vec<u32> = (0..2500).map(|id| id * 7 % 2500).collect();
        let mut bytes = Vec::new();
        encode(identity, 0, &places[..2046], &mut bytes);
        encode(identity, 2, &places[2046..], &mut bytes);
        assert_eq!(bytes.len() as u64, file_bytes(2500));
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
        let found: Vec<u32> =
            (0..).zip(&blocks).flat_map(|(number, block)| decode(identity, number, block).unwrap()).collect();
        assert_eq!(found, places);
        assert!(decode(identity, 1, blocks[0]).is_err(), "another block");
        assert!(decode(Identity::of("another"), 0, blocks[0]).is_err(), "another index's");
        for at in 0..blocks[2].len() {
            let mut damaged = blocks[2].to_vec();
            damaged[at] ^= 1;
            assert!(decode(identity, 2, &damaged).is_err(), "{at}");
            assert!(decode(identity, 2, &blocks[2][..at]).is_err(), "cut to {at}");
        }
        assert_eq!((file_bytes(0), file_bytes(1), file_bytes(1023), file_bytes(1024)), (0, 8, 4096, 4104));
    }
}
