//! The centroids of posting lists in memory, and the graph that finds the nearest of them.

use crate::allocate::try_with_capacity;
use crate::error::{NoMemory, Unreadable};
use crate::families::graph::walk::{Links, Walk};
use crate::format::links;
use crate::query::QueryStats;
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{Distance, Element, Metric, Neighbor, Rows, from_f32, squared_norm, to_f32};

/// What is said of the links where there is no memory for them.
const LINKS: &str = "the links of centroids";
/// Most links of a centroid: a degree is one byte of its file.
pub(crate) const MOST_DEGREE: u32 = 255;
/// Candidates of a walk besides the lists that are wanted, at least.
const LEAST_MORE: usize = 24;

/// Candidates of the walk that looks for `probes` lists: a quarter more.
pub(crate) fn navigation_list(probes: usize) -> usize {
    probes.saturating_add(probes / 4).saturating_add(LEAST_MORE)
}

/// The element that centroids of vectors of `element` are kept in: theirs, unless it cannot hold directions. Centroids of
/// f16 are kept as f16 under cosine: the rounding of their lengths does not matter where lists are chosen.
pub(crate) fn centroid_element(element: Element, metric: Metric) -> Element {
    match (metric, element) {
        (Metric::Cosine, Element::U8 | Element::I8 | Element::Bf16 | Element::B1) => Element::F32,
        _ => element,
    }
}

/// The links of the graph over centroids.
#[derive(Debug, Clone)]
pub(crate) struct CentroidLinks {
    /// Where the links of each centroid begin in `ids`, and where the last end.
    starts: Vec<u32>,
    ids: Vec<u32>,
}

impl CentroidLinks {
    /// Appends one centroid's links, rising, to the bytes of a file.
    pub(crate) fn encode(links: &[u32], out: &mut Vec<u8>) {
        let (bits, low) = links::encoded_bits(links);
        out.push(links.len() as u8);
        out.push(low as u8);
        let before = out.len();
        out.resize(before + bits.div_ceil(8), 0);
        links::encode(links, low, &mut out[before..]);
    }

    /// The links of `lists` centroids from the bytes of their file.
    ///
    /// # Errors
    /// A sentence when they end too early or too late, or link to a centroid that is none.
    pub(crate) fn from_bytes(bytes: &[u8], lists: u32) -> Result<CentroidLinks, Unreadable> {
        // Memory is taken for what the file can hold, not for what somebody says: two bytes a list at least.
        if bytes.len() as u64 / 2 < u64::from(lists) {
            return Err(format!("{} bytes of links for {lists} lists", bytes.len()).into());
        }
        let (mut starts, mut ids) = (try_with_capacity(LINKS, lists as usize + 1)?, Vec::<u32>::new());
        let (mut at, mut found) = (0_usize, Vec::new());
        for list in 0..lists {
            starts.push(u32::try_from(ids.len()).map_err(|_| "there are too many links")?);
            let &[degree, low, ref rest @ ..] = bytes.get(at..).unwrap_or_default() else {
                return Err(format!("the links end before those of list {list}").into());
            };
            if u32::from(low) > links::MOST_LOW_BITS {
                return Err(format!("the links of list {list} have {low} low bits").into());
            }
            let bits = links::decode(rest, usize::from(degree), u32::from(low), lists, &mut found)
                .map_err(|reason| format!("list {list}: {reason}"))?;
            ids.try_reserve(found.len())
                .map_err(|_| NoMemory { what: LINKS, bytes: 4 * (ids.len() + found.len()) as u64 })?;
            ids.extend_from_slice(&found);
            at += 2 + bits.div_ceil(8);
            if found.binary_search(&list).is_ok() {
                return Err(format!("list {list} links to itself").into());
            }
        }
        if at != bytes.len() {
            return Err(format!("the links end at {at} of {} bytes", bytes.len()).into());
        }
        starts.push(u32::try_from(ids.len()).map_err(|_| "there are too many links")?);
        Ok(CentroidLinks { starts, ids })
    }

    /// Number of centroids that no way leads to from `entry`.
    pub(crate) fn unreached(&self, entry: u32) -> u64 {
        let count = self.starts.len().saturating_sub(1);
        let mut reached = vec![false; count];
        let mut waiting = vec![entry];
        let mut found = 0;
        while let Some(id) = waiting.pop() {
            if !std::mem::replace(&mut reached[id as usize], true) {
                found += 1;
                waiting.extend(self.of(id).iter().filter(|id| !reached[**id as usize]));
            }
        }
        (count - found) as u64
    }

    fn of(&self, id: u32) -> &[u32] {
        let at = id as usize;
        &self.ids[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Bytes that `lists` centroids' links take in memory, at most.
    pub(crate) fn planned_bytes(lists: u64, max_degree: u32) -> u64 {
        lists * (4 + 4 * u64::from(max_degree)) + 4
    }
}

impl Links for CentroidLinks {
    #[inline]
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.of(id).iter().copied()
    }

    #[inline]
    fn prefetch(&self, id: u32) {
        let list = self.of(id);
        bathyal_tier::prefetch(list.as_ptr().cast(), size_of_val(list));
    }
}

/// What centroids are compared as.
#[derive(Debug)]
enum Form {
    /// As they are.
    Rows { rows: Vec<u8>, distance: Distance },
    /// By their codes, where the budget does not hold the rows.
    Codes { codec: Box<Codec>, codes: Vec<u8> },
}

/// Centroids of all lists.
#[derive(Debug)]
pub(crate) struct Centroids {
    form: Form,
    links: CentroidLinks,
    entry: u32,
    element: Element,
    metric: Metric,
    /// Inner product: the largest squared length of a centroid, so that distances can be told as multiples.
    longest: f32,
}

/// Memory of one query, reused.
#[derive(Debug)]
pub(crate) struct Navigation {
    walk: Walk,
    query: Vec<u8>,
    code_query: CodeQuery,
    /// The lists to scan, the nearest first.
    pub(crate) lists: Vec<Neighbor>,
}

impl Navigation {
    pub(crate) fn new() -> Navigation {
        Navigation {
            walk: Walk::new(0, 0),
            query: Vec::new(),
            code_query: CodeQuery::new(),
            lists: Vec::new(),
        }
    }
}

impl Centroids {
    /// Centroids that are compared exactly; `rows` are as many as `links` has, of `dim` dimensions.
    pub(crate) fn exact(
        element: Element,
        metric: Metric,
        dim: usize,
        rows: Vec<u8>,
        links: CentroidLinks,
        entry: u32,
    ) -> Centroids {
        let longest = match metric {
            Metric::InnerProduct => {
                let row_bytes = element.row_bytes(dim);
                let norms = rows.chunks_exact(row_bytes).map(|row| squared_norm(element, row));
                norms.fold(0.0, f32::max)
            }
            _ => 0.0,
        };
        let form = Form::Rows { rows, distance: Distance::new(element, metric, dim) };
        Centroids { form, links, entry, element, metric, longest }
    }

    /// Centroids that are compared by codes. Under the inner product `longest` is unknown and nothing is left out.
    pub(crate) fn coded(
        element: Element,
        metric: Metric,
        codec: Codec,
        codes: Vec<u8>,
        links: CentroidLinks,
        entry: u32,
    ) -> Centroids {
        let form = Form::Codes { codec: Box::new(codec), codes };
        Centroids { form, links, entry, element, metric, longest: f32::INFINITY }
    }

    /// Finds the `probes` lists nearest to `floats` (normalised under cosine), without those that are more than
    /// `1 + prune` times as far as the nearest where `prune` is above 0 (SPANN, section 3.3); they are in
    /// [`Navigation::lists`] then.
    pub(crate) fn nearest(
        &self,
        floats: &[f32],
        probes: usize,
        prune: f32,
        navigation: &mut Navigation,
        stats: &mut QueryStats,
    ) {
        if probes >= self.count() {
            return self.all(floats, prune, navigation, stats);
        }
        let Navigation { walk, query, code_query, lists } = navigation;
        let search_list = navigation_list(probes);
        let compared = match &self.form {
            Form::Rows { rows, distance } => {
                store(self.element, floats, query);
                let rows = Rows { bytes: rows, stride: distance.row_bytes() };
                walk.run(
                    &self.links,
                    self.entry,
                    search_list,
                    |ids, scores| distance.score(query, rows, ids, scores),
                    |_| (),
                )
            }
            Form::Codes { codec, codes } => {
                codec.prepare(floats, code_query);
                let score = |ids: &[u32], scores: &mut [f32]| code_query.score(codec, codes, ids, scores);
                walk.run(&self.links, self.entry, search_list, score, |_| ())
            }
        };
        stats.code_distances += compared as u32;
        lists.clear();
        lists.extend(walk.found().take(probes));
        lists.truncate(self.within(floats, lists, prune));
    }

    /// All lists, the nearest first: what no link leads to is found too.
    fn all(&self, floats: &[f32], prune: f32, navigation: &mut Navigation, stats: &mut QueryStats) {
        let Navigation { query, code_query, lists, .. } = navigation;
        let ids: Vec<u32> = (0..self.count() as u32).collect();
        let mut scores = vec![0.0; ids.len()];
        match &self.form {
            Form::Rows { rows, distance } => {
                store(self.element, floats, query);
                distance.score(query, Rows { bytes: rows, stride: distance.row_bytes() }, &ids, &mut scores);
            }
            Form::Codes { codec, codes } => {
                codec.prepare(floats, code_query);
                code_query.score(codec, codes, &ids, &mut scores);
            }
        }
        stats.code_distances += ids.len() as u32;
        lists.clear();
        lists.extend(ids.into_iter().zip(scores).map(|(id, distance)| Neighbor { distance, id }));
        lists.sort_unstable();
        lists.truncate(self.within(floats, lists, prune));
    }

    /// How many of `lists`, the nearest first, are at most `1 + prune` times as far as the first; all if `prune` is 0.
    pub(crate) fn within(&self, floats: &[f32], lists: &[Neighbor], prune: f32) -> usize {
        let Some(nearest) = lists.first().filter(|_| prune > 0.0) else { return lists.len() };
        let lift = self.lift(floats);
        let reach = (1.0 + prune) * (1.0 + prune);
        let farthest = reach * (nearest.distance + lift).max(0.0) - lift;
        if farthest.is_finite() {
            lists.partition_point(|list| list.distance <= farthest)
        } else {
            lists.len()
        }
    }

    /// Number of centroids that a walk cannot reach.
    pub(crate) fn unreached(&self) -> u64 {
        self.links.unreached(self.entry)
    }

    /// Number of centroids.
    pub(crate) fn count(&self) -> usize {
        self.links.starts.len() - 1
    }

    /// One centroid as it is kept, as floats.
    pub(crate) fn row(&self, list: usize, out: &mut [f32]) {
        match &self.form {
            Form::Rows { rows, distance } => {
                let bytes = distance.row_bytes();
                to_f32(self.element, &rows[list * bytes..][..bytes], out);
            }
            Form::Codes { codec, codes } => {
                let bytes = codec.code_bytes();
                codec.decode(&codes[list * bytes..][..bytes], out);
            }
        }
    }

    /// What makes half a squared distance of the metric's distance: nothing for L2.
    fn lift(&self, floats: &[f32]) -> f32 {
        match self.metric {
            Metric::InnerProduct => (floats.iter().map(|v| v * v).sum::<f32>() + self.longest) / 2.0,
            _ => 0.0,
        }
    }
}

/// The query as the centroids' element: exactly what the caller gave, since it was that element.
fn store(element: Element, floats: &[f32], out: &mut Vec<u8>) {
    out.resize(element.row_bytes(floats.len()), 0);
    from_f32(element, floats, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip_and_lies_are_refused() {
        let lists: [&[u32]; 4] = [&[1, 2, 3], &[0], &[], &[0, 1, 2]];
        let mut bytes = Vec::new();
        lists.iter().for_each(|links| CentroidLinks::encode(links, &mut bytes));
        let found = CentroidLinks::from_bytes(&bytes, 4).expect("sound links");
        for (id, links) in lists.iter().enumerate() {
            assert_eq!(found.of(id as u32), *links);
        }
        assert!(CentroidLinks::from_bytes(&bytes, 3).is_err());
        assert!(CentroidLinks::from_bytes(&bytes, 5).is_err());
        assert!(CentroidLinks::from_bytes(&bytes[..bytes.len() - 1], 4).is_err());
        bytes.push(0);
        assert!(CentroidLinks::from_bytes(&bytes, 4).is_err());
    }

    #[test]
    fn pruning_leaves_what_is_near() {
        let mut bytes = Vec::new();
        (0..10_u32).for_each(|id| {
            let links: Vec<u32> = (0..10).filter(|other| *other != id).collect();
            CentroidLinks::encode(&links, &mut bytes);
        });
        let links = CentroidLinks::from_bytes(&bytes, 10).expect("sound links");
        let rows: Vec<u8> = (0..10).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let centroids = Centroids::exact(Element::F32, Metric::L2, 1, rows, links, 0);
        let mut navigation = Navigation::new();
        let mut stats = QueryStats::default();
        let mut found = |probes, prune| {
            centroids.nearest(&[-1.0], probes, prune, &mut navigation, &mut stats);
            navigation.lists.iter().map(|list| list.id).collect::<Vec<_>>()
        };
        assert_eq!(found(3, 0.0), [0, 1, 2]);
        // The nearest is 1 away, so lists are read up to a distance of 2.
        assert_eq!(found(10, 1.0), [0, 1]);
        assert_eq!(found(10, 0.5), [0]);
    }
}
