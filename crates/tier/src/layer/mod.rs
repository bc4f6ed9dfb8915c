//! Tiers made of other tiers. Each passes [`crate::conformance`] over several backends.

pub mod cache;
pub mod delay;
pub mod doorbell;
pub mod stripe;
pub mod switch;
pub mod trace;

/// A layer's records of its reads in flight, by slot number. The layer uses the slot number as the read's id
/// below it.
#[derive(Debug)]
struct Slots<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    fn new() -> Slots<T> {
        Slots { items: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, item: T) -> u64 {
        match self.free.pop() {
            Some(slot) => {
                self.items[slot as usize] = Some(item);
                u64::from(slot)
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u64
            }
        }
    }

    fn get_mut(&mut self, slot: u64) -> Option<&mut T> {
        self.items.get_mut(usize::try_from(slot).ok()?)?.as_mut()
    }

    fn remove(&mut self, slot: u64) -> Option<T> {
        let item = self.items.get_mut(usize::try_from(slot).ok()?)?.take();
        if item.is_some() {
            self.free.push(slot as u32);
        }
        item
    }

    fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

/// Makes the error for a completion with an id that is not in flight.
fn unknown(id: u64) -> crate::TierError {
    crate::TierError::Contract(format!("a tier under a layer completed unknown read {id}"))
}
