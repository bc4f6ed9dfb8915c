//! The assignment of vectors to partitions. A vector is in the partition of its nearest pivot, and in others
//! whose pivots are nearly as near and lie in other directions (SPANN, section 3.2.2). A query from the other
//! side of a border then finds it, too.

use super::build::Work;
use super::meta::MetaIndex;
use crate::allocate::{try_with_capacity, try_zeros};
use crate::error::IndexError;
use crate::partition::{CHECK_BYTES, READ_BYTES};
use crate::proximity::walk::Walk;
use bathyal_vectors::RowReader;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest distance of a pivot, as a multiple of the nearest pivot's, at which a vector enters its
/// partition. Distances are squares. With at most two partitions a vector, SIFT vectors are in 1.6 partitions
/// on average for a factor of 1.1, and in 1.9 for 1.5, which finds as much for as many bytes
/// (docs/decisions/partitioned.md).
const CLOSURE: f32 = 1.1 * 1.1;
/// Marks an unused entry of a vector's partitions.
const NONE: u32 = u32::MAX;
/// The most rows without a direction that an error names.
const ZEROS_NAMED: usize = 10;

/// The vectors of each partition, in ascending order.
pub(super) struct Assignment {
    starts: Vec<u64>,
    members: Vec<u32>,
}

impl Assignment {
    /// Returns the bytes of memory for assigning `count` vectors to `replicas` partitions each, of
    /// `partitions` in all.
    pub(super) fn planned_bytes(count: u64, replicas: u64, partitions: u64) -> u64 {
        2 * 4 * count * replicas + 16 * partitions
    }

    /// Returns the vectors of a partition.
    pub(super) fn members(&self, partition: usize) -> &[u32] {
        &self.members[self.starts[partition] as usize..self.starts[partition + 1] as usize]
    }

    /// Returns the number of partitions.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the partition of each of `count` vectors, each of which is in one partition.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn partitions_of(&self, count: usize) -> Result<Vec<u32>, IndexError> {
        let mut partitions = try_zeros("the partitions of vectors", count)?;
        for partition in 0..self.count() {
            self.members(partition).iter().for_each(|id| partitions[*id as usize] = partition as u32);
        }
        Ok(partitions)
    }

    /// Returns the number of vectors in all partitions, with a vector counted once for each of its
    /// partitions.
    pub(super) fn copies(&self) -> u64 {
        self.members.len() as u64
    }
}

/// Assigns every vector to up to `replicas` partitions, with at most `most` vectors in each.
pub(super) fn assign(
    work: &Work<'_>,
    meta: &MetaIndex,
    replicas: usize,
    most: usize,
) -> Result<Assignment, IndexError> {
    let mut chosen = choose(work, meta, replicas)?;
    // A pivot is in its own partition, so no partition is empty.
    for (partition, pivot) in (0..).zip(&meta.pivots) {
        let row = &mut chosen[*pivot as usize * replicas..][..replicas];
        row.fill(NONE);
        row[0] = partition;
    }
    let partitions = meta.pivots.len();
    let mut counts: Vec<u64> = try_zeros("vectors of partitions", partitions)?;
    meta.pivots.iter().zip(&mut counts).for_each(|(_, count)| *count += 1);
    let mut pivots = meta.pivots.clone();
    pivots.sort_unstable();
    let mut admission =
        PartitionAdmission { work, meta, counts, most: most as u64, walk: Walk::new(0, 0), first_open: 0 };
    // Assign each vector to one partition first, so that a copy never displaces a vector that is in no other
    // partition.
    for (id, row) in chosen.chunks_exact_mut(replicas).enumerate() {
        if id % 4096 == 0 {
            work.check_cancelled()?;
        }
        if pivots.binary_search(&(id as u32)).is_err() {
            admission.admit(id, row)?;
        }
    }
    for copy in chosen.chunks_exact_mut(replicas).flat_map(|row| &mut row[1..]) {
        if *copy != NONE && !admission.enter(*copy) {
            *copy = NONE;
        }
    }
    collect(&chosen, replicas, &admission.counts)
}

/// Chooses the partitions of each vector, the nearest first: `vectors x replicas`.
fn choose(work: &Work<'_>, meta: &MetaIndex, replicas: usize) -> Result<Vec<u32>, IndexError> {
    let count = work.data.count();
    work.progress.stage("assigning", count as u64);
    let mut chosen: Vec<u32> = try_with_capacity("the partitions of vectors", count * replicas)?;
    chosen.resize(count * replicas, NONE);
    let part = count.div_ceil(work.threads.max(1)).max(1);
    let (done, failed) = (AtomicU64::new(0), Mutex::new(None::<IndexError>));
    let zero = Mutex::new((0_u64, Vec::new()));
    std::thread::scope(|scope| {
        for (thread, chosen) in chosen.chunks_mut(part * replicas).enumerate() {
            let (done, failed, zero) = (&done, &failed, &zero);
            scope.spawn(move || {
                let mut chooser =
                    Chooser { work, meta, walk: Walk::new(0, 0), taken: vec![0; work.data.row_bytes()] };
                let outcome = chooser.choose_range(thread * part, replicas, chosen, done, zero);
                if let (Err(error), Ok(mut failed)) = (outcome, failed.lock()) {
                    *failed = Some(error);
                }
            });
        }
    });
    if let Ok(Some(error)) = failed.into_inner() {
        return Err(error);
    }
    let (zeros, mut rows) = zero.into_inner().unwrap_or_default();
    if zeros > 0 {
        rows.sort_unstable();
        rows.truncate(ZEROS_NAMED);
        return Err(IndexError::ZeroVectors { count: zeros, rows });
    }
    Ok(chosen)
}

/// The state of one thread that chooses partitions.
struct Chooser<'a> {
    work: &'a Work<'a>,
    meta: &'a MetaIndex,
    walk: Walk,
    taken: Vec<u8>,
}

impl Chooser<'_> {
    /// Chooses partitions for the vectors from `first` on.
    fn choose_range(
        &mut self,
        first: usize,
        replicas: usize,
        chosen: &mut [u32],
        done: &AtomicU64,
        zero: &Mutex<(u64, Vec<u64>)>,
    ) -> Result<(), IndexError> {
        let check_rows = (CHECK_BYTES / self.work.data.given_row_bytes()).clamp(1, 4096);
        let mut rows = RowReader::new(self.work.data.given(), READ_BYTES);
        for (at, chosen) in chosen.chunks_exact_mut(replicas).enumerate() {
            if at % check_rows == 0 {
                self.work.check_cancelled()?;
                self.work.progress.advance(done.fetch_add(check_rows as u64, Ordering::Relaxed));
            }
            if !self.work.data.form().take(rows.row(first + at)?, &mut self.taken) {
                if let Ok(mut zero) = zero.lock() {
                    zero.0 += 1;
                    if zero.1.len() < 1000 {
                        zero.1.push((first + at) as u64);
                    }
                }
                continue;
            }
            self.meta.near(&self.taken, replicas, &mut self.walk)?;
            take_partitions(self.meta, &self.walk, chosen);
        }
        Ok(())
    }
}

/// Takes the nearest partition that the walk has found, and further ones. A partition is skipped if a taken
/// pivot is nearer to its pivot than the vector is.
fn take_partitions(meta: &MetaIndex, walk: &Walk, chosen: &mut [u32]) {
    let mut found = walk.found();
    let Some(nearest) = found.next() else { return };
    chosen[0] = nearest.id;
    let (mut taken, farthest) = (1, nearest.distance * CLOSURE);
    for near in found {
        if taken == chosen.len() || near.distance > farthest {
            return;
        }
        if chosen[..taken].iter().all(|other| meta.space.between(*other, near.id) > near.distance) {
            chosen[taken] = near.id;
            taken += 1;
        }
    }
}

/// Admits vectors to partitions that are not full.
struct PartitionAdmission<'a> {
    work: &'a Work<'a>,
    meta: &'a MetaIndex,
    /// Vectors that each partition has admitted.
    counts: Vec<u64>,
    most: u64,
    walk: Walk,
    /// All partitions before this one are full.
    first_open: usize,
}

impl PartitionAdmission<'_> {
    fn enter(&mut self, partition: u32) -> bool {
        let count = &mut self.counts[partition as usize];
        let free = *count < self.most;
        *count += u64::from(free);
        free
    }

    /// Admits a vector to the first of its partitions, or, if that is full, to the nearest that is not.
    fn admit(&mut self, id: usize, row: &mut [u32]) -> Result<(), IndexError> {
        if self.enter(row[0]) {
            return Ok(());
        }
        let mut taken = vec![0; self.work.data.row_bytes()];
        self.work.data.form().take(RowReader::new(self.work.data.given(), 0).row(id)?, &mut taken);
        self.meta.near(&taken, 0, &mut self.walk)?;
        let near: Vec<u32> = self.walk.found().map(|near| near.id).collect();
        row[0] = match near.into_iter().find(|partition| self.enter(*partition)) {
            Some(partition) => partition,
            None => self.any_open_partition()?,
        };
        let first = row[0];
        row[1..].iter_mut().filter(|copy| **copy == first).for_each(|copy| *copy = NONE);
        Ok(())
    }

    /// Returns a partition that is not full. The partitions have several times as much space as there are
    /// vectors.
    fn any_open_partition(&mut self) -> Result<u32, IndexError> {
        while self.first_open < self.counts.len() {
            if self.enter(self.first_open as u32) {
                return Ok(self.first_open as u32);
            }
            self.first_open += 1;
        }
        Err(IndexError::Internal("all partitions are full".into()))
    }
}

/// Groups the vectors by partition.
fn collect(chosen: &[u32], replicas: usize, counts: &[u64]) -> Result<Assignment, IndexError> {
    let mut starts: Vec<u64> = try_with_capacity("the offsets of partitions", counts.len() + 1)?;
    starts.push(0);
    let mut end = 0;
    for count in counts {
        end += count;
        starts.push(end);
    }
    let mut members: Vec<u32> = try_zeros("the vectors of partitions", end as usize)?;
    let mut next = starts.clone();
    for (id, row) in chosen.chunks_exact(replicas).enumerate() {
        for partition in row.iter().filter(|partition| **partition != NONE) {
            let at = &mut next[*partition as usize];
            members[*at as usize] = id as u32;
            *at += 1;
        }
    }
    Ok(Assignment { starts, members })
}
