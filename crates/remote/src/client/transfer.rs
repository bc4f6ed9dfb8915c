//! Long runs of bytes from a tier and to it, in pieces of which several are under way.

use super::patient::cancelled;
use bathyal_store::CancelScope;
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::{Completion, Queue, Read, ReadFault, Tier, TierError, WriteTier};
use std::io;
use std::time::Duration;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces under way at once.
const AT_ONCE: u32 = 8;
/// How often is looked whether the thread was cancelled.
const WAIT: Duration = Duration::from_millis(50);

/// Fills `out` from `offset` on.
pub(super) fn read(tier: &dyn Tier, offset: u64, out: &mut [u8]) -> io::Result<()> {
    let mut queue = tier.open(AT_ONCE).map_err(other)?;
    let wanted = pieces(out.len());
    let start = out.as_mut_ptr();
    let reads: Vec<Read> = wanted
        .iter()
        .map(|(at, len)| Read {
            id: *at as u64,
            offset: offset + *at as u64,
            len: *len as u32,
            buffer: start.wrapping_add(*at),
            round: 0,
        })
        .collect();
    let submit = |queue: &mut (dyn Queue + 'static), from: usize| {
        // SAFETY: each has its own part of `out`, which nobody touches until the queue is dropped, below.
        unsafe { queue.submit(&reads[from..]) }
    };
    let expected = |id: u64| wanted.iter().find(|(at, _)| *at as u64 == id).map_or(0, |(_, len)| *len);
    carry_out(queue.as_mut(), reads.len(), submit, expected)
}

/// Puts `bytes` at `offset`.
pub(super) fn write(tier: &dyn WriteTier, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut queue = tier.open_write(AT_ONCE).map_err(other)?;
    let wanted = pieces(bytes.len());
    let operation = |(at, len): &(usize, usize)| Operation {
        id: *at as u64,
        offset: offset + *at as u64,
        action: Action::Write { from: bytes[*at..].as_ptr(), len: *len as u32 },
        linked: false,
    };
    let operations: Vec<Operation> = wanted.iter().map(operation).collect();
    let submit = |queue: &mut (dyn WriteQueue + 'static), from: usize| {
        // SAFETY: `bytes` is there, and nobody changes it, until the queue is dropped, below.
        unsafe { queue.submit_operations(&operations[from..]) }
    };
    let expected = |id: u64| wanted.iter().find(|(at, _)| *at as u64 == id).map_or(0, |(_, len)| *len);
    carry_out(queue.as_mut(), operations.len(), submit, expected)
}

/// Places and lengths of the pieces of so many bytes.
fn pieces(len: usize) -> Vec<(usize, usize)> {
    (0..len).step_by(PIECE_BYTES).map(|at| (at, PIECE_BYTES.min(len - at))).collect()
}

/// Submits `count` pieces and waits for all of them; each moves as many bytes as `expected` of its id.
fn carry_out<Q: Queue + ?Sized>(
    queue: &mut Q,
    count: usize,
    mut submit: impl FnMut(&mut Q, usize) -> Result<usize, TierError>,
    expected: impl Fn(u64) -> usize,
) -> io::Result<()> {
    let (mut next, mut over) = (0, 0);
    let mut done: Vec<Completion> = Vec::new();
    let mut failed = None;
    while over < count {
        if next < count && failed.is_none() {
            next += submit(queue, next).map_err(other)?;
        }
        queue.reap(&mut done, Some(WAIT)).map_err(other)?;
        if CancelScope::is_cancelled() {
            return Err(cancelled());
        }
        over += done.len();
        for Completion { id, result } in done.drain(..) {
            match result {
                Ok(moved) if moved as usize == expected(id) => {}
                Ok(_) => failed = failed.or(Some(io::Error::from(io::ErrorKind::UnexpectedEof))),
                Err(fault) => failed = failed.or(Some(of(fault))),
            }
        }
        if failed.is_some() && over == next {
            break;
        }
    }
    failed.map_or(Ok(()), Err)
}

fn other(error: TierError) -> io::Error {
    io::Error::other(error)
}

fn of(fault: ReadFault) -> io::Error {
    let words = fault.kind.words();
    match fault.errno {
        0 => io::Error::other(words),
        errno => io::Error::other(format!("{words}: {}", io::Error::from_raw_os_error(errno))),
    }
}
