//! The counters of queries: those that every family has, and those of single families, by name.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The most counters of its own that a family has. Every query of every family has space for them.
pub const MOST_OWN_COUNTERS: usize = 4;

/// A counter of a family, besides those of all families: an entry of
/// [`Family::counters`](crate::family::Family::counters).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Its name: a key in JSON, and in Python a name of the statistics.
    pub name: &'static str,
    /// Its description, in one line without a full stop.
    pub about: &'static str,
}

/// The counters of one query. Reads that queries of a batch share are counted once, with one of these
/// queries. So the reads per query are those of all queries, divided by their number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueryStats {
    /// Dependent rounds of reads.
    pub hops: u32,
    /// Reads.
    pub reads: u32,
    /// Bytes read from the tier, including its alignment of reads.
    pub bytes: u64,
    /// Distances estimated from codes; for posting lists also those to centroids.
    pub code_distances: u32,
    /// Distances computed from full vectors.
    pub full_distances: u32,
    /// The counters that only the family has, in their order. Results have them by name: [`OwnCosts`].
    #[serde(skip)]
    pub own: [u32; MOST_OWN_COUNTERS],
}

impl QueryStats {
    /// Adds the counters of another search of the same index for the same query.
    pub(crate) fn add(&mut self, other: &QueryStats) {
        self.add_common(other);
        self.own.iter_mut().zip(other.own).for_each(|(sum, count)| *sum += count);
    }

    /// Adds the counters of a search of an index of any family, without those that only that family has.
    pub(crate) fn add_common(&mut self, other: &QueryStats) {
        self.hops += other.hops;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.code_distances += other.code_distances;
        self.full_distances += other.full_distances;
    }

    /// Returns the counts of `counters`, those of the family, by name.
    pub(crate) fn named(&self, counters: &'static [Counter]) -> OwnTotals {
        OwnTotals(counters.iter().zip(self.own).map(|(counter, count)| (counter, u64::from(count))).collect())
    }
}

/// The counters of single families for each query of a batch: one column per counter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCosts(Vec<(&'static Counter, Vec<u32>)>);

impl OwnCosts {
    /// Creates columns of zeros.
    pub(crate) fn new(counters: &'static [Counter], queries: usize) -> OwnCosts {
        OwnCosts(counters.iter().map(|counter| (counter, vec![0; queries])).collect())
    }

    /// Sets the counts of a query.
    pub(crate) fn set(&mut self, query: usize, cost: &QueryStats) {
        for ((_, column), count) in self.0.iter_mut().zip(cost.own) {
            column[query] = count;
        }
    }

    /// Adds the counts of the same queries in another index, by the names of the counters.
    pub(crate) fn add(&mut self, other: &OwnCosts) {
        for (counter, counts) in &other.0 {
            match self.0.iter_mut().find(|(own, _)| own.name == counter.name) {
                Some((_, column)) => column.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count),
                None => self.0.push((counter, counts.clone())),
            }
        }
    }

    /// Returns the counters with their columns, one count per query.
    pub fn columns(&self) -> impl Iterator<Item = (&'static Counter, &[u32])> {
        self.0.iter().map(|(counter, column)| (*counter, &column[..]))
    }

    /// Returns the column of a counter, one count per query; `None` if no searched index has it.
    pub fn of(&self, name: &str) -> Option<&[u32]> {
        self.columns().find(|(counter, _)| counter.name == name).map(|(_, column)| column)
    }

    /// Returns the sum of each column.
    pub(crate) fn totals(&self) -> OwnTotals {
        let sum = |column: &[u32]| column.iter().map(|count| u64::from(*count)).sum();
        OwnTotals(self.columns().map(|(counter, column)| (counter, sum(column))).collect())
    }
}

/// The counters of single families with their totals, by name: a JSON object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnTotals(pub(crate) Vec<(&'static Counter, u64)>);

impl OwnTotals {
    /// Returns the counters with their counts, in the order of the family.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Counter, u64)> {
        self.0.iter().copied()
    }

    /// Returns the count of the counter `name`; `None` if no searched index has it.
    pub fn of(&self, name: &str) -> Option<u64> {
        self.iter().find(|(counter, _)| counter.name == name).map(|(_, count)| count)
    }

    pub(crate) fn merge(&mut self, other: &OwnTotals) {
        for (counter, count) in other.iter() {
            match self.0.iter_mut().find(|(own, _)| own.name == counter.name) {
                Some((_, sum)) => *sum += count,
                None => self.0.push((counter, count)),
            }
        }
    }
}

impl Serialize for OwnTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (counter, count) in self.iter() {
            map.serialize_entry(counter.name, &count)?;
        }
        map.end()
    }
}

/// The totals of the counters over a batch of queries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SearchTotals {
    /// Dependent rounds of reads.
    pub hops: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read from the tier.
    pub bytes: u64,
    /// Distances estimated from codes.
    pub code_distances: u64,
    /// Distances computed from full vectors.
    pub full_distances: u64,
    /// Bytes of buffers that the query with the most of them has read: a read takes whole pages of its
    /// buffer.
    #[serde(skip)]
    pub most_buffered: u64,
    /// The totals of the counters of single families; in JSON beside the others.
    #[serde(flatten)]
    pub own: OwnTotals,
}

/// Bytes of a page of this process's memory.
const PAGE_BYTES: u64 = 4096;

impl SearchTotals {
    /// Sums the counters of queries; `own` are their columns of counters of single families.
    pub(crate) fn of(per_query: &[QueryStats], own: &OwnCosts) -> SearchTotals {
        let mut totals = SearchTotals { own: own.totals(), ..SearchTotals::default() };
        for one in per_query {
            totals.hops += u64::from(one.hops);
            totals.reads += u64::from(one.reads);
            totals.bytes += one.bytes;
            totals.most_buffered = totals.most_buffered.max(one.bytes + u64::from(one.reads) * PAGE_BYTES);
            totals.code_distances += u64::from(one.code_distances);
            totals.full_distances += u64::from(one.full_distances);
        }
        totals
    }

    /// Adds the totals of other queries.
    pub fn merge(&mut self, other: &SearchTotals) {
        self.hops += other.hops;
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.most_buffered = self.most_buffered.max(other.most_buffered);
        self.code_distances += other.code_distances;
        self.full_distances += other.full_distances;
        self.own.merge(&other.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OF_LISTS: [Counter; 2] =
        [Counter { name: "lists", about: "" }, Counter { name: "small_reads", about: "" }];
    static OF_TABLES: [Counter; 2] =
        [Counter { name: "tables", about: "" }, Counter { name: "lists", about: "" }];

    fn costs(counters: &'static [Counter], own: [u32; 2]) -> (QueryStats, OwnCosts) {
        let one = QueryStats { reads: 3, own: [own[0], own[1], 0, 0], ..QueryStats::default() };
        let mut columns = OwnCosts::new(counters, 2);
        columns.set(1, &one);
        (one, columns)
    }

    #[test]
    fn counters_of_different_families_are_added_by_name() {
        let (one, mut columns) = costs(&OF_LISTS, [5, 7]);
        columns.add(&costs(&OF_TABLES, [11, 13]).1);
        assert_eq!(columns.of("lists"), Some(&[0, 18][..]));
        assert_eq!(
            (columns.of("small_reads"), columns.of("tables")),
            (Some(&[0, 7][..]), Some(&[0, 11][..]))
        );
        assert_eq!(columns.of("probes"), None);
        let mut totals = SearchTotals::of(&[one, one], &columns);
        totals.merge(&totals.clone());
        assert_eq!((totals.reads, totals.own.of("lists"), totals.own.of("probes")), (12, Some(36), None));
    }

    #[test]
    fn json_contains_the_counters_of_the_family_beside_the_common_ones() {
        let (one, columns) = costs(&OF_LISTS, [5, 7]);
        let json = serde_json::to_value(SearchTotals::of(&[one], &columns)).expect("a JSON object");
        assert_eq!((&json["lists"], &json["small_reads"], &json["reads"]), (&5.into(), &7.into(), &3.into()));
        let none = SearchTotals::of(&[one], &OwnCosts::new(&[], 1));
        assert_eq!(serde_json::to_value(none).expect("a JSON object").get("lists"), None);
        let named = one.named(&OF_LISTS);
        assert_eq!((named.of("small_reads"), named.iter().count()), (Some(7), 2));
    }
}
