//! Sets of values in an order, as the places where one goes in and out of them.

/// A value in an order that begins with `default()`.
pub(super) trait Key: Ord + Clone + Default {}

impl<T: Ord + Clone + Default> Key for T {}

/// A set of values: the places in the order where one enters it, leaves it, enters it again, and so on. A cut `k` lies before the
/// value `k`; a set that is not left at its last cut goes on to the end of the order. Equal sets have equal cuts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cuts<K>(Vec<K>);

impl<K: Key> Cuts<K> {
    pub(super) fn none() -> Cuts<K> {
        Cuts(Vec::new())
    }

    /// The values between two cuts; `None` is the end of the order.
    pub(super) fn between(begin: Option<K>, end: Option<K>) -> Cuts<K> {
        Cuts::of_ranges(begin.map(|begin| (begin, end)).into_iter().collect())
    }

    /// All values of these ranges, each from its begin to before its end, or to the end of the order.
    fn of_ranges(mut ranges: Vec<(K, Option<K>)>) -> Cuts<K> {
        ranges.sort_unstable_by(|one, two| one.0.cmp(&two.0));
        let mut cuts: Vec<K> = Vec::with_capacity(2 * ranges.len());
        for (begin, end) in ranges {
            if end.as_ref().is_some_and(|end| *end <= begin) {
                continue;
            }
            // The last range ends at the last cut; it goes on if this one begins before or at it.
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

    /// What is in any of the sets.
    pub(super) fn union(sets: Vec<Cuts<K>>) -> Cuts<K> {
        let mut ranges = Vec::with_capacity(sets.iter().map(|set| set.0.len().div_ceil(2)).sum());
        for set in sets {
            let mut cuts = set.0.into_iter();
            while let Some(begin) = cuts.next() {
                ranges.push((begin, cuts.next()));
            }
        }
        Cuts::of_ranges(ranges)
    }

    /// What is in all of the sets.
    pub(super) fn intersection(sets: Vec<Cuts<K>>) -> Cuts<K> {
        Cuts::union(sets.into_iter().map(Cuts::complement).collect()).complement()
    }

    /// What is not in the set.
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

    /// The ranges of the set, rising: begins, and ends that are outside.
    pub(super) fn ranges(&self) -> impl ExactSizeIterator<Item = (&K, Option<&K>)> {
        self.0.chunks(2).map(|pair| (&pair[0], pair.get(1)))
    }

    /// The range that the set is, if it is one.
    pub(super) fn only_range(&self) -> Option<(&K, Option<&K>)> {
        match self.0.as_slice() {
            [begin] => Some((begin, None)),
            [begin, end] => Some((begin, Some(end))),
            _ => None,
        }
    }

    /// The range that is left out, if the set is all but that.
    pub(super) fn only_gap(&self) -> Option<(&K, &K)> {
        match self.0.as_slice() {
            [first, begin, end] if *first == K::default() => Some((begin, end)),
            _ => None,
        }
    }

    /// Whether a value is in the set, given whether a cut lies at or before it.
    #[inline]
    pub(super) fn contains_by(&self, at_or_before: impl Fn(&K) -> bool) -> bool {
        self.0.partition_point(at_or_before) % 2 == 1
    }
}
