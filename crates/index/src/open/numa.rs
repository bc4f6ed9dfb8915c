//! NUMA nodes: the placement of search threads, and of the part of an index that is in memory.

use super::OpenOptions;
use crate::error::IndexError;
use crate::family::MemorySplit;
use bathyal_tier::numa::Nodes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The use of NUMA nodes on a machine with several. On one node, all choices are the same.
///
/// A search thread that works for an index with any choice but [`Numa::Off`] stays bound to a node. The
/// memory that it allocates, read buffers and the memory of its queries, is on that node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numa {
    /// The system places threads and memory.
    Off,
    /// The memory of the index is distributed over all nodes page by page, so that the threads do not all
    /// access the memory of one node.
    Interleave,
    /// Each node has a copy of the memory of the index, for the threads on it. All copies count towards the
    /// memory budget.
    Copy,
}

impl Numa {
    const NAMES: [(&'static str, Numa); 3] =
        [("off", Numa::Off), ("interleave", Numa::Interleave), ("copy", Numa::Copy)];
}

impl FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Numa, String> {
        let known = Numa::NAMES.iter().find(|(name, _)| *name == text);
        known
            .map(|(_, numa)| *numa)
            .ok_or_else(|| format!("unknown use of NUMA nodes '{text}': choose one of off, interleave, copy"))
    }
}

impl fmt::Display for Numa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Numa::NAMES.iter().find(|(_, numa)| numa == self).map_or("", |(name, _)| name);
        write!(formatter, "{name}")
    }
}

/// The use of NUMA nodes for one index.
pub(super) struct Placement {
    /// The nodes over which its threads are spread; `None` unless there are several.
    pub(super) nodes: Option<Arc<Nodes>>,
    copied: bool,
    /// True if the caller chose explicitly: then a placement that is not possible is an error.
    explicit: bool,
}

impl Placement {
    /// Leaves threads and memory to the system.
    pub(super) fn none() -> Placement {
        Placement { nodes: None, copied: false, explicit: false }
    }

    /// Returns the placement that `options` choose on this machine.
    pub(super) fn of(options: &OpenOptions) -> Result<Placement, IndexError> {
        let none = Placement::none();
        if options.numa == Some(Numa::Off) {
            return Ok(none);
        }
        let nodes = options.nodes.clone().map_or_else(Nodes::of_this_process, Ok);
        let nodes = match (nodes, options.numa) {
            (Ok(nodes), _) => nodes,
            (Err(_), None) => return Ok(none),
            (Err(error), Some(_)) => return Err(error.into()),
        };
        if nodes.count() < 2 {
            return Ok(none);
        }
        let copied = options.numa == Some(Numa::Copy);
        Ok(Placement { nodes: Some(nodes), copied, explicit: options.numa.is_some() })
    }

    /// Returns the number of copies of the memory of the index, including the first.
    fn copies(&self) -> usize {
        self.nodes.as_ref().filter(|_| self.copied).map_or(1, |nodes| nodes.count())
    }

    /// Divides `budget` by `plan`, and counts the further copies: the plan of one copy leaves space for the
    /// others. `keeps`: the family caches its own reads within the page cache's budget, in each copy.
    pub(super) fn plan(
        &self,
        budget: Option<u64>,
        keeps: bool,
        plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
    ) -> Result<MemorySplit, IndexError> {
        let more = self.copies() as u64 - 1;
        let shared = |split: &MemorySplit| if keeps { 0 } else { split.cache };
        let copies = |split: &MemorySplit| more.saturating_mul(split.fixed() - shared(split));
        let Some(given) = budget.filter(|_| more > 0) else {
            let split = plan(budget)?;
            return Ok(MemorySplit { copies: copies(&split), ..split });
        };
        let least = match plan(Some(0)) {
            Err(IndexError::Memory { needed, .. }) => needed,
            planned => planned.map(|_| 0)?,
        };
        let all = |part: u64| Ok::<_, IndexError>(part.saturating_add(copies(&plan(Some(part))?)));
        let needed = all(least)?;
        if needed > given {
            return Err(IndexError::Memory {
                what: "a copy of the index on each NUMA node",
                needed,
                given,
                advice: "allow at least that much, or interleave the index over the nodes (interleave)"
                    .into(),
            });
        }
        // A plan grows with its budget, so the largest budget of one copy that fits is found by bisection.
        let (mut fits, mut beyond) = (least, given.saturating_add(1));
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if all(middle)? <= given { fits = middle } else { beyond = middle }
        }
        let split = plan(Some(fits))?;
        Ok(MemorySplit { budget, copies: copies(&split), ..split })
    }

    /// Loads the memory of the index by `load`, which gets the number of the copy: each copy on its node, or
    /// a single one distributed over all nodes.
    pub(super) fn load<T>(
        &self,
        mut load: impl FnMut(usize) -> Result<T, IndexError>,
    ) -> Result<Vec<T>, IndexError> {
        let Some(nodes) = &self.nodes else { return Ok(vec![load(0)?]) };
        if self.copied {
            return (0..nodes.count()).map(|at| nodes.on_node(at, || load(at))?).collect();
        }
        match nodes.interleaving(self.explicit, || load(0)) {
            Ok(loaded) => Ok(vec![loaded?]),
            Err(error) if self.explicit => Err(error.into()),
            // Most containers do not let a process choose the placement of its memory.
            Err(_) => Ok(vec![load(0)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Two nodes of one processor each.
    fn two(root: &Path) -> Arc<Nodes> {
        std::fs::write(root.join("online"), "0-1").unwrap();
        for node in 0..2 {
            std::fs::create_dir(root.join(format!("node{node}"))).unwrap();
            std::fs::write(root.join(format!("node{node}/cpulist")), node.to_string()).unwrap();
        }
        Arc::new(Nodes::read(root, &[0, 1]).unwrap())
    }

    fn options(numa: Option<Numa>, nodes: Option<Arc<Nodes>>) -> OpenOptions {
        OpenOptions { numa, nodes, ..OpenOptions::default() }
    }

    #[test]
    fn choices_are_parsed_from_their_own_text() {
        for text in ["off", "interleave", "copy"] {
            assert_eq!(text.parse::<Numa>().unwrap().to_string(), text);
        }
        assert!("both".parse::<Numa>().unwrap_err().contains("off, interleave, copy"));
    }

    /// Plans codes of half the budget, which must be at least 20 bytes.
    fn half(budget: Option<u64>) -> Result<MemorySplit, IndexError> {
        let given = budget.unwrap_or(1000);
        if given < 20 {
            let advice = String::new();
            return Err(IndexError::Memory { what: "a test", needed: 20, given, advice });
        }
        Ok(MemorySplit { budget, codes: given / 2, cache: given / 10, ..MemorySplit::default() })
    }

    #[test]
    fn copies_count_towards_the_budget() {
        let root = tempfile::tempdir().unwrap();
        let nodes = two(root.path());
        let copied = Placement::of(&options(Some(Numa::Copy), Some(nodes.clone()))).unwrap();
        let split = copied.plan(Some(1000), false, half).unwrap();
        // One copy, with the cache that is not copied, gets two thirds, and half of that is codes. The other
        // gets a third.
        assert_eq!((split.codes, split.copies, split.cache, split.budget), (333, 333, 66, Some(1000)));
        assert!(split.fixed() <= 1000);
        assert_eq!(copied.plan(None, false, half).unwrap().copies, 500);
        assert!(matches!(
            copied.plan(Some(29), false, half),
            Err(IndexError::Memory { needed: 30, given: 29, .. })
        ));
        for other in [Some(Numa::Off), Some(Numa::Interleave), None] {
            let placement = Placement::of(&options(other, Some(nodes.clone()))).unwrap();
            assert_eq!(placement.plan(Some(1000), false, half).unwrap(), half(Some(1000)).unwrap());
            assert_eq!(placement.nodes.is_none(), other == Some(Numa::Off));
        }
    }
}
