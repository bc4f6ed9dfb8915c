//! What a query sees of the engine: [`Cx`] and the futures of its reads.

use super::core::Core;
use super::region::RegionId;
use crate::contract::Span;
use crate::error::ReadError;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bytes that a stream asks for, at most, before it gives way so that they are handed to the device, which else would run dry
/// while what has arrived is worked on: some 50 us of a fast disk, against the few of handing over.
const HELD_BACK_BYTES: u64 = 128 << 10;

/// A query's handle on its engine. Cheap to clone; never leaves its thread.
#[derive(Clone)]
pub struct Cx(pub(super) Rc<RefCell<Core>>);

impl Cx {
    /// Reads all `spans` and suspends once until the last has arrived (batched mode). The bytes come in the
    /// order of `spans`, whatever the order of arrival, so that results are identical on every tier.
    ///
    /// A batch gets all its buffers at once or waits for them, in order; any number of queries may thus wait. One
    /// that is larger than the whole budget, or that waits while the query holds other batches whose buffers others
    /// wait for, fails with [`ReadError::Budget`], which says what budget would do. A batch of more spans than
    /// the budget holds belongs into a [`Cx::stream`], whose reads give their buffers back one by one.
    pub fn read<'c>(&'c self, spans: &'c [Span]) -> Reading<'c> {
        Reading { cx: self, spans, into: None, group: None }
    }

    /// The same into memory of the caller's, without a copy and outside the budget: the aligned span of `spans[i]` goes
    /// to `places[i]` bytes from the start of `region`, a multiple of [`Cx::alignment`]. A place is taken until the
    /// batch is dropped; where a place is missing, lies outside or is taken, the batch fails with [`ReadError::NoPlace`].
    pub fn read_into<'c>(&'c self, spans: &'c [Span], region: RegionId, places: &'c [usize]) -> Reading<'c> {
        Reading { cx: self, spans, into: Some((region, places)), group: None }
    }

    /// What reads on this tier are aligned to, in bytes: 1 where they are served as they are.
    pub fn alignment(&self) -> u32 {
        self.0.borrow().alignment()
    }

    /// Opens a stream of reads that are taken one by one as they arrive (pipelined mode).
    pub fn stream(&self) -> Stream {
        Stream { cx: self.clone(), group: self.0.borrow_mut().open_group(true), pending: 0, held_back: 0 }
    }
}

/// The future of [`Cx::read`].
pub struct Reading<'c> {
    cx: &'c Cx,
    spans: &'c [Span],
    into: Option<(RegionId, &'c [usize])>,
    group: Option<u32>,
}

impl Future for Reading<'_> {
    type Output = Result<Batch, ReadError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let cx = self.cx;
        let mut core = cx.0.borrow_mut();
        let Some(group) = self.group else {
            if self.into.is_none()
                && let Some(group) = core.lend(self.spans)
            {
                self.group = Some(group);
                return Poll::Pending;
            }
            let group = core.open_group(false);
            if let Some((region, places)) = self.into {
                for (i, span) in self.spans.iter().enumerate() {
                    core.stage_into(group, *span, region, places.get(i).copied().unwrap_or(usize::MAX));
                }
            } else {
                for span in self.spans {
                    core.stage(group, *span);
                }
            }
            self.group = Some(group);
            if !core.is_complete(group) {
                return Poll::Pending;
            }
            return self.finish(core, group);
        };
        if !core.is_complete(group) {
            return Poll::Pending;
        }
        self.finish(core, group)
    }
}

impl Reading<'_> {
    fn finish(&mut self, core: std::cell::RefMut<'_, Core>, group: u32) -> Poll<Result<Batch, ReadError>> {
        let failure = core.failure(group);
        drop(core);
        self.group = None;
        let batch = Batch { cx: self.cx.clone(), group: group as usize };
        Poll::Ready(match failure {
            Some(error) => Err(error),
            None => Ok(batch),
        })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            self.cx.0.borrow_mut().close_group(group);
        }
    }
}

/// The bytes of a finished [`Cx::read`]. Its buffers go back to the engine when it is dropped.
pub struct Batch {
    cx: Cx,
    /// As wide as a register: a batch is handed up through every level of `async fn`, and a processor stalls
    /// where it stores four bytes and loads eight.
    group: usize,
}

impl Batch {
    /// Number of spans read.
    pub fn len(&self) -> usize {
        self.cx.0.borrow().group_len(self.group as u32)
    }

    /// Whether no span was asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the `i`-th span, exactly as long as asked for; empty when there is no such span.
    #[inline]
    pub fn bytes(&self, i: usize) -> &[u8] {
        let (start, len) = self.cx.0.borrow().arrived_bytes(self.group as u32, i);
        // SAFETY: the read has arrived in full, its buffer (or the mapped tier, which the engine keeps alive) stays
        // untouched until this batch is dropped, and the slice borrows the batch. Where there is nothing, the
        // address dangles and the length is 0.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.cx.0.borrow_mut().close_group(self.group as u32);
    }
}

/// Reads that are taken as they arrive. See [`Cx::stream`].
pub struct Stream {
    cx: Cx,
    group: u32,
    pending: usize,
    /// Bytes that were asked for since this task last gave way: at most these wait to be handed to the device.
    held_back: u64,
}

impl Stream {
    /// Stages a read; the number returned names it in [`Arrived::place`] (0, 1, 2, ... in order of pushing).
    pub fn push(&mut self, span: Span) -> u32 {
        self.pending += 1;
        self.held_back += u64::from(span.len);
        self.cx.0.borrow_mut().stage(self.group, span)
    }

    /// Reads pushed and not yet taken.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// The next read to arrive, in any order; `None` when all have been taken.
    pub async fn next(&mut self) -> Option<Result<Arrived<'_>, ReadError>> {
        if self.pending == 0 {
            return None;
        }
        let (cx, group, held_back) = (&self.cx, self.group, &mut self.held_back);
        let op = std::future::poll_fn(|_| {
            let mut core = cx.0.borrow_mut();
            if *held_back >= HELD_BACK_BYTES {
                *held_back = 0;
                if core.give_way() {
                    return Poll::Pending;
                }
            }
            let Some(op) = core.take_arrived(group) else {
                *held_back = 0;
                return Poll::Pending;
            };
            Poll::Ready(op)
        })
        .await;
        self.pending -= 1;
        let mut core = self.cx.0.borrow_mut();
        match core.view(op) {
            Ok((start, len)) => {
                let place = core.place(op);
                drop(core);
                Some(Ok(Arrived { stream: self, op, place, start, len }))
            }
            Err(error) => {
                core.release_arrived(op);
                Some(Err(error))
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cx.0.borrow_mut().close_group(self.group);
    }
}

/// One arrival of a [`Stream`]; its buffer goes back to the engine when it is dropped.
pub struct Arrived<'s> {
    stream: &'s Stream,
    op: u32,
    /// The number that [`Stream::push`] returned.
    pub place: u32,
    start: *const u8,
    len: usize,
}

impl Arrived<'_> {
    /// The bytes of the span, exactly as long as asked for.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the read has arrived in full and its buffer stays untouched until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        self.stream.cx.0.borrow_mut().release_arrived(self.op);
    }
}
