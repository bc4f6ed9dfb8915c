//! An object in a node's memory.

use super::source::RegionSource;
use super::tier::RemoteTier;
use super::transfer;
use crate::control::ObjectEntry;
use bathyal_store::{Backing, CancelScope, Object, StoreError};
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::FileOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An object in a node's memory, at `path`.
#[derive(Debug)]
pub(super) struct NodeObject {
    path: PathBuf,
    len: u64,
    /// `None` if the object is empty.
    tier: Option<Arc<RemoteTier>>,
}

impl NodeObject {
    pub(super) fn new(
        path: PathBuf,
        source: Arc<RegionSource>,
        entry: &ObjectEntry,
        changeable: bool,
    ) -> Result<NodeObject, StoreError> {
        let tier = match entry.bytes {
            0 => None,
            len => Some(Arc::new(RemoteTier::new(source, entry.region, len, changeable, &path)?)),
        };
        Ok(NodeObject { path, len: entry.bytes, tier })
    }

    /// Writes `bytes` at `offset`. Does nothing if the object may not be changed.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(tier) = self.tier.as_ref().and_then(|tier| tier.writable()) else { return Ok(()) };
        transfer::write(tier, offset, bytes).map_err(|e| self.failed("write", &e))
    }

    fn failed(&self, operation: &'static str, error: &std::io::Error) -> StoreError {
        if CancelScope::is_cancelled() {
            return StoreError::Cancelled;
        }
        StoreError::Remote { operation, path: self.path.clone(), reason: error.to_string() }
    }
}

impl Object for NodeObject {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn piece_bytes(&self) -> usize {
        4 << 20
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(StoreError::Short { path: self.path.clone(), offset, wanted, len: self.len });
        }
        match &self.tier {
            Some(tier) if wanted > 0 => {
                transfer::read(tier.as_ref(), offset, out).map_err(|e| self.failed("read", &e))
            }
            _ => Ok(()),
        }
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        Ok(Backing::Elsewhere)
    }

    fn tier(&self, _options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        match &self.tier {
            Some(tier) => Ok(tier.clone()),
            None => Ok(Arc::new(DramTier::new(Vec::new()))),
        }
    }

    fn writable_tier(&self) -> Result<Arc<dyn Tier>, StoreError> {
        match &self.tier {
            Some(tier) => Ok(Arc::new(tier.for_writing(&self.path)?)),
            None => Err(StoreError::Unchangeable { path: self.path.clone() }),
        }
    }
}
