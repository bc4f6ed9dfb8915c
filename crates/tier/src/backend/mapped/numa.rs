//! NUMA nodes: their description, binding of memory to a node, and verification of the binding.
//!
//! This module makes raw system calls, so that it works in a static binary without libnuma.

use crate::error::TierError;
use crate::numa::{NODES, parse_list};
use std::path::Path;

/// Nodes in a mask of the system calls; Linux is built for 1,024 at most.
const MASK_NODES: usize = 1024;

/// A node as the system describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeDescription {
    pub(super) number: u32,
    /// List of its processors, such as "0-3"; empty for memory without processors.
    pub(super) processors: String,
    /// Free memory in bytes; `None` if the system does not report it.
    pub(super) free_bytes: Option<u64>,
}

impl NodeDescription {
    /// Returns a description of the node and its processors.
    pub(super) fn describe(&self) -> String {
        match self.processors.as_str() {
            "" => format!("{} (no processors)", self.number),
            processors => format!("{} (processors {processors})", self.number),
        }
    }

    /// Returns the number of free huge pages of 2 MiB.
    #[cfg(target_os = "linux")]
    pub(super) fn free_huge_pages(&self) -> u64 {
        let folder = Path::new(NODES).join(format!("node{}", self.number));
        read_number(&folder.join("hugepages/hugepages-2048kB/free_hugepages")).unwrap_or(0)
    }
}

/// Reads the number in a file of one line.
#[cfg(unix)]
pub(super) fn read_number(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn describe_node(number: u32) -> NodeDescription {
    let folder = Path::new(NODES).join(format!("node{number}"));
    let processors = std::fs::read_to_string(folder.join("cpulist")).unwrap_or_default().trim().to_owned();
    let memory = std::fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
    let free = memory.lines().find_map(|line| line.split_once("MemFree:"));
    let free = free.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    NodeDescription { number, processors, free_bytes: free.map(|kilobytes| kilobytes * 1024) }
}

/// Returns all nodes of the system.
fn nodes() -> Vec<NodeDescription> {
    let online = std::fs::read_to_string(Path::new(NODES).join("online")).unwrap_or_default();
    parse_list(&online, MASK_NODES as u32).into_iter().map(describe_node).collect()
}

/// Returns node `number`, if it exists and has `len` bytes free.
pub(super) fn find(number: u32, len: u64) -> Result<NodeDescription, TierError> {
    let nodes = nodes();
    let Some(node) = nodes.iter().find(|node| node.number == number) else {
        let existing: Vec<String> = nodes.iter().map(NodeDescription::describe).collect();
        let existing = if existing.is_empty() { "none".to_owned() } else { existing.join(", ") };
        return Err(TierError::Parameter(format!(
            "there is no NUMA node {number}; this system has: {existing}. CXL memory becomes a node when it \
             is onlined as system memory (`daxctl reconfigure-device --mode=system-ram daxX.Y`)"
        )));
    };
    // Without this check, the system kills a bound process that needs more memory than the node has.
    if let Some(free) = node.free_bytes.filter(|free| *free < len) {
        return Err(TierError::Parameter(format!(
            "NUMA node {} has {free} bytes free, but {len} are needed; free some memory or use another place",
            node.describe()
        )));
    }
    Ok(node.clone())
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) use elsewhere::bind;
#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::confirm;
#[cfg(target_os = "linux")]
pub(super) use system::{bind, confirm};

#[cfg(target_os = "linux")]
mod system {
    use super::{MASK_NODES, NodeDescription, TierError};
    use libc::{c_int, c_ulong, c_void};
    use std::io;

    /// Number of pages whose node is checked after loading.
    const SAMPLED_PAGES: usize = 1024;

    const MPOL_BIND: c_int = 2;
    const MPOL_F_ADDR: c_ulong = 2;
    /// Modes carry flags in their upper bits.
    const MODE_BITS: c_int = 0xFF;
    const WORD_BITS: usize = c_ulong::BITS as usize;

    type Mask = [c_ulong; MASK_NODES / WORD_BITS];

    /// Binds `len` bytes from `start` on, which were not touched so far, to `node`.
    pub(in super::super) fn bind(
        start: *mut u8,
        len: usize,
        node: &NodeDescription,
    ) -> Result<(), TierError> {
        let mut mask: Mask = [0; MASK_NODES / WORD_BITS];
        let number = node.number as usize;
        mask[number / WORD_BITS] |= 1 << (number % WORD_BITS);
        // The kernel reads one bit less than the given number.
        let bits = MASK_NODES + 1;
        // SAFETY: the range is a mapping of ours, and the mask has all given bits but the last, which the
        // kernel does not read.
        let failed = unsafe { libc::syscall(libc::SYS_mbind, start, len, MPOL_BIND, mask.as_ptr(), bits, 0) };
        if failed == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINVAL) => Err(TierError::Parameter(format!(
                "NUMA node {} has no memory, or this process may not use it (see cpuset and numactl)",
                node.describe()
            ))),
            Some(libc::EPERM | libc::ENOSYS) => Err(TierError::Parameter(format!(
                "this process may not bind memory to a NUMA node ({source}); a container needs CAP_SYS_NICE"
            ))),
            _ => Err(TierError::System { operation: "bind memory to a NUMA node", source }),
        }
    }

    /// Checks that the pages of `len` bytes from `start` on, which have been written, are on `node`, by their
    /// policy and the nodes of a sample. Returns false if the system does not report them.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the pages have another policy, or a page of the sample is on another node.
    pub(in super::super) fn confirm(
        start: *mut u8,
        len: usize,
        node: &NodeDescription,
    ) -> Result<bool, TierError> {
        let mut mask: Mask = [0; MASK_NODES / WORD_BITS];
        let mut mode: c_int = 0;
        let bits = MASK_NODES + 1;
        // SAFETY: both results have room, and the address is in our mapping.
        let failed = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &mut mode, mask.as_mut_ptr(), bits, start, MPOL_F_ADDR)
        };
        if failed != 0 {
            return Ok(false);
        }
        let number = node.number as usize;
        if mode & MODE_BITS != MPOL_BIND || mask[number / WORD_BITS] >> (number % WORD_BITS) & 1 == 0 {
            return Err(not_on_node(node, "its pages have another memory policy".into()));
        }
        let step = (len / SAMPLED_PAGES).max(4096);
        let pages: Vec<*mut c_void> =
            (0..len).step_by(step).map(|at| start.wrapping_add(at).cast()).collect();
        let mut page_nodes: Vec<c_int> = vec![0; pages.len()];
        // SAFETY: without target nodes, the call only returns the nodes of pages of our mapping; the result
        // has room.
        let failed = unsafe {
            let no_targets = std::ptr::null::<c_int>();
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                no_targets,
                page_nodes.as_mut_ptr(),
                0,
            )
        };
        if failed != 0 {
            return Ok(false);
        }
        // A negative number is an error for a single page, such as a shared zero page, and is ignored.
        match page_nodes.iter().find(|page_node| **page_node >= 0 && **page_node != number as c_int) {
            Some(other) => Err(not_on_node(node, format!("a page is on node {other}"))),
            None => Ok(page_nodes.contains(&(number as c_int))),
        }
    }

    fn not_on_node(node: &NodeDescription, why: String) -> TierError {
        TierError::Parameter(format!("memory bound to NUMA node {} is not there: {why}", node.describe()))
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{NodeDescription, TierError};

    #[cfg(unix)]
    pub(in super::super) fn bind(
        _start: *mut u8,
        _len: usize,
        node: &NodeDescription,
    ) -> Result<(), TierError> {
        Err(TierError::Parameter(format!("binding memory to NUMA node {} needs Linux", node.number)))
    }

    pub(in super::super) fn confirm(
        _start: *mut u8,
        _len: usize,
        _node: &NodeDescription,
    ) -> Result<bool, TierError> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_node_lists_the_existing_ones() {
        let error = find(987, 1).unwrap_err().to_string();
        assert!(error.contains("no NUMA node 987"), "{error}");
        if let Some(node) = nodes().first() {
            assert!(error.contains(&node.describe()), "{error}");
            assert!(find(node.number, u64::MAX).is_err() || node.free_bytes.is_none());
        }
    }
}
