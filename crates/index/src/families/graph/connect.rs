//! Makes every vector of a merged graph reachable, as `repair` does in memory. The lists are in a file, so
//! this reads the whole file in order, as often as necessary.

use super::slots::Slots;
use super::work::Work;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::walk::Marks;
use crate::proximity::repair::degree_too_small;

/// Parent of a vector that has not been reached.
const UNREACHED: u32 = u32::MAX;
/// Vectors between two checks for cancellation.
const CHECK_EVERY: usize = 16_384;

/// Bytes that [`connect`] takes for each vector: its parent, and less than a byte for marks.
pub(super) const BYTES_PER_VECTOR: u64 = 4 + 1;

/// The vectors that have been reached so far, as a tree.
struct ReachedTree {
    /// The vector from which each vector was reached first, by id.
    parent: Vec<u32>,
    /// Vectors whose links have been followed.
    followed: Marks,
    /// Number of reached vectors.
    reached: usize,
    /// Number of reached vectors whose links have not been followed yet.
    to_follow: usize,
}

impl ReachedTree {
    fn is_reached(&self, id: u32) -> bool {
        self.parent[id as usize] != UNREACHED
    }

    /// Adds `id` as a child of `parent`, unless it has been reached.
    fn reach(&mut self, id: u32, parent: u32) {
        if !self.is_reached(id) {
            self.parent[id as usize] = parent;
            self.reached += 1;
            self.to_follow += 1;
        }
    }

    /// Follows the links of `id`, if it has been reached.
    fn follow(&mut self, id: u32, list: &[u32]) {
        if self.is_reached(id) && self.followed.mark(id) {
            self.to_follow -= 1;
            list.iter().for_each(|link| self.reach(*link, id));
        }
    }

    /// Follows the links of all reached vectors, until no more vectors are reached.
    fn follow_file(&mut self, work: &Work<'_>, slots: &Slots) -> Result<(), IndexError> {
        let mut list = Vec::new();
        while self.to_follow > 0 {
            let mut reader = slots.reader();
            for id in 0..self.parent.len() {
                if id % CHECK_EVERY == 0 {
                    work.check_cancelled()?;
                    work.progress.advance(self.reached as u64);
                }
                reader.next(&mut list)?;
                self.follow(id as u32, &list);
            }
        }
        Ok(())
    }

    /// Adds a link from `anchor`, which has been reached, to `id`. If the list is full, the link replaces the
    /// last one that is not an edge of the tree. Returns false if all links are edges of the tree.
    fn attach(&mut self, slots: &mut Slots, anchor: u32, id: u32) -> Result<bool, IndexError> {
        let mut list = slots.get(anchor)?;
        if list.len() < slots.width() {
            list.push(id);
        } else {
            let spare = list.iter().rposition(|link| self.parent[*link as usize] != anchor);
            let Some(spare) = spare else { return Ok(false) };
            list[spare] = id;
        }
        slots.set(anchor, list);
        self.reach(id, anchor);
        Ok(true)
    }

    /// Follows the links of `start`, and of all vectors that are reached from it.
    fn follow_from(&mut self, slots: &Slots, start: u32) -> Result<(), IndexError> {
        let mut stack = vec![start];
        while let Some(id) = stack.pop() {
            let list = slots.get(id)?;
            stack.extend(list.iter().copied().filter(|link| !self.is_reached(*link)));
            self.follow(id, &list);
        }
        Ok(())
    }

    /// Adds a link to each unreached vector that is not in `absent`, from a reached vector that it links to
    /// itself. Returns false if no link could be added.
    fn attach_near(
        &mut self,
        work: &Work<'_>,
        slots: &mut Slots,
        absent: &[u32],
    ) -> Result<bool, IndexError> {
        let mut attached = false;
        for id in 0..self.parent.len() as u32 {
            if self.is_reached(id) || absent.binary_search(&id).is_ok() {
                continue;
            }
            work.check_cancelled()?;
            for anchor in slots.get(id)? {
                if self.is_reached(anchor) && self.attach(slots, anchor, id)? {
                    self.follow_from(slots, id)?;
                    attached = true;
                    break;
                }
            }
        }
        Ok(attached)
    }

    /// Adds a link to the first unreached vector that is not in `absent`, from any reached vector that can
    /// take one. Returns false if none can.
    fn attach_anywhere(
        &mut self,
        work: &Work<'_>,
        slots: &mut Slots,
        absent: &[u32],
    ) -> Result<bool, IndexError> {
        let all = 0..self.parent.len() as u32;
        let unreached = all.clone().find(|id| !self.is_reached(*id) && absent.binary_search(id).is_err());
        let Some(unreached) = unreached else { return Ok(false) };
        for anchor in all {
            if anchor % 64 == 0 {
                work.check_cancelled()?;
            }
            if self.is_reached(anchor) && self.attach(slots, anchor, unreached)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Adds links until every vector that is not in `absent` (rising) is reachable from `entry`.
///
/// # Errors
/// [`IndexError::Parameter`] if no vector can take a link; a failed read of the file; cancellation.
pub(super) fn connect(
    work: &Work<'_>,
    slots: &mut Slots,
    entry: u32,
    absent: &[u32],
) -> Result<(), IndexError> {
    let count = work.data.count();
    work.progress.stage("connecting", count as u64);
    let mut parent = try_with_capacity("the tree of reached vectors", count)?;
    parent.resize(count, UNREACHED);
    let mut tree = ReachedTree { parent, followed: Marks::new(count as u64)?, reached: 0, to_follow: 0 };
    tree.reach(entry, entry);
    loop {
        tree.follow_file(work, slots)?;
        if tree.reached + absent.len() >= count {
            return Ok(());
        }
        if !tree.attach_near(work, slots, absent)? && !tree.attach_anywhere(work, slots, absent)? {
            return Err(degree_too_small(slots.width()));
        }
    }
}
