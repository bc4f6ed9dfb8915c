//! The top of the tree for sets that do not fit in memory: planes found on a sample, by which every vector is sent to
//! its part.

use super::halve::{Halving, child};
use super::project::dot;
use super::{Placement, Points};

/// A part is planned this much smaller than it may be, since a sample only estimates how many vectors lie in it.
const MARGIN: f64 = 1.2;
/// Vectors of the sample that a part has at least: fewer say nothing about its size.
const LEAST_SAMPLE: usize = 16;

/// Halving planes, down to parts.
#[derive(Debug)]
pub(crate) struct Planes {
    nodes: Vec<Node>,
    parts: usize,
}

#[derive(Debug)]
struct Node {
    normal: Vec<f32>,
    threshold: f32,
    below: Next,
    above: Next,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Node(usize),
    Part(usize),
}

impl Planes {
    /// Planes that cut a set of `vectors` into parts of about `most` vectors or fewer, found on `sample`, which has
    /// `rows` of them.
    pub(crate) fn new(sample: &impl Points, rows: usize, vectors: usize, most: usize, seed: u64) -> Planes {
        let placement = Placement { units: vec![1], exchanged: None, threads: 1, seed };
        let mut halving = Halving::new(sample, &placement);
        let wanted = most as f64 / MARGIN * rows as f64 / vectors.max(1) as f64;
        let mut planes = Planes { nodes: Vec::new(), parts: 0 };
        let mut ids: Vec<u32> = (0..rows as u32).collect();
        planes.halve(&mut halving, 1, &mut ids, wanted);
        planes
    }

    fn halve<P: Points>(
        &mut self,
        halving: &mut Halving<'_, P>,
        path: u64,
        ids: &mut [u32],
        wanted: f64,
    ) -> Next {
        if ids.len() as f64 <= wanted || ids.len() < 2 * LEAST_SAMPLE {
            self.parts += 1;
            return Next::Part(self.parts - 1);
        }
        let cut = halving.cut(path, ids, 1);
        let (normal, at) = (halving.normal.clone(), self.nodes.len());
        let (below, above) = (Next::Part(0), Next::Part(0));
        self.nodes.push(Node { normal, threshold: cut.threshold, below, above });
        let (left, right) = ids.split_at_mut(cut.at);
        self.nodes[at].below = self.halve(halving, child(path, 0), left, wanted);
        self.nodes[at].above = self.halve(halving, child(path, 1), right, wanted);
        Next::Node(at)
    }

    /// Number of parts; near ones have near numbers.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// The part of a vector.
    pub(crate) fn part(&self, row: &[f32]) -> usize {
        let mut next = if self.nodes.is_empty() { Next::Part(0) } else { Next::Node(0) };
        loop {
            match next {
                Next::Part(part) => return part,
                Next::Node(at) => {
                    let node = &self.nodes[at];
                    next = if dot(row, &node.normal) < node.threshold { node.below } else { node.above };
                }
            }
        }
    }
}
