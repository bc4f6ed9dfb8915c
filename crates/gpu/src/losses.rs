//! Losses of members that move to a group near theirs, on a card. This is the slow step of a clustering. The
//! results equal a processor's bit for bit.
//!
//! The card holds all points if they fit; otherwise those of a few groups at a time are copied there, in
//! every round. There are two blocks of groups, each with a queue of its own, so that reading the results of
//! one overlaps with the work of the other.

use crate::card::{Card, CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;
use crate::fields::append_fields;
use std::ops::Range;

/// Maximum number of other groups to which a group's members may move; `OTHERS` in `kernels/loss.cu`.
pub const MOST_OTHERS: usize = 32;
/// Number of blocks of groups in flight.
pub const BLOCKS: usize = 2;
/// Threads of a block of threads.
const THREADS: u32 = 128;
/// Members of a group for each block of threads.
const MEMBERS: usize = 64;
/// Bytes of shared memory of a block of threads: 32 coordinates of 65 members and of 33 others, and 32
/// squares.
const SHARED_BYTES: u32 = 4 * (32 * 65 + 32 * 33 + 32);
/// Maximum number of members of a block of groups, unless a single group has more.
const BLOCK_MEMBERS: usize = 1 << 16;
/// Maximum bytes of the points of a block, if the card does not hold all points.
const BLOCK_BYTES: usize = 8 << 20;

/// Sizes of a clustering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusteringShape {
    /// Number of coordinates of a point.
    pub dim: usize,
    /// Number of points.
    pub points: usize,
    /// Number of members of a group; the last group may have fewer.
    pub unit: usize,
    /// Number of other groups to which a group's members may move.
    pub others: usize,
}

impl ClusteringShape {
    fn groups(&self) -> usize {
        self.points.div_ceil(self.unit)
    }

    fn point_bytes(&self) -> u64 {
        4 * self.dim as u64
    }
}

/// The card's part of a clustering.
#[derive(Debug)]
pub struct Losses {
    shape: ClusteringShape,
    /// Maximum number of groups of a block.
    block_groups: usize,
    /// All points, if they fit.
    points: Option<Box<dyn CardMemory>>,
    written: u64,
    means: Box<dyn CardMemory>,
    blocks: [GroupBlock; BLOCKS],
}

/// A block of groups that are processed together.
#[derive(Debug)]
struct GroupBlock {
    queue: Box<dyn CardQueue>,
    /// Their points, if the card does not hold all points.
    points: Option<Box<dyn CardMemory>>,
    members: Box<dyn CardMemory>,
    near: Box<dyn CardMemory>,
    losses: Box<dyn CardMemory>,
    /// Number of members.
    count: usize,
    read: Vec<u8>,
}

impl Losses {
    /// Allocates memory of `card`.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] if not even one group fits, [`GpuError::Driver`].
    ///
    /// # Panics
    /// If the shape is empty, or has more others than [`MOST_OTHERS`], which is a bug of the caller.
    pub fn new(card: &dyn Card, shape: ClusteringShape) -> Result<Losses, GpuError> {
        let ClusteringShape { dim, points, unit, others } = shape;
        assert!(dim > 0 && points > 0 && unit > 0 && (1..=MOST_OTHERS).contains(&others), "{shape:?}");
        let (mut resident, mut block_groups) = (true, (BLOCK_MEMBERS / unit).clamp(1, shape.groups()));
        loop {
            match Losses::allocate(card, shape, block_groups, resident) {
                Err(GpuError::Memory { free, .. }) => match (resident, block_groups) {
                    (true, groups) => {
                        let fitting = BLOCK_BYTES / (4 * dim * unit);
                        (resident, block_groups) = (false, groups.min(fitting).max(1));
                    }
                    (false, 1) => {
                        return Err(GpuError::Unsuited(format!(
                            "the graphics card has {free} bytes free, which is too little for the means of \
                             {} groups: stop other programs that use the card, or leave --device gpu out",
                            shape.groups()
                        )));
                    }
                    (false, groups) => block_groups = groups.div_ceil(2),
                },
                done => return done,
            }
        }
    }

    fn allocate(
        card: &dyn Card,
        shape: ClusteringShape,
        block_groups: usize,
        resident: bool,
    ) -> Result<Losses, GpuError> {
        let what = "the points that are grouped";
        let members = (block_groups * shape.unit).min(shape.points) as u64;
        let allocate_points = |points: u64| card.allocate(what, points * shape.point_bytes());
        let block = || {
            Ok(GroupBlock {
                queue: card.queue()?,
                points: (!resident).then(|| allocate_points(members)).transpose()?,
                members: card.allocate(what, 4 * members)?,
                near: card.allocate(what, 4 * (block_groups * MOST_OTHERS) as u64)?,
                losses: card.allocate(what, 4 * members * shape.others as u64)?,
                count: 0,
                read: Vec::new(),
            })
        };
        let points = resident.then(|| allocate_points(shape.points as u64)).transpose()?;
        let means = allocate_points(shape.groups() as u64)?;
        let blocks = [block()?, block()?];
        Ok(Losses { shape, block_groups, points, written: 0, means, blocks })
    }

    /// Returns true if the card holds all points, which [`Losses::append`] copies once; otherwise the points
    /// of each block are copied.
    pub fn is_resident(&self) -> bool {
        self.points.is_some()
    }

    /// Returns the maximum number of groups of a block.
    pub fn block_groups(&self) -> usize {
        self.block_groups
    }

    /// Copies the next points, row-major.
    ///
    /// # Errors
    /// [`GpuError`], also for more points than the shape has.
    pub fn append(&mut self, points: &[f32]) -> Result<(), GpuError> {
        if let Some(memory) = &self.points {
            write(&mut *self.blocks[0].queue, &**memory, self.written, points)?;
            self.written += 4 * points.len() as u64;
        }
        Ok(())
    }

    /// Sets the means of all groups, row-major, for the blocks that begin from now on. No block may be in
    /// flight.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn set_means(&mut self, means: &[f32]) -> Result<(), GpuError> {
        let queue = &mut self.blocks[0].queue;
        write(&mut **queue, &*self.means, 0, means)?;
        // Wait for the copies, because the other queue uses the means and points, too.
        queue.read(&*self.means, 0, &mut [0; 4])
    }

    /// Launches the losses of `groups` in block 0 or 1. `members` has the members of the groups, one group
    /// after another, and `near` the groups near each group. `points` are the members' points, row-major, if
    /// the card does not hold all points. Does not wait for the launch.
    ///
    /// # Errors
    /// [`GpuError`].
    ///
    /// # Panics
    /// If the groups, members or points do not match the shape, which is a bug of the caller: the card would
    /// read invalid memory.
    pub fn begin(
        &mut self,
        block: usize,
        groups: Range<usize>,
        members: &[u32],
        near: &[[u32; MOST_OTHERS]],
        points: &[f32],
    ) -> Result<(), GpuError> {
        let (shape, all, means) = (self.shape, &self.points, &self.means);
        let are_valid = |near: &[u32; MOST_OTHERS]| {
            near[..shape.others].iter().all(|group| (*group as usize) < shape.groups())
        };
        let first = groups.start * shape.unit;
        assert!(
            groups.len() <= self.block_groups
                && near.len() == groups.len()
                && near.iter().all(are_valid)
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
            (None, Some(block_points)) => {
                write(&mut *block.queue, &**block_points, 0, points)?;
                block.queue.write(&*block.members, 0, &words(&Vec::from_iter(0..members.len() as u32)))?;
                block_points
            }
            (None, None) => {
                return Err(GpuError::Driver {
                    operation: "group points",
                    reason: "the card has no memory for them".into(),
                });
            }
        };
        block.queue.write(&*block.near, 0, &words(near.as_flattened()))?;
        let tiles = shape.unit.div_ceil(MEMBERS);
        let memories = [memory, &block.members, means, &block.near, &block.losses];
        let numbers = [shape.dim, shape.others, shape.unit, members.len(), groups.start, tiles];
        let mut argument = Vec::new();
        append_fields(
            &memories.map(|memory| memory.address()),
            &numbers.map(|number| number as u32),
            &mut argument,
        );
        block.queue.launch(&Launch {
            kernel: Kernel::Loss,
            blocks: (groups.len() * tiles) as u32,
            threads: THREADS,
            shared_bytes: SHARED_BYTES,
            argument: &argument,
        })
    }

    /// Waits for the last launch of a block. Writes the losses of each member to `losses`, one for each other
    /// group.
    ///
    /// # Errors
    /// [`GpuError`].
    pub fn finish(&mut self, block: usize, losses: &mut Vec<f32>) -> Result<(), GpuError> {
        let GroupBlock { queue, losses: memory, count, read, .. } = &mut self.blocks[block];
        read.resize(4 * *count * self.shape.others, 0);
        queue.read(&**memory, 0, read)?;
        losses.clear();
        losses.extend(read.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)));
        Ok(())
    }
}

/// Copies numbers in pieces, so that only few of them are in memory twice.
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
    let mut bytes = Vec::with_capacity(4 * numbers.len());
    append_fields(&[], numbers, &mut bytes);
    bytes
}
