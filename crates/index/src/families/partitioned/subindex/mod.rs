//! A sub-index, byte for byte (docs/format/partitioned.md): the layers of an HNSW as packed lists, ids, and
//! vectors.
//!
//! Vectors of upper layers come first. Each layer is then a prefix of the one below it, and a vector has the
//! same number in all layers.

mod copies;
pub(super) mod hnsw;
pub(super) mod options;
pub(super) mod table;

use crate::error::IndexError;
use crate::format::identity::Identity;
use crate::format::walk::Marks;
use crate::proximity::adjacency::Adjacency;
use crate::proximity::walk::{Links, Walk};
use std::collections::HashMap;

/// Bytes before the lengths of the layers: checksum, number, vectors, layers, bytes of a link.
const HEAD_BYTES: usize = 16;
/// The vectors begin at a multiple of this: a cache line.
const ROWS_ALIGNMENT: usize = 64;
/// The most layers. Even with 4 links, data sets are too small for more.
pub(super) const MOST_LAYERS: usize = 16;
/// The most vectors of a sub-index with links of two bytes.
const SHORT_LINKS: usize = 1 << 16;
/// The number of the meta index; no partition has it.
pub(super) const META: u32 = u32::MAX;

/// The parts of a sub-index that is encoded.
pub(super) struct SubIndexParts<'a> {
    /// The number of the partition, or [`META`].
    pub(super) number: u32,
    /// The links of each layer, the bottom first.
    pub(super) layers: &'a [Adjacency],
    /// The id of each vector, by number.
    pub(super) ids: &'a [u32],
}

impl SubIndexParts<'_> {
    /// Appends the encoded sub-index to `out`. `row` returns the vector with a number.
    pub(super) fn encode<'r>(&self, identity: Identity, row: impl Fn(u32) -> &'r [u8], out: &mut Vec<u8>) {
        let (start, count) = (out.len(), self.ids.len());
        let wide = count > SHORT_LINKS;
        out.extend([0; 4]);
        out.extend(self.number.to_le_bytes());
        out.extend((count as u32).to_le_bytes());
        out.extend([self.layers.len() as u8, if wide { 4 } else { 2 }, 0, 0]);
        for layer in self.layers {
            out.extend((layer.count() as u32).to_le_bytes());
        }
        for layer in self.layers {
            let links: usize = (0..layer.count() as u32).map(|id| layer.degree(id)).sum();
            out.extend((links as u32).to_le_bytes());
        }
        let mut list: Vec<u32> = Vec::new();
        for layer in self.layers {
            let mut end = 0_u32;
            out.extend(end.to_le_bytes());
            for id in 0..layer.count() as u32 {
                end += layer.degree(id) as u32;
                out.extend(end.to_le_bytes());
            }
            for id in 0..layer.count() as u32 {
                list.clear();
                list.extend(layer.neighbors(id));
                // Sort the links, so that the bytes of a graph do not depend on the order in which it was
                // built.
                list.sort_unstable();
                match wide {
                    true => list.iter().for_each(|link| out.extend(link.to_le_bytes())),
                    false => list.iter().for_each(|link| out.extend((*link as u16).to_le_bytes())),
                }
            }
            out.resize(start + (out.len() - start).next_multiple_of(4), 0);
        }
        self.ids.iter().for_each(|id| out.extend(id.to_le_bytes()));
        out.resize(start + (out.len() - start).next_multiple_of(ROWS_ALIGNMENT), 0);
        (0..count as u32).for_each(|number| out.extend_from_slice(row(number)));
        let checksum = identity.checksum(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Returns the least bytes of a sub-index of `vectors` vectors.
pub(super) fn least_bytes(vectors: u64, row_bytes: usize) -> u64 {
    // A single layer without links: its lengths, the ends of the lists, and the ids.
    HEAD_BYTES as u64 + 8 + 4 * (vectors + 1) + vectors * (4 + row_bytes as u64)
}

/// Returns the most bytes of a sub-index of `vectors` vectors.
pub(super) fn most_bytes(vectors: u64, row_bytes: usize, links: u32) -> u64 {
    let (link_bytes, links) = (if vectors > SHORT_LINKS as u64 { 4 } else { 2 }, u64::from(links));
    let bottom = vectors * (4 + link_bytes * 2 * links);
    // The share of each layer in the one below it is 1 / `links`, less than a third. The rest is reserve for
    // chance.
    let upper = (vectors / 2 + 64) * (4 + link_bytes * links);
    let heads = (HEAD_BYTES + MOST_LAYERS * (8 + 4 + 4) + ROWS_ALIGNMENT) as u64;
    heads + bottom + upper + vectors * (4 + row_bytes as u64)
}

/// Compares the checksum and the number of a sub-index.
///
/// # Errors
/// A description of the difference.
pub(super) fn check_bytes(bytes: &[u8], identity: Identity, number: u32) -> Result<(), String> {
    let Some((checksum, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(format!("{} bytes are too few for a sub-index", bytes.len()));
    };
    let (found, recorded) = (identity.checksum(rest), u32::from_le_bytes(*checksum));
    if found != recorded {
        return Err(format!("its checksum is {found:08x}, and it records {recorded:08x}"));
    }
    match u32_at(rest, 0) {
        Some(found) if found == number => Ok(()),
        Some(found) => Err(format!("it is number {found}, not {number}")),
        None => Err("it has no number".into()),
    }
}

/// Reads the little-endian number at an offset.
#[inline]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

/// An encoded sub-index that is read in place.
#[derive(Clone, Copy)]
pub(super) struct SubIndex<'a> {
    bytes: &'a [u8],
    layers: usize,
    wide: bool,
    ids: &'a [u8],
    /// The vectors: `count x dim`, row-major.
    pub(super) rows: &'a [u8],
}

/// A layer of an encoded sub-index.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    starts: &'a [u8],
    links: &'a [u8],
    wide: bool,
}

impl<'a> SubIndex<'a> {
    /// Locates the parts of a sub-index over vectors of `row_bytes` bytes. [`SubIndex::check`] checks their
    /// contents.
    ///
    /// # Errors
    /// A description of the fault.
    pub(super) fn read(bytes: &'a [u8], row_bytes: usize) -> Result<SubIndex<'a>, String> {
        let short = || format!("{} bytes are fewer than its head records", bytes.len());
        let count = u32_at(bytes, 8).ok_or_else(short)? as usize;
        let &[layers, link_bytes, 0, 0] = bytes.get(12..HEAD_BYTES).ok_or_else(short)? else {
            return Err("the reserved bytes of its head are not zero".into());
        };
        let (layers, wide) = (usize::from(layers), link_bytes == 4);
        if count == 0 || !(1..=MOST_LAYERS).contains(&layers) || !(wide || link_bytes == 2) {
            return Err(format!(
                "its head records {count} vectors in {layers} layers with links of {link_bytes} bytes, which \
                 is invalid"
            ));
        }
        let mut index = SubIndex { bytes, layers, wide, ids: &[], rows: &[] };
        let mut end = HEAD_BYTES + 8 * layers;
        let mut below = count;
        for layer in 0..layers {
            let (vectors, links) = index.lengths(layer).ok_or_else(short)?;
            if vectors == 0 || vectors > below || layer == 0 && vectors != count {
                return Err(format!("layer {layer} has {vectors} vectors of {below}"));
            }
            below = vectors;
            end = (end + 4 * (vectors + 1) + links * usize::from(link_bytes)).next_multiple_of(4);
        }
        index.ids = bytes.get(end..end + 4 * count).ok_or_else(short)?;
        let rows = (end + 4 * count).next_multiple_of(ROWS_ALIGNMENT);
        index.rows = bytes.get(rows..).filter(|rows| rows.len() == count * row_bytes).ok_or_else(|| {
            format!(
                "its {} bytes do not end with {count} vectors of {row_bytes} bytes from offset {rows}",
                bytes.len()
            )
        })?;
        Ok(index)
    }

    /// Returns the vectors and links of a layer.
    #[inline]
    fn lengths(&self, layer: usize) -> Option<(usize, usize)> {
        let vectors = u32_at(self.bytes, HEAD_BYTES + 4 * layer)?;
        let links = u32_at(self.bytes, HEAD_BYTES + 4 * (self.layers + layer))?;
        Some((vectors as usize, links as usize))
    }

    /// Returns the number of vectors.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.ids.len() / 4
    }

    /// Returns the id of a vector.
    #[inline]
    pub(super) fn id(&self, number: u32) -> u32 {
        u32_at(self.ids, 4 * number as usize).unwrap_or(u32::MAX)
    }

    /// Returns the number of layers.
    pub(super) fn layers(&self) -> usize {
        self.layers
    }

    /// Returns a layer; 0 is the bottom.
    pub(super) fn layer(&self, wanted: usize) -> Layer<'a> {
        let mut at = HEAD_BYTES + 8 * self.layers;
        let link_bytes = if self.wide { 4 } else { 2 };
        for layer in 0..self.layers {
            let (vectors, links) = self.lengths(layer).unwrap_or_default();
            let ends = at + 4 * (vectors + 1);
            let after = ends + links * link_bytes;
            if layer == wanted {
                return Layer {
                    starts: &self.bytes[at..ends],
                    links: &self.bytes[ends..after],
                    wide: self.wide,
                };
            }
            at = after.next_multiple_of(4);
        }
        Layer { starts: &[], links: &[], wide: self.wide }
    }

    /// Checks that all links lead to vectors of their layer, and that all ids are below `ids_end`. Returns
    /// the number of links.
    ///
    /// # Errors
    /// A description of the fault.
    pub(super) fn check(&self, ids_end: u32) -> Result<u64, String> {
        let mut all = 0;
        for number in 0..self.layers {
            let layer = self.layer(number);
            let count = layer.count();
            let rises = layer.starts.as_chunks::<4>().0.windows(2);
            let mut rises = rises.map(|pair| (u32::from_le_bytes(pair[0]), u32::from_le_bytes(pair[1])));
            let total = layer.total();
            if u32_at(layer.starts, 0) != Some(0) || rises.any(|(a, b)| a > b) || layer.end() != total {
                return Err(format!("the lists of layer {number} do not follow each other"));
            }
            let outside = match self.wide {
                true => {
                    layer.links.as_chunks::<4>().0.iter().any(|l| u32::from_le_bytes(*l) as usize >= count)
                }
                false => {
                    layer.links.as_chunks::<2>().0.iter().any(|l| u16::from_le_bytes(*l) as usize >= count)
                }
            };
            if outside {
                return Err(format!("layer {number} has a link to a vector that is not in it"));
            }
            all += total as u64;
        }
        let ids = self.ids.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id));
        match ids.into_iter().find(|id| *id >= ids_end) {
            Some(id) => Err(format!("it contains vector {id}, and ids must be below {ids_end}")),
            None => Ok(all),
        }
    }

    /// Counts the vectors that searches miss because of the links of the bottom layer. Returns the number and
    /// the reason, or `None` if no vector is lost.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn lost(&self) -> Result<Option<(usize, String)>, IndexError> {
        let unreached = self.unreached()?;
        if unreached > 0 {
            return Ok(Some((unreached, format!("{unreached} vectors are unreachable"))));
        }
        let isolated = self.isolated_copies();
        Ok((isolated > 0).then(|| {
            let why = format!(
                "{isolated} repeated vectors have links to their copies only, as earlier versions built \
                 them: searches may miss nearer vectors; build the index anew"
            );
            (isolated, why)
        }))
    }

    /// Counts the vectors with copies such that all links of the vector and its copies lead to each other
    /// only.
    fn isolated_copies(&self) -> usize {
        let (bottom, count) = (self.layer(0), self.count());
        let row_bytes = self.rows.len() / count.max(1);
        let row = |number: u32| &self.rows[number as usize * row_bytes..][..row_bytes];
        // By the bytes of the vector: the number of copies, and true if a link leads to another vector.
        let mut groups: HashMap<&[u8], (usize, bool)> = HashMap::with_capacity(count);
        for number in 0..count as u32 {
            let own = row(number);
            let leads_on = bottom.links(number).any(|link| row(link) != own);
            let group = groups.entry(own).or_default();
            *group = (group.0 + 1, group.1 || leads_on);
        }
        let isolated =
            groups.values().filter(|(copies, leads_on)| *copies > 1 && *copies < count && !leads_on);
        isolated.map(|(copies, _)| copies).sum()
    }

    /// Counts the vectors that no path of the bottom layer reaches from the first vector.
    ///
    /// # Errors
    /// No memory.
    fn unreached(&self) -> Result<usize, IndexError> {
        let bottom = self.layer(0);
        let mut reached = Marks::new(self.count() as u64)?;
        let (mut waiting, mut found) = (vec![0_u32], 0);
        while let Some(number) = waiting.pop() {
            if reached.mark(number) {
                found += 1;
                waiting.extend(bottom.links(number));
            }
        }
        Ok(self.count() - found)
    }

    /// Walks from the top layer down, and then the bottom layer with a list of `search_list` candidates
    /// (HNSW, algorithm 5). Leaves the candidates in `walk`. `score` computes the distances of some vectors.
    /// Returns the number of computed distances.
    ///
    /// If the links lead to fewer vectors than the list holds, all vectors are compared: earlier builders
    /// linked equal vectors to each other only.
    pub(super) fn search(
        &self,
        walk: &mut Walk,
        search_list: usize,
        mut score: impl FnMut(&[u32], &mut [f32]),
    ) -> usize {
        let (mut entry, mut scored) = (0, 0);
        for layer in (1..self.layers).rev() {
            scored += walk.run(&self.layer(layer), entry, 1, &mut score, |_| ());
            entry = walk.found().next().map_or(entry, |nearest| nearest.id);
        }
        scored += walk.run(&self.layer(0), entry, search_list, &mut score, |_| ());
        if walk.found().len() < search_list.min(self.count()) {
            scored += walk.look_at_all(self.count(), search_list, score);
        }
        scored
    }
}

impl Layer<'_> {
    /// Returns the number of vectors.
    pub(super) fn count(&self) -> usize {
        (self.starts.len() / 4).saturating_sub(1)
    }

    /// Returns the number of links that the bytes hold.
    fn total(&self) -> usize {
        self.links.len() / if self.wide { 4 } else { 2 }
    }

    /// Returns the end of the last list.
    fn end(&self) -> usize {
        u32_at(self.starts, 4 * self.count()).unwrap_or(0) as usize
    }

    /// Returns the bytes of a list.
    #[inline]
    fn list(&self, number: u32) -> &[u8] {
        let at = 4 * number as usize;
        let (Some(start), Some(end)) = (u32_at(self.starts, at), u32_at(self.starts, at + 4)) else {
            return &[];
        };
        let size = if self.wide { 4 } else { 2 };
        self.links.get(start as usize * size..end as usize * size).unwrap_or(&[])
    }
}

impl Links for Layer<'_> {
    #[inline]
    fn links(&self, number: u32) -> impl Iterator<Item = u32> + '_ {
        let (list, wide) = (self.list(number), self.wide);
        let size = if wide { 4 } else { 2 };
        list.chunks_exact(size).map(move |link| match *link {
            [a, b] => u32::from(u16::from_le_bytes([a, b])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        })
    }

    #[inline]
    fn prefetch(&self, number: u32) {
        let list = self.list(number);
        bathyal_tier::prefetch(list.as_ptr(), list.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a sub-index of `count` vectors of 3 bytes in a ring. Half of the vectors are in the upper
    /// layer.
    fn ring(count: u32, identity: Identity) -> Vec<u8> {
        let layers: Vec<Adjacency> = [count, count.div_ceil(2)]
            .into_iter()
            .map(|count| {
                let layer = Adjacency::new(count as usize, 4).expect("memory");
                for number in 0..count {
                    let near = [(number + 1) % count, (number + count - 1) % count];
                    layer.lock(number).set(near.into_iter());
                }
                layer
            })
            .collect();
        let ids: Vec<u32> = (0..count).map(|number| 7 * number).collect();
        let rows: Vec<u8> = (0..count).flat_map(|number| [(number % 251) as u8, 1, 2]).collect();
        let mut bytes = vec![9; 5];
        SubIndexParts { number: 3, layers: &layers, ids: &ids }.encode(
            identity,
            |number| &rows[3 * number as usize..][..3],
            &mut bytes,
        );
        bytes.drain(..5);
        bytes
    }

    #[test]
    fn encoded_sub_indexes_are_read_and_searched() {
        let identity = Identity::of("a test");
        for count in [2_u32, 100, 65_536, 70_000] {
            let bytes = ring(count, identity);
            check_bytes(&bytes, identity, 3).expect("sound");
            assert!(check_bytes(&bytes, identity, 4).is_err());
            assert!(check_bytes(&bytes, Identity::of("another"), 3).is_err());
            let index = SubIndex::read(&bytes, 3).expect("sound");
            assert_eq!(
                (index.count(), index.layers, index.rows.len()),
                (count as usize, 2, 3 * count as usize)
            );
            assert_eq!(index.id(count - 1), 7 * (count - 1));
            index.check(7 * count).expect("sound");
            assert!(index.check(7 * (count - 1)).is_err());
            assert_eq!(index.unreached().expect("memory"), 0);
        }
        let bytes = ring(100, identity);
        let index = SubIndex::read(&bytes, 3).expect("sound");
        let mut walk = Walk::new(0, 0);
        let scored = index.search(&mut walk, 5, |numbers, scores| {
            numbers.iter().zip(scores).for_each(|(number, score)| *score = number.abs_diff(30) as f32);
        });
        assert_eq!(walk.found().map(|found| found.id).collect::<Vec<_>>(), [30, 29, 31, 28, 32]);
        assert!(scored < 100, "{scored}");
    }

    #[test]
    fn isolated_pairs_are_reported_and_still_searched() {
        // Eight vectors, each twice and linked to its copy only. The vectors are not reachable from the
        // first.
        let layer = Adjacency::new(16, 16).expect("memory");
        for number in 0..16 {
            layer.lock(number).set([(number + 8) % 16].into_iter());
        }
        let encode = |layer: Adjacency| {
            let ids: Vec<u32> = (0..16).collect();
            let rows: Vec<[u8; 1]> = (0..16).map(|number| [number % 8]).collect();
            let mut bytes = Vec::new();
            let parts = SubIndexParts { number: 0, layers: &[layer], ids: &ids };
            parts.encode(Identity::NONE, |number| &rows[number as usize], &mut bytes);
            bytes
        };
        let with_hub = Adjacency::new(16, 16).expect("memory");
        (0..16).for_each(|number| {
            with_hub.lock(number).set(layer.neighbors(number).collect::<Vec<_>>().into_iter())
        });
        with_hub.lock(0).set((1..16).collect::<Vec<_>>().into_iter());
        let bytes = encode(with_hub);
        let index = SubIndex::read(&bytes, 1).expect("sound");
        let (vectors, why) = index.lost().expect("memory").expect("islands");
        assert!(vectors == 14 && why.contains("copies only"), "{vectors}: {why}");
        let mut walk = Walk::new(0, 0);
        let bytes = encode(layer);
        let index = SubIndex::read(&bytes, 1).expect("sound");
        assert_eq!(index.lost().expect("memory").expect("unreached").0, 14);
        index.search(&mut walk, 5, |numbers, scores| {
            numbers.iter().zip(scores).for_each(|(number, score)| *score = (number % 8).abs_diff(3) as f32);
        });
        assert_eq!(walk.found().map(|found| found.id).collect::<Vec<_>>(), [3, 11, 2, 4, 10]);
    }

    #[test]
    fn invalid_bytes_are_refused() {
        let bytes = ring(50, Identity::NONE);
        assert!(SubIndex::read(&bytes, 4).is_err());
        for cut in 0..bytes.len() {
            assert!(SubIndex::read(&bytes[..cut], 3).is_err(), "{cut}");
        }
        // A changed byte before the vectors is refused, or the sub-index can still be walked.
        let mut walk = Walk::new(0, 0);
        for at in 4..bytes.len() - 150 {
            for value in [0, 1, 77, 255] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let Ok(index) = SubIndex::read(&changed, 3) else { continue };
                if index.check(1 << 20).is_ok() {
                    index.search(&mut walk, 60, |_, scores| scores.fill(1.0));
                }
            }
        }
    }
}
