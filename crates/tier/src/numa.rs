//! NUMA nodes that a process may compute on: threads that keep to one of them, and memory that is spread over all.
//!
//! Raw system calls, so that it works in a static binary without libnuma. Nodes without processors are no part of this: they
//! are memory of another kind (CXL), which is used where it is named ([`Place::Node`](crate::backend::mapped::Place)).

use crate::error::TierError;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Where the system describes its nodes.
pub(crate) const NODES: &str = "/sys/devices/system/node";
/// Numbers of nodes and processors above this are none of a system that Linux knows.
const MOST: u32 = 1 << 16;

/// The numbers of a list such as "0-2,5". What is no number is left out.
pub(crate) fn parse_list(text: &str, most: u32) -> Vec<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < most).then_some(first..=last)
    };
    text.trim().split(',').filter_map(part).flatten().collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    number: u32,
    /// Those that this process may use, at least one.
    processors: Vec<u32>,
}

/// The nodes with processors that a process may use: one at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    nodes: Vec<Node>,
    /// The place in `nodes` of the node that each further thread is for: one turn has as many as there are processors.
    turn: Vec<usize>,
}

impl Nodes {
    /// The nodes that the folder `root` describes as the kernel does (`online`, and `node0/cpulist` and so on), as far as
    /// they have processors that are among `allowed`.
    ///
    /// # Errors
    /// [`TierError::Parameter`] where there is no such folder, or no processor that is allowed is on a node.
    pub fn read(root: &Path, allowed: &[u32]) -> Result<Nodes, TierError> {
        let list = |path: &Path| {
            let text = std::fs::read_to_string(path).map_err(|source| {
                TierError::Parameter(format!(
                    "this system does not say which NUMA nodes it has: {}: {source}",
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
                nodes.push(Node { number, processors });
            }
        }
        if nodes.is_empty() {
            return Err(TierError::Parameter(format!(
                "none of the NUMA nodes below {} has a processor that this process may use",
                root.display()
            )));
        }
        let turn = turn(&nodes);
        Ok(Nodes { nodes, turn })
    }

    /// Those of this process, asked for once; `Err` says why they are not known.
    pub fn of_this_process() -> Result<Arc<Nodes>, TierError> {
        static KNOWN: OnceLock<Result<Arc<Nodes>, String>> = OnceLock::new();
        let ask = || {
            let nodes = allowed_processors().and_then(|allowed| Nodes::read(Path::new(NODES), &allowed));
            nodes.map(Arc::new).map_err(|error| error.to_string())
        };
        KNOWN.get_or_init(ask).clone().map_err(TierError::Parameter)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The system's numbers of them.
    pub fn numbers(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.number).collect()
    }

    /// The node for a process's thread number `thread`, as its place among these: threads are dealt out in turn, to a node
    /// with more processors more often.
    pub fn of_thread(&self, thread: usize) -> usize {
        self.turn[thread % self.turn.len()]
    }

    /// The node on which the calling thread runs at this moment, as its place among these; 0 where it is none of them.
    pub fn here(&self) -> usize {
        let Some(processor) = this_processor() else { return 0 };
        self.nodes.iter().position(|node| node.processors.contains(&processor)).unwrap_or(0)
    }

    fn node(&self, at: usize) -> Result<&Node, TierError> {
        let missing = || {
            let what = format!("there is no node in place {at}: the nodes are {:?}", self.numbers());
            TierError::Parameter(what)
        };
        self.nodes.get(at).ok_or_else(missing)
    }

    /// Has the calling thread, and those that it starts from now on, run on the processors of a node alone. What they are
    /// first to write to lies there, too, as far as there is room.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a place without a node; [`TierError::System`] where the system refuses.
    pub fn bind_thread(&self, at: usize) -> Result<(), TierError> {
        let node = self.node(at)?;
        set_affinity(&node.processors).map_err(|source| refused("keep a thread to a NUMA node", source))
    }

    /// Does `work` on the processors of a node, where what it is first to write to lies then; afterwards the calling thread
    /// runs where it could run before.
    ///
    /// # Errors
    /// As [`Nodes::bind_thread`].
    pub fn on_node<T>(&self, at: usize, work: impl FnOnce() -> T) -> Result<T, TierError> {
        struct Back(Vec<u32>);
        impl Drop for Back {
            fn drop(&mut self) {
                // What it could use a moment ago it can use now, unless it was taken away: nothing is to be done then.
                let _ = set_affinity(&self.0);
            }
        }
        let back = Back(allowed_processors()?);
        self.bind_thread(at)?;
        let done = work();
        drop(back);
        Ok(done)
    }

    /// Does `work` while pages that the calling thread, and those that it starts meanwhile, are first to write to are dealt
    /// out to these nodes in turn. Where the thread has a policy already (`numactl`), that stays, unless `anyway`.
    ///
    /// # Errors
    /// [`TierError::System`] where the system refuses, as containers do without CAP_SYS_NICE; `work` is not done then.
    pub fn interleaving<T>(&self, anyway: bool, work: impl FnOnce() -> T) -> Result<T, TierError> {
        let before = policy::now().map_err(|source| refused("ask for the memory policy", source))?;
        if !before.is_default() && !anyway {
            return Ok(work());
        }
        policy::interleave(&self.numbers())
            .map_err(|source| refused("interleave memory over NUMA nodes", source))?;
        let _back = policy::Back(before);
        Ok(work())
    }
}

fn refused(operation: &'static str, source: std::io::Error) -> TierError {
    TierError::System { operation, source }
}

/// Places of nodes in the order in which threads are dealt out: always to the one with the fewest threads a processor.
fn turn(nodes: &[Node]) -> Vec<usize> {
    let all = nodes.iter().map(|node| node.processors.len()).sum();
    let mut given = vec![0_usize; nodes.len()];
    let mut turn = Vec::with_capacity(all);
    for _ in 0..all {
        // The smallest quotient, compared by cross products; the first of equals.
        let fewer = |a: &usize, b: &usize| {
            let load = |x: usize, y: usize| (given[x] + 1) * nodes[y].processors.len();
            load(*a, *b).cmp(&load(*b, *a)).then(a.cmp(b))
        };
        let Some(next) = (0..nodes.len()).min_by(fewer) else { break };
        given[next] += 1;
        turn.push(next);
    }
    turn
}

#[cfg(target_os = "linux")]
pub use system::allowed_processors;
#[cfg(target_os = "linux")]
use system::{policy, set_affinity, this_processor};

#[cfg(target_os = "linux")]
mod system {
    use super::{TierError, refused};
    use std::io;

    /// Processors that this thread may use.
    ///
    /// # Errors
    /// [`TierError::System`] where the system does not say.
    pub fn allowed_processors() -> Result<Vec<u32>, TierError> {
        // SAFETY: zeros are a valid set.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the set is as large as is said.
        let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
        if failed != 0 {
            return Err(refused("ask which processors may be used", io::Error::last_os_error()));
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
        // SAFETY: the set is as large as is said, and only read.
        let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn this_processor() -> Option<u32> {
        // SAFETY: asks a question.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    pub(super) mod policy {
        use libc::{c_int, c_ulong};
        use std::io;

        /// Nodes that a mask holds here; Linux is built for 1,024 at most.
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
                // The kernel takes one bit less than it is told; the default has no nodes.
                let (mask, bits) = match self.mode {
                    MPOL_DEFAULT => (std::ptr::null(), 0),
                    _ => (self.mask.as_ptr(), MASK_NODES + 1),
                };
                // SAFETY: the mask has the bits that are announced but for the last, which the kernel does not read.
                let failed = unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, mask, bits) };
                if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
            }
        }

        /// That of the calling thread.
        pub(crate) fn now() -> io::Result<Policy> {
            let mut policy = Policy { mode: 0, mask: [0; MASK_NODES / WORD_BITS] };
            let address = std::ptr::null::<u8>();
            // SAFETY: both results have room; no address is asked about.
            let failed = unsafe {
                let (mode, mask) = (&raw mut policy.mode, policy.mask.as_mut_ptr());
                libc::syscall(libc::SYS_get_mempolicy, mode, mask, MASK_NODES + 1, address, 0)
            };
            if failed == 0 { Ok(policy) } else { Err(io::Error::last_os_error()) }
        }

        /// Deals pages out to `nodes` from now on.
        pub(crate) fn interleave(nodes: &[u32]) -> io::Result<()> {
            let mut policy = Policy { mode: MPOL_INTERLEAVE, mask: [0; MASK_NODES / WORD_BITS] };
            for node in nodes.iter().map(|node| *node as usize).filter(|node| *node < MASK_NODES) {
                policy.mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
            }
            policy.set()
        }

        /// Brings a policy back when it is dropped.
        pub(crate) struct Back(pub(crate) Policy);

        impl Drop for Back {
            fn drop(&mut self) {
                // It was this thread's a moment ago.
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

    /// Processors that this thread may use.
    ///
    /// # Errors
    /// [`TierError::Parameter`]: it is not known how to ask this system.
    pub fn allowed_processors() -> Result<Vec<u32>, TierError> {
        Err(TierError::Parameter("NUMA nodes are known on Linux only".into()))
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

        pub(crate) struct Back(pub(crate) Policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder such as the kernel's, of nodes with these lists of processors.
    fn tree(nodes: &[(u32, &str)]) -> tempfile::TempDir {
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

    fn all() -> Vec<u32> {
        (0..256).collect()
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(parse_list("0\n", 1024), [0]);
        assert_eq!(parse_list("0-2,5", 1024), [0, 1, 2, 5]);
        assert_eq!(parse_list("", 1024), [0; 0]);
        assert_eq!(parse_list("a-b,4294967295", 1024), [0; 0]);
    }

    #[test]
    fn threads_are_dealt_out_by_processors() {
        let root = tree(&[(0, "0-3,8-11"), (1, "4-7,12-15")]);
        let nodes = Nodes::read(root.path(), &all()).unwrap();
        assert_eq!((nodes.count(), nodes.numbers()), (2, vec![0, 1]));
        assert_eq!((0..6).map(|thread| nodes.of_thread(thread)).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
        let root = tree(&[(0, "0-5"), (2, "6-7")]);
        let nodes = Nodes::read(root.path(), &all()).unwrap();
        let dealt: Vec<usize> = (0..16).map(|thread| nodes.of_thread(thread)).collect();
        assert_eq!(dealt.iter().filter(|node| **node == 1).count(), 4, "{dealt:?}");
        assert!(dealt[..4].contains(&1), "{dealt:?}");
    }

    #[test]
    fn nodes_that_cannot_be_computed_on_are_left_out() {
        let root = tree(&[(0, "0-1"), (1, "2-3"), (2, "")]);
        // Memory without processors, and a node outside the process's set.
        assert_eq!(Nodes::read(root.path(), &all()).unwrap().numbers(), [0, 1]);
        assert_eq!(Nodes::read(root.path(), &[1]).unwrap().numbers(), [0]);
        let error = Nodes::read(root.path(), &[9]).unwrap_err().to_string();
        assert!(error.contains("none of the NUMA nodes"), "{error}");
        let error = Nodes::read(Path::new("/no/such/folder"), &all()).unwrap_err().to_string();
        assert!(error.contains("does not say") && error.contains("/no/such/folder/online"), "{error}");
        // Announced, and not there.
        std::fs::write(root.path().join("online"), "0,7").unwrap();
        let error = Nodes::read(root.path(), &all()).unwrap_err().to_string();
        assert!(error.contains("node7"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_keeps_to_its_node() {
        let Ok(nodes) = Nodes::of_this_process() else { return };
        let work = move || {
            let before = allowed_processors().unwrap();
            let one = Nodes::read(tree(&[(0, &before[0].to_string())]).path(), &before).unwrap();
            let there = one.on_node(0, || (allowed_processors().unwrap(), this_processor())).unwrap();
            assert_eq!(there, (vec![before[0]], Some(before[0])));
            assert_eq!(allowed_processors().unwrap(), before);
            nodes.bind_thread(nodes.here()).unwrap();
            assert_eq!(allowed_processors().unwrap(), nodes.nodes[nodes.here()].processors);
            let error = nodes.bind_thread(99).unwrap_err().to_string();
            assert!(error.contains("no node in place 99"), "{error}");
            // Processors that are not there.
            let none = Nodes::read(tree(&[(0, "255")]).path(), &all()).unwrap();
            assert!(before.contains(&255) || none.bind_thread(0).is_err());
        };
        std::thread::spawn(work).join().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_interleaved_and_the_policy_comes_back() {
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
            let far = Nodes::read(tree(&[(1000, "0")]).path(), &[0]).unwrap();
            let error = far.interleaving(true, || ()).unwrap_err().to_string();
            assert!(error.contains("interleave memory over NUMA nodes"), "{error}");
        };
        std::thread::spawn(work).join().unwrap();
    }
}
