//! What can go wrong between a caller and the bytes of a tier.

use std::io;
use std::path::PathBuf;

/// An error of the tier itself: opening, sizing, submitting, or a broken contract.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb ("open", "write").
        operation: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// The system's own reason.
        source: io::Error,
    },
    /// The operating system refused an operation that names no file (a ring, a thread).
    #[error("cannot {operation}: {source}")]
    System {
        /// What was being done, as a verb phrase.
        operation: &'static str,
        /// The system's own reason.
        source: io::Error,
    },
    /// A backend broke the contract of [`crate::Queue`], for example by completing a read twice.
    #[error("the tier broke its contract: {0}")]
    Contract(String),
    /// Bytes that were mapped are no longer there; nothing is answered from what was read in their place.
    #[error(
        "{place}: the mapped bytes are gone: {what}; the file was truncated or the memory has failed: restore it, then close the index and open it again, which loads it anew"
    )]
    Lost {
        /// The memory, as its profile names it.
        place: String,
        /// What was expected and what was found.
        what: String,
    },
    /// What was loaded is not what should have been.
    #[error("checksum {found:08x} instead of {expected:08x}: the file is damaged")]
    Checksum {
        /// CRC-32C of what was loaded.
        found: u32,
        /// CRC-32C of what should have been.
        expected: u32,
    },
    /// The caller asked for an end (of a probe, of loading).
    #[error("cancelled")]
    Cancelled,
    /// A parameter of a tier makes no sense.
    #[error("{0}")]
    Parameter(String),
}

impl TierError {
    /// The same error once more, for another query that it befell.
    pub fn again(&self) -> TierError {
        let same = |source: &io::Error| match source.raw_os_error() {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(source.kind(), source.to_string()),
        };
        match self {
            TierError::Io { operation, path, source } => TierError::io(operation, path, same(source)),
            TierError::System { operation, source } => TierError::System { operation, source: same(source) },
            TierError::Contract(what) => TierError::Contract(what.clone()),
            TierError::Lost { place, what } => TierError::Lost { place: place.clone(), what: what.clone() },
            TierError::Checksum { found, expected } => {
                TierError::Checksum { found: *found, expected: *expected }
            }
            TierError::Cancelled => TierError::Cancelled,
            TierError::Parameter(what) => TierError::Parameter(what.clone()),
        }
    }

    /// Shorthand for a failed file operation.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        TierError::Io { operation, path: path.into(), source }
    }
}

/// What kind of thing keeps a read's bytes away: what to do about it follows from this, whatever the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The device or service asks for fewer requests; later it may answer.
    Throttled,
    /// What was to be read is not there any more: a file, an object, a device that was taken away.
    Gone,
    /// The other side of a connection does not answer. Another connection may reach it.
    LostPeer,
    /// The device says that the bytes are lost or cannot be trusted.
    Damaged,
    /// Something else has taken the place of what was to be read.
    Changed,
    /// The device or service does not let this caller read.
    Denied,
    /// An operation that this one was linked to has failed, so this one was not begun.
    Skipped,
    /// Anything else; the error number says what.
    Device,
}

impl FaultKind {
    /// The kind, as a clause.
    pub fn words(self) -> &'static str {
        match self {
            FaultKind::Throttled => "the device asks for fewer requests, try again later",
            FaultKind::Gone => "what was to be read is gone",
            FaultKind::LostPeer => "the other side does not answer",
            FaultKind::Damaged => "the device says that the bytes are damaged",
            FaultKind::Changed => {
                "the index was replaced, or its memory node was restarted; open the index again, or open it with the \
                 store option wait=60, which waits for the node"
            }
            FaultKind::Denied => "access is denied: credentials have expired or do not reach so far",
            FaultKind::Skipped => "an operation that it follows has failed",
            FaultKind::Device => "the device failed",
        }
    }
}

/// Why one read or write failed although the queue itself works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFault {
    /// What kind of failure.
    pub kind: FaultKind,
    /// The operating system's error number; 0 where there is none.
    pub errno: i32,
}

impl ReadFault {
    /// What an operation on a file says.
    pub fn of_error(error: &std::io::Error) -> ReadFault {
        let number = error.raw_os_error();
        // The numbers of Windows are its own.
        if cfg!(windows) {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => FaultKind::Gone,
                std::io::ErrorKind::PermissionDenied => FaultKind::Denied,
                std::io::ErrorKind::ResourceBusy => FaultKind::Throttled,
                _ => FaultKind::Device,
            };
            return ReadFault { kind, errno: number.unwrap_or(0) };
        }
        ReadFault::system(number.unwrap_or(libc::EIO))
    }

    /// A failure that the operating system has a number for.
    pub fn system(errno: i32) -> ReadFault {
        let kind = match errno {
            libc::EAGAIN | libc::EBUSY => FaultKind::Throttled,
            #[cfg(unix)]
            libc::EDQUOT => FaultKind::Throttled,
            libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EBADF => FaultKind::Gone,
            #[cfg(unix)]
            libc::ESTALE => FaultKind::Gone,
            libc::ECONNRESET
            | libc::ECONNREFUSED
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::EPIPE
            | libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH => FaultKind::LostPeer,
            libc::EIO | libc::EBADMSG | libc::EILSEQ => FaultKind::Damaged,
            // What a disk says of a sector that it cannot read, and a file system of a checksum that is wrong.
            #[cfg(target_os = "linux")]
            libc::ENODATA | libc::EUCLEAN => FaultKind::Damaged,
            _ => FaultKind::Device,
        };
        ReadFault { kind, errno }
    }

    /// A failure that has no error number.
    pub fn of(kind: FaultKind) -> ReadFault {
        ReadFault { kind, errno: 0 }
    }
}

/// The system's words for an error number, where there is one.
fn named(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(errno)) }
}

/// Why the bytes that a query asked for did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The device reported an error.
    #[error("reading {len} bytes at offset {offset} failed: {}{}", kind.words(), named(*errno))]
    Device {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
        /// What kind of failure.
        kind: FaultKind,
        /// The operating system's error number; 0 where there is none.
        errno: i32,
    },
    /// Fewer bytes arrived than were asked for.
    #[error(
        "short read at offset {offset}: expected {expected} bytes, got {got}; the file is truncated or the device failed"
    )]
    Short {
        /// First byte of the span.
        offset: u64,
        /// Bytes asked for.
        expected: u32,
        /// Bytes that arrived.
        got: u32,
    },
    /// The span lies outside the tier: a damaged address, never a device's fault.
    #[error("a read of {len} bytes at offset {offset} lies outside the tier of {tier_len} bytes")]
    OutOfRange {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
        /// Length of the tier in bytes.
        tier_len: u64,
    },
    /// The place in the caller's region is none: it lies outside, is not aligned as the tier wants it, or another read
    /// whose bytes are still in use goes there.
    #[error(
        "{len} bytes at offset {offset} cannot be read to the place given: it lies outside the region, is not aligned, or is in use by another read"
    )]
    NoPlace {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
    },
    /// The read buffers' budget cannot hold what a query asks for at once beside what waiting queries hold.
    #[error(
        "read buffers of {needed} bytes are needed at once, beyond the {budget} of a search thread; run fewer queries at once (in_flight)"
    )]
    Budget {
        /// A budget in bytes that would have held the whole batch, and what other queries held.
        needed: u64,
        /// The engine's budget in bytes.
        budget: u64,
    },
}

/// Why a run of the engine ended before its last query.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The caller's cancel flag was raised.
    #[error("cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the deadline passed before all queries were answered")]
    Deadline,
    /// The tier failed as a whole.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A query waits for something that the engine does not know: a future that is not the engine's own.
    #[error("a query waits for something other than a read; only the engine's own futures may be awaited")]
    Stalled,
}
