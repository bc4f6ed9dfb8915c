//! The io_uring queue: registered file and buffers, one `io_uring_enter` a batch of reads.

use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{ReadFault, TierError};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Maximum number of registered regions: the engine's own, and some of its callers.
const MOST_REGIONS: u32 = 16;

/// User data of the entry that polls the wake event; it is the number of no slot.
const WAKE_EVENT: u64 = u64::MAX;

/// Checks that this process may use io_uring; containers often refuse it.
pub(super) fn probe() -> Result<(), TierError> {
    build(2).map(|_| ())
}

fn build(entries: u32) -> Result<IoUring, TierError> {
    // With this flag (kernel 5.19 on), completions are processed when this thread next enters the kernel
    // instead of interrupting it. Older kernels refuse the flag and get a plain ring. The flag for a single
    // submitting thread is not set, since a queue may be handed from thread to thread.
    let ring = IoUring::builder()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().build(entries))
        .map_err(|source| TierError::System { operation: "set up an io_uring", source })?;
    if !ring.params().is_feature_ext_arg() {
        return Err(TierError::Parameter("this kernel's io_uring cannot wait with a time limit".into()));
    }
    Ok(ring)
}

/// One read in the ring, with the bytes that have arrived so far, so that a short read can be continued.
#[derive(Clone, Copy)]
struct InFlightRead {
    read: Read,
    arrived: u32,
}

pub(super) struct UringQueue {
    ring: IoUring,
    file: Arc<File>,
    registered_file: bool,
    /// Registered memory: first byte and length. The index in the list is the ring's buffer number.
    regions: Vec<(usize, usize)>,
    /// True if the ring has a table with room for further regions.
    table: bool,
    len: u64,
    depth: usize,
    slots: Vec<InFlightRead>,
    free: Vec<u32>,
    /// Slots of reads to be continued.
    again: Vec<u32>,
    raw: Vec<(u64, i32)>,
    /// Error of a submission whose reads had been taken; the next `reap` returns it. Their buffers stay in
    /// flight: the ring still holds the entries, and it is unknown which of them the kernel has seen.
    refused: Option<TierError>,
    /// Event that ends a wait, once a waker was requested.
    wake_event: Option<Arc<WakeEvent>>,
    /// True while the ring polls the event.
    polling_event: bool,
}

/// An event counter (eventfd) that a ring can poll.
struct WakeEvent(OwnedFd);

impl WakeEvent {
    fn new() -> Option<WakeEvent> {
        // SAFETY: makes a new descriptor.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the descriptor was just made and has no other owner.
        (made >= 0).then(|| WakeEvent(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Resets the counter.
    fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: `count` has room for the 8 bytes of the counter.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl Wake for WakeEvent {
    fn wake(self: Arc<Self>) {
        let one = 1_u64;
        // SAFETY: 8 readable bytes. The call fails only if the counter is full, and then the wait ends
        // anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl UringQueue {
    pub(super) fn new(file: Arc<File>, len: u64, depth: u32) -> Result<UringQueue, TierError> {
        let depth = depth.clamp(1, 4096);
        // One entry in addition to the reads: it polls the wake event.
        let ring = build((depth + 1).next_power_of_two())?;
        let registered_file = ring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        let empty = InFlightRead {
            read: Read { id: 0, offset: 0, len: 0, buffer: std::ptr::null_mut(), round: 0 },
            arrived: 0,
        };
        Ok(UringQueue {
            ring,
            file,
            registered_file,
            regions: Vec::new(),
            table: false,
            len,
            depth: depth as usize,
            slots: vec![empty; depth as usize],
            free: (0..depth).rev().collect(),
            again: Vec::new(),
            raw: Vec::with_capacity(depth as usize),
            refused: None,
            wake_event: None,
            polling_event: false,
        })
    }

    /// Returns the ring entry for the rest of the read in `slot`.
    fn entry(&self, slot: u32) -> squeue::Entry {
        let InFlightRead { read, arrived } = self.slots[slot as usize];
        let buffer = read.buffer.wrapping_add(arrived as usize);
        let (len, offset) = (read.len - arrived, read.offset + u64::from(arrived));
        let (at, end) = (buffer as usize, buffer as usize + len as usize);
        let holds = |(start, size): &(usize, usize)| at >= *start && end <= start + size;
        let fixed = self.regions.iter().position(holds).map(|region| region as u16);
        let entry = match (self.registered_file, fixed) {
            (true, Some(region)) => {
                opcode::ReadFixed::new(types::Fixed(0), buffer, len, region).offset(offset).build()
            }
            (true, None) => opcode::Read::new(types::Fixed(0), buffer, len).offset(offset).build(),
            (false, Some(region)) => {
                opcode::ReadFixed::new(types::Fd(self.file.as_raw_fd()), buffer, len, region)
                    .offset(offset)
                    .build()
            }
            (false, None) => {
                opcode::Read::new(types::Fd(self.file.as_raw_fd()), buffer, len).offset(offset).build()
            }
        };
        entry.user_data(u64::from(slot))
    }

    /// Enters the kernel to submit the entries of the ring.
    fn enter(&mut self) -> Result<(), TierError> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                // The completion queue is full or memory is short. The entries stay queued, and reaping makes
                // room.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => return Ok(()),
                Err(source) => return Err(TierError::System { operation: "submit to the io_uring", source }),
            }
        }
    }

    /// Moves completions out of the ring, and continues short reads.
    fn drain_ring(&mut self, done: &mut Vec<Completion>) -> Result<(), TierError> {
        self.raw.clear();
        self.raw.extend(self.ring.completion().map(|c: cqueue::Entry| (c.user_data(), c.result())));
        for i in 0..self.raw.len() {
            let (slot, result) = self.raw[i];
            if slot == WAKE_EVENT {
                self.polling_event = false;
                self.wake_event.iter().for_each(|event| event.clear());
                continue;
            }
            let Some(in_flight) = self.slots.get_mut(slot as usize) else {
                return Err(TierError::Contract(format!("io_uring completed unknown entry {slot}")));
            };
            let result = match result {
                e if e == -libc::EINTR || e == -libc::EAGAIN => {
                    self.again.push(slot as u32);
                    continue;
                }
                e if e < 0 => Err(ReadFault::system(-e)),
                got => {
                    in_flight.arrived += got as u32;
                    let reached = in_flight.read.offset + u64::from(in_flight.arrived);
                    if got > 0 && in_flight.arrived < in_flight.read.len && reached < self.len {
                        self.again.push(slot as u32);
                        continue;
                    }
                    Ok(in_flight.arrived)
                }
            };
            done.push(Completion { id: in_flight.read.id, result });
            self.free.push(slot as u32);
        }
        if self.again.is_empty() {
            return Ok(());
        }
        for slot in std::mem::take(&mut self.again) {
            self.push_read(slot)?;
        }
        self.enter()
    }

    fn push_read(&mut self, slot: u32) -> Result<(), TierError> {
        let entry = self.entry(slot);
        // SAFETY: the buffer is valid until the completion by the contract of `Queue::submit`; a continued
        // read stays within the buffer of its first part.
        unsafe { self.push_entry(&entry) }
    }

    /// Adds an entry to the ring.
    ///
    /// # Safety
    /// The memory that the entry points to must be valid until its completion.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| TierError::Contract("the io_uring has fewer entries than its depth".into()))
    }

    /// Has the ring poll the wake event, if there is one. The entry goes with the next submission.
    fn poll_wake_event(&mut self) -> Result<(), TierError> {
        let Some(event) = &self.wake_event else { return Ok(()) };
        if self.polling_event {
            return Ok(());
        }
        let poll = opcode::PollAdd::new(types::Fd(event.0.as_raw_fd()), libc::POLLIN as u32).build();
        self.polling_event = true;
        // SAFETY: the entry points to no memory.
        unsafe { self.push_entry(&poll.user_data(WAKE_EVENT)) }
    }
}

impl Queue for UringQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let mut taken = 0;
        for read in reads {
            let Some(slot) = self.free.pop() else { break };
            self.slots[slot as usize] = InFlightRead { read: *read, arrived: 0 };
            self.push_read(slot)?;
            taken += 1;
        }
        if taken > 0 {
            self.refused = self.enter().err();
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.drain_ring(done)?;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let Some(wait) = wait else { return Ok(()) };
        if done.len() > before || self.in_flight() == 0 {
            return Ok(());
        }
        self.poll_wake_event()?;
        let limit = types::Timespec::from(wait);
        let args = types::SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(e)
                if matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) => {}
            Err(source) => return Err(TierError::System { operation: "wait for the io_uring", source }),
        }
        self.drain_ring(done)
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: a file is read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        if self.regions.is_empty() {
            self.table = self.ring.submitter().register_buffers_sparse(MOST_REGIONS).is_ok();
        }
        let (number, buffer) = (self.regions.len(), libc::iovec { iov_base: region.cast(), iov_len: len });
        // SAFETY: the caller keeps the region allocated until this queue is dropped. A refusal (a small
        // RLIMIT_MEMLOCK) only costs speed. Kernels before 5.19 have no table, and take one region.
        let outcome = unsafe {
            match self.table {
                true if number < MOST_REGIONS as usize => {
                    self.ring.submitter().register_buffers_update(number as u32, &[buffer], None)
                }
                false if number == 0 => self.ring.submitter().register_buffers(&[buffer]),
                _ => return Ok(()),
            }
        };
        if outcome.is_ok() {
            self.regions.push((region as usize, len));
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.depth - self.free.len()
    }

    fn waker(&mut self) -> Option<Waker> {
        if self.wake_event.is_none() {
            self.wake_event = WakeEvent::new().map(Arc::new);
        }
        self.wake_event.clone().map(Waker::from)
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 && self.reap(&mut done, Some(Duration::from_millis(100))).is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_waker_ends_a_wait() {
        if probe().is_err() {
            return;
        }
        // A read of the pipe ends only after a write to it.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let file = Arc::new(File::from(OwnedFd::from(reader)));
        let mut queue = UringQueue::new(file, u64::MAX, 1).unwrap();
        let mut buffer = [0; 8];
        let read = Read { id: 7, offset: 0, len: 8, buffer: buffer.as_mut_ptr(), round: 0 };
        // SAFETY: the buffer outlives the read, which ends with the completion below.
        assert_eq!(unsafe { queue.submit(&[read]).unwrap() }, 1);
        let (waker, mut done) = (queue.waker().unwrap(), Vec::new());
        for _ in 0..3 {
            waker.wake_by_ref();
            // If the waker did not end the wait, this would take a day.
            queue.reap(&mut done, Some(Duration::from_secs(86_400))).unwrap();
            assert_eq!((done.len(), queue.in_flight()), (0, 1));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake_by_ref());
            queue.reap(&mut done, Some(Duration::from_secs(86_400))).unwrap();
        });
        writer.write_all(b"bathyal!").unwrap();
        while done.is_empty() {
            queue.reap(&mut done, Some(Duration::from_secs(86_400))).unwrap();
        }
        assert_eq!(done, [Completion { id: 7, result: Ok(8) }]);
        assert_eq!(&buffer, b"bathyal!");
    }
}
