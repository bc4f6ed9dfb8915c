//! Every vector of a merged graph must be reachable, as in one that is grown in memory (`repair`). Its lists are in a file, so
//! they are gone through from the first to the last as often as it takes.

use super::repair::no_room;
use super::slots::Slots;
use super::work::Work;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::walk::Marks;

/// Marks a vector that has not been reached.
const UNREACHED: u32 = u32::MAX;
/// Vectors between two looks at cancellation.
const CHECK_EVERY: usize = 16_384;

/// Bytes a vector that [`connect`] takes: from where it was reached, and two marks.
pub(super) const BYTES_A_VECTOR: u64 = 4 + 1;

/// The vectors reached so far, as a tree: from where each was reached first.
struct Flood {
    parent: Vec<u32>,
    /// Those whose links have been followed.
    followed: Marks,
    reached: usize,
    /// Reached, but not followed yet.
    waiting: usize,
}

impl Flood {
    fn is_reached(&self, id: u32) -> bool {
        self.parent[id as usize] != UNREACHED
    }

    /// Hangs `id` on `parent`, if it hangs nowhere.
    fn reach(&mut self, id: u32, parent: u32) {
        if !self.is_reached(id) {
            self.parent[id as usize] = parent;
            self.reached += 1;
            self.waiting += 1;
        }
    }

    /// Follows the links of `id`, if it has been reached.
    fn follow(&mut self, id: u32, list: &[u32]) {
        if self.is_reached(id) && self.followed.mark(id) {
            self.waiting -= 1;
            list.iter().for_each(|link| self.reach(*link, id));
        }
    }

    /// Follows links until nothing more is reached.
    fn run(&mut self, work: &Work<'_>, slots: &Slots) -> Result<(), IndexError> {
        let mut list = Vec::new();
        while self.waiting > 0 {
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

    /// Links `anchor`, which has been reached, to `id`: on a free place, or instead of the last neighbour that was reached from
    /// elsewhere. False if all places are taken by links that others hang on.
    fn tie(&mut self, slots: &mut Slots, anchor: u32, id: u32) -> Result<bool, IndexError> {
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

    /// Follows the links of `start` and of all that is reached by them.
    fn follow_all(&mut self, slots: &Slots, start: u32) -> Result<(), IndexError> {
        let mut stack = vec![start];
        while let Some(id) = stack.pop() {
            let list = slots.get(id)?;
            stack.extend(list.iter().copied().filter(|link| !self.is_reached(*link)));
            self.follow(id, &list);
        }
        Ok(())
    }

    /// Ties vectors that are not reached, and none of those `absent`, to one that is and that they link to themselves.
    fn tie_near(&mut self, work: &Work<'_>, slots: &mut Slots, absent: &[u32]) -> Result<bool, IndexError> {
        let mut tied = false;
        for id in 0..self.parent.len() as u32 {
            if self.is_reached(id) || absent.binary_search(&id).is_ok() {
                continue;
            }
            work.check_cancelled()?;
            for anchor in slots.get(id)? {
                if self.is_reached(anchor) && self.tie(slots, anchor, id)? {
                    self.follow_all(slots, id)?;
                    tied = true;
                    break;
                }
            }
        }
        Ok(tied)
    }

    /// Ties the first vector that is not reached to any that can take it; false where none can.
    fn tie_anywhere(
        &mut self,
        work: &Work<'_>,
        slots: &mut Slots,
        absent: &[u32],
    ) -> Result<bool, IndexError> {
        let all = 0..self.parent.len() as u32;
        let lost = all.clone().find(|id| !self.is_reached(*id) && absent.binary_search(id).is_err());
        let Some(lost) = lost else { return Ok(false) };
        for anchor in all {
            if anchor % 64 == 0 {
                work.check_cancelled()?;
            }
            if self.is_reached(anchor) && self.tie(slots, anchor, lost)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Adds links until every vector but those `absent` (rising) is reachable from `entry`.
pub(super) fn connect(
    work: &Work<'_>,
    slots: &mut Slots,
    entry: u32,
    absent: &[u32],
) -> Result<(), IndexError> {
    let count = work.data.count();
    work.progress.stage("connecting", count as u64);
    let mut parent = try_with_capacity("how vectors are reached", count)?;
    parent.resize(count, UNREACHED);
    let mut flood = Flood { parent, followed: Marks::new(count as u64)?, reached: 0, waiting: 0 };
    flood.reach(entry, entry);
    loop {
        flood.run(work, slots)?;
        if flood.reached + absent.len() >= count {
            return Ok(());
        }
        if !flood.tie_near(work, slots, absent)? && !flood.tie_anywhere(work, slots, absent)? {
            return Err(no_room(slots.width()));
        }
    }
}
