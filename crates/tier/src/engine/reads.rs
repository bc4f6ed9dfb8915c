//! The engine as its queries see it: [`Cx`] and the futures of its reads.

use super::core::Core;
use super::region::RegionId;
use crate::contract::Span;
use crate::error::ReadError;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Maximum number of bytes that a stream requests before its task yields, so that the engine submits them.
/// Otherwise the device would run out of work while the task processes arrivals. A fast disk takes some 50 us
/// for this many bytes; a submission takes a few.
const HELD_BACK_BYTES: u64 = 128 << 10;

/// A query's handle on its engine. Cheap to clone; never leaves its thread.
#[derive(Clone)]
pub struct Cx(pub(super) Rc<RefCell<Core>>);

impl Cx {
    /// Reads all `spans` and suspends once, until the last has arrived (batched mode). The bytes come in the
    /// order of `spans`, whatever the order of arrival, so that results are identical on every tier.
    ///
    /// A batch gets all its buffers at once or waits for them, in order; any number of queries may wait for
    /// buffers. A batch fails with [`ReadError::Budget`] if it is larger than the whole budget, or if it
    /// waits while its query holds other batches whose buffers other queries wait for. The error names a
    /// budget that suffices. Read more spans than the budget holds through a [`Cx::stream`], which releases
    /// its buffers one by one.
    pub fn read<'c>(&'c self, spans: &'c [Span]) -> ReadFuture<'c> {
        ReadFuture { cx: self, spans, into: None, group: None }
    }

    /// Reads all `spans` as [`Cx::read`] does, into the caller's memory, without a copy and outside the
    /// budget. The aligned span of `spans[i]` goes to `places[i]` bytes from the start of `region`, a
    /// multiple of [`Cx::alignment`]. A place is in use until the batch is dropped. The batch fails with
    /// [`ReadError::NoPlace`] if a place is missing, lies outside the region, or is in use.
    pub fn read_into<'c>(
        &'c self,
        spans: &'c [Span],
        region: RegionId,
        places: &'c [usize],
    ) -> ReadFuture<'c> {
        ReadFuture { cx: self, spans, into: Some((region, places)), group: None }
    }

    /// Returns the alignment of reads on this tier in bytes; 1 if there is none.
    pub fn alignment(&self) -> u32 {
        self.0.borrow().alignment()
    }

    /// Opens a stream of reads, which returns them one by one as they arrive (pipelined mode).
    pub fn stream(&self) -> Stream {
        Stream { cx: self.clone(), group: self.0.borrow_mut().open_group(true), pending: 0, held_back: 0 }
    }
}

/// The future of [`Cx::read`] and [`Cx::read_into`].
pub struct ReadFuture<'c> {
    cx: &'c Cx,
    spans: &'c [Span],
    into: Option<(RegionId, &'c [usize])>,
    group: Option<u32>,
}

impl Future for ReadFuture<'_> {
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

impl ReadFuture<'_> {
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

impl Drop for ReadFuture<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            self.cx.0.borrow_mut().close_group(group);
        }
    }
}

/// The bytes of a finished [`Cx::read`]. Dropping it releases its buffers.
pub struct Batch {
    cx: Cx,
    /// As wide as a register: a batch is returned through every level of `async fn`, and a processor stalls
    /// when it stores four bytes and then loads eight.
    group: usize,
}

impl Batch {
    /// Returns the number of spans read.
    pub fn len(&self) -> usize {
        self.cx.0.borrow().group_len(self.group as u32)
    }

    /// Returns true if the batch has no spans.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the `i`-th span, exactly as many as requested; none if there is no such span.
    #[inline]
    pub fn bytes(&self, i: usize) -> &[u8] {
        let (start, len) = self.cx.0.borrow().arrived_bytes(self.group as u32, i);
        // SAFETY: the read has arrived in full, its buffer (or the mapped tier, which the engine keeps alive)
        // stays untouched until this batch is dropped, and the slice borrows the batch. If there is no such
        // span, the address dangles and the length is 0.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

impl Drop for Batch {
    #[inline]
    fn drop(&mut self) {
        self.cx.0.borrow_mut().close_group(self.group as u32);
    }
}

/// Stream of reads, returned as they arrive. See [`Cx::stream`].
pub struct Stream {
    cx: Cx,
    group: u32,
    pending: usize,
    /// Bytes requested since this task last yielded; no more than these wait to be submitted.
    held_back: u64,
}

impl Stream {
    /// Stages a read. Returns its number (0, 1, 2, ... in order of pushing), which comes back in
    /// [`ArrivedRead::place`].
    pub fn push(&mut self, span: Span) -> u32 {
        self.pending += 1;
        self.held_back += u64::from(span.len);
        self.cx.0.borrow_mut().stage(self.group, span)
    }

    /// Returns the number of reads pushed and not yet returned by [`Stream::next`].
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Waits for the next read to arrive, in any order. Returns `None` once all have been returned.
    pub async fn next(&mut self) -> Option<Result<ArrivedRead<'_>, ReadError>> {
        if self.pending == 0 {
            return None;
        }
        let (cx, group, held_back) = (&self.cx, self.group, &mut self.held_back);
        let op = std::future::poll_fn(|_| {
            let mut core = cx.0.borrow_mut();
            if *held_back >= HELD_BACK_BYTES {
                *held_back = 0;
                if core.yield_for_submission() {
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
                Some(Ok(ArrivedRead { stream: self, op, place, start, len }))
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

/// One arrived read of a [`Stream`]. Dropping it releases its buffer.
pub struct ArrivedRead<'s> {
    stream: &'s Stream,
    op: u32,
    /// The number that [`Stream::push`] returned.
    pub place: u32,
    start: *const u8,
    len: usize,
}

impl ArrivedRead<'_> {
    /// Returns the bytes of the span, exactly as many as requested.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the read has arrived in full and its buffer stays untouched until `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for ArrivedRead<'_> {
    fn drop(&mut self) {
        self.stream.cx.0.borrow_mut().release_arrived(self.op);
    }
}
