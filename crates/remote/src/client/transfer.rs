//! Transfers of long byte ranges from and to a tier, in pieces of which several are in flight.

use super::cancellable::cancelled;
use bathyal_store::CancelScope;
use bathyal_tier::contract::{Action, Operation, WriteQueue};
use bathyal_tier::{Completion, Queue, Read, ReadFault, Tier, TierError, WriteTier, complete_all};
use std::io;
use std::ops::ControlFlow;

/// Maximum bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces in flight.
const IN_FLIGHT: u32 = 8;

/// Reads bytes from `offset` on into `out`, which is filled completely.
pub(super) fn read(tier: &dyn Tier, offset: u64, out: &mut [u8]) -> io::Result<()> {
    let mut queue = tier.open(IN_FLIGHT).map_err(io_error)?;
    let pieces = pieces_of(out.len());
    let start = out.as_mut_ptr();
    let reads: Vec<Read> = pieces
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
        // SAFETY: each read has its own part of `out`, which nothing else touches until the queue is dropped,
        // below.
        unsafe { queue.submit(&reads[from..]) }
    };
    let expected = |id: u64| pieces.iter().find(|(at, _)| *at as u64 == id).map_or(0, |(_, len)| *len);
    complete(queue.as_mut(), reads.len(), submit, expected)
}

/// Writes `bytes` at `offset`.
pub(super) fn write(tier: &dyn WriteTier, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut queue = tier.open_write(IN_FLIGHT).map_err(io_error)?;
    let pieces = pieces_of(bytes.len());
    let operation = |(at, len): &(usize, usize)| Operation {
        id: *at as u64,
        offset: offset + *at as u64,
        action: Action::Write { from: bytes[*at..].as_ptr(), len: *len as u32 },
        linked: false,
    };
    let operations: Vec<Operation> = pieces.iter().map(operation).collect();
    let submit = |queue: &mut (dyn WriteQueue + 'static), from: usize| {
        // SAFETY: `bytes` is borrowed, so it stays valid and unchanged until the queue is dropped, below.
        unsafe { queue.submit_operations(&operations[from..]) }
    };
    let expected = |id: u64| pieces.iter().find(|(at, _)| *at as u64 == id).map_or(0, |(_, len)| *len);
    complete(queue.as_mut(), operations.len(), submit, expected)
}

/// Returns the offsets and lengths of the pieces of `len` bytes.
fn pieces_of(len: usize) -> Vec<(usize, usize)> {
    (0..len).step_by(PIECE_BYTES).map(|at| (at, PIECE_BYTES.min(len - at))).collect()
}

/// Submits `count` pieces and waits for all of them. Fails if a piece fails or moves fewer bytes than
/// `expected` returns for its id, or if the work of this thread is cancelled.
fn complete<Q: Queue + ?Sized>(
    queue: &mut Q,
    count: usize,
    submit: impl FnMut(&mut Q, usize) -> Result<usize, TierError>,
    expected: impl Fn(u64) -> usize,
) -> io::Result<()> {
    let check = |Completion { id, result }: &Completion| match result {
        Ok(moved) if *moved as usize == expected(*id) => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        Err(fault) => Err(fault_error(*fault)),
    };
    let mut outcome = Ok(());
    complete_all(queue, count, submit, |done| {
        outcome =
            if CancelScope::is_cancelled() { Err(cancelled()) } else { done.iter().try_for_each(check) };
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(io_error)?;
    outcome
}

fn io_error(error: TierError) -> io::Error {
    io::Error::other(error)
}

fn fault_error(fault: ReadFault) -> io::Error {
    let words = fault.kind.words();
    match fault.errno {
        0 => io::Error::other(words),
        errno => io::Error::other(format!("{words}: {}", io::Error::from_raw_os_error(errno))),
    }
}
