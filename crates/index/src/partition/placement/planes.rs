//! The top of the tree for sets that do not fit in memory: planes that are found on a sample, and by which
//! every vector is sent to its part.

use super::halve::{Halving, child};
use super::project::dot;
use super::{Placement, Points};

/// A part is planned smaller than the limit by this factor, since a sample only estimates its size.
const MARGIN: f64 = 1.2;
/// Fewest vectors of the sample in a part: fewer do not estimate its size.
const LEAST_SAMPLE: usize = 16;
/// Attempts to find parts that are small enough, including the vectors that are only near them.
const TRIES: usize = 4;

/// A tree of halving planes, with parts as leaves.
#[derive(Debug)]
pub(crate) struct Planes {
    nodes: Vec<PlaneNode>,
    parts: usize,
}

#[derive(Debug)]
struct PlaneNode {
    normal: Vec<f32>,
    threshold: f32,
    /// The length of the normal, which converts products to distances from the plane.
    length: f32,
    below: Child,
    above: Child,
}

#[derive(Debug, Clone, Copy)]
enum Child {
    Node(usize),
    Part(usize),
}

impl Planes {
    /// Returns planes that cut a set of `vectors` vectors into parts of about `most` vectors or fewer, found
    /// on `sample`, which has `rows` vectors.
    pub(crate) fn new(sample: &impl Points, rows: usize, vectors: usize, most: usize, seed: u64) -> Planes {
        let placement = Placement { units: vec![1], exchanged: None, threads: 1, seed, card: None };
        let mut halving = Halving::new(sample, &placement);
        let wanted = most as f64 / MARGIN * rows as f64 / vectors.max(1) as f64;
        let mut planes = Planes { nodes: Vec::new(), parts: 0 };
        let mut ids: Vec<u32> = (0..rows as u32).collect();
        planes.halve(&mut halving, 1, &mut ids, wanted);
        planes
    }

    /// Returns planes for parts that overlap: each vector is in two of them ([`Planes::two_parts`]).
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

    /// Returns the number of sample vectors in the largest part.
    fn largest(&self, sample: &impl Points, rows: usize) -> usize {
        let (mut sizes, mut row) = (vec![0; self.parts], vec![0.0; sample.dim()]);
        for id in 0..rows as u32 {
            sample.read(id, &mut row);
            let (nearest, second) = self.two_parts(&row);
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
    ) -> Child {
        if ids.len() as f64 <= wanted || ids.len() < 2 * LEAST_SAMPLE {
            self.parts += 1;
            return Child::Part(self.parts - 1);
        }
        let cut = halving.cut(path, ids, 1);
        let (normal, at) = (halving.normal.clone(), self.nodes.len());
        let (below, above) = (Child::Part(0), Child::Part(0));
        let length = dot(&normal, &normal).sqrt().max(f32::MIN_POSITIVE);
        self.nodes.push(PlaneNode { normal, threshold: cut.threshold, length, below, above });
        let (left, right) = ids.split_at_mut(cut.at);
        self.nodes[at].below = self.halve(halving, child(path, 0), left, wanted);
        self.nodes[at].above = self.halve(halving, child(path, 1), right, wanted);
        Child::Node(at)
    }

    /// Returns the number of parts; near parts have near numbers.
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the part of a vector.
    pub(crate) fn part(&self, row: &[f32]) -> usize {
        self.descend(self.root(), row, |_, _| ())
    }

    /// Returns the part of a vector, and the part on the other side of the plane nearest to the vector.
    pub(crate) fn two_parts(&self, row: &[f32]) -> (usize, Option<usize>) {
        let mut nearest: Option<(f32, Child)> = None;
        let part = self.descend(self.root(), row, |distance, beyond| {
            if nearest.is_none_or(|(least, _)| distance < least) {
                nearest = Some((distance, beyond));
            }
        });
        (part, nearest.map(|(_, beyond)| self.descend(beyond, row, |_, _| ())))
    }

    fn root(&self) -> Child {
        if self.nodes.is_empty() { Child::Part(0) } else { Child::Node(0) }
    }

    /// Returns the part of a vector below `next`. Passes the distance from each plane on the way, and the
    /// subtree beyond it, to `passed`.
    fn descend(&self, mut next: Child, row: &[f32], mut passed: impl FnMut(f32, Child)) -> usize {
        loop {
            match next {
                Child::Part(part) => return part,
                Child::Node(at) => {
                    let node = &self.nodes[at];
                    let above = dot(row, &node.normal) - node.threshold;
                    let below = above < 0.0;
                    let (near_side, beyond) =
                        if below { (node.below, node.above) } else { (node.above, node.below) };
                    passed(above.abs() / node.length, beyond);
                    next = near_side;
                }
            }
        }
    }
}
