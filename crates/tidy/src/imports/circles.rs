//! Circles of a directed graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Import;

/// Most imports of an edge that a complaint lists.
const MOST_IMPORTS: usize = 3;

/// Most edges of a circle that a complaint lists, in addition to those of one cycle.
const MOST_EDGES: usize = 20;

/// The graph of imports. An edge leads from the importing node to the imported one, and has all its imports.
#[derive(Default)]
pub(super) struct Graph<'a> {
    edges: BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a Import>>>,
}

/// An edge of the graph.
#[derive(Clone, Copy)]
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    imports: &'a [&'a Import],
}

/// A set of nodes that all reach each other (a strongly connected component).
pub(super) struct Circle<'a> {
    pub(super) members: BTreeSet<&'a str>,
    /// One cycle: a shortest one through the first member.
    cycle: Vec<Edge<'a>>,
    /// All edges among the members. Those of fewest imports, which are the easiest to remove, come first.
    edges: Vec<Edge<'a>>,
}

impl<'a> Graph<'a> {
    pub(super) fn add(&mut self, from: &'a str, to: &'a str, import: &'a Import) {
        if from != to {
            self.edges.entry(from).or_default().entry(to).or_default().push(import);
        }
    }

    /// Finds all circles.
    pub(super) fn circles(&'a self) -> Vec<Circle<'a>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|node| (*node, self.reachable(node))).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut found = Vec::new();
        for (node, reachable) in &reached {
            if !reachable.contains(node) || seen.contains(node) {
                continue;
            }
            let reaches_node = |other: &&str| reached.get(other).is_some_and(|nodes| nodes.contains(node));
            let members: BTreeSet<&str> = reachable.iter().copied().filter(reaches_node).collect();
            seen.extend(&members);
            found.push(self.circle(members));
        }
        found
    }

    fn edges_from(&'a self, from: &'a str) -> impl Iterator<Item = Edge<'a>> {
        let edges = self.edges.get(from).into_iter().flatten();
        edges.map(move |(to, imports)| Edge { from, to, imports })
    }

    fn reachable(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            open.extend(self.edges_from(node).map(|edge| edge.to).filter(|to| found.insert(*to)));
        }
        found
    }

    fn circle(&'a self, members: BTreeSet<&'a str>) -> Circle<'a> {
        let mut edges: Vec<Edge<'a>> =
            members.iter().flat_map(|&from| self.edges_within(from, &members)).collect();
        edges.sort_by_key(|edge| edge.imports.len());
        let first = members.iter().next().copied().unwrap_or_default();
        let cycle = self.shortest_cycle(first, &members);
        Circle { members, cycle, edges }
    }

    fn edges_within(&'a self, from: &'a str, members: &BTreeSet<&'a str>) -> impl Iterator<Item = Edge<'a>> {
        self.edges_from(from).filter(move |edge| members.contains(edge.to))
    }

    /// Returns a shortest cycle through `first`.
    fn shortest_cycle(&'a self, first: &'a str, members: &BTreeSet<&'a str>) -> Vec<Edge<'a>> {
        // For each node that was reached, the edge to it.
        let mut reached_by: BTreeMap<&str, Edge<'a>> = BTreeMap::new();
        let mut open = VecDeque::from([first]);
        while let Some(node) = open.pop_front() {
            for edge in self.edges_within(node, members) {
                if !reached_by.contains_key(edge.to) {
                    reached_by.insert(edge.to, edge);
                    open.push_back(edge.to);
                }
            }
        }
        let (mut cycle, mut node) = (Vec::new(), first);
        while let Some(edge) = reached_by.get(node) {
            cycle.push(*edge);
            node = edge.from;
            if node == first {
                break;
            }
        }
        cycle.reverse();
        cycle
    }
}

impl Circle<'_> {
    /// Returns the `file:line` of the first import of the cycle.
    pub(super) fn location(&self) -> String {
        let first = self.cycle.first().and_then(|edge| edge.imports.first());
        first.map_or(String::new(), |import| format!("{}:{}", import.from, import.line))
    }

    /// Describes the circle: all members, one cycle with its imports, and, if there are more edges, those of
    /// the fewest imports.
    pub(super) fn describe(&self) -> String {
        let members: Vec<&str> = self.members.iter().copied().collect();
        let mut text = format!("{}; one cycle:", members.join(", "));
        self.cycle.iter().for_each(|edge| text.push_str(&describe_edge(edge)));
        if self.edges.len() > self.cycle.len() {
            text.push_str(&format!("\n  those of its {} edges with the fewest imports:", self.edges.len()));
            self.edges.iter().take(MOST_EDGES).for_each(|edge| text.push_str(&describe_edge(edge)));
        }
        text
    }
}

/// Describes an edge with the lines of its imports.
fn describe_edge(Edge { from, to, imports }: &Edge<'_>) -> String {
    let listed = imports.iter().take(MOST_IMPORTS);
    let listed: Vec<String> = listed.map(|import| format!("{}:{}", import.from, import.line)).collect();
    let more = imports.len().saturating_sub(MOST_IMPORTS);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("\n    {from} imports {to} at {}{more}", listed.join(", "))
}
