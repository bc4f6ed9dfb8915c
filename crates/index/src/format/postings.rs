//! Posting lists: the positions of the vectors and the members of each list, in any of three layouts.
//!
//! *Coupled* lists hold a copy of each of their vectors (SPANN, NeurIPS'21). *Decoupled* lists hold addresses
//! of vectors that are stored once, in the order of their ids. *Grouped* lists store the vectors that they
//! own and hold the addresses of their other vectors (second-tier-memory, section 6). An address is the
//! vector's *place*: its rank among all stored rows.
//!
//! The file of postings, all little-endian:
//!
//! | layout | bytes |
//! |---|---|
//! | coupled | list after list: its rows, then their ids (4 bytes each) |
//! | coupled, of codes | all rows by place, with their ids; zeros; list after list: codes, then places |
//! | decoupled, grouped | all rows by place; zeros; the member sections of all lists, one after the other |
//!
//! The zeros fill a block. A coupled list that would extend over one block more than its length requires
//! begins at the next block, with zeros before it.
//!
//! A member section holds the addresses of the list's vectors that are stored elsewhere; it is empty if there
//! are none. Grouped lists name rows of other lists ([`super::runs`]). Decoupled lists hold places: a byte
//! with the number of low bits, the first place (4 bytes), then the distances of the other places distances
//! the first, less one, as a set of [`super::links`]. The members are close together somewhere in the file,
//! so coding the distance from the start of the file would take more bits than the members do. The table of
//! lists is a file of its own. It has three numbers of 32 bits per list: rows stored, members, bytes of the
//! member section. All positions follow from it.
//!
//! A file of checksums has a CRC-32C of each block of 4096 bytes of the file. All data from a device is
//! checked as whole blocks, and rows have no bytes beside them.

mod coded;

use super::identity::Identity;
use super::links;
use super::manifest::MAX_VECTORS;
use super::runs::decode_section;
use crate::allocate::{try_collect, try_with_capacity};
use crate::error::Unreadable;
use std::ops::Range;

/// The layout with a copy of a vector in each of its lists.
pub const COUPLED: &str = "coupled";
/// The layout with vectors in the order of their ids, and lists of their places.
pub const DECOUPLED: &str = "decoupled";
/// The layout with each vector in one of its lists, and its place in the others.
pub const GROUPED: &str = "grouped";
/// Bytes that a checksum covers: the unit that devices read.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a list's entry in the table.
pub const ENTRY_BYTES: usize = 12;
/// Bytes of an id beside a coupled row.
const ID_BYTES: usize = 4;
/// Bytes of a member section before its bits: the number of low bits and the first place.
const MEMBER_HEAD_BYTES: usize = 5;
/// Longest list or member section: far longer than any sensible one, and short enough for one read.
pub const MOST_LIST_BYTES: u64 = 1 << 26;
/// Most lists that a vector may be in.
pub const MOST_REPLICAS: u32 = 8;

/// The way in which lists hold their vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostingLayout {
    /// A copy in each list.
    Coupled,
    /// All vectors by address.
    Decoupled,
    /// Owned vectors as rows, others by address.
    Grouped,
}

impl PostingLayout {
    /// Returns the layout's name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            PostingLayout::Coupled => COUPLED,
            PostingLayout::Decoupled => DECOUPLED,
            PostingLayout::Grouped => GROUPED,
        }
    }
}

impl std::str::FromStr for PostingLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [PostingLayout::Coupled, PostingLayout::Decoupled, PostingLayout::Grouped]
            .into_iter()
            .find(|layout| layout.name() == text)
            .ok_or_else(|| format!("unknown layout {text:?} of posting lists"))
    }
}

/// The table's entry of one list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListEntry {
    /// Number of rows that are stored with the list.
    pub stored: u32,
    /// Number of the list's vectors that are stored elsewhere.
    pub members: u32,
    /// Bytes of the member section.
    pub member_bytes: u32,
}

impl ListEntry {
    /// Returns the entry's bytes in the table.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        for (slot, number) in bytes.chunks_exact_mut(4).zip([self.stored, self.members, self.member_bytes]) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> ListEntry {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        ListEntry { stored: number(0), members: number(4), member_bytes: number(8) }
    }
}

/// The positions of all rows and sections in a file of postings. Every number is checked once, in
/// [`Postings::new`].
#[derive(Debug, Clone)]
pub struct Postings {
    layout: PostingLayout,
    vectors: u32,
    /// Bytes that a list stores per vector: its row, or its code.
    row_bytes: usize,
    /// Bytes from one row by place to the next.
    place_bytes: usize,
    /// Number of rows that are stored with each list.
    stored: Vec<u32>,
    /// Grouped: the first place of each list, and the end of the last.
    firsts: Vec<u32>,
    /// Decoupled and grouped: the number of places in each member section.
    member_counts: Vec<u32>,
    /// The start of each list (coupled) or of its member section, and the end of the last.
    starts: Vec<u64>,
    copies: u64,
    longest: usize,
}

impl Postings {
    /// Returns the lists of a table over `vectors` vectors of `row_bytes` each.
    ///
    /// # Errors
    /// A sentence if a list is too long, or if the lists do not hold all vectors.
    pub fn new(
        layout: PostingLayout,
        row_bytes: usize,
        vectors: u64,
        entries: impl ExactSizeIterator<Item = ListEntry>,
    ) -> Result<Postings, Unreadable> {
        if vectors == 0 || vectors > MAX_VECTORS || row_bytes == 0 || row_bytes as u64 > MOST_LIST_BYTES {
            return Err(format!("{vectors} vectors of {row_bytes} bytes cannot be in lists").into());
        }
        let rows_end = (vectors * row_bytes as u64).next_multiple_of(BLOCK_BYTES as u64);
        let mut at = if layout == PostingLayout::Coupled { 0 } else { rows_end };
        let (lists, table) = (entries.len(), "the table of lists");
        let reserve_places = |needed: bool| try_with_capacity(table, if needed { lists + 1 } else { 0 });
        let mut postings = Postings {
            layout,
            vectors: vectors as u32,
            row_bytes,
            place_bytes: row_bytes,
            stored: try_with_capacity(table, lists)?,
            firsts: reserve_places(layout == PostingLayout::Grouped)?,
            member_counts: reserve_places(layout != PostingLayout::Coupled)?,
            starts: try_with_capacity(table, lists + 1)?,
            copies: 0,
            longest: 0,
        };
        let mut places = 0_u64;
        for (list, entry) in entries.enumerate() {
            let length = postings.length_of(entry).map_err(|reason| format!("list {list}: {reason}"))?;
            if layout == PostingLayout::Coupled {
                at = list_start(at, length);
            } else {
                if layout == PostingLayout::Grouped {
                    postings.firsts.push(places.min(MAX_VECTORS) as u32);
                }
                postings.member_counts.push(entry.members);
                let rows = u64::from(entry.stored) * row_bytes as u64;
                postings.longest = postings.longest.max(rows as usize);
            }
            postings.stored.push(entry.stored);
            postings.starts.push(at);
            postings.longest = postings.longest.max(length as usize);
            at += length;
            places += u64::from(entry.stored);
            postings.copies += u64::from(entry.stored) + u64::from(entry.members);
        }
        postings.starts.push(at);
        let complete = match layout {
            PostingLayout::Coupled => true,
            PostingLayout::Decoupled => places == 0,
            PostingLayout::Grouped => {
                postings.firsts.push(places.min(MAX_VECTORS) as u32);
                places == vectors
            }
        };
        if !complete {
            return Err(format!(
                "{places} of {vectors} rows are stored with lists of layout {}",
                layout.name()
            )
            .into());
        }
        let most = vectors.saturating_mul(u64::from(MOST_REPLICAS));
        if !(vectors..=most).contains(&postings.copies) {
            return Err(format!("the lists hold {} entries for {vectors} vectors", postings.copies).into());
        }
        Ok(postings)
    }

    /// Returns the lists from the bytes of a table.
    ///
    /// # Errors
    /// As [`Postings::new`], and for a length that is not a whole number of entries.
    pub fn from_bytes(
        layout: PostingLayout,
        row_bytes: usize,
        vectors: u64,
        bytes: &[u8],
    ) -> Result<Postings, Unreadable> {
        Postings::new(layout, row_bytes, vectors, table_entries(bytes)?)
    }

    /// Returns the bytes that a list takes in the file, without its rows that are stored by place.
    fn length_of(&self, entry: ListEntry) -> Result<u64, String> {
        let coupled = self.layout == PostingLayout::Coupled;
        let row = self.row_bytes + if coupled { ID_BYTES } else { 0 };
        let rows = u64::from(entry.stored) * row as u64;
        let section = u64::from(entry.member_bytes);
        if rows > MOST_LIST_BYTES || section > MOST_LIST_BYTES {
            return Err(format!("{} rows and {section} bytes of members are too long", entry.stored));
        }
        let sound = if coupled {
            entry.members == 0 && section == 0
        } else {
            // The first member is in the section's head; each other member takes at least one bit.
            match section.checked_sub(MEMBER_HEAD_BYTES as u64) {
                Some(bits) => (1..=bits * 8 + 1).contains(&u64::from(entry.members)),
                None => entry.members == 0 && section == 0,
            }
        };
        if !sound {
            return Err(format!("{} members in {section} bytes", entry.members));
        }
        Ok(if coupled { rows } else { section })
    }

    /// Returns the layout.
    pub fn layout(&self) -> PostingLayout {
        self.layout
    }

    /// Returns the number of lists.
    pub fn lists(&self) -> usize {
        self.stored.len()
    }

    /// Returns the number of vectors of all lists together; a vector counts once for each of its lists.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Returns the number of vectors of a list, stored with it or elsewhere.
    pub fn vectors_of(&self, list: u32) -> u32 {
        self.stored[list as usize] + self.members_of(list)
    }

    /// Returns the number of rows that are stored with a list.
    pub fn stored_of(&self, list: u32) -> u32 {
        self.stored[list as usize]
    }

    /// Returns the number of a list's vectors that are stored elsewhere.
    pub fn members_of(&self, list: u32) -> u32 {
        self.member_counts.get(list as usize).copied().unwrap_or(0)
    }

    /// Returns the bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the bytes of the longest run of rows or of members that belongs to one list.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the first place of a grouped list's rows; `None` for other layouts.
    pub fn first_place(&self, list: u32) -> Option<u32> {
        self.firsts.get(list as usize..)?.first_chunk::<2>().map(|places| places[0])
    }

    /// Returns the first place of each grouped list, and the end of the last; empty for other layouts.
    pub fn firsts(&self) -> &[u32] {
        &self.firsts
    }

    /// Returns the byte range of the rows of a list. The rows of a coupled list are followed by their ids,
    /// which are included.
    pub fn rows_range(&self, list: u32) -> Range<u64> {
        let at = list as usize;
        match self.layout {
            PostingLayout::Coupled => {
                let start = self.starts[at];
                start..start + u64::from(self.stored[at]) * (self.row_bytes + ID_BYTES) as u64
            }
            PostingLayout::Decoupled => 0..0,
            PostingLayout::Grouped => self.places_range(self.firsts[at], self.stored[at]),
        }
    }

    /// Returns the byte range of the member section of a list; empty for a coupled list.
    pub fn members_range(&self, list: u32) -> Range<u64> {
        match self.layout {
            PostingLayout::Coupled => 0..0,
            _ => self.starts[list as usize]..self.starts[list as usize + 1],
        }
    }

    /// Reads the member section of a list into the places of its members, in ascending order; `places` is
    /// emptied before.
    ///
    /// # Errors
    /// A sentence that states what is wrong with the section.
    pub fn members(&self, list: u32, section: &[u8], places: &mut Vec<u32>) -> Result<(), String> {
        let count = self.members_of(list);
        match self.layout {
            PostingLayout::Grouped => decode_section(section, count, &self.firsts, places),
            PostingLayout::Coupled | PostingLayout::Decoupled => {
                decode_members(section, count, self.vectors, places)
            }
        }
    }

    /// Returns the byte range of `count` rows from `place` on, in layouts with rows by place.
    pub fn places_range(&self, place: u32, count: u32) -> Range<u64> {
        let start = u64::from(place) * self.place_bytes as u64;
        start..start + u64::from(count) * self.place_bytes as u64
    }

    /// Returns the approximate bytes in memory of a table of `lists` lists.
    pub fn planned_bytes(lists: u64) -> u64 {
        lists * 20 + 64
    }
}

/// Returns the entries in the bytes of a table.
fn table_entries(bytes: &[u8]) -> Result<impl ExactSizeIterator<Item = ListEntry>, String> {
    match bytes.as_chunks::<ENTRY_BYTES>() {
        (entries, []) => Ok(entries.iter().map(ListEntry::from_bytes)),
        _ => Err(format!("a table of {} bytes ends within an entry", bytes.len())),
    }
}

/// Returns the start of a coupled list of `length` bytes, if the data before it ends at `at`.
fn list_start(at: u64, length: u64) -> u64 {
    let block = BLOCK_BYTES as u64;
    let touched = |start: u64| (start + length).div_ceil(block) - start / block;
    let next = at.next_multiple_of(block);
    if length > 0 && touched(at) > touched(next) { next } else { at }
}

/// Returns the distances of `places` (ascending) distances the first of them, less one.
fn distances_beyond_first(places: &[u32]) -> Vec<u32> {
    let Some((first, others)) = places.split_first() else { return Vec::new() };
    others.iter().map(|place| place - first - 1).collect()
}

/// Appends a decoupled list's section for `places` (ascending) and returns its length.
pub fn encode_members(places: &[u32], out: &mut Vec<u8>) -> usize {
    let Some(first) = places.first() else { return 0 };
    let distances = distances_beyond_first(places);
    let (bits, low) = links::encoded_bits(&distances);
    let before = out.len();
    out.push(low as u8);
    out.extend(first.to_le_bytes());
    out.resize(before + MEMBER_HEAD_BYTES + bits.div_ceil(8), 0);
    links::encode(&distances, low, &mut out[before + MEMBER_HEAD_BYTES..]);
    out.len() - before
}

/// Reads the section of a decoupled list with `members` places below `limit` into `out`, which is emptied
/// before.
///
/// # Errors
/// A sentence if the section ends too early or too late, or holds an invalid place.
pub fn decode_members(section: &[u8], members: u32, limit: u32, out: &mut Vec<u32>) -> Result<(), String> {
    out.clear();
    if section.is_empty() && members == 0 {
        return Ok(());
    }
    let &[low, a, b, c, d, ref bits @ ..] = section else { return Err("its members are missing".into()) };
    let (low, first) = (u32::from(low), u32::from_le_bytes([a, b, c, d]));
    let Some(others) = members.checked_sub(1) else {
        return Err("it has members, but none in the table".into());
    };
    if low > links::MOST_LOW_BITS || first >= limit {
        return Err(format!("its members begin at {first} of {limit} and have {low} low bits"));
    }
    let used = links::decode(bits, others as usize, low, limit - first - 1, out)?;
    if used.div_ceil(8) != bits.len() || !links::zero_from(bits, used) {
        return Err(format!("its members end after {used} bits of {} bytes", bits.len()));
    }
    // No sum exceeds the limit: each distance was below the limit less the first place.
    out.iter_mut().for_each(|place| *place += first + 1);
    out.insert(0, first);
    Ok(())
}

/// Returns the checksums of all blocks of a file of `file_bytes` bytes, from the bytes of the file of
/// checksums.
///
/// # Errors
/// A sentence if there are too few or too many.
pub fn checksums(bytes: &[u8], file_bytes: u64) -> Result<Vec<u32>, Unreadable> {
    let (sums, rest) = bytes.as_chunks::<4>();
    if sums.len() as u64 != file_bytes.div_ceil(BLOCK_BYTES as u64) || !rest.is_empty() {
        return Err(format!("{} bytes of checksums for a file of {file_bytes}", bytes.len()).into());
    }
    Ok(try_collect("the checksums of lists", sums.iter().map(|sum| u32::from_le_bytes(*sum)))?)
}

/// Checks whole blocks of the index with this `identity`, from block `first` on.
///
/// # Errors
/// The number of the first damaged block.
pub fn check_blocks(identity: Identity, checksums: &[u32], first: usize, bytes: &[u8]) -> Result<(), usize> {
    for (number, block) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
        if checksums.get(number) != Some(&identity.checksum(block)) {
            return Err(number);
        }
    }
    Ok(())
}

/// Ids by place, each in as many bits as the largest takes.
#[derive(Debug, Clone, Default)]
pub struct PackedIds {
    bits: u32,
    words: Vec<u8>,
}

impl PackedIds {
    /// Returns the bytes of a file of ids of `vectors` vectors.
    pub fn file_bytes(vectors: u64) -> u64 {
        // One word more, so that every id can be read as a whole word.
        vectors.saturating_mul(u64::from(id_bits(vectors))).div_ceil(64) * 8 + 8
    }

    /// Returns the bytes of a file with `ids`.
    pub fn encode(ids: impl ExactSizeIterator<Item = u32>) -> Vec<u8> {
        let vectors = ids.len() as u64;
        let bits = id_bits(vectors) as usize;
        let mut words = vec![0_u8; PackedIds::file_bytes(vectors) as usize];
        for (place, id) in ids.enumerate() {
            let (byte, shift) = (place * bits / 8, place * bits % 8);
            if let Some(slot) = words[byte..].first_chunk_mut::<8>() {
                *slot = (u64::from_le_bytes(*slot) | u64::from(id) << shift).to_le_bytes();
            }
        }
        words
    }

    /// Parses the bytes of a file of ids.
    ///
    /// # Errors
    /// A sentence if the length does not fit `vectors` ids, an id is not below `vectors`, or bits follow the
    /// last id.
    pub fn from_bytes(words: Vec<u8>, vectors: u64) -> Result<PackedIds, String> {
        if vectors > MAX_VECTORS || words.len() as u64 != PackedIds::file_bytes(vectors) {
            return Err(format!("{} bytes of ids for {vectors} vectors", words.len()));
        }
        let ids = PackedIds { bits: id_bits(vectors), words };
        if !links::zero_from(&ids.words, vectors as usize * ids.bits as usize) {
            return Err("something follows the last id".into());
        }
        match (0..vectors as u32).find(|place| u64::from(ids.get(*place)) >= vectors) {
            Some(place) => Err(format!("place {place} holds vector {} of {vectors}", ids.get(place))),
            None => Ok(ids),
        }
    }

    /// Returns the id at a place; 0 beyond the last place.
    #[inline]
    pub fn get(&self, place: u32) -> u32 {
        let at = place as usize * self.bits as usize;
        let word = self.words.get(at / 8..).and_then(|rest| rest.first_chunk::<8>());
        let mask = (1_u64 << self.bits) - 1;
        word.map_or(0, |word| (u64::from_le_bytes(*word) >> (at % 8) & mask) as u32)
    }
}

fn id_bits(vectors: u64) -> u32 {
    (u64::BITS - vectors.saturating_sub(1).leading_zeros()).clamp(1, 32)
}

#[cfg(test)]
mod tests;
