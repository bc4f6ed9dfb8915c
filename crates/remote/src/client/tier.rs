//! A region of a node's memory as a tier.

use super::fabric::Fabric;
use super::options::Transport;
use super::rdma_queue::{RdmaQueue, RdmaRegion};
use super::session::RequestError;
use super::source::RegionSource;
use super::tcp_queue::TcpQueue;
use bathyal_store::StoreError;
use bathyal_tier::backend::writable::WritableTier;
use bathyal_tier::contract::WriteQueue;
use bathyal_tier::{Queue, Tier, TierError, TierProfile, WriteTier};
use std::sync::Arc;

/// Kind of the backend in profiles.
const KIND: &str = "remote";

/// A region of a node. It can be written if its session may write.
#[derive(Debug)]
pub(crate) struct RemoteTier {
    source: Arc<RegionSource>,
    region: u64,
    len: u64,
    changeable: bool,
    profile: TierProfile,
    route: Route,
}

/// Route of its bytes to this machine.
#[derive(Debug)]
enum Route {
    Tcp,
    Mapped(WritableTier),
    Rdma(Arc<Fabric>),
}

impl Route {
    /// Chooses the route to a region by the transport option, or returns why it is not available.
    fn find(source: &RegionSource, region: u64, len: u64, changeable: bool) -> Result<Route, String> {
        let shared = || map(source, region, len, changeable).map(Route::Mapped);
        let rdma = || source.fabric(region, len).map(Route::Rdma);
        match source.session().transport() {
            Transport::Tcp => Ok(Route::Tcp),
            Transport::Auto => Ok(shared().or_else(|_| rdma()).unwrap_or(Route::Tcp)),
            Transport::Shared => shared().map_err(|why| {
                format!(
                    "{why}; shared memory requires a node on this machine that this user runs: leave out the \
                     store option transport, or set it to tcp"
                )
            }),
            Transport::Verbs => rdma().map_err(|why| {
                format!(
                    "{why}; transport=verbs requires an RDMA device on both machines: leave out the store \
                     option transport, or set it to tcp"
                )
            }),
        }
    }

    /// Returns the description for profiles.
    fn method(&self) -> String {
        match self {
            Route::Tcp => "TCP".into(),
            Route::Mapped(_) => "shared memory of this machine".into(),
            Route::Rdma(fabric) => format!("RDMA by {}", fabric.domain().device().describe()),
        }
    }
}

impl RemoteTier {
    /// Creates a tier over the region of `len` bytes that holds the object at `path`.
    pub(crate) fn new(
        source: Arc<RegionSource>,
        region: u64,
        len: u64,
        changeable: bool,
        path: &std::path::Path,
    ) -> Result<RemoteTier, StoreError> {
        let failed = |reason| StoreError::Remote { operation: "reach", path: path.into(), reason };
        let route = Route::find(&source, region, len, changeable).map_err(failed)?;
        let profile = match &route {
            Route::Mapped(mapped) => {
                TierProfile { kind: KIND.into(), method: route.method(), ..mapped.profile().clone() }
            }
            Route::Tcp | Route::Rdma(_) => TierProfile {
                kind: KIND.into(),
                method: route.method(),
                // A cache line, because the size of a packet does not depend on a few bytes.
                granularity: 64,
                alignment: 1,
                addressable: false,
                latency_ns: 0,
                iops: 0.0,
                bandwidth_bytes_per_s: 0.0,
                depth: 128,
                issue_ns: 0,
                rates: Vec::new(),
            },
        };
        Ok(RemoteTier { source, region, len, changeable, profile, route })
    }

    /// Returns a tier over the same region with a session of its own that may write.
    ///
    /// # Errors
    /// [`StoreError::Replaced`] if the region is not part of the published generation any more.
    pub(crate) fn for_writing(&self, path: &std::path::Path) -> Result<RemoteTier, StoreError> {
        RemoteTier::new(Arc::new(self.source.for_writing(path)?), self.region, self.len, true, path)
    }

    /// Returns the description of the region for RDMA queues.
    fn rdma_region(&self, fabric: &Arc<Fabric>) -> RdmaRegion {
        RdmaRegion { source: self.source.clone(), fabric: fabric.clone(), opened: self.region, len: self.len }
    }

    fn doorbell(&self) -> u32 {
        self.source.session().doorbell()
    }
}

/// Maps a region of a node of this machine.
#[cfg(target_os = "linux")]
fn map(source: &RegionSource, region: u64, len: u64, changeable: bool) -> Result<WritableTier, String> {
    use bathyal_tier::backend::mapped::MappedFile;
    use std::os::unix::fs::MetadataExt;
    let shared = source.session().share(region).map_err(|failed| match failed {
        RequestError::Refused(_, reason) => reason,
        RequestError::Lost(e) => e.to_string(),
    })?;
    let path = std::path::PathBuf::from(format!("/proc/{}/fd/{}", shared.process, shared.descriptor));
    let metadata =
        std::fs::metadata(&path).map_err(|e| format!("the node's memory cannot be mapped: {e}"))?;
    if (metadata.dev(), metadata.ino()) != (shared.device, shared.inode) {
        return Err("the node is not on this machine".into());
    }
    let file = MappedFile { path, len: Some(len), writable: changeable };
    file.map().map_err(|e| format!("the node's memory cannot be mapped: {e}"))
}

/// Fails: only Linux provides the memory of a process by its descriptors.
#[cfg(not(target_os = "linux"))]
fn map(_source: &RegionSource, _region: u64, _len: u64, _changeable: bool) -> Result<WritableTier, String> {
    Err("shared memory with a node is available on Linux only".into())
}

impl Tier for RemoteTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        match &self.route {
            Route::Mapped(mapped) => mapped.open(depth),
            Route::Rdma(fabric) => {
                Ok(Box::new(RdmaQueue::new(self.rdma_region(fabric), depth, self.doorbell())))
            }
            Route::Tcp => Ok(Box::new(TcpQueue::new(self.source.clone(), self.region, depth))),
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
        match &self.route {
            Route::Mapped(mapped) => mapped.open_write(depth),
            Route::Rdma(fabric) => {
                Ok(Box::new(RdmaQueue::for_writing(self.rdma_region(fabric), depth, self.doorbell())?))
            }
            Route::Tcp => Ok(Box::new(TcpQueue::for_writing(self.source.clone(), self.region, depth)?)),
        }
    }

    fn holder(&self) -> u64 {
        self.source.session().number()
    }

    fn holders(&self) -> Result<Option<Vec<u64>>, TierError> {
        let writers = self.source.session().writers();
        let lost = |failed: RequestError| match failed {
            RequestError::Refused(_, reason) => std::io::Error::other(reason),
            RequestError::Lost(e) => e,
        };
        writers
            .map(Some)
            .map_err(|failed| TierError::io("list the writers of", "the memory of a node", lost(failed)))
    }
}
