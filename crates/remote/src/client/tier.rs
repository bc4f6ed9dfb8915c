//! A region of a node's memory as a tier.

use super::fabric::Fabric;
use super::options::Transport;
use super::queue::RemoteQueue;
use super::rdma_queue::{Place, RdmaQueue};
use super::session::Failed;
use super::source::Source;
use bathyal_store::StoreError;
use bathyal_tier::backend::writable::WritableTier;
use bathyal_tier::contract::WriteQueue;
use bathyal_tier::{Queue, Tier, TierError, TierProfile, WriteTier};
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
    way: Way,
}

/// How its bytes come here.
#[derive(Debug)]
enum Way {
    Tcp,
    Mapped(WritableTier),
    Rdma(Arc<Fabric>),
}

impl Way {
    /// The one that a region is to be reached by, or what is in the way.
    fn find(source: &Source, region: u64, len: u64, changeable: bool) -> Result<Way, String> {
        let shared = || map(source, region, len, changeable).map(Way::Mapped);
        let rdma = || source.fabric(region, len).map(Way::Rdma);
        match source.session().transport() {
            Transport::Tcp => Ok(Way::Tcp),
            Transport::Auto => Ok(shared().or_else(|_| rdma()).unwrap_or(Way::Tcp)),
            Transport::Shared => shared().map_err(|why| {
                format!(
                    "{why}; shared memory wants a node of this machine that this user runs: leave out the store option \
                     transport, or set it to tcp"
                )
            }),
            Transport::Verbs => rdma().map_err(|why| {
                format!(
                    "{why}; transport=verbs wants an RDMA device on both machines: leave out the store option transport, or set \
                     it to tcp"
                )
            }),
        }
    }

    /// For profiles.
    fn method(&self) -> String {
        match self {
            Way::Tcp => "TCP".into(),
            Way::Mapped(_) => "shared memory of this machine".into(),
            Way::Rdma(fabric) => format!("RDMA by {}", fabric.domain().device().describe()),
        }
    }
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
        let failed = |reason| StoreError::Remote { operation: "reach", path: path.into(), reason };
        let way = Way::find(&source, region, len, changeable).map_err(failed)?;
        let profile = match &way {
            Way::Mapped(mapped) => {
                TierProfile { kind: KIND.into(), method: way.method(), ..mapped.profile().clone() }
            }
            Way::Tcp | Way::Rdma(_) => TierProfile {
                kind: KIND.into(),
                method: way.method(),
                // Of a cache line: a byte more is no packet more.
                granularity: 64,
                alignment: 1,
                addressable: false,
                latency_ns: 0,
                iops: 0.0,
                bandwidth_bytes_per_s: 0.0,
                depth: 128,
                issue_ns: 0,
            },
        };
        Ok(RemoteTier { source, region, len, changeable, profile, way })
    }

    /// The same region for changing it, by a session of its own.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if the region is not part of what stands under the name any more.
    pub(crate) fn for_writing(&self, path: &std::path::Path) -> Result<RemoteTier, StoreError> {
        RemoteTier::new(Arc::new(self.source.for_writing(path)?), self.region, self.len, true, path)
    }

    /// What its queues are of, by RDMA.
    fn place(&self, fabric: &Arc<Fabric>) -> Place {
        Place { source: self.source.clone(), fabric: fabric.clone(), opened: self.region, len: self.len }
    }

    fn doorbell(&self) -> u32 {
        self.source.session().doorbell()
    }
}

/// Maps a region of a node of this machine.
#[cfg(target_os = "linux")]
fn map(source: &Source, region: u64, len: u64, changeable: bool) -> Result<WritableTier, String> {
    use bathyal_tier::backend::mapped::MappedFile;
    use std::os::unix::fs::MetadataExt;
    let shared = source.session().share(region).map_err(|failed| match failed {
        Failed::Refused(_, reason) => reason,
        Failed::Lost(e) => e.to_string(),
    })?;
    let place = std::path::PathBuf::from(format!("/proc/{}/fd/{}", shared.process, shared.descriptor));
    let about = std::fs::metadata(&place).map_err(|e| format!("the node's memory is not to be had: {e}"))?;
    if (about.dev(), about.ino()) != (shared.device, shared.inode) {
        return Err("the node is not of this machine".into());
    }
    let file = MappedFile { path: place, len: Some(len), writable: changeable };
    file.map().map_err(|e| format!("the node's memory is not to be had: {e}"))
}

/// The memory of a process is found by its descriptors, which only Linux shows.
#[cfg(not(target_os = "linux"))]
fn map(_source: &Source, _region: u64, _len: u64, _changeable: bool) -> Result<WritableTier, String> {
    Err("memory is shared with a node of the same machine on Linux only".into())
}

impl Tier for RemoteTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        match &self.way {
            Way::Mapped(mapped) => mapped.open(depth),
            Way::Rdma(fabric) => Ok(Box::new(RdmaQueue::new(self.place(fabric), depth, self.doorbell()))),
            Way::Tcp => Ok(Box::new(RemoteQueue::new(self.source.clone(), self.region, depth))),
        }
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        self.changeable.then_some(self)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl WriteTier for RemoteTier {
    fn open_write(&self, depth: u32) -> Result<Box<dyn WriteQueue>, TierError> {
        match &self.way {
            Way::Mapped(mapped) => mapped.open_write(depth),
            Way::Rdma(fabric) => {
                Ok(Box::new(RdmaQueue::for_writing(self.place(fabric), depth, self.doorbell())?))
            }
            Way::Tcp => Ok(Box::new(RemoteQueue::for_writing(self.source.clone(), self.region, depth)?)),
        }
    }

    fn holder(&self) -> u64 {
        self.source.session().number()
    }

    fn holders(&self) -> Result<Option<Vec<u64>>, TierError> {
        let writers = self.source.session().writers();
        let lost = |failed: Failed| match failed {
            Failed::Refused(_, reason) => std::io::Error::other(reason),
            Failed::Lost(e) => e,
        };
        writers
            .map(Some)
            .map_err(|failed| TierError::io("ask who changes", "the memory of a node", lost(failed)))
    }
}
