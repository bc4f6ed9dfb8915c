//! The cache level on a disk that this process writes to: slots in one file, and a second file that records
//! the block in each slot.
//!
//! The next process finds the blocks on disk again. A problem with the disk is never an error of a read: a
//! damaged block counts as missing, and a disk that fails or is full is no longer used, which the status
//! reports.

use super::files::{Files, SlotRecord, buffer};
use super::key::BlockKey;
use super::memory::Block;
use super::slot_map::{SlotMap, StoredBlock};
use crate::connect::CachePolicy;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory in bytes that a slot takes, for lookup and for the hash of its block after eviction. Measured
/// with S3-FIFO and rounded up.
pub(crate) const SLOT_MEMORY_BYTES: u64 = 224;
/// The most blocks that are queued for writing: more than arrive at once, and little memory.
pub(crate) const MAX_QUEUED_WRITES: usize = 256;

/// The number of threads that write; a network disk takes half a millisecond per block.
const WRITERS: usize = 4;

/// A task for the writer threads.
enum WriterTask {
    /// Write a block. The permit is its place in the queue.
    Write(BlockKey, Block, OwnedSemaphorePermit),
    /// Promote the block with this hash after a hit.
    Promote(u64),
}

/// The state that readers and writer threads share.
struct DiskState {
    files: Files,
    slots: SlotMap,
    /// True if a hit promotes its block.
    promotes: bool,
    /// The reason why the disk is no longer used.
    failure: OnceLock<String>,
    has_failed: AtomicBool,
    damaged: AtomicU64,
    /// The number of tasks sent to the writer threads and not done yet.
    pending: AtomicUsize,
}

/// A disk with cached blocks.
pub(crate) struct OwnDisk {
    shared: Arc<DiskState>,
    tasks: Mutex<Option<Sender<WriterTask>>>,
    /// One permit for each block that may be queued for writing.
    write_permits: Arc<Semaphore>,
    /// The number of these permits.
    max_queued: u32,
    writers: Mutex<Vec<JoinHandle<()>>>,
    process: u32,
}

impl OwnDisk {
    /// Starts the threads that write. `found` are the blocks already there. At most `max_queued` blocks are
    /// queued for writing.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn new(
        files: Files,
        found: Vec<(u32, SlotRecord)>,
        max_queued: u64,
        policy: CachePolicy,
    ) -> Result<OwnDisk, String> {
        let max_queued = max_queued.clamp(1, MAX_QUEUED_WRITES as u64) as u32;
        let slots = SlotMap::new(files.slots(), WRITERS as u32, policy, found);
        let shared = Arc::new(DiskState {
            files,
            slots,
            promotes: policy.reinserts_on_hit(),
            failure: OnceLock::new(),
            has_failed: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            pending: AtomicUsize::new(0),
        });
        let (sender, tasks) = channel();
        let tasks = Arc::new(Mutex::new(tasks));
        let start = |_| {
            let (shared, tasks) = (shared.clone(), tasks.clone());
            let thread = std::thread::Builder::new().name("bathyal-cache".into());
            thread.spawn(move || run_tasks(&shared, &tasks))
        };
        let writers = (0..WRITERS).map(start).collect::<Result<Vec<_>, _>>();
        let writers = writers
            .map_err(|error| format!("the cache has no disk: its threads cannot be started: {error}"))?;
        Ok(OwnDisk {
            shared,
            tasks: Mutex::new(Some(sender)),
            write_permits: Arc::new(Semaphore::new(max_queued as usize)),
            max_queued,
            writers: Mutex::new(writers),
            process: std::process::id(),
        })
    }

    /// Reads a block; `None` if it is missing or damaged. Blocks until the disk has read it.
    pub(super) fn read(&self, key: BlockKey) -> Option<Block> {
        let shared = &self.shared;
        if shared.has_failed.load(Relaxed) {
            return None;
        }
        let hash = key.hash();
        let block = shared.slots.find(hash)?;
        let mut buffer = buffer();
        match shared.files.read(block.slot, block.len, &mut buffer) {
            Ok(content) if key.checksum(content) == block.checksum => {
                if shared.promotes {
                    self.send(WriterTask::Promote(hash));
                }
                Some(Block::from(content))
            }
            Ok(_) => {
                // The slot may have been given to another block meanwhile, or the content is damaged. The
                // entry is removed at once, since the reader then fetches the block and writes it again.
                if shared.slots.remove(hash, block) {
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

    /// Returns true if the disk has not failed.
    pub(super) fn is_used(&self) -> bool {
        !self.shared.has_failed.load(Relaxed)
    }

    /// Queues a block for writing. Returns false if the write queue is full.
    pub(super) fn try_write(&self, key: BlockKey, block: &Block) -> bool {
        if !self.is_used() || self.shared.slots.has(key.hash()) {
            return true;
        }
        let Ok(permit) = self.write_permits.clone().try_acquire_owned() else { return false };
        self.send(WriterTask::Write(key, block.clone(), permit));
        true
    }

    /// Queues a block for writing, and waits while the write queue is full.
    pub(super) async fn write(&self, key: BlockKey, block: &Block) {
        if !self.is_used() || self.shared.slots.has(key.hash()) {
            return;
        }
        // The semaphore is never closed.
        let Ok(permit) = self.write_permits.clone().acquire_owned().await else { return };
        self.send(WriterTask::Write(key, block.clone(), permit));
    }

    /// Waits until the write queue is empty.
    pub(super) async fn flush(&self) {
        // All permits are free only if no block is queued.
        let _all = self.write_permits.acquire_many(self.max_queued).await;
    }

    fn send(&self, task: WriterTask) {
        let sender = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            self.shared.pending.fetch_add(1, Relaxed);
            // If the writer threads have ended, the task is dropped.
            let _ = sender.send(task);
        }
    }

    /// Returns the reason why the disk is no longer used.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.shared.failure.get().map(String::as_str)
    }

    /// Returns the bytes of the slots in use.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.slots.len() * super::key::BLOCK_BYTES
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> u64 {
        u64::from(self.shared.files.slots())
    }

    /// Returns the most bytes that its files take.
    pub(super) fn most_bytes(&self) -> u64 {
        self.shared.files.most_bytes()
    }

    /// Returns the number of blocks that were found damaged.
    pub(super) fn damaged(&self) -> u64 {
        self.shared.damaged.load(Relaxed)
    }
}

#[cfg(test)]
impl OwnDisk {
    /// Waits until all tasks are done.
    pub(super) fn wait(&self) {
        while self.shared.pending.load(std::sync::atomic::Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for OwnDisk {
    /// Writes the queued blocks. The child of a fork has no writer threads to wait for.
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let writers = std::mem::take(self.writers.get_mut().unwrap_or_else(PoisonError::into_inner));
        if std::process::id() != self.process {
            std::mem::forget((tasks, writers));
            return;
        }
        drop(tasks);
        // The panic of a thread has already been printed.
        writers.into_iter().for_each(|writer| drop(writer.join()));
    }
}

impl DiskState {
    /// Stops using the disk, and records the reason.
    fn fail(&self, what: &str, error: &std::io::Error) {
        let folder = self.files.folder().display();
        let _ =
            self.failure.set(format!("the cache no longer uses its disk: cannot {what} {folder}: {error}"));
        self.has_failed.store(true, Relaxed);
    }

    fn write(&self, key: BlockKey, block: &Block, buffer: &mut [u8]) {
        let hash = key.hash();
        if self.has_failed.load(Relaxed) {
            return;
        }
        let Some(slot) = self.slots.take_slot(hash) else { return };
        let (len, checksum) = (block.len() as u32, key.checksum(block));
        match self.files.write(slot, block, SlotRecord { hash, len, checksum }, buffer) {
            Ok(()) => self.slots.insert(hash, StoredBlock { slot, len, checksum }),
            Err(error) => {
                self.slots.release_slot(hash, slot);
                self.fail("write", &error);
            }
        }
    }
}

/// Runs tasks until all senders are dropped.
fn run_tasks(shared: &DiskState, tasks: &Mutex<Receiver<WriterTask>>) {
    let mut buffer = buffer();
    loop {
        let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        match task {
            WriterTask::Write(key, block, _permit) => shared.write(key, &block, &mut buffer),
            WriterTask::Promote(hash) => shared.slots.promote(hash),
        }
        shared.pending.fetch_sub(1, Release);
    }
}
