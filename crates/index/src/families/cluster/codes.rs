//! The codes of groups in memory. They may still be arriving from an object store; then searches read the
//! codes that they need and that have not arrived yet.

use super::centroids::Centroids;
use crate::allocate::try_zeros;
use crate::error::IndexError;
use crate::format::identity::Identity;
use bathyal_store::Object;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes that are read at once. A piece takes as long as some tens of requests, so that queries do not wait
/// long for the link.
const PIECE_BYTES: usize = 4 << 20;
/// Name of the codes in an error about missing memory.
const CODES: &str = "the codes of groups";
/// Name of the rows in an error about missing memory.
const ROWS: &str = "the centroids of groups";

/// The codes of groups, in the order of the groups.
#[derive(Debug)]
pub(crate) enum Codes {
    /// All codes that are to be in memory are loaded.
    Loaded {
        /// The first group with codes in memory. The codes of groups before it are on a graphics card.
        first_group: u32,
        /// The codes of this group and of those after it.
        codes: Vec<u8>,
    },
    /// The codes are arriving from a store.
    Arriving(Arc<ArrivingCodes>),
}

impl Codes {
    /// Returns loaded codes that begin with those of group 0.
    pub(crate) fn loaded(codes: Vec<u8>) -> Codes {
        Codes::Loaded { first_group: 0, codes }
    }

    /// Returns the bytes in memory.
    pub(crate) fn len(&self) -> usize {
        match self {
            Codes::Loaded { codes, .. } => codes.len(),
            Codes::Arriving(arriving) => arriving.arrived_bytes() as usize,
        }
    }

    /// Returns the codes of a group, if they are in memory. `bytes` is the length of the codes of any group.
    #[inline]
    pub(crate) fn group(&self, group: u32, bytes: usize) -> Option<&[u8]> {
        match self {
            Codes::Loaded { first_group, codes } => {
                let start = group.checked_sub(*first_group)? as usize * bytes;
                codes.get(start..start + bytes)
            }
            Codes::Arriving(arriving) => arriving.group(group, bytes),
        }
    }
}

/// Codes that arrive piece by piece.
#[derive(Debug)]
pub(crate) struct ArrivingCodes {
    groups_per_piece: usize,
    pieces: Vec<OnceLock<Box<[u8]>>>,
    arrived_bytes: AtomicU64,
    total_bytes: u64,
    /// Set by `stop()`; then no more pieces are read.
    stopped: AtomicBool,
    /// The error that has ended the arrival.
    failure: Mutex<Option<String>>,
}

impl ArrivingCodes {
    /// Creates empty pieces for `total_bytes` bytes of codes, `group_bytes` of each group.
    pub(crate) fn new(total_bytes: u64, group_bytes: u64) -> ArrivingCodes {
        let groups_per_piece = (PIECE_BYTES / (group_bytes as usize).max(1)).max(1);
        let pieces = total_bytes.div_ceil((groups_per_piece as u64 * group_bytes).max(1));
        ArrivingCodes {
            groups_per_piece,
            pieces: (0..pieces).map(|_| OnceLock::new()).collect(),
            arrived_bytes: AtomicU64::new(0),
            total_bytes,
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Returns the bytes of the codes that have arrived.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.arrived_bytes.load(Relaxed)
    }

    /// Returns the bytes of all codes.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the error that has ended the arrival, if there is one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the arrival before the next piece.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    #[inline]
    fn group(&self, group: u32, bytes: usize) -> Option<&[u8]> {
        let (piece, slot) = (group as usize / self.groups_per_piece, group as usize % self.groups_per_piece);
        self.pieces.get(piece)?.get()?.get(slot * bytes..(slot + 1) * bytes)
    }

    /// Reads and checks the rows of the centroids, if `rows` is given (their file and its checksum), and then
    /// the codes in `object`, piece by piece. After an error, which is stored in `failure`, searches still
    /// read the codes that they need.
    pub(crate) fn fetch(
        &self,
        object: &dyn Object,
        rows: Option<(Arc<dyn Object>, u32)>,
        identity: Identity,
        centroids: &Centroids,
    ) {
        let rows =
            rows.map_or(Ok(()), |(rows, checksum)| self.fetch_rows(rows.as_ref(), checksum, centroids));
        if let Err(error) = rows.and_then(|()| self.fetch_all(object, identity, centroids)) {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }

    fn fetch_rows(
        &self,
        object: &dyn Object,
        checksum: u32,
        centroids: &Centroids,
    ) -> Result<(), IndexError> {
        let mut bytes: Vec<u8> = try_zeros(ROWS, object.len() as usize)?;
        for (i, piece) in bytes.chunks_mut(PIECE_BYTES).enumerate() {
            if self.stopped.load(Relaxed) {
                return Ok(());
            }
            object.read_at((i * PIECE_BYTES) as u64, piece)?;
        }
        let wrong = |reason| IndexError::damaged(object.address(), "the centroids", reason);
        let found = crc32c::crc32c(&bytes);
        if found != checksum {
            return Err(wrong(format!("its checksum is {found:08x}; the manifest has {checksum:08x}")));
        }
        centroids.take_rows(bytes).map_err(wrong)
    }

    fn fetch_all(
        &self,
        object: &dyn Object,
        identity: Identity,
        centroids: &Centroids,
    ) -> Result<(), IndexError> {
        let group_bytes = (self.total_bytes as usize / centroids.groups().max(1)).max(1);
        let piece_bytes = (self.groups_per_piece * group_bytes) as u64;
        for (i, piece) in self.pieces.iter().enumerate() {
            if self.stopped.load(Relaxed) {
                return Ok(());
            }
            let from = i as u64 * piece_bytes;
            let mut bytes: Vec<u8> = try_zeros(CODES, piece_bytes.min(self.total_bytes - from) as usize)?;
            object.read_at(from, &mut bytes)?;
            for (j, blocks) in bytes.chunks_exact(group_bytes).enumerate() {
                let group = (i * self.groups_per_piece + j) as u32;
                centroids.check_codes(identity, group, blocks).map_err(|reason| {
                    IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
                })?;
            }
            self.arrived_bytes.fetch_add(bytes.len() as u64, Relaxed);
            // Only this thread fills pieces, so the piece is empty.
            let _ = piece.set(bytes.into_boxed_slice());
        }
        Ok(())
    }
}
