//! The blocks on a disk: slots of one file, and another one that says what is in each.
//!
//! What the disk holds is found again by the next process. Nothing about the disk is ever an error of a read: what is damaged
//! is not there, and a disk that fails or is full is not used any more, which is said.

use super::files::{Files, Slot, buffer};
use super::key::BlockKey;
use super::memory::Block;
use super::room::{Held, Room};
use crate::connect::CachePolicy;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of memory that a slot takes: what finds it, and remembers what was in it. Measured with S3-FIFO, rounded up.
pub(crate) const SLOT_MEMORY_BYTES: u64 = 224;
/// Blocks that wait to be written, at most: more than come at once, and little memory.
pub(crate) const MOST_WAITING: usize = 256;

/// Threads that write: a disk far away takes half a millisecond for a block.
const WRITERS: usize = 4;

/// What the threads that write are told.
enum Order {
    /// To write a block.
    Write(BlockKey, Block, OwnedSemaphorePermit),
    /// That a block was read.
    Used(u64),
}

/// What reads and the threads that write share.
struct Shared {
    files: Files,
    room: Room,
    promotes: bool,
    /// Why the disk is not used any more.
    off: OnceLock<String>,
    is_off: AtomicBool,
    damaged: AtomicU64,
    /// What the threads that write were told and have not done.
    pending: AtomicUsize,
}

/// See the module's description.
pub(crate) struct Disk {
    shared: Arc<Shared>,
    orders: Mutex<Option<Sender<Order>>>,
    places: Arc<Semaphore>,
    /// How many places there are.
    waiting: u32,
    writers: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

impl Disk {
    /// The disk in `folder`, with what is there already, and no more than `bytes` and `most_slots` of it. So many blocks wait
    /// to be written at most.
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn open(
        folder: &Path,
        bytes: u64,
        most_slots: u64,
        waiting: u64,
        policy: CachePolicy,
    ) -> Result<Disk, String> {
        let (files, found) = Files::open(folder, bytes, most_slots)?;
        Disk::new(files, found, waiting, policy)
    }

    pub(super) fn new(
        files: Files,
        found: Vec<(u32, Slot)>,
        waiting: u64,
        policy: CachePolicy,
    ) -> Result<Disk, String> {
        let waiting = waiting.clamp(1, MOST_WAITING as u64) as u32;
        let room = Room::new(files.slots(), WRITERS as u32, policy, found);
        let shared = Arc::new(Shared {
            files,
            room,
            promotes: policy.promotes(),
            off: OnceLock::new(),
            is_off: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
        });
        let (sender, orders) = channel();
        let orders = Arc::new(Mutex::new(orders));
        let start = |_| {
            let (shared, orders) = (shared.clone(), orders.clone());
            let thread = std::thread::Builder::new().name("bathyal-cache".into());
            thread.spawn(move || write_all(&shared, &orders))
        };
        let writers = (0..WRITERS).map(start).collect::<Result<Vec<_>, _>>();
        let writers =
            writers.map_err(|error| format!("the cache has no disk: no thread can be started: {error}"))?;
        Ok(Disk {
            shared,
            orders: Mutex::new(Some(sender)),
            places: Arc::new(Semaphore::new(waiting as usize)),
            waiting,
            writers: Mutex::new(writers),
            process: std::process::id(),
        })
    }

    /// The block, if it is there and whole. Waits for the disk.
    pub(crate) fn read(&self, key: BlockKey) -> Option<Block> {
        let shared = &self.shared;
        if shared.is_off.load(Relaxed) {
            return None;
        }
        let hash = key.hash();
        let held = shared.room.find(hash)?;
        let mut buffer = buffer();
        match shared.files.read(held.slot, held.len, &mut buffer) {
            Ok(content) if key.checksum(content) == held.checksum => {
                if shared.promotes {
                    self.order(Order::Used(hash));
                }
                Some(Block::from(content))
            }
            Ok(_) => {
                // It may have been another one's slot for a while. At once, since whoever reads this writes what it gets instead.
                if shared.room.forget(hash, held) {
                    shared.damaged.fetch_add(1, Relaxed);
                }
                None
            }
            Err(error) => {
                shared.fail("read", &error);
                None
            }
        }
    }

    /// Whether it is used still.
    pub(crate) fn is_used(&self) -> bool {
        !self.shared.is_off.load(Relaxed)
    }

    /// Has a block written; whether there was a place for it among those that wait.
    pub(crate) fn offer(&self, key: BlockKey, block: &Block) -> bool {
        if !self.is_used() || self.shared.room.has(key.hash()) {
            return true;
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return false };
        self.order(Order::Write(key, block.clone(), place));
        true
    }

    /// Has a block written, once there is a place for it among those that wait.
    pub(crate) async fn put(&self, key: BlockKey, block: &Block) {
        if !self.is_used() || self.shared.room.has(key.hash()) {
            return;
        }
        // Never closed.
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        self.order(Order::Write(key, block.clone(), place));
    }

    /// Waits until nothing waits to be written.
    pub(crate) async fn settle(&self) {
        // Whoever has all places is alone.
        let _all = self.places.acquire_many(self.waiting).await;
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = orders.as_ref() {
            self.shared.pending.fetch_add(1, Relaxed);
            // Threads that are gone wrote what they could.
            let _ = orders.send(order);
        }
    }

    /// Why the disk is not used any more.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.shared.off.get().map(String::as_str)
    }

    /// Bytes of the blocks that are there.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.room.len() * super::key::BLOCK_BYTES
    }

    /// Blocks that it holds at most.
    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.shared.files.slots())
    }

    /// Bytes that it takes at most.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.shared.files.most_bytes()
    }

    /// Blocks that were found damaged.
    pub(crate) fn damaged(&self) -> u64 {
        self.shared.damaged.load(Relaxed)
    }
}

#[cfg(test)]
impl Disk {
    /// Waits until all that was offered is written.
    pub(super) fn wait(&self) {
        while self.shared.pending.load(std::sync::atomic::Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for Disk {
    /// Writes what waits. The child of a fork has no thread to wait for.
    fn drop(&mut self) {
        let orders = self.orders.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let writers = std::mem::take(self.writers.get_mut().unwrap_or_else(PoisonError::into_inner));
        if std::process::id() != self.process {
            std::mem::forget((orders, writers));
            return;
        }
        drop(orders);
        // One that panicked has said so.
        writers.into_iter().for_each(|writer| drop(writer.join()));
    }
}

impl Shared {
    /// Does without the disk from now on.
    fn fail(&self, what: &str, error: &std::io::Error) {
        let folder = self.files.folder().display();
        let _ =
            self.off.set(format!("the cache's disk is not used any more: cannot {what} {folder}: {error}"));
        self.is_off.store(true, Relaxed);
    }

    fn write(&self, key: BlockKey, block: &Block, buffer: &mut [u8]) {
        let hash = key.hash();
        if self.is_off.load(Relaxed) {
            return;
        }
        let Some(slot) = self.room.take_slot(hash) else { return };
        let (len, checksum) = (block.len() as u32, key.checksum(block));
        match self.files.write(slot, block, Slot { hash, len, checksum }, buffer) {
            Ok(()) => self.room.fill(hash, Held { slot, len, checksum }),
            Err(error) => {
                self.room.give_back(hash, slot);
                self.fail("write", &error);
            }
        }
    }
}

/// Does what it is told until nobody can tell it anything.
fn write_all(shared: &Shared, orders: &Mutex<Receiver<Order>>) {
    let mut buffer = buffer();
    loop {
        let order = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(order) = order else { return };
        match order {
            Order::Write(key, block, _place) => shared.write(key, &block, &mut buffer),
            Order::Used(hash) => shared.room.promote(hash),
        }
        shared.pending.fetch_sub(1, Release);
    }
}
