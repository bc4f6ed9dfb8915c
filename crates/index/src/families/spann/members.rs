//! The vectors of every list, on disk during a build: the requests of vectors to be in a list, spilled by
//! list, and the resulting memberships.
//!
//! The memory does not grow with memberships. Requests are in files of a number of lists each, which are
//! processed one after the other, and memberships are read sequentially.

use super::place::Leaves;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written, read_back};
use bathyal_store::{Draft, Object};
use std::sync::Arc;

/// The temporary file with the number of vectors of each list, and their slots.
pub(crate) const MEMBERS_NAME: &str = "members.tmp";
/// The temporary file with a bit for each slot, which is set if a list has admitted it.
pub(crate) const ADMITTED_NAME: &str = "admitted.tmp";
/// Bytes of a spilled request.
pub(crate) const REQUEST_BYTES: usize = 12;
/// Approximate bytes of requests that are processed together.
pub(crate) const BUCKET_BYTES: u64 = 8 << 20;
/// The most buckets; each has an open file.
pub(crate) const MOST_BUCKETS: u64 = 128;
/// Bytes of the buffers of all buckets together.
pub(crate) const SPILL_BYTES: usize = 8 << 20;

/// The request of a vector to be in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    pub(crate) list: u32,
    pub(crate) slot: u32,
    /// The distance from the vector to the list's centroid. The nearest vectors are admitted.
    pub(crate) distance: f32,
}

impl Request {
    fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let numbers = [self.list, self.slot, self.distance.to_bits()];
        let slots = bytes.as_chunks_mut::<4>().0.iter_mut();
        slots.zip(numbers).for_each(|(slot, number)| *slot = number.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Request { list: number(0), slot: number(4), distance: f32::from_bits(number(8)) }
    }
}

/// Returns the number of buckets for the requests of `vectors` vectors, with up to `replicas` requests each.
pub(crate) fn buckets(vectors: u64, replicas: u32) -> u64 {
    (vectors * u64::from(replicas) * REQUEST_BYTES as u64).div_ceil(BUCKET_BYTES).min(MOST_BUCKETS)
}

/// Files of requests, each for a range of lists.
pub(crate) struct Requests<'a> {
    directory: &'a dyn Draft,
    files: Vec<Appender>,
    buffers: Vec<Vec<u8>>,
    lists: usize,
    lists_a_bucket: usize,
}

impl<'a> Requests<'a> {
    pub(crate) fn create(
        directory: &'a dyn Draft,
        lists: usize,
        buckets: u64,
    ) -> Result<Requests<'a>, IndexError> {
        let lists_a_bucket = lists.div_ceil(buckets as usize).max(1);
        let buckets = lists.div_ceil(lists_a_bucket);
        let files = (0..buckets).map(|bucket| Appender::create(directory, &bucket_name(bucket)));
        let files = files.collect::<Result<_, _>>()?;
        let buffers = vec![Vec::new(); buckets];
        Ok(Requests { directory, files, buffers, lists, lists_a_bucket })
    }

    pub(crate) fn push(&mut self, request: Request) -> Result<(), IndexError> {
        let bucket = request.list as usize / self.lists_a_bucket;
        let (most, buffer) = (SPILL_BYTES / self.buffers.len(), &mut self.buffers[bucket]);
        if buffer.len() + REQUEST_BYTES > most {
            self.files[bucket].append(buffer)?;
            buffer.clear();
        }
        buffer.extend(request.to_bytes());
        Ok(())
    }

    /// Admits to each list the `limit` nearest vectors that request it (of equally near ones the lowest
    /// slots). A vector that no list admits will be in the list of its own leaf.
    pub(crate) fn admit(
        mut self,
        leaves: &Leaves,
        limit: usize,
        check_cancelled: impl Fn(u64) -> Result<(), IndexError>,
    ) -> Result<Memberships, IndexError> {
        let vectors = leaves.rows.count();
        let mut admitted = vec![0_u64; vectors.div_ceil(64)];
        let mut file = Appender::create(self.directory, MEMBERS_NAME)?;
        for (bucket, buffer) in self.buffers.iter_mut().enumerate() {
            self.files[bucket].append(buffer)?;
            *buffer = Vec::new();
        }
        let (mut requests, mut bytes, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for (bucket, spilled) in self.files.iter().enumerate() {
            let first = bucket * self.lists_a_bucket;
            let end = self.lists.min(first + self.lists_a_bucket);
            check_cancelled(first as u64)?;
            read_bucket(self.directory, bucket, spilled.written(), &mut requests)?;
            let by_distance = |a: &Request, b: &Request| {
                (a.list.cmp(&b.list)).then(a.distance.total_cmp(&b.distance)).then(a.slot.cmp(&b.slot))
            };
            requests.sort_unstable_by(by_distance);
            let mut rest = &requests[..];
            bytes.clear();
            for list in first as u32..end as u32 {
                let requested = rest.iter().take_while(|request| request.list == list).count();
                slots.clear();
                slots.extend(rest[..requested.min(limit)].iter().map(|request| request.slot));
                slots.sort_unstable();
                slots.iter().for_each(|slot| admitted[*slot as usize / 64] |= 1 << (slot % 64));
                bytes.extend((slots.len() as u32).to_le_bytes());
                slots.iter().for_each(|slot| bytes.extend(slot.to_le_bytes()));
                rest = &rest[requested..];
            }
            file.append(&bytes)?;
        }
        let written = file.sync()?;
        let file = self.directory.get(MEMBERS_NAME)?;
        Ok(Memberships { file, written, admitted, lists: self.lists })
    }
}

fn bucket_name(bucket: usize) -> String {
    format!("requests-{bucket}.spill")
}

/// Reads a bucket and removes its file.
fn read_bucket(
    directory: &dyn Draft,
    bucket: usize,
    written: Written,
    requests: &mut Vec<Request>,
) -> Result<(), IndexError> {
    let mut file = ReadBack::open(directory, &bucket_name(bucket), written)?;
    let mut bytes = [0; REQUEST_BYTES];
    requests.clear();
    requests.reserve_exact(written.bytes as usize / REQUEST_BYTES);
    for _ in 0..written.bytes / REQUEST_BYTES as u64 {
        file.fill(&mut bytes)?;
        requests.push(Request::from_bytes(&bytes));
    }
    // Publishing removes the file if this fails.
    let _ = directory.delete(&bucket_name(bucket));
    Ok(())
}

/// The vectors of every list.
pub(crate) struct Memberships {
    file: Arc<dyn Object>,
    written: Written,
    /// A bit for each slot, which is set if a list has admitted it.
    admitted: Vec<u64>,
    lists: usize,
}

impl Memberships {
    /// Begins a pass over all lists.
    pub(crate) fn read<'a>(&'a self, leaves: &'a Leaves) -> Result<ListReader<'a>, IndexError> {
        let file = ReadBack::new(self.file.clone(), self.written);
        Ok(ListReader { memberships: self, leaves, file, list: 0, bytes: Vec::new() })
    }

    /// Writes the bits of admitted slots. Returns the written lengths of the memberships and of the bits.
    pub(crate) fn save(&self, directory: &dyn Draft) -> Result<(Written, Written), IndexError> {
        let mut file = Appender::create(directory, ADMITTED_NAME)?;
        for words in self.admitted.chunks(SPILL_BYTES / 64) {
            file.append(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())?;
        }
        Ok((self.written, file.sync()?))
    }

    /// Restores the memberships of `lists` lists that an earlier process saved.
    pub(crate) fn restore(
        directory: &dyn Draft,
        lists: usize,
        members: Written,
        slots: Written,
    ) -> Result<Memberships, IndexError> {
        let bytes = read_back(directory, ADMITTED_NAME, slots)?;
        let admitted = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(Memberships { file: directory.get(MEMBERS_NAME)?, written: members, admitted, lists })
    }
}

/// A pass over all lists.
pub(crate) struct ListReader<'a> {
    memberships: &'a Memberships,
    leaves: &'a Leaves,
    file: ReadBack,
    list: usize,
    bytes: Vec<u8>,
}

impl ListReader<'_> {
    /// Reads the next list: returns its number, and leaves its slots in `slots`, in ascending order. Returns
    /// `None` after the last list.
    pub(crate) fn next(&mut self, slots: &mut Vec<u32>) -> Result<Option<u32>, IndexError> {
        if self.list == self.memberships.lists {
            return Ok(None);
        }
        let count = u32::from_le_bytes(self.read_bytes(4)?.first_chunk().copied().unwrap_or_default());
        slots.clear();
        let bytes = self.read_bytes(4 * count as usize)?;
        slots.extend(bytes.as_chunks::<4>().0.iter().map(|slot| u32::from_le_bytes(*slot)));
        let list = self.list as u32;
        let admitted = &self.memberships.admitted;
        let left =
            self.leaves.slots(list).filter(|slot| admitted[*slot as usize / 64] >> (slot % 64) & 1 == 0);
        slots.extend(left);
        if slots.len() > count as usize {
            slots.sort_unstable();
        }
        self.list += 1;
        Ok(Some(list))
    }

    fn read_bytes(&mut self, count: usize) -> Result<&[u8], IndexError> {
        // A length that is damaged on disk would allocate too much memory.
        let count = count.min(self.file.left() as usize);
        self.bytes.resize(count, 0);
        self.file.fill(&mut self.bytes)?;
        Ok(&self.bytes)
    }
}
