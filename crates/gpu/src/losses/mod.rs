//! What the members of groups lose by going to the groups near theirs, on a card: the step of a clustering that takes time, bit for bit as
//! a processor does it.
//!
//! The points lie in the card's memory where all of them fit; else those of a few groups at a time are copied there, in every round.
//! There are two blocks of groups, each with a queue of its own: what is read of one overlaps with what the other is waited for.

mod args;

use crate::card::{Card, CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use args::Args;
use std::ops::Range;

/// Other groups that a group's members may go to, at most; `OTHERS` in `kernels/loss.cu`.
pub const MOST_OTHERS: usize = 32;
/// Blocks of groups that are under way.
pub const BLOCKS: usize = 2;
/// Threads of a block.
const THREADS: u32 = 128;
/// Members of a group that a block of threads has.
const MEMBERS: usize = 64;
/// Bytes that its threads share: 32 coordinates of 65 members and of 33 others, and 32 squares.
const SHARED_BYTES: u32 = 4 * (32 * 65 + 32 * 33 + 32);
/// Members of a block of groups, or those of one group if it has more.
const BLOCK_MEMBERS: usize = 1 << 16;
/// Bytes of the points of a block, where not all points are there.
const BLOCK_BYTES: usize = 8 << 20;

/// What is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Coordinates of a point.
    pub dim: usize,
    /// Points.
    pub points: usize,
    /// Members of a group; the last may have fewer.
    pub unit: usize,
    /// Other groups that its members may go to.
    pub others: usize,
}

impl Shape {
    fn groups(&self) -> usize {
        self.points.div_ceil(self.unit)
    }

    fn point_bytes(&self) -> u64 {
        4 * self.dim as u64
    }
}

/// The card's half of a clustering.
#[derive(Debug)]
pub struct Losses {
    shape: Shape,
    /// Groups of a block.
    block_groups: usize,
    /// All points, where they fit.
    points: Option<Box<dyn CardMemory>>,
    written: u64,
    means: Box<dyn CardMemory>,
    blocks: [Block; BLOCKS],
}

/// Groups that are looked at together.
#[derive(Debug)]
struct Block {
    queue: Box<dyn CardQueue>,
    /// Their points, where not all are there.
    points: Option<Box<dyn CardMemory>>,
    members: Box<dyn CardMemory>,
    near: Box<dyn CardMemory>,
    losses: Box<dyn CardMemory>,
    /// Members that are looked at.
    count: usize,
    read: Vec<u8>,
}

impl Losses {
    /// Takes memory of `card`.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] where not even one group fits, [`GpuError::Driver`].
    ///
    /// # Panics
    /// If the shape says that there is nothing, or more others than [`MOST_OTHERS`], which are a caller's bugs.
    pub fn new(card: &dyn Card, shape: Shape) -> Result<Losses, GpuError> {
        let Shape { dim, points, unit, others } = shape;
        assert!(dim > 0 && points > 0 && unit > 0 && (1..=MOST_OTHERS).contains(&others), "{shape:?}");
        let (mut resident, mut block_groups) = (true, (BLOCK_MEMBERS / unit).clamp(1, shape.groups()));
        loop {
            match Losses::of_room(card, shape, block_groups, resident) {
                Err(GpuError::Memory { free, .. }) => match (resident, block_groups) {
                    (true, groups) => {
                        let fitting = BLOCK_BYTES / (4 * dim * unit);
                        (resident, block_groups) = (false, groups.min(fitting).max(1));
                    }
                    (false, 1) => {
                        return Err(GpuError::Unsuited(format!(
                            "the graphics card has {free} bytes free, which is too little for the means of {} groups: stop what else uses \
                             the card, or leave --device gpu out",
                            shape.groups()
                        )));
                    }
                    (false, groups) => block_groups = groups.div_ceil(2),
                },
                done => return done,
            }
        }
    }

    fn of_room(
        card: &dyn Card,
        shape: Shape,
        block_groups: usize,
        resident: bool,
    ) -> Result<Losses, GpuError> {
        let what = "the points that are grouped";
        let members = (block_groups * shape.unit).min(shape.points) as u64;
        let room = |points: u64| card.allocate(what, points * shape.point_bytes());
        let block = || {
            Ok(Block {
                queue: card.queue()?,
                points: (!resident).then(|| room(members)).transpose()?,
                members: card.allocate(what, 4 * members)?,
                near: card.allocate(what, 4 * (block_groups * MOST_OTHERS) as u64)?,
                losses: card.allocate(what, 4 * members * shape.others as u64)?,
                count: 0,
                read: Vec::new(),
            })
        };
        let points = resident.then(|| room(shape.points as u64)).transpose()?;
        let means = room(shape.groups() as u64)?;
        let blocks = [block()?, block()?];
        Ok(Losses { shape, block_groups, points, written: 0, means, blocks })
    }

    /// Whether all points are to be copied once, by [`Losses::append`]; else those of a block at a time.
    pub fn is_resident(&self) -> bool {
        self.points.is_some()
    }

    /// Groups of a block, at most.
    pub fn block_groups(&self) -> usize {
        self.block_groups
    }

    /// Copies the points that come next, row-major.
    ///
    /// # Errors
    /// [`GpuError`]; also of more than there are.
    pub fn append(&mut self, points: &[f32]) -> Result<(), GpuError> {
        if let Some(memory) = &self.points {
            write(&mut *self.blocks[0].queue, &**memory, self.written, points)?;
            self.written += 4 * points.len() as u64;
        }
        Ok(())
    }

    /// Sets the means of all groups, row-major, for the blocks that are begun from now on; none is under way.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn set_means(&mut self, means: &[f32]) -> Result<(), GpuError> {
        let queue = &mut self.blocks[0].queue;
        write(&mut **queue, &*self.means, 0, means)?;
        // The other queue begins when they are there, and all points.
        queue.read(&*self.means, 0, &mut [0; 4])
    }

    /// Begins to look at `groups`, by block 0 or 1: their `members` one group behind the other, and of each group those near it.
    /// `points` are the members' own, row-major, where not all points are there. Whoever calls goes on meanwhile.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If there are no such groups, members or points, which are a caller's bugs: the card would read what is not there.
    pub fn begin(
        &mut self,
        block: usize,
        groups: Range<usize>,
        members: &[u32],
        near: &[[u32; MOST_OTHERS]],
        points: &[f32],
    ) -> Result<(), GpuError> {
        let (shape, all, means) = (self.shape, &self.points, &self.means);
        let known = |near: &[u32; MOST_OTHERS]| {
            near[..shape.others].iter().all(|group| (*group as usize) < shape.groups())
        };
        let first = groups.start * shape.unit;
        assert!(
            groups.len() <= self.block_groups
                && near.len() == groups.len()
                && near.iter().all(known)
                && members.len() == shape.points.min(groups.end * shape.unit) - first
                && members.iter().all(|id| (*id as usize) < shape.points)
                && points.len() == if all.is_some() { 0 } else { members.len() * shape.dim },
            "groups {groups:?} of {shape:?}"
        );
        let block = &mut self.blocks[block];
        block.count = members.len();
        let memory = match (all, &block.points) {
            (Some(all), _) => {
                block.queue.write(&*block.members, 0, &words(members))?;
                all
            }
            (None, Some(own)) => {
                write(&mut *block.queue, &**own, 0, points)?;
                block.queue.write(&*block.members, 0, &words(&Vec::from_iter(0..members.len() as u32)))?;
                own
            }
            (None, None) => {
                return Err(GpuError::Driver {
                    operation: "group points",
                    reason: "they lie nowhere".into(),
                });
            }
        };
        block.queue.write(&*block.near, 0, &words(near.as_flattened()))?;
        let tiles = shape.unit.div_ceil(MEMBERS);
        let memories = [memory, &block.members, means, &block.near, &block.losses];
        let args = Args {
            addresses: memories.map(|memory| memory.address()),
            numbers: [shape.dim, shape.others, shape.unit, members.len(), groups.start, tiles]
                .map(|number| number as u32),
        };
        block.queue.launch(&Launch {
            kernel: Kernel::Loss,
            blocks: (groups.len() * tiles) as u32,
            threads: THREADS,
            shared_bytes: SHARED_BYTES,
            argument: &args.bytes(),
        })
    }

    /// Waits for what was begun last by a block: of each member its losses, one for each other group.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn finish(&mut self, block: usize, losses: &mut Vec<f32>) -> Result<(), GpuError> {
        let Block { queue, losses: memory, count, read, .. } = &mut self.blocks[block];
        read.resize(4 * *count * self.shape.others, 0);
        queue.read(&**memory, 0, read)?;
        losses.clear();
        losses.extend(read.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)));
        Ok(())
    }
}

/// Copies numbers piece by piece, so that few of them are here twice.
fn write(
    queue: &mut dyn CardQueue,
    to: &dyn CardMemory,
    offset: u64,
    numbers: &[f32],
) -> Result<(), GpuError> {
    const PIECE: usize = 1 << 18;
    let mut bytes = Vec::with_capacity(4 * PIECE.min(numbers.len()));
    for (at, piece) in numbers.chunks(PIECE).enumerate() {
        bytes.clear();
        bytes.extend(piece.iter().flat_map(|number| number.to_le_bytes()));
        queue.write(to, offset + 4 * (at * PIECE) as u64, &bytes)?;
    }
    Ok(())
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
