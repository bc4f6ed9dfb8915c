//! Sets of ordered values, represented by the boundaries of their ranges.

/// A type of ordered values. The smallest value is `default()`.
pub(super) trait Key: Ord + Clone + Default {}

impl<T: Ord + Clone + Default> Key for T {}

/// A set of values: an ascending list of cuts, at which ranges begin and end in turn. A cut `k` lies before
/// the value `k`. If the number of cuts is odd, the last range extends to the end of the order. Equal sets
/// have equal cuts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cuts<K>(Vec<K>);

impl<K: Key> Cuts<K> {
    pub(super) fn none() -> Cuts<K> {
        Cuts(Vec::new())
    }

    /// Returns the values between two cuts; `None` is the end of the order.
    pub(super) fn between(begin: Option<K>, end: Option<K>) -> Cuts<K> {
        Cuts::from_ranges(begin.map(|begin| (begin, end)).into_iter().collect())
    }

    /// Returns the union of ranges. Each extends from its begin to before its end, or to the end of the
    /// order.
    fn from_ranges(mut ranges: Vec<(K, Option<K>)>) -> Cuts<K> {
        ranges.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let mut cuts: Vec<K> = Vec::with_capacity(2 * ranges.len());
        for (begin, end) in ranges {
            if end.as_ref().is_some_and(|end| *end <= begin) {
                continue;
            }
            // The last range ends at the last cut; it is extended if this range begins before or at it.
            let touches = cuts.last().is_some_and(|last| begin <= *last);
            if !touches {
                cuts.push(begin);
            } else if end.as_ref().is_some_and(|end| cuts.last() >= Some(end)) {
                continue;
            } else {
                cuts.pop();
            }
            match end {
                Some(end) => cuts.push(end),
                None => break,
            }
        }
        Cuts(cuts)
    }

    /// Returns the union of sets.
    pub(super) fn union(sets: Vec<Cuts<K>>) -> Cuts<K> {
        let mut ranges = Vec::with_capacity(sets.iter().map(|set| set.0.len().div_ceil(2)).sum());
        for set in sets {
            let mut cuts = set.0.into_iter();
            while let Some(begin) = cuts.next() {
                ranges.push((begin, cuts.next()));
            }
        }
        Cuts::from_ranges(ranges)
    }

    /// Returns the intersection of sets.
    pub(super) fn intersection(sets: Vec<Cuts<K>>) -> Cuts<K> {
        Cuts::union(sets.into_iter().map(Cuts::complement).collect()).complement()
    }

    /// Returns the values that are not in the set.
    pub(super) fn complement(mut self) -> Cuts<K> {
        if self.0.first() == Some(&K::default()) {
            self.0.remove(0);
        } else {
            self.0.insert(0, K::default());
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_all(&self) -> bool {
        self.0.len() == 1 && self.0.first() == Some(&K::default())
    }

    /// Returns the ranges of the set in ascending order: begins, and exclusive ends.
    pub(super) fn ranges(&self) -> impl ExactSizeIterator<Item = (&K, Option<&K>)> {
        self.0.chunks(2).map(|pair| (&pair[0], pair.get(1)))
    }

    /// Returns the range, if the set is a single range.
    pub(super) fn only_range(&self) -> Option<(&K, Option<&K>)> {
        match self.0.as_slice() {
            [begin] => Some((begin, None)),
            [begin, end] => Some((begin, Some(end))),
            _ => None,
        }
    }

    /// Returns the gap, if the set consists of all values except one range in the middle.
    pub(super) fn only_gap(&self) -> Option<(&K, &K)> {
        match self.0.as_slice() {
            [first, begin, end] if *first == K::default() => Some((begin, end)),
            _ => None,
        }
    }

    /// Returns true if a value is in the set. `at_or_before` must return whether a cut lies at or before the
    /// value.
    #[inline]
    pub(super) fn contains_by(&self, at_or_before: impl Fn(&K) -> bool) -> bool {
        self.0.partition_point(at_or_before) % 2 == 1
    }
}
