//! The memory of several nodes as one store of generations.
//!
//! A generation `NAME` stands on the first node, with all objects but those that are striped, and with a table of where these
//! are. Part `n` of all of them is a generation `NAME-KEY.partN` on node number `n`; the key is the draft's own, so what is
//! published takes nothing away from what stands.

use super::draft::NodeDraft;
use super::nodes::{ADVICE, NODES_NAME, address_of, table_in};
use super::options::{RemoteOptions, RemoteUrl};
use super::spread_draft::{SpreadDraft, check_object};
use super::spread_object::SpreadObject;
use super::store::{NodeStore, Published, scratch_folder};
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, MOST_PARTS, Striping, Table};
use bathyal_store::{Draft, Generation, Object, Replace, Store, StoreError, check_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Generations in the memory of several nodes.
#[derive(Debug, Clone)]
pub struct SpreadStore {
    address: PathBuf,
    /// Where drafts lie until they are pushed.
    scratch: PathBuf,
    /// What is not striped.
    first: NodeStore,
    /// What is, by part.
    nodes: Vec<NodeStore>,
    striping: Striping,
}

impl SpreadStore {
    /// The store that the generation at `url` is in, or would be in, of generations that are known by their object `mark`;
    /// `options` are those of each node. Nothing is asked of the nodes yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] without a folder for drafts, or without the options of a node.
    pub fn new(
        url: &RemoteUrl,
        options: &[RemoteOptions],
        mark: &'static str,
    ) -> Result<SpreadStore, StoreError> {
        let unknown = || StoreError::Address(format!("{url}: {} nodes are described", options.len()));
        let first_options =
            options.first().filter(|_| options.len() == url.hosts.len()).ok_or_else(unknown)?;
        let scratch = scratch_folder(url, first_options)?;
        let node = |(url, options): (RemoteUrl, &RemoteOptions), mark| {
            NodeStore::drafting_in(scratch.clone(), &url, options.clone(), mark)
        };
        let mut each = url.each().zip(options);
        let first = each.next().map(|one| node(one, mark)).ok_or_else(unknown)??;
        let nodes = url.each().zip(options).map(|one| node(one, NODES_NAME)).collect::<Result<_, _>>()?;
        let addresses = url.each().map(|url| url.node_address().display().to_string()).collect();
        let striping = Striping::over_stores(addresses, DEFAULT_STRIPE_BYTES, &[])?;
        Ok(SpreadStore { address: url.node_address(), scratch, first, nodes, striping })
    }

    /// The same, where the objects `objects` lie in parts in all drafts that are begun from now on, `stripe_bytes` on one node
    /// before the next has its turn. Such objects are appended to and never replaced.
    ///
    /// # Errors
    /// [`StoreError::Striping`] for a unit that makes no sense.
    pub fn striped(self, objects: &[&str], stripe_bytes: u32) -> Result<SpreadStore, StoreError> {
        let addresses = self.striping.folders().map(|node| node.display().to_string()).collect();
        Ok(SpreadStore { striping: Striping::over_stores(addresses, stripe_bytes, objects)?, ..self })
    }

    /// The folder of this machine in which drafts lie until they are pushed.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Where the generation `name` is.
    fn path(&self, name: &str) -> PathBuf {
        self.address.join(name)
    }

    /// Whether an index lies on these nodes, in this order.
    fn is_of(&self, table: &Table) -> bool {
        table.folders().eq(self.striping.folders())
    }

    /// Where the parts of what stands under `name` lie; `None` if nothing does, or if it is whole.
    pub(super) fn standing(&self, name: &str) -> Result<Option<Table>, StoreError> {
        self.first.table_of(name)
    }

    /// Removes parts, as far as they are there.
    pub(super) fn remove_parts(&self, table: &Table) -> Result<(), StoreError> {
        let remove = |(number, node): (usize, &NodeStore)| match node.delete_here(&table.part_name(number)) {
            Err(StoreError::Missing { .. }) => Ok(()),
            other => other,
        };
        self.nodes.iter().enumerate().map(remove).fold(Ok(()), Result::and)
    }

    /// Removes the parts of `name` on these nodes that builds have left which were killed as they gave names to them.
    fn remove_left(&self, name: &str) -> Result<(), StoreError> {
        let standing = self.standing(name)?;
        for (number, node) in self.nodes.iter().enumerate() {
            for found in node.list()? {
                if part_of(&found, number) != Some(name) {
                    continue;
                }
                let table = match node.table_of(&found) {
                    Ok(Some(table)) => table,
                    _ => continue,
                };
                let is_left = table.part_name(number) == found && standing.as_ref() != Some(&table);
                if is_left && self.is_of(&table) {
                    node.delete_here(&found)?;
                }
            }
        }
        Ok(())
    }

    /// Refuses what stands under `name` and cannot be replaced or deleted by these nodes' address.
    fn check_standing(&self, name: &str) -> Result<(), StoreError> {
        match self.standing(name)? {
            Some(table) if !self.is_of(&table) => {
                let reason = format!(
                    "lies over other nodes than are named here; its address is {}",
                    address_of(&table)
                );
                Err(StoreError::Irreplaceable { path: self.path(name), reason })
            }
            _ => Ok(()),
        }
    }

    /// Every node answers, may be written to, and takes the names of parts.
    fn check_nodes(&self, name: &str) -> Result<(), StoreError> {
        let longest = Table::new(name, &self.striping).part_name(MOST_PARTS - 1);
        self.nodes.iter().try_for_each(|node| {
            node.check_here(name, Replace::Generation)?;
            node.check_here(&longest, Replace::Generation)
        })
    }

    /// A draft of what lies in these.
    fn draft(
        &self,
        name: &str,
        replace: Replace,
        table: Table,
        drafts: (NodeDraft, Vec<NodeDraft>),
    ) -> Box<dyn Draft> {
        Box::new(SpreadDraft::new(self.clone(), self.path(name), replace, table, drafts))
    }

    /// What stands under `name` on the first node, which has to be the first of an index over all of these.
    fn opened(&self, name: &str) -> Result<(Published, Table), StoreError> {
        let refuse =
            |reason: String| Err(StoreError::Address(format!("{}: {reason}", self.path(name).display())));
        let found = match self.first.opened(name) {
            Err(StoreError::Missing { what, .. }) => {
                let here = |node: &&NodeStore| node.table_of(name).is_ok_and(|table| table.is_some());
                return match self.nodes.iter().skip(1).find(here) {
                    Some(node) => refuse(format!(
                        "is not on the first of these nodes but on {}; name them in the order of its parts",
                        node.address().display()
                    )),
                    None => Err(StoreError::Missing { what, path: self.path(name) }),
                };
            }
            other => other?,
        };
        match found.table()? {
            None => refuse(format!("lies on one node: {}", self.first.path(name).display())),
            Some(table) if table.layout().parts() != self.nodes.len() => refuse(format!(
                "lies over {} nodes, and {} are named; its address is {}",
                table.layout().parts(),
                self.nodes.len(),
                address_of(&table)
            )),
            Some(table) => Ok((found, table)),
        }
    }

    /// Part number `number` of what was found under `name`.
    fn part(&self, name: &str, table: &Table, number: usize) -> Result<Published, StoreError> {
        let part_name = table.part_name(number);
        match self.nodes[number].opened(&part_name) {
            Err(StoreError::Missing { .. }) => {}
            other => return other,
        }
        if self.standing(name)?.as_ref() != Some(table) {
            return Err(StoreError::Replaced { path: self.path(name) });
        }
        let elsewhere = self.nodes.iter().find(|node| node.opened(&part_name).is_ok());
        let what = match elsewhere {
            Some(node) => format!(
                "is not there but on {}; name the nodes in the order of the parts: {}",
                node.address().display(),
                address_of(table)
            ),
            None => format!(
                "is not there: the node was started anew, or is not the one that is meant; name the nodes as they were ({}), \
                 or {ADVICE}",
                address_of(table)
            ),
        };
        let reason = format!("part {} of {} {what}", number + 1, table.layout().parts());
        Err(StoreError::PartMissing { path: self.nodes[number].path(&part_name), reason })
    }
}

/// The name of the generation that a part is of, if `name` is that of part number `number`.
fn part_of(name: &str, number: usize) -> Option<&str> {
    let (of, key) = name.strip_suffix(&format!(".part{}", number + 1))?.rsplit_once('-')?;
    (key.len() == 16 && key.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(of)
}

impl Store for SpreadStore {
    fn address(&self) -> &Path {
        &self.address
    }

    /// Those that lie over several nodes, of which this is the first.
    fn list(&self) -> Result<Vec<String>, StoreError> {
        let names = self.first.list()?;
        let is_spread = |name: &&String| names.iter().any(|part| part_of(part, 0) == Some(name.as_str()));
        Ok(names.iter().filter(is_spread).cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let (first, table) = self.opened(name)?;
        let parts = (0..self.nodes.len()).map(|number| self.part(name, &table, number));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Arc::new(Spread { path: self.path(name), first, parts, table }))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        if self.striping.objects().len() == 0 {
            let reason = format!(
                "{}: nobody says which files are to lie over these nodes; write to a folder, and copy that there (`bathyal copy`)",
                self.path(name).display()
            );
            return Err(StoreError::Striping { reason });
        }
        self.first.check_here(name, replace)?;
        self.check_nodes(name)?;
        if replace == Replace::Generation { self.check_standing(name) } else { Ok(()) }
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        self.remove_left(name)?;
        let table = Table::new(name, &self.striping);
        let bytes = table.to_bytes()?;
        let first = self.first.begin_here(name, replace)?;
        first.replace(NODES_NAME, &bytes)?;
        let mut parts = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let part = node.begin_here(&table.part_name(number), Replace::Generation)?;
            part.replace(NODES_NAME, &bytes)?;
            parts.push(part);
        }
        Ok(self.draft(name, replace, table, (first, parts)))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        self.remove_left(name)?;
        let standing = self.standing(name)?;
        let mut drafts = Vec::new();
        for first in self.first.abandoned_here(name, replace)? {
            let Ok(table) = table_in(&first, first.address()) else { continue };
            let mut parts = Vec::new();
            for (number, node) in self.nodes.iter().enumerate() {
                let found = node.abandoned_here(&table.part_name(number), Replace::Generation)?;
                parts.extend(found.into_iter().next());
            }
            // One that was killed after it had its name has nothing left to do, and another one is not to take its key.
            let is_done = standing.as_ref() == Some(&table);
            if !is_done && parts.len() == self.nodes.len() && table.has_striping(&self.striping) {
                drafts.push(self.draft(name, replace, table, (first, parts)));
            }
        }
        Ok(drafts)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let (_, table) = self.opened(name)?;
        self.check_standing(name)?;
        self.check_nodes(name)?;
        self.first.delete_here(name)?;
        self.remove_parts(&table)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        match self.delete(name) {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        self.remove_left(name)?;
        drop(self.abandoned(name, Replace::Generation)?);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.first.leftovers()
    }
}

/// A generation that stands on several nodes.
#[derive(Debug)]
struct Spread {
    path: PathBuf,
    first: Published,
    parts: Vec<Published>,
    table: Table,
}

impl Generation for Spread {
    fn address(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.first.list()?;
        names.extend(self.parts[0].list()?);
        names.retain(|name| name != NODES_NAME);
        names.sort();
        Ok(names)
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_object(name)?;
        if !self.table.is_striped(name) {
            return self.first.get(name);
        }
        let objects = self.parts.iter().map(|part| part.get(name)).collect::<Result<Vec<_>, _>>()?;
        let path = self.path.join(name);
        let parts = SpreadObject::parts(&self.table, name, &path, objects)?;
        Ok(Arc::new(SpreadObject::new(path, parts)))
    }
}
