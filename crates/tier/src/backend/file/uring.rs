//! The io_uring queue: registered file and buffers, one `io_uring_enter` a batch of reads.

use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{ReadFault, TierError};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Regions that a ring knows at most: the engine's own, and some of its callers'.
const MOST_REGIONS: u32 = 16;

/// The ring's name for a call; no slot has it.
const CALLED: u64 = u64::MAX;

/// Finds out whether this process may use io_uring; containers often refuse it.
pub(super) fn probe() -> Result<(), TierError> {
    build(2).map(|_| ())
}

fn build(entries: u32) -> Result<IoUring, TierError> {
    // Completions are run when this thread next enters the kernel instead of interrupting it (kernel 5.19 on);
    // older kernels refuse the flags and get a plain ring.
    let ring = IoUring::builder()
        .setup_coop_taskrun()
        // A queue may be handed from thread to thread, so no thread is promised to be the only one.
        .build(entries)
        .or_else(|_| IoUring::builder().build(entries))
        .map_err(|source| TierError::System { operation: "set up an io_uring", source })?;
    if !ring.params().is_feature_ext_arg() {
        return Err(TierError::Parameter("this kernel's io_uring cannot wait with a time limit".into()));
    }
    Ok(ring)
}

/// One read in the ring, kept so that a short read can be continued.
#[derive(Clone, Copy)]
struct Flight {
    read: Read,
    arrived: u32,
}

pub(super) struct UringQueue {
    ring: IoUring,
    file: Arc<File>,
    registered_file: bool,
    /// Registered memory: first byte, length; the place in the list is the ring's name for it.
    regions: Vec<(usize, usize)>,
    /// Whether the ring has room for more of them.
    table: bool,
    len: u64,
    depth: usize,
    flights: Vec<Flight>,
    free: Vec<u32>,
    again: Vec<u32>,
    raw: Vec<(u64, i32)>,
    /// Why the kernel refused a submission whose reads had been taken; the next `reap` says it. Their buffers
    /// stay in flight: the ring still holds the entries, and nobody knows which of them the kernel has seen.
    refused: Option<TierError>,
    /// What others write to in order to end a wait, once somebody has asked for it.
    call: Option<Arc<Call>>,
    /// Whether the ring watches it.
    listening: bool,
}

/// An event counter that a ring can watch.
struct Call(OwnedFd);

impl Call {
    fn new() -> Option<Call> {
        // SAFETY: makes a new descriptor.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: the descriptor was just made and is nobody else's.
        (made >= 0).then(|| Call(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Sets it back.
    fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: the counter's 8 bytes have room; it does not block.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let one = 1_u64;
        // SAFETY: 8 bytes that are there. It fails only where the counter is full, and then the wait has ended.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl UringQueue {
    pub(super) fn new(file: Arc<File>, len: u64, depth: u32) -> Result<UringQueue, TierError> {
        let depth = depth.clamp(1, 4096);
        // One entry more than reads: the one that listens for a call.
        let ring = build((depth + 1).next_power_of_two())?;
        let registered_file = ring.submitter().register_files(&[file.as_raw_fd()]).is_ok();
        let idle = Flight {
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
            flights: vec![idle; depth as usize],
            free: (0..depth).rev().collect(),
            again: Vec::new(),
            raw: Vec::with_capacity(depth as usize),
            refused: None,
            call: None,
            listening: false,
        })
    }

    /// The ring entry for what is left of flight `slot`.
    fn entry(&self, slot: u32) -> squeue::Entry {
        let Flight { read, arrived } = self.flights[slot as usize];
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

    /// Enters the kernel to hand over what the ring holds.
    fn enter(&mut self) -> Result<(), TierError> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                // The completion queue is full or memory is short: reaping makes room, the entries stay queued.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => return Ok(()),
                Err(source) => return Err(TierError::System { operation: "submit to the io_uring", source }),
            }
        }
    }

    /// Moves what has completed out of the ring; continues short reads.
    fn harvest(&mut self, done: &mut Vec<Completion>) -> Result<(), TierError> {
        self.raw.clear();
        self.raw.extend(self.ring.completion().map(|c: cqueue::Entry| (c.user_data(), c.result())));
        for i in 0..self.raw.len() {
            let (slot, result) = self.raw[i];
            if slot == CALLED {
                self.listening = false;
                self.call.iter().for_each(|call| call.clear());
                continue;
            }
            let Some(flight) = self.flights.get_mut(slot as usize) else {
                return Err(TierError::Contract(format!("io_uring completed unknown entry {slot}")));
            };
            let result = match result {
                e if e == -libc::EINTR || e == -libc::EAGAIN => {
                    self.again.push(slot as u32);
                    continue;
                }
                e if e < 0 => Err(ReadFault::system(-e)),
                got => {
                    flight.arrived += got as u32;
                    let reached = flight.read.offset + u64::from(flight.arrived);
                    if got > 0 && flight.arrived < flight.read.len && reached < self.len {
                        self.again.push(slot as u32);
                        continue;
                    }
                    Ok(flight.arrived)
                }
            };
            done.push(Completion { id: flight.read.id, result });
            self.free.push(slot as u32);
        }
        if self.again.is_empty() {
            return Ok(());
        }
        for slot in std::mem::take(&mut self.again) {
            self.push(slot)?;
        }
        self.enter()
    }

    fn push(&mut self, slot: u32) -> Result<(), TierError> {
        let entry = self.entry(slot);
        // SAFETY: the buffer is valid until the completion by the contract of `Queue::submit`; a continued read
        // stays within the buffer of its first part.
        unsafe { self.post(&entry) }
    }

    /// # Safety
    /// What the entry points to must be valid until its completion.
    unsafe fn post(&mut self, entry: &squeue::Entry) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.ring.submission().push(entry) }
            .map_err(|_| TierError::Contract("the io_uring has fewer entries than its depth".into()))
    }

    /// Has the ring watch for a call, if anybody can make one; the entry goes with the next submission.
    fn listen(&mut self) -> Result<(), TierError> {
        let Some(call) = &self.call else { return Ok(()) };
        if self.listening {
            return Ok(());
        }
        let watch = opcode::PollAdd::new(types::Fd(call.0.as_raw_fd()), libc::POLLIN as u32).build();
        self.listening = true;
        // SAFETY: the entry points to no memory.
        unsafe { self.post(&watch.user_data(CALLED)) }
    }
}

impl Queue for UringQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let mut taken = 0;
        for read in reads {
            let Some(slot) = self.free.pop() else { break };
            self.flights[slot as usize] = Flight { read: *read, arrived: 0 };
            self.push(slot)?;
            taken += 1;
        }
        if taken > 0 {
            self.refused = self.enter().err();
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.harvest(done)?;
        if let Some(refused) = self.refused.take() {
            return Err(refused);
        }
        let Some(wait) = wait else { return Ok(()) };
        if done.len() > before || self.in_flight() == 0 {
            return Ok(());
        }
        self.listen()?;
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
        self.harvest(done)
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: a file is read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        if self.regions.is_empty() {
            self.table = self.ring.submitter().register_buffers_sparse(MOST_REGIONS).is_ok();
        }
        let (place, buffer) = (self.regions.len(), libc::iovec { iov_base: region.cast(), iov_len: len });
        // SAFETY: the caller keeps the region allocated until this queue is dropped. A refusal (a small
        // RLIMIT_MEMLOCK) only costs speed. Kernels before 5.19 have no table, and take one region.
        let outcome = unsafe {
            match self.table {
                true if place < MOST_REGIONS as usize => {
                    self.ring.submitter().register_buffers_update(place as u32, &[buffer], None)
                }
                false if place == 0 => self.ring.submitter().register_buffers(&[buffer]),
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
        if self.call.is_none() {
            self.call = Call::new().map(Arc::new);
        }
        self.call.clone().map(Waker::from)
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

    /// A read that ends only when somebody writes.
    #[test]
    fn a_call_ends_a_wait() {
        if probe().is_err() {
            return;
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let file = Arc::new(File::from(OwnedFd::from(reader)));
        let mut queue = UringQueue::new(file, u64::MAX, 1).unwrap();
        let mut buffer = [0; 8];
        let read = Read { id: 7, offset: 0, len: 8, buffer: buffer.as_mut_ptr(), round: 0 };
        // SAFETY: the buffer outlives the queue's claim on it, which ends with the completion below.
        assert_eq!(unsafe { queue.submit(&[read]).unwrap() }, 1);
        let (waker, mut done) = (queue.waker().unwrap(), Vec::new());
        for _ in 0..3 {
            waker.wake_by_ref();
            // Were the call not heard, this would last a day.
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
