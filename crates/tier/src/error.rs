//! Errors of tiers, of single reads and writes, and of runs of the engine.

use std::io;
use std::path::PathBuf;

/// An error of the tier itself: opening, sizing, submitting, or a broken contract.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb ("open", "write").
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The operating system refused an operation that names no file (a ring, a thread).
    #[error("cannot {operation}: {source}")]
    System {
        /// The operation, as a verb phrase.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A backend broke the contract of [`crate::Queue`], for example by completing a read twice.
    #[error("the tier broke its contract: {0}")]
    Contract(String),
    /// Bytes that were mapped are missing. No answer is computed from the zeros that were read in their
    /// place.
    #[error(
        "{place}: the mapped bytes are gone: {what}; the file was truncated or the memory has failed: \
         restore the file, then close the index and open it again, which loads it again"
    )]
    Lost {
        /// The memory, as its profile names it.
        place: String,
        /// Expected and actual state.
        what: String,
    },
    /// The loaded bytes have another checksum than expected.
    #[error("checksum {found:08x} instead of {expected:08x}: the file is damaged")]
    Checksum {
        /// CRC-32C of the loaded bytes.
        found: u32,
        /// Expected CRC-32C.
        expected: u32,
    },
    /// The caller cancelled the operation (a probe, a load).
    #[error("cancelled")]
    Cancelled,
    /// A parameter of a tier is invalid.
    #[error("{0}")]
    Parameter(String),
}

impl TierError {
    /// Returns a copy of the error, for another query that fails for the same reason.
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

    /// Makes the error of a failed file operation.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        TierError::Io { operation, path: path.into(), source }
    }
}

/// Kind of a fault, independent of the device. Callers choose their reaction by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The device or service asks for fewer requests; a later attempt may succeed.
    Throttled,
    /// The file, object or device no longer exists.
    Gone,
    /// The peer of a connection does not answer. Another connection may reach it.
    LostPeer,
    /// The device reports that the bytes are lost or damaged.
    Damaged,
    /// The file or object was replaced by another one.
    Changed,
    /// The memory node does not hold the region any more: the node was restarted, or the index was replaced.
    Forgotten,
    /// The device or service refuses access to this caller.
    Denied,
    /// An operation that this one was linked to has failed, so this one did not begin.
    Skipped,
    /// Any other failure; the error number tells which.
    Device,
}

impl FaultKind {
    /// Returns a clause that describes the kind.
    pub fn words(self) -> &'static str {
        match self {
            FaultKind::Throttled => "the device asks for fewer requests, try again later",
            FaultKind::Gone => "the file, object or memory no longer exists",
            FaultKind::LostPeer => "the other side does not answer",
            FaultKind::Damaged => "the device reports damaged bytes",
            FaultKind::Changed => "the index was replaced; open the index again",
            FaultKind::Forgotten => {
                "the index was replaced, or its memory node was restarted; open the index again, or open it \
                 with the store option wait=60, which waits for the node"
            }
            FaultKind::Denied => "access is denied: the credentials have expired or do not allow it",
            FaultKind::Skipped => "an earlier operation of the same chain has failed",
            FaultKind::Device => "the device failed",
        }
    }
}

/// Failure of one read or write on a queue that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadFault {
    /// Kind of the failure.
    pub kind: FaultKind,
    /// The operating system's error number; 0 if there is none.
    pub errno: i32,
}

impl ReadFault {
    /// Makes the fault for the error of a file operation.
    pub fn of_error(error: &std::io::Error) -> ReadFault {
        let number = error.raw_os_error();
        // Windows has error numbers of its own.
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

    /// Makes the fault for an error number of the operating system.
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
            // Errors of a disk with an unreadable sector, and of a file system with a wrong checksum.
            #[cfg(target_os = "linux")]
            libc::ENODATA | libc::EUCLEAN => FaultKind::Damaged,
            _ => FaultKind::Device,
        };
        ReadFault { kind, errno }
    }

    /// Makes a fault without an error number.
    pub fn of(kind: FaultKind) -> ReadFault {
        ReadFault { kind, errno: 0 }
    }
}

/// Returns the system's description of an error number after a colon, or nothing for 0.
fn errno_suffix(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", io::Error::from_raw_os_error(errno)) }
}

/// Reason for which the bytes of a query's read did not arrive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The device reported an error.
    #[error("reading {len} bytes at offset {offset} failed: {}{}", kind.words(), errno_suffix(*errno))]
    Device {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
        /// Kind of the failure.
        kind: FaultKind,
        /// The operating system's error number; 0 if there is none.
        errno: i32,
    },
    /// Fewer bytes arrived than were requested.
    #[error(
        "short read at offset {offset}: expected {expected} bytes, got {got}; the file is truncated or the \
         device failed"
    )]
    Short {
        /// First byte of the span.
        offset: u64,
        /// Bytes requested.
        expected: u32,
        /// Bytes that arrived.
        got: u32,
    },
    /// The span lies outside the tier: its address is damaged; the device is not at fault.
    #[error("a read of {len} bytes at offset {offset} lies outside the tier of {tier_len} bytes")]
    OutOfRange {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
        /// Length of the tier in bytes.
        tier_len: u64,
    },
    /// The place in the caller's region is invalid: it lies outside the region, is not aligned as the tier
    /// requires, or holds another read whose bytes are still in use.
    #[error(
        "{len} bytes at offset {offset} cannot be read to the given place: it lies outside the region, is \
         not aligned, or is in use by another read"
    )]
    NoPlace {
        /// First byte of the span.
        offset: u64,
        /// Length of the span in bytes.
        len: u32,
    },
    /// The budget of read buffers cannot hold a query's batch in addition to the buffers that waiting queries
    /// hold.
    #[error(
        "a search thread needs {needed} bytes of read buffers at once, and its budget is {budget}; run fewer \
         queries at once (in_flight)"
    )]
    Budget {
        /// A budget in bytes that would have held the whole batch and the buffers of the other queries.
        needed: u64,
        /// The engine's budget in bytes.
        budget: u64,
    },
}

/// Reason for which a run of the engine ended before its last query.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The caller's cancel flag was set.
    #[error("cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the deadline passed before all queries were answered")]
    Deadline,
    /// The tier failed as a whole.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A query awaits a future that is not the engine's own.
    #[error("a query awaits a future that is not the engine's; only futures of the engine may be awaited")]
    Stalled,
}
