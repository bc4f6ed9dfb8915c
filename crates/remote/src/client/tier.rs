//! A region of a node's memory as a tier.

use super::options::Transport;
use super::queue::RemoteQueue;
use super::source::Source;
use bathyal_store::StoreError;
use bathyal_tier::backend::mapped::MappedFile;
use bathyal_tier::backend::writable::WritableTier;
use bathyal_tier::contract::WriteQueue;
use bathyal_tier::{Queue, Tier, TierError, TierProfile, WriteTier};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// What a backend is called in profiles.
const KIND: &str = "remote";

/// A region that this machine reads, and changes if its session asked to.
#[derive(Debug)]
pub(crate) struct RemoteTier {
    source: Arc<Source>,
    region: u64,
    len: u64,
    changeable: bool,
    profile: TierProfile,
    /// The region itself, where it is mapped.
    mapped: Option<WritableTier>,
}

impl RemoteTier {
    /// The region of `len` bytes, which `path` is in.
    pub(crate) fn new(
        source: Arc<Source>,
        region: u64,
        len: u64,
        changeable: bool,
        path: &std::path::Path,
    ) -> Result<RemoteTier, StoreError> {
        let session = source.session();
        let mapped = match session.transport() {
            Transport::Tcp => None,
            Transport::Auto => map(&source, region, len, changeable).ok(),
            Transport::Shared => {
                let mapped = map(&source, region, len, changeable);
                let failed = |why: String| StoreError::Remote {
                    operation: "map",
                    path: path.into(),
                    reason: format!(
                        "{why}; shared memory wants a node of this machine that this user runs: leave out the store option \
                         transport, or set it to tcp"
                    ),
                };
                Some(mapped.map_err(failed)?)
            }
        };
        let profile = TierProfile {
            kind: KIND.into(),
            method: "TCP".into(),
            // Of a cache line: a byte more is no packet more.
            granularity: 64,
            alignment: 1,
            addressable: false,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 128,
            issue_ns: 0,
        };
        let profile = mapped.as_ref().map_or(profile, |mapped| mapped.profile().clone());
        Ok(RemoteTier { source, region, len, changeable, profile, mapped })
    }
}

/// Maps a region of a node of this machine.
fn map(source: &Source, region: u64, len: u64, changeable: bool) -> Result<WritableTier, String> {
    let shared = source.session().share(region).map_err(|failed| match failed {
        super::session::Failed::Refused(_, reason) => reason,
        super::session::Failed::Lost(e) => e.to_string(),
    })?;
    let place = PathBuf::from(format!("/proc/{}/fd/{}", shared.process, shared.descriptor));
    let about = std::fs::metadata(&place).map_err(|e| format!("the node's memory is not to be had: {e}"))?;
    if (about.dev(), about.ino()) != (shared.device, shared.inode) {
        return Err("the node is not of this machine".into());
    }
    let file = MappedFile { path: place, len: Some(len), writable: changeable };
    let mapped = file.map().map_err(|e| format!("the node's memory is not to be had: {e}"))?;
    Ok(mapped.named(KIND, "shared memory of this machine".into()))
}

impl Tier for RemoteTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        match &self.mapped {
            Some(mapped) => mapped.open(depth),
            None => Ok(Box::new(RemoteQueue::new(self.source.clone(), self.region, depth))),
        }
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        self.changeable.then_some(self)
    }
}

impl WriteTier for RemoteTier {
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError> {
        match &self.mapped {
            Some(mapped) => mapped.open_write(depth),
            None => Ok(Box::new(RemoteQueue::for_writing(self.source.clone(), self.region, depth)?)),
        }
    }
}
