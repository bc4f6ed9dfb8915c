//! Circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Import;

/// Imports that are named of one arrow.
const MOST_PLACES: usize = 3;

/// Arrows that are named of one circle, besides those of one way round.
const MOST_ARROWS: usize = 20;

/// Who imports whom, with all imports that make up each arrow.
#[derive(Default)]
pub(super) struct Graph<'a> {
    arrows: BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Import>>>,
}

/// Nodes that all reach each other.
pub(super) struct Circle<'a> {
    pub(super) members: BTreeSet<&'a str>,
    /// One way round: the shortest from the first member that has a way back, with the imports of each step.
    way: Vec<(&'a str, &'a str, &'a [&'a Import])>,
    /// Every arrow among the members, those of fewest imports first: they are cut most easily.
    arrows: Vec<(&'a str, &'a str, &'a [&'a Import])>,
}

impl<'a> Graph<'a> {
    pub(super) fn add(&mut self, from: &'a str, to: &'a str, import: &'a Import) {
        if from != to {
            self.arrows.entry(from).or_default().entry(to).or_default().push(import);
        }
    }

    /// All circles, each the largest set of nodes of which every one reaches every other.
    pub(super) fn circles(&'a self) -> Vec<Circle<'a>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.arrows.keys().map(|node| (*node, self.reachable(node))).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut found = Vec::new();
        for (node, reachable) in &reached {
            if !reachable.contains(node) || seen.contains(node) {
                continue;
            }
            let back = |other: &&str| reached.get(other).is_some_and(|of| of.contains(node));
            let members: BTreeSet<&str> = reachable.iter().copied().filter(back).collect();
            seen.extend(&members);
            found.push(self.circle(members));
        }
        found
    }

    fn next(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a [&'a Import])> {
        self.arrows.get(node).into_iter().flatten().map(|(to, imports)| (*to, imports.as_slice()))
    }

    fn reachable(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            open.extend(self.next(node).map(|(to, _)| to).filter(|to| found.insert(*to)));
        }
        found
    }

    fn circle(&'a self, members: BTreeSet<&'a str>) -> Circle<'a> {
        let inside = |from: &&'a str| {
            let from = *from;
            self.next(from)
                .filter(|(to, _)| members.contains(to))
                .map(move |(to, imports)| (from, to, imports))
        };
        let mut arrows: Vec<_> = members.iter().flat_map(inside).collect();
        arrows.sort_by_key(|(_, _, imports)| imports.len());
        let first = members.iter().next().copied().unwrap_or_default();
        let way = self.way_round(first, &members);
        Circle { members, way, arrows }
    }

    /// The shortest way from `first` back to it.
    fn way_round(
        &'a self,
        first: &'a str,
        members: &BTreeSet<&'a str>,
    ) -> Vec<(&'a str, &'a str, &'a [&'a Import])> {
        let mut came: BTreeMap<&str, (&'a str, &'a [&'a Import])> = BTreeMap::new();
        let mut open = VecDeque::from([first]);
        while let Some(node) = open.pop_front() {
            for (to, imports) in self.next(node).filter(|(to, _)| members.contains(to)) {
                if !came.contains_key(to) {
                    came.insert(to, (node, imports));
                    open.push_back(to);
                }
            }
        }
        let (mut way, mut node) = (Vec::new(), first);
        while let Some((from, imports)) = came.get(node) {
            way.push((*from, node, *imports));
            node = from;
            if node == first {
                break;
            }
        }
        way.reverse();
        way
    }
}

impl Circle<'_> {
    /// `file:line` of the first import of the way.
    pub(super) fn place(&self) -> String {
        let first = self.way.first().and_then(|(_, _, imports)| imports.first());
        first.map_or(String::new(), |import| format!("{}:{}", import.from, import.line))
    }

    /// All members, one way round with where each step is imported, and of a large circle the thinnest arrows.
    pub(super) fn describe(&self) -> String {
        let members: Vec<&str> = self.members.iter().copied().collect();
        let mut text = format!("{}; one way round:", members.join(", "));
        self.way.iter().for_each(|arrow| text.push_str(&line(arrow)));
        if self.arrows.len() > self.way.len() {
            text.push_str(&format!("\n  the thinnest of its {} arrows:", self.arrows.len()));
            self.arrows.iter().take(MOST_ARROWS).for_each(|arrow| text.push_str(&line(arrow)));
        }
        text
    }
}

/// An arrow with where it is imported.
fn line((from, to, imports): &(&str, &str, &[&Import])) -> String {
    let places = imports.iter().take(MOST_PLACES);
    let places: Vec<String> = places.map(|import| format!("{}:{}", import.from, import.line)).collect();
    let more = imports.len().saturating_sub(MOST_PLACES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("\n    {from} imports {to} at {}{more}", places.join(", "))
}
