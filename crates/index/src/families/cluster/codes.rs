//! The codes of groups in memory: all of them, the first of them, or those that have come so far from a store that is
//! elsewhere, where a search does not wait for the others but reads what it needs of them.

use super::centroids::Centroids;
use crate::allocate::try_zeros;
use crate::error::IndexError;
use crate::format::identity::Identity;
use bathyal_store::Object;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes that come at once: some tens of requests' worth of a link, so that the queries of this time do not wait long behind
/// them.
const PIECE_BYTES: usize = 4 << 20;
/// What is said of them where there is no memory.
const CODES: &str = "the codes of groups";
const ROWS: &str = "the centroids of groups";

/// Codes, group by group.
#[derive(Debug)]
pub(crate) enum Codes {
    /// Those of the first groups, or of the first behind those that a graphics card has.
    Here {
        /// The first group.
        from: u32,
        /// Its codes, and of those behind it.
        codes: Vec<u8>,
    },
    /// Those that are there so far.
    Arriving(Arc<Arriving>),
}

impl Codes {
    /// Those of the first groups.
    pub(crate) fn here(codes: Vec<u8>) -> Codes {
        Codes::Here { from: 0, codes }
    }

    /// Bytes that are there.
    pub(crate) fn len(&self) -> usize {
        match self {
            Codes::Here { codes, .. } => codes.len(),
            Codes::Arriving(arriving) => arriving.here() as usize,
        }
    }

    /// The codes of a group, each of which has `bytes`, if they are there.
    #[inline]
    pub(crate) fn group(&self, group: u32, bytes: usize) -> Option<&[u8]> {
        match self {
            Codes::Here { from, codes } => {
                let start = group.checked_sub(*from)? as usize * bytes;
                codes.get(start..start + bytes)
            }
            Codes::Arriving(arriving) => arriving.group(group, bytes),
        }
    }
}

/// Codes that come piece by piece.
#[derive(Debug)]
pub(crate) struct Arriving {
    groups_a_piece: usize,
    pieces: Vec<OnceLock<Box<[u8]>>>,
    here: AtomicU64,
    all: u64,
    stopped: AtomicBool,
    /// Why no more of them come.
    failed: Mutex<Option<String>>,
}

impl Arriving {
    /// None of `all` bytes, which groups have `group_bytes` each of.
    pub(crate) fn new(all: u64, group_bytes: u64) -> Arriving {
        let groups_a_piece = (PIECE_BYTES / (group_bytes as usize).max(1)).max(1);
        let pieces = all.div_ceil((groups_a_piece as u64 * group_bytes).max(1));
        Arriving {
            groups_a_piece,
            pieces: (0..pieces).map(|_| OnceLock::new()).collect(),
            here: AtomicU64::new(0),
            all,
            stopped: AtomicBool::new(false),
            failed: Mutex::new(None),
        }
    }

    /// Bytes that are there, of all.
    pub(crate) fn here(&self) -> u64 {
        self.here.load(Relaxed)
    }

    /// Bytes of all.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Why no more of them come, if that is so.
    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// No more are wanted.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    #[inline]
    fn group(&self, group: u32, bytes: usize) -> Option<&[u8]> {
        let (piece, within) = (group as usize / self.groups_a_piece, group as usize % self.groups_a_piece);
        self.pieces.get(piece)?.get()?.get(within * bytes..(within + 1) * bytes)
    }

    /// Reads the rows of the centroids, where these are yet to come, then the codes from `object`, one piece after the other, and
    /// checks all. What fails is noted: searches go on reading what they need.
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
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
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
            return Err(wrong(format!("checksum {found:08x}, the manifest says {checksum:08x}")));
        }
        centroids.take_rows(bytes).map_err(wrong)
    }

    fn fetch_all(
        &self,
        object: &dyn Object,
        identity: Identity,
        centroids: &Centroids,
    ) -> Result<(), IndexError> {
        let group_bytes = (self.all as usize / centroids.groups().max(1)).max(1);
        let piece_bytes = (self.groups_a_piece * group_bytes) as u64;
        for (i, piece) in self.pieces.iter().enumerate() {
            if self.stopped.load(Relaxed) {
                return Ok(());
            }
            let from = i as u64 * piece_bytes;
            let mut bytes: Vec<u8> = try_zeros(CODES, piece_bytes.min(self.all - from) as usize)?;
            object.read_at(from, &mut bytes)?;
            for (j, blocks) in bytes.chunks_exact(group_bytes).enumerate() {
                let group = (i * self.groups_a_piece + j) as u32;
                centroids.check_codes(identity, group, blocks).map_err(|reason| {
                    IndexError::damaged(object.address(), format!("the codes of group {group}"), reason)
                })?;
            }
            self.here.fetch_add(bytes.len() as u64, Relaxed);
            // Nobody else fills it.
            let _ = piece.set(bytes.into_boxed_slice());
        }
        Ok(())
    }
}
