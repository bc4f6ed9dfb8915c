//! NUMA nodes with processors that a process may use: binding of threads to a node, and interleaving of
//! memory over all.
//!
//! This module makes raw system calls, so that it works in a static binary without libnuma. It leaves out
//! nodes without processors: these are CXL memory, which a user names as
//! [`MappedPlace::Node`](crate::backend::mapped::MappedPlace).

use crate::error::TierError;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Folder in which the system describes its nodes.
pub(crate) const NODES: &str = "/sys/devices/system/node";
/// Limit of node and processor numbers; Linux supports none as large.
const MOST: u32 = 1 << 16;

/// Parses a list such as "0-2,5". Skips parts that are not numbers below `most`.
pub(crate) fn parse_list(text: &str, most: u32) -> Vec<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < most).then_some(first..=last)
    };
    text.trim().split(',').filter_map(part).flatten().collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NumaNode {
    number: u32,
    /// Processors of the node that this process may use, at least one.
    processors: Vec<u32>,
}

/// The nodes with processors that a process may use; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    nodes: Vec<NumaNode>,
    /// Index in `nodes` of the node of each thread, repeated after as many threads as there are processors.
    thread_nodes: Vec<usize>,
}

impl Nodes {
    /// Reads the nodes from the folder `root`, which has the kernel's structure (`online`, `node0/cpulist`
    /// and so on). Leaves out nodes without a processor among `allowed`.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the folder cannot be read, or no allowed processor is on a node.
    pub fn read(root: &Path, allowed: &[u32]) -> Result<Nodes, TierError> {
        let list = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(|source| {
                TierError::Parameter(format!(
                    "this system does not say which NUMA nodes it has: cannot read {}: {source}",
                    path.display()
                ))
            })?;
            Ok::<_, TierError>(parse_list(&text, MOST))
        };
        let mut nodes = Vec::new();
        for number in list(&root.join("online"))? {
            let mut processors = list(&root.join(format!("node{number}/cpulist")))?;
            processors.retain(|processor| allowed.contains(processor));
            if !processors.is_empty() {
                nodes.push(NumaNode { number, processors });
            }
        }
        if nodes.is_empty() {
            return Err(TierError::Parameter(format!(
                "none of the NUMA nodes below {} has a processor that this process may use",
                root.display()
            )));
        }
        let thread_nodes = thread_nodes(&nodes);
        Ok(Nodes { nodes, thread_nodes })
    }

    /// Returns the nodes of this process, which are read once.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if the system does not report them.
    pub fn of_this_process() -> Result<Arc<Nodes>, TierError> {
        static NODES_READ: OnceLock<Result<Arc<Nodes>, String>> = OnceLock::new();
        let read = || {
            let nodes = allowed_processors().and_then(|allowed| Nodes::read(Path::new(NODES), &allowed));
            nodes.map(Arc::new).map_err(|error| error.to_string())
        };
        NODES_READ.get_or_init(read).clone().map_err(TierError::Parameter)
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the system's numbers of the nodes.
    pub fn numbers(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.number).collect()
    }

    /// Returns the index of the node for thread number `thread` of a process. Threads are distributed in
    /// turn, in proportion to the processors of each node.
    pub fn of_thread(&self, thread: usize) -> usize {
        self.thread_nodes[thread % self.thread_nodes.len()]
    }

    /// Returns the index of the node on which the calling thread runs at this moment; 0 if it is none of
    /// these.
    pub fn here(&self) -> usize {
        let Some(processor) = this_processor() else { return 0 };
        self.nodes.iter().position(|node| node.processors.contains(&processor)).unwrap_or(0)
    }

    fn node(&self, at: usize) -> Result<&NumaNode, TierError> {
        let missing = || {
            let what = format!("there is no NUMA node with index {at}: the nodes are {:?}", self.numbers());
            TierError::Parameter(what)
        };
        self.nodes.get(at).ok_or_else(missing)
    }

    /// Binds the calling thread, and threads that it starts from now on, to the processors of the node with
    /// index `at`. Pages that they are the first to write to are allocated on that node, as far as it has
    /// room.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if there is no such node; [`TierError::System`] if the system refuses.
    pub fn bind_thread(&self, at: usize) -> Result<(), TierError> {
        let node = self.node(at)?;
        set_affinity(&node.processors).map_err(|source| refused("bind a thread to a NUMA node", source))
    }

    /// Does `work` on the processors of the node with index `at`, so that pages first written by it are
    /// allocated on that node. Afterwards the calling thread may run on the same processors as before.
    ///
    /// # Errors
    /// As [`Nodes::bind_thread`].
    pub fn on_node<T>(&self, at: usize, work: impl FnOnce() -> T) -> Result<T, TierError> {
        struct RestoreAffinity(Vec<u32>);
        impl Drop for RestoreAffinity {
            fn drop(&mut self) {
                // Fails only if the processors were taken away meanwhile; there is nothing to do then.
                let _ = set_affinity(&self.0);
            }
        }
        let restore = RestoreAffinity(allowed_processors()?);
        self.bind_thread(at)?;
        let result = work();
        drop(restore);
        Ok(result)
    }

    /// Does `work` while new pages of the calling thread, and of threads that it starts meanwhile, are
    /// allocated on these nodes in turn. If the thread has a policy already (`numactl`), that policy stays,
    /// unless `anyway` is true.
    ///
    /// # Errors
    /// [`TierError::System`] if the system refuses, as containers do without CAP_SYS_NICE; `work` is not done
    /// then.
    pub fn interleaving<T>(&self, anyway: bool, work: impl FnOnce() -> T) -> Result<T, TierError> {
        let before = policy::now().map_err(|source| refused("read the memory policy", source))?;
        if !before.is_default() && !anyway {
            return Ok(work());
        }
        policy::interleave(&self.numbers())
            .map_err(|source| refused("interleave memory over NUMA nodes", source))?;
        let _restore = policy::RestorePolicy(before);
        Ok(work())
    }
}

fn refused(operation: &'static str, source: std::io::Error) -> TierError {
    TierError::System { operation, source }
}

/// Returns the node index of each thread: every thread goes to the node with the fewest threads per
/// processor.
fn thread_nodes(nodes: &[NumaNode]) -> Vec<usize> {
    let processors = nodes.iter().map(|node| node.processors.len()).sum();
    let mut threads = vec![0_usize; nodes.len()];
    let mut thread_nodes = Vec::with_capacity(processors);
    for _ in 0..processors {
        // The smallest quotient, compared by cross products; the first of equals.
        let fewer = |a: &usize, b: &usize| {
            let load = |x: usize, y: usize| (threads[x] + 1) * nodes[y].processors.len();
            load(*a, *b).cmp(&load(*b, *a)).then(a.cmp(b))
        };
        let Some(next) = (0..nodes.len()).min_by(fewer) else { break };
        threads[next] += 1;
        thread_nodes.push(next);
    }
    thread_nodes
}

#[cfg(target_os = "linux")]
pub use system::allowed_processors;
#[cfg(target_os = "linux")]
use system::{policy, set_affinity, this_processor};

#[cfg(target_os = "linux")]
mod system {
    use super::{TierError, refused};
    use std::io;

    /// Returns the processors that this thread may use.
    ///
    /// # Errors
    /// [`TierError::System`] if the system refuses.
    pub fn allowed_processors() -> Result<Vec<u32>, TierError> {
        // SAFETY: zeros are a valid set.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the set has the given size.
        let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
        if failed != 0 {
            return Err(refused("read the processors of this thread", io::Error::last_os_error()));
        }
        // SAFETY: the number is below the size of the set.
        let has = |processor: &u32| unsafe { libc::CPU_ISSET(*processor as usize, &set) };
        Ok((0..libc::CPU_SETSIZE as u32).filter(has).collect())
    }

    pub(super) fn set_affinity(processors: &[u32]) -> io::Result<()> {
        // SAFETY: zeros are a valid set.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        for processor in processors.iter().filter(|processor| **processor < libc::CPU_SETSIZE as u32) {
            // SAFETY: the number is below the size of the set.
            unsafe { libc::CPU_SET(*processor as usize, &mut set) };
        }
        // SAFETY: the set has the given size, and is only read.
        let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn this_processor() -> Option<u32> {
        // SAFETY: the call has no arguments and touches no memory.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    pub(super) mod policy {
        use libc::{c_int, c_ulong};
        use std::io;

        /// Nodes in a mask; Linux is built for 1,024 at most.
        const MASK_NODES: usize = 1024;
        const WORD_BITS: usize = c_ulong::BITS as usize;
        const MPOL_DEFAULT: c_int = 0;
        const MPOL_INTERLEAVE: c_int = 3;

        /// A thread's memory policy.
        pub(crate) struct Policy {
            mode: c_int,
            mask: [c_ulong; MASK_NODES / WORD_BITS],
        }

        impl Policy {
            pub(crate) fn is_default(&self) -> bool {
                self.mode == MPOL_DEFAULT
            }

            fn set(&self) -> io::Result<()> {
                // The kernel reads one bit less than the given number; the default policy has no nodes.
                let (mask, bits) = match self.mode {
                    MPOL_DEFAULT => (std::ptr::null(), 0),
                    _ => (self.mask.as_ptr(), MASK_NODES + 1),
                };
                // SAFETY: the mask has all given bits but the last, which the kernel does not read.
                let failed = unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, bits) };
                if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            }
        }

        /// Returns the policy of the calling thread.
        pub(crate) fn now() -> io::Result<Policy> {
            let mut policy = Policy { mode: 0, mask: [0; MASK_NODES / WORD_BITS] };
            let address = std::ptr::null::<u8>();
            // SAFETY: both results have room; the null address asks for the thread's own policy.
            let failed = unsafe {
                let (mode, mask) = (&raw mut policy.mode, policy.mask.as_mut_ptr());
                libc::syscall(libc::SYS_get_mempolicy, mode, mask, MASK_NODES + 1, address, 0)
            };
            if failed == 0 { Ok(policy) } else { Err(io::Error::last_os_error()) }
        }

        /// Allocates the thread's pages on `nodes` in turn from now on.
        pub(crate) fn interleave(nodes: &[u32]) -> io::Result<()> {
            let mut policy = Policy { mode: MPOL_INTERLEAVE, mask: [0; MASK_NODES / WORD_BITS] };
            for node in nodes.iter().map(|node| *node as usize).filter(|node| *node < MASK_NODES) {
                policy.mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
            }
            policy.set()
        }

        /// Restores a policy when it is dropped.
        pub(crate) struct RestorePolicy(pub(crate) Policy);

        impl Drop for RestorePolicy {
            fn drop(&mut self) {
                // The thread had this policy before, so the system accepts it.
                let _ = self.0.set();
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub use elsewhere::allowed_processors;
#[cfg(not(target_os = "linux"))]
use elsewhere::{policy, set_affinity, this_processor};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::TierError;
    use std::io;

    /// Fails: on this system the processors of a thread are unknown.
    ///
    /// # Errors
    /// [`TierError::Parameter`], always.
    pub fn allowed_processors() -> Result<Vec<u32>, TierError> {
        Err(TierError::Parameter("NUMA nodes are supported on Linux only".into()))
    }

    pub(super) fn set_affinity(_processors: &[u32]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn this_processor() -> Option<u32> {
        None
    }

    pub(super) mod policy {
        use std::io;

        pub(crate) struct Policy;

        impl Policy {
            pub(crate) fn is_default(&self) -> bool {
                true
            }
        }

        pub(crate) fn now() -> io::Result<Policy> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn interleave(_nodes: &[u32]) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) struct RestorePolicy(pub(crate) Policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with the kernel's structure, for nodes with these lists of processors.
    fn node_folder(nodes: &[(u32, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let online: Vec<String> = nodes.iter().map(|(number, _)| number.to_string()).collect();
        std::fs::write(root.path().join("online"), online.join(",") + "\n").unwrap();
        for (number, processors) in nodes {
            let node = root.path().join(format!("node{number}"));
            std::fs::create_dir(&node).unwrap();
            std::fs::write(node.join("cpulist"), format!("{processors}\n")).unwrap();
        }
        root
    }

    fn all_processors() -> Vec<u32> {
        (0..256).collect()
    }

    #[test]
    fn lists_are_parsed() {
        assert_eq!(parse_list("0\n", 1024), [0]);
        assert_eq!(parse_list("0-2,5", 1024), [0, 1, 2, 5]);
        assert_eq!(parse_list("", 1024), [0; 0]);
        assert_eq!(parse_list("a-b,4294967295", 1024), [0; 0]);
    }

    #[test]
    fn threads_are_distributed_in_proportion_to_processors() {
        let root = node_folder(&[(0, "0-3,8-11"), (1, "4-7,12-15")]);
        let nodes = Nodes::read(root.path(), &all_processors()).unwrap();
        assert_eq!((nodes.count(), nodes.numbers()), (2, vec![0, 1]));
        assert_eq!((0..6).map(|thread| nodes.of_thread(thread)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        let root = node_folder(&[(0, "0-5"), (2, "6-7")]);
        let nodes = Nodes::read(root.path(), &all_processors()).unwrap();
        let indices: Vec<usize> = (0..16).map(|thread| nodes.of_thread(thread)).collect();
        assert_eq!(indices.iter().filter(|node| **node == 1).count(), 4, "{indices:?}");
        assert!(indices[..4].contains(&1), "{indices:?}");
    }

    #[test]
    fn nodes_without_allowed_processors_are_left_out() {
        let root = node_folder(&[(0, "0-1"), (1, "2-3"), (2, "")]);
        // Memory without processors, and a node outside the process's set.
        assert_eq!(Nodes::read(root.path(), &all_processors()).unwrap().numbers(), [0, 1]);
        assert_eq!(Nodes::read(root.path(), &[1]).unwrap().numbers(), [0]);
        let error = Nodes::read(root.path(), &[9]).unwrap_err().to_string();
        assert!(error.contains("none of the NUMA nodes"), "{error}");
        let error = Nodes::read(Path::new("/no/such/folder"), &all_processors()).unwrap_err().to_string();
        assert!(error.contains("does not say") && error.contains("/no/such/folder/online"), "{error}");
        // A node that is online but has no folder.
        std::fs::write(root.path().join("online"), "0,7").unwrap();
        let error = Nodes::read(root.path(), &all_processors()).unwrap_err().to_string();
        assert!(error.contains("node7"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_bound_thread_stays_on_its_node() {
        let Ok(nodes) = Nodes::of_this_process() else { return };
        let work = move || {
            let before = allowed_processors().unwrap();
            let one = Nodes::read(node_folder(&[(0, &before[0].to_string())]).path(), &before).unwrap();
            let on_node = one.on_node(0, || (allowed_processors().unwrap(), this_processor())).unwrap();
            assert_eq!(on_node, (vec![before[0]], Some(before[0])));
            assert_eq!(allowed_processors().unwrap(), before);
            nodes.bind_thread(nodes.here()).unwrap();
            assert_eq!(allowed_processors().unwrap(), nodes.nodes[nodes.here()].processors);
            let error = nodes.bind_thread(99).unwrap_err().to_string();
            assert!(error.contains("no NUMA node with index 99"), "{error}");
            // Processors that do not exist.
            let none = Nodes::read(node_folder(&[(0, "255")]).path(), &all_processors()).unwrap();
            assert!(before.contains(&255) || none.bind_thread(0).is_err());
        };
        std::thread::spawn(work).join().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_interleaved_and_the_policy_is_restored() {
        let Ok(nodes) = Nodes::of_this_process() else { return };
        let work = move || {
            // A container may refuse.
            let Ok(before) = policy::now() else { return };
            let within = nodes.interleaving(true, || {
                let nested = nodes.interleaving(false, || policy::now().unwrap().is_default()).unwrap();
                (policy::now().unwrap().is_default(), nested)
            });
            assert_eq!(within.ok(), Some((false, false)));
            assert_eq!(policy::now().unwrap().is_default(), before.is_default());
            let far = Nodes::read(node_folder(&[(1000, "0")]).path(), &[0]).unwrap();
            let error = far.interleaving(true, || ()).unwrap_err().to_string();
            assert!(error.contains("interleave memory over NUMA nodes"), "{error}");
        };
        std::thread::spawn(work).join().unwrap();
    }
}
