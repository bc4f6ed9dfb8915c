//! NUMA nodes: over which of them the threads of a search are spread, and where what an index keeps in memory lies.

use super::OpenOptions;
use crate::error::IndexError;
use crate::family::MemorySplit;
use bathyal_tier::numa::Nodes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What is done on a machine of several NUMA nodes. On one node there is nothing to do, whatever is chosen.
///
/// Search threads that work for an index of any choice but [`Numa::Off`] keep to a node from then on, and what a thread
/// allocates for itself, read buffers and the memory of its queries, lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numa {
    /// Nothing: threads and memory are left to the system.
    Off,
    /// What the index keeps in memory is dealt out to all nodes page by page, so that no node's memory is asked by all.
    Interleave,
    /// A copy of what the index keeps in memory on each node, for the threads there. All copies count towards the memory
    /// budget.
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
            .ok_or_else(|| format!("unknown use of NUMA nodes '{text}': it is one of off, interleave, copy"))
    }
}

impl fmt::Display for Numa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Numa::NAMES.iter().find(|(_, numa)| numa == self).map_or("", |(name, _)| name);
        write!(formatter, "{name}")
    }
}

/// What is done about the nodes for one index.
pub(super) struct Placement {
    /// Several, over which its threads are spread.
    pub(super) nodes: Option<Arc<Nodes>>,
    copied: bool,
    /// Whether the caller asked for it by name: then what cannot be done is an error.
    insisted: bool,
}

impl Placement {
    /// What `options` ask for on this machine.
    pub(super) fn of(options: &OpenOptions) -> Result<Placement, IndexError> {
        let none = Placement { nodes: None, copied: false, insisted: false };
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
        Ok(Placement { nodes: Some(nodes), copied, insisted: options.numa.is_some() })
    }

    /// Copies of what is kept in memory, the first included.
    fn copies(&self) -> usize {
        self.nodes.as_ref().filter(|_| self.copied).map_or(1, |nodes| nodes.count())
    }

    /// Divides `budget` by `plan`, with what further copies take: as much is planned for one copy as leaves room for the others.
    /// `keeps`: what a cache of pages would get is the family's, and a part of each copy.
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
                advice: "allow at least that much, or have the index interleaved".into(),
            });
        }
        // What is planned grows with what there is: halved until the most that fits is known.
        let (mut fits, mut beyond) = (least, given.saturating_add(1));
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if all(middle)? <= given { fits = middle } else { beyond = middle }
        }
        let split = plan(Some(fits))?;
        Ok(MemorySplit { budget, copies: copies(&split), ..split })
    }

    /// Loads what is kept in memory by `load`, which is told the number of the copy: each copy on its node, a single one
    /// dealt out to all.
    pub(super) fn load<T>(
        &self,
        mut load: impl FnMut(usize) -> Result<T, IndexError>,
    ) -> Result<Vec<T>, IndexError> {
        let Some(nodes) = &self.nodes else { return Ok(vec![load(0)?]) };
        if self.copied {
            return (0..nodes.count()).map(|at| nodes.on_node(at, || load(at))?).collect();
        }
        match nodes.interleaving(self.insisted, || load(0)) {
            Ok(loaded) => Ok(vec![loaded?]),
            Err(error) if self.insisted => Err(error.into()),
            // Most containers do not let a process say where its memory is to lie.
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
    fn choices_are_read_and_written_alike() {
        for text in ["off", "interleave", "copy"] {
            assert_eq!(text.parse::<Numa>().unwrap().to_string(), text);
        }
        assert!("both".parse::<Numa>().unwrap_err().contains("off, interleave, copy"));
    }

    /// A plan that keeps half of what it is given, and no less than 10 bytes.
    fn half(budget: Option<u64>) -> Result<MemorySplit, IndexError> {
        let given = budget.unwrap_or(1000);
        if given < 20 {
            let advice = String::new();
            return Err(IndexError::Memory { what: "a test", needed: 20, given, advice });
        }
        Ok(MemorySplit { budget, codes: given / 2, cache: given / 10, ..MemorySplit::default() })
    }

    #[test]
    fn copies_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let nodes = two(root.path());
        let copied = Placement::of(&options(Some(Numa::Copy), Some(nodes.clone()))).unwrap();
        let split = copied.plan(Some(1000), false, half).unwrap();
        // Two thirds for one copy with what is not copied, of which a half is codes, and a third for the other.
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
