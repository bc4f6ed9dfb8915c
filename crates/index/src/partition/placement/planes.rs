//! The top of the tree for sets that do not fit in memory: planes found on a sample, by which every vector is sent to
//! its part.

use super::halve::{Halving, child};
use super::project::dot;
use super::{Placement, Points};

/// A part is planned this much smaller than it may be, since a sample only estimates how many vectors lie in it.
const MARGIN: f64 = 1.2;
/// Vectors of the sample that a part has at least: fewer say nothing about its size.
const LEAST_SAMPLE: usize = 16;
/// Tries to find parts none of which is too large with those vectors that only lie beside it.
const TRIES: usize = 4;

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
    /// The normal's length, by which distances from the plane are measured.
    length: f32,
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
        let placement = Placement { units: vec![1], exchanged: None, threads: 1, seed, card: None };
        let mut halving = Halving::new(sample, &placement);
        let wanted = most as f64 / MARGIN * rows as f64 / vectors.max(1) as f64;
        let mut planes = Planes { nodes: Vec::new(), parts: 0 };
        let mut ids: Vec<u32> = (0..rows as u32).collect();
        planes.halve(&mut halving, 1, &mut ids, wanted);
        planes
    }

    /// The same for parts that overlap: each vector lies in two of them ([`Planes::two`]).
    pub(crate) fn overlapping(
        sample: &impl Points,
        rows: usize,
        vectors: usize,
        most: usize,
        seed: u64,
    ) -> Planes {
        let mut wanted = most / 2;
        let mut planes = Planes::new(sample, rows, vectors, wanted, seed);
        for _ in 1..TRIES {
            let largest = planes.largest(sample, rows) as f64 * MARGIN * vectors as f64 / rows.max(1) as f64;
            if largest <= most as f64 || planes.parts * LEAST_SAMPLE * 2 > rows {
                break;
            }
            wanted = (wanted as f64 * most as f64 / largest) as usize;
            planes = Planes::new(sample, rows, vectors, wanted, seed);
        }
        planes
    }

    /// Vectors of the sample in the part that has the most of them.
    fn largest(&self, sample: &impl Points, rows: usize) -> usize {
        let (mut sizes, mut row) = (vec![0; self.parts], vec![0.0; sample.dim()]);
        for id in 0..rows as u32 {
            sample.read(id, &mut row);
            let (nearest, second) = self.two(&row);
            sizes[nearest] += 1;
            second.into_iter().for_each(|second| sizes[second] += 1);
        }
        sizes.into_iter().max().unwrap_or(0)
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
        let length = dot(&normal, &normal).sqrt().max(f32::MIN_POSITIVE);
        self.nodes.push(Node { normal, threshold: cut.threshold, length, below, above });
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
        self.down(self.root(), row, |_, _| ())
    }

    /// The part of a vector, and the one that it would lie in if it were beyond the plane that is nearest to it.
    pub(crate) fn two(&self, row: &[f32]) -> (usize, Option<usize>) {
        let mut nearest: Option<(f32, Next)> = None;
        let part = self.down(self.root(), row, |distance, beyond| {
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, beyond));
            }
        });
        (part, nearest.map(|(_, beyond)| self.down(beyond, row, |_, _| ())))
    }

    fn root(&self) -> Next {
        if self.nodes.is_empty() { Next::Part(0) } else { Next::Node(0) }
    }

    /// The part that a vector lies in below `next`; `passed` is told the distance from each plane, and what lies beyond it.
    fn down(&self, mut next: Next, row: &[f32], mut passed: impl FnMut(f32, Next)) -> usize {
        loop {
            match next {
                Next::Part(part) => return part,
                Next::Node(at) => {
                    let node = &self.nodes[at];
                    let above = dot(row, &node.normal) - node.threshold;
                    let below = above < 0.0;
                    let (own, beyond) =
                        if below { (node.below, node.above) } else { (node.above, node.below) };
                    passed(above.abs() / node.length, beyond);
                    next = own;
                }
            }
        }
    }
}
