//! The centroids of posting lists in memory, and the graph that finds the nearest of them.

use crate::allocate::try_with_capacity;
use crate::error::{NoMemory, Unreadable};
use crate::format::links;
use crate::proximity::walk::{Links, Walk};
use crate::query::QueryStats;
use bathyal_kernels::quantize::{CodeQuery, Codec};
use bathyal_kernels::{Distance, Element, Metric, Neighbor, Rows, from_f32, squared_norm, to_f32};

/// The name of the links in errors of memory.
const LINKS: &str = "the links of centroids";
/// The most links of a centroid: the file has one byte for a degree.
pub(crate) const MOST_DEGREE: u32 = 255;
/// The least number of candidates of a walk in addition to the requested lists.
const LEAST_MORE: usize = 24;

/// Returns the length of the candidate list for finding `probes` lists: a quarter more than `probes`.
pub(crate) fn navigation_list(probes: usize) -> usize {
    probes.saturating_add(probes / 4).saturating_add(LEAST_MORE)
}

/// Returns the element of the centroids of vectors of `element`: the same, unless it cannot represent
/// directions. Under cosine, f16 centroids stay f16: the rounding of their lengths does not matter for
/// choosing lists.
pub(crate) fn centroid_element(element: Element, metric: Metric) -> Element {
    match (metric, element) {
        (Metric::Cosine, Element::U8 | Element::I8 | Element::Bf16 | Element::B1) => Element::F32,
        _ => element,
    }
}

/// The links of the graph over centroids.
#[derive(Debug, Clone)]
pub(crate) struct CentroidLinks {
    /// The offset in `ids` of the links of each centroid, and the end of the last.
    starts: Vec<u32>,
    ids: Vec<u32>,
}

impl CentroidLinks {
    /// Appends the encoded links of a centroid, in ascending order.
    pub(crate) fn encode(links: &[u32], out: &mut Vec<u8>) {
        let (bits, low) = links::encoded_bits(links);
        out.push(links.len() as u8);
        out.push(low as u8);
        let before = out.len();
        out.resize(before + bits.div_ceil(8), 0);
        links::encode(links, low, &mut out[before..]);
    }

    /// Decodes the links of `lists` centroids.
    ///
    /// # Errors
    /// A description of the fault, if the bytes have the wrong length, or a link leads to no centroid.
    pub(crate) fn from_bytes(bytes: &[u8], lists: u32) -> Result<CentroidLinks, Unreadable> {
        // Allocate by the length of the file, at least two bytes a list, and not by the stated number.
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
                return Err(format!(
                    "the links of list {list} have {low} low bits, more than the most possible"
                )
                .into());
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

    /// Returns the number of centroids that are unreachable from `entry`.
    pub(crate) fn unreached(&self, entry: u32) -> u64 {
        let count = self.starts.len().saturating_sub(1);
        let mut reached = vec![false; count];
        let mut waiting = vec![entry];
        let mut found = 0;
        while let Some(id) = waiting.pop() {
            if !std::mem::replace(&mut reached[id as usize], true) {
                found += 1;
                waiting.extend(self.neighbors(id).iter().filter(|id| !reached[**id as usize]));
            }
        }
        (count - found) as u64
    }

    fn neighbors(&self, id: u32) -> &[u32] {
        let at = id as usize;
        &self.ids[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// Returns the most bytes of memory for the links of `lists` centroids.
    pub(crate) fn planned_bytes(lists: u64, max_degree: u32) -> u64 {
        lists * (4 + 4 * u64::from(max_degree)) + 4
    }
}

impl Links for CentroidLinks {
    #[inline]
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        self.neighbors(id).iter().copied()
    }

    #[inline]
    fn prefetch(&self, id: u32) {
        let list = self.neighbors(id);
        bathyal_tier::prefetch(list.as_ptr().cast(), size_of_val(list));
    }
}

/// The form in which centroids are compared.
#[derive(Debug)]
enum ComparedForm {
    /// The vectors: `lists x dim`, row-major.
    Rows { rows: Vec<u8>, distance: Distance },
    /// The codes, if the budget does not suffice for the vectors.
    Codes { codec: Box<Codec>, codes: Vec<u8> },
}

/// The centroids of all lists, and the graph over them.
#[derive(Debug)]
pub(crate) struct Centroids {
    form: ComparedForm,
    links: CentroidLinks,
    entry: u32,
    element: Element,
    metric: Metric,
    /// Under the inner product: the largest squared length of a centroid, for comparing distances by their
    /// ratio.
    longest: f32,
}

/// The memory of one query for navigation, which is reused.
#[derive(Debug)]
pub(crate) struct ListNavigation {
    walk: Walk,
    query: Vec<u8>,
    code_query: CodeQuery,
    /// The chosen lists, the nearest first.
    pub(crate) lists: Vec<Neighbor>,
}

impl ListNavigation {
    pub(crate) fn new() -> ListNavigation {
        ListNavigation {
            walk: Walk::new(0, 0),
            query: Vec::new(),
            code_query: CodeQuery::new(),
            lists: Vec::new(),
        }
    }
}

impl Centroids {
    /// Creates centroids that are compared exactly. `rows` has one row of `dim` dimensions for each list of
    /// `links`.
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
        let form = ComparedForm::Rows { rows, distance: Distance::new(element, metric, dim) };
        Centroids { form, links, entry, element, metric, longest }
    }

    /// Creates centroids that are compared by their codes. Under the inner product `longest` is then unknown,
    /// and pruning leaves out no list.
    pub(crate) fn coded(
        element: Element,
        metric: Metric,
        codec: Codec,
        codes: Vec<u8>,
        links: CentroidLinks,
        entry: u32,
    ) -> Centroids {
        let form = ComparedForm::Codes { codec: Box::new(codec), codes };
        Centroids { form, links, entry, element, metric, longest: f32::INFINITY }
    }

    /// Finds the `probes` lists nearest to `floats` (normalised under cosine), and leaves them in
    /// [`ListNavigation::lists`]. If `prune` is above 0, lists more than `1 + prune` times as far as the
    /// nearest are left out (SPANN, section 3.3).
    pub(crate) fn nearest(
        &self,
        floats: &[f32],
        probes: usize,
        prune: f32,
        navigation: &mut ListNavigation,
        stats: &mut QueryStats,
    ) {
        if probes >= self.count() {
            return self.rank_all(floats, prune, navigation, stats);
        }
        let ListNavigation { walk, query, code_query, lists } = navigation;
        let search_list = navigation_list(probes);
        let compared = match &self.form {
            ComparedForm::Rows { rows, distance } => {
                convert_query(self.element, floats, query);
                let rows = Rows { bytes: rows, stride: distance.row_bytes() };
                walk.run(
                    &self.links,
                    self.entry,
                    search_list,
                    |ids, scores| distance.score(query, rows, ids, scores),
                    |_| (),
                )
            }
            ComparedForm::Codes { codec, codes } => {
                codec.prepare(floats, code_query);
                let score = |ids: &[u32], scores: &mut [f32]| code_query.score(codec, codes, ids, scores);
                walk.run(&self.links, self.entry, search_list, score, |_| ())
            }
        };
        stats.code_distances += compared as u32;
        lists.clear();
        lists.extend(walk.found().take(probes));
        lists.truncate(self.within_prune(floats, lists, prune));
    }

    /// Ranks all lists, without the graph, so that unreachable ones are found, too.
    fn rank_all(&self, floats: &[f32], prune: f32, navigation: &mut ListNavigation, stats: &mut QueryStats) {
        let ListNavigation { query, code_query, lists, .. } = navigation;
        let ids: Vec<u32> = (0..self.count() as u32).collect();
        let mut scores = vec![0.0; ids.len()];
        match &self.form {
            ComparedForm::Rows { rows, distance } => {
                convert_query(self.element, floats, query);
                distance.score(query, Rows { bytes: rows, stride: distance.row_bytes() }, &ids, &mut scores);
            }
            ComparedForm::Codes { codec, codes } => {
                codec.prepare(floats, code_query);
                code_query.score(codec, codes, &ids, &mut scores);
            }
        }
        stats.code_distances += ids.len() as u32;
        lists.clear();
        lists.extend(ids.into_iter().zip(scores).map(|(id, distance)| Neighbor { distance, id }));
        lists.sort_unstable();
        lists.truncate(self.within_prune(floats, lists, prune));
    }

    /// Returns how many of `lists`, the nearest first, are at most `1 + prune` times as far as the first; all
    /// if `prune` is 0.
    pub(crate) fn within_prune(&self, floats: &[f32], lists: &[Neighbor], prune: f32) -> usize {
        let Some(nearest) = lists.first().filter(|_| prune > 0.0) else { return lists.len() };
        let lift = self.lift(floats);
        let factor = (1.0 + prune) * (1.0 + prune);
        let farthest = factor * (nearest.distance + lift).max(0.0) - lift;
        if farthest.is_finite() {
            lists.partition_point(|list| list.distance <= farthest)
        } else {
            lists.len()
        }
    }

    /// Returns the number of centroids that a walk cannot reach.
    pub(crate) fn unreached(&self) -> u64 {
        self.links.unreached(self.entry)
    }

    /// Returns the number of centroids.
    pub(crate) fn count(&self) -> usize {
        self.links.starts.len() - 1
    }

    /// Returns one centroid as floats.
    pub(crate) fn row(&self, list: usize, out: &mut [f32]) {
        match &self.form {
            ComparedForm::Rows { rows, distance } => {
                let bytes = distance.row_bytes();
                to_f32(self.element, &rows[list * bytes..][..bytes], out);
            }
            ComparedForm::Codes { codec, codes } => {
                let bytes = codec.code_bytes();
                codec.decode(&codes[list * bytes..][..bytes], out);
            }
        }
    }

    /// Returns the number that makes a distance of the metric half a squared distance; 0 for L2.
    fn lift(&self, floats: &[f32]) -> f32 {
        match self.metric {
            Metric::InnerProduct => (floats.iter().map(|v| v * v).sum::<f32>() + self.longest) / 2.0,
            _ => 0.0,
        }
    }
}

/// Converts the query to the centroids' element. This is exact, because the caller gave it in that element.
fn convert_query(element: Element, floats: &[f32], out: &mut Vec<u8>) {
    out.resize(element.row_bytes(floats.len()), 0);
    from_f32(element, floats, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip_and_invalid_ones_are_refused() {
        let lists: [&[u32]; 4] = [&[1, 2, 3], &[0], &[], &[0, 1, 2]];
        let mut bytes = Vec::new();
        lists.iter().for_each(|links| CentroidLinks::encode(links, &mut bytes));
        let found = CentroidLinks::from_bytes(&bytes, 4).expect("sound links");
        for (id, links) in lists.iter().enumerate() {
            assert_eq!(found.neighbors(id as u32), *links);
        }
        assert!(CentroidLinks::from_bytes(&bytes, 3).is_err());
        assert!(CentroidLinks::from_bytes(&bytes, 5).is_err());
        assert!(CentroidLinks::from_bytes(&bytes[..bytes.len() - 1], 4).is_err());
        bytes.push(0);
        assert!(CentroidLinks::from_bytes(&bytes, 4).is_err());
    }

    #[test]
    fn pruning_keeps_near_lists() {
        let mut bytes = Vec::new();
        (0..10_u32).for_each(|id| {
            let links: Vec<u32> = (0..10).filter(|other| *other != id).collect();
            CentroidLinks::encode(&links, &mut bytes);
        });
        let links = CentroidLinks::from_bytes(&bytes, 10).expect("sound links");
        let rows: Vec<u8> = (0..10).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let centroids = Centroids::exact(Element::F32, Metric::L2, 1, rows, links, 0);
        let mut navigation = ListNavigation::new();
        let mut stats = QueryStats::default();
        let mut found = |probes, prune| {
            centroids.nearest(&[-1.0], probes, prune, &mut navigation, &mut stats);
            navigation.lists.iter().map(|list| list.id).collect::<Vec<_>>()
        };
        assert_eq!(found(3, 0.0), [0, 1, 2]);
        // The nearest list is at distance 1, so lists up to distance 2 remain.
        assert_eq!(found(10, 1.0), [0, 1]);
        assert_eq!(found(10, 0.5), [0]);
    }
}
