//! The memory of several nodes as one store of generations.
//!
//! The generation `NAME` on the first node holds all objects that are not striped, and the table of the
//! nodes. Part `n` of all striped objects is the generation `NAME-KEY.partN` on node number `n`. Each draft
//! has a key of its own, so publishing parts does not change the generation that is published.

use super::draft::NodeDraft;
use super::node_table::{ADVICE, NODES_NAME, address_of, table_in};
use super::options::{RemoteOptions, RemoteUrl};
use super::spread_draft::{SpreadDraft, check_object};
use super::spread_object::SpreadObject;
use super::store::{NodeGeneration, NodeStore, scratch_folder};
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, MOST_PARTS, Striping, Table};
use bathyal_store::{Draft, Generation, Object, Replace, Store, StoreError, check_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Generations in the memory of several nodes.
#[derive(Debug, Clone)]
pub struct SpreadStore {
    address: PathBuf,
    /// Local folder of drafts before they are pushed.
    scratch: PathBuf,
    /// The first node's store, for objects that are not striped.
    first: NodeStore,
    /// The nodes' stores for striped objects, in the order of the parts.
    nodes: Vec<NodeStore>,
    striping: Striping,
}

impl SpreadStore {
    /// Creates the store that contains the generation at `url`. Each generation has an object named `mark`.
    /// `options` has one entry for each node. Sends nothing to the nodes yet.
    ///
    /// # Errors
    /// [`StoreError::Address`] if there is no folder for drafts, or `options` has another length.
    pub fn new(
        url: &RemoteUrl,
        options: &[RemoteOptions],
        mark: &'static str,
    ) -> Result<SpreadStore, StoreError> {
        let wrong_options =
            || StoreError::Address(format!("{url}: there are options for {} nodes", options.len()));
        let first_options =
            options.first().filter(|_| options.len() == url.hosts.len()).ok_or_else(wrong_options)?;
        let scratch = scratch_folder(url, first_options)?;
        let node = |(url, options): (RemoteUrl, &RemoteOptions), mark| {
            NodeStore::with_scratch(scratch.clone(), &url, options.clone(), mark)
        };
        let mut targets = url.each().zip(options);
        let first = targets.next().map(|one| node(one, mark)).ok_or_else(wrong_options)??;
        let nodes = url.each().zip(options).map(|one| node(one, NODES_NAME)).collect::<Result<_, _>>()?;
        let addresses = url.each().map(|url| url.node_address().display().to_string()).collect();
        let striping = Striping::over_stores(addresses, DEFAULT_STRIPE_BYTES, &[])?;
        Ok(SpreadStore { address: url.node_address(), scratch, first, nodes, striping })
    }

    /// Returns the store with `objects` striped in all drafts that are begun from now on, in units of
    /// `stripe_bytes` bytes. Striped objects can be appended to, but not replaced.
    ///
    /// # Errors
    /// [`StoreError::Striping`] for an invalid unit.
    pub fn striped(self, objects: &[&str], stripe_bytes: u32) -> Result<SpreadStore, StoreError> {
        let addresses = self.striping.folders().map(|node| node.display().to_string()).collect();
        Ok(SpreadStore { striping: Striping::over_stores(addresses, stripe_bytes, objects)?, ..self })
    }

    /// Returns the local folder of drafts before they are pushed.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Returns the address of the generation `name`.
    fn path(&self, name: &str) -> PathBuf {
        self.address.join(name)
    }

    /// Returns true if an index is on these nodes, in this order.
    fn is_of(&self, table: &Table) -> bool {
        table.folders().eq(self.striping.folders())
    }

    /// Returns the table of the generation published as `name`; `None` if there is none, or it is not
    /// striped.
    pub(super) fn published_table(&self, name: &str) -> Result<Option<Table>, StoreError> {
        self.first.table_of(name)
    }

    /// Deletes the parts in `table`, as far as they exist.
    pub(super) fn remove_parts(&self, table: &Table) -> Result<(), StoreError> {
        let remove =
            |(number, node): (usize, &NodeStore)| match node.delete_generation(&table.part_name(number)) {
                Err(StoreError::Missing { .. }) => Ok(()),
                other => other,
            };
        self.nodes.iter().enumerate().map(remove).fold(Ok(()), Result::and)
    }

    /// Deletes parts of `name` on these nodes that no published generation refers to: builds leave them if
    /// they are killed while they publish.
    fn remove_unused_parts(&self, name: &str) -> Result<(), StoreError> {
        let published_table = self.published_table(name)?;
        for (number, node) in self.nodes.iter().enumerate() {
            for found in node.list()? {
                if part_of(&found, number) != Some(name) {
                    continue;
                }
                let table = match node.table_of(&found) {
                    Ok(Some(table)) => table,
                    _ => continue,
                };
                let is_unused = table.part_name(number) == found && published_table.as_ref() != Some(&table);
                if is_unused && self.is_of(&table) {
                    node.delete_generation(&found)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the local files of drafts of `name` that no process writes any more.
    fn remove_drafts(&self, name: &str) -> Result<(), StoreError> {
        for first in self.first.abandoned_drafts(name, Replace::Generation)? {
            let Ok(table) = table_in(&first, first.address()) else { continue };
            for (number, node) in self.nodes.iter().enumerate() {
                drop(node.abandoned_drafts(&table.part_name(number), Replace::Generation)?);
            }
        }
        Ok(())
    }

    /// Returns true if a node holds parts of `name`, or local files of a draft are left.
    ///
    /// # Errors
    /// [`StoreError`] if a node does not respond.
    pub fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        for (number, node) in self.nodes.iter().enumerate() {
            if node.list()?.iter().any(|found| part_of(found, number) == Some(name)) {
                return Ok(true);
            }
        }
        self.first.has_leftovers(name)
    }

    /// Refuses to replace or delete the generation `name` if it is on other nodes.
    fn check_replaceable(&self, name: &str) -> Result<(), StoreError> {
        match self.published_table(name)? {
            Some(table) if !self.is_of(&table) => {
                let reason = format!(
                    "is on other nodes than this address names; its address is {}",
                    address_of(&table)
                );
                Err(StoreError::Irreplaceable { path: self.path(name), reason })
            }
            _ => Ok(()),
        }
    }

    /// Checks that every node can be reached and written to, and accepts the names of parts.
    fn check_nodes(&self, name: &str) -> Result<(), StoreError> {
        let longest = Table::new(name, &self.striping).part_name(MOST_PARTS - 1);
        self.nodes.iter().try_for_each(|node| {
            node.check_publishable(name, Replace::Generation)?;
            node.check_publishable(&longest, Replace::Generation)
        })
    }

    /// Creates a draft from the drafts of the first node and of the parts.
    fn draft(
        &self,
        name: &str,
        replace: Replace,
        table: Table,
        drafts: (NodeDraft, Vec<NodeDraft>),
    ) -> Box<dyn Draft> {
        Box::new(SpreadDraft::new(self.clone(), self.path(name), replace, table, drafts))
    }

    /// Opens the generation `name` on the first node, and checks that these are its nodes.
    fn open_checked(&self, name: &str) -> Result<(NodeGeneration, Table), StoreError> {
        let refuse =
            |reason: String| Err(StoreError::Address(format!("{}: {reason}", self.path(name).display())));
        let found = match self.first.open_generation(name) {
            Err(StoreError::Missing { what, .. }) => {
                let has_table = |node: &&NodeStore| node.table_of(name).is_ok_and(|table| table.is_some());
                return match self.nodes.iter().skip(1).find(has_table) {
                    Some(node) => refuse(format!(
                        "is not on the first of these nodes but on {}; name the nodes in the order of its \
                         parts",
                        node.address().display()
                    )),
                    None => Err(StoreError::Missing { what, path: self.path(name) }),
                };
            }
            other => other?,
        };
        match found.table()? {
            None => refuse(format!("is on one node: {}", self.first.path(name).display())),
            Some(table) if table.layout().parts() != self.nodes.len() => refuse(format!(
                "is on {} nodes, and this address names {}; its address is {}",
                table.layout().parts(),
                self.nodes.len(),
                address_of(&table)
            )),
            Some(table) => Ok((found, table)),
        }
    }

    /// Opens part number `number` of the generation `name`.
    fn open_part(&self, name: &str, table: &Table, number: usize) -> Result<NodeGeneration, StoreError> {
        let part_name = table.part_name(number);
        match self.nodes[number].open_generation(&part_name) {
            Err(StoreError::Missing { .. }) => {}
            other => return other,
        }
        if self.published_table(name)?.as_ref() != Some(table) {
            return Err(StoreError::Replaced { path: self.path(name) });
        }
        let elsewhere = self.nodes.iter().find(|node| node.open_generation(&part_name).is_ok());
        let what = match elsewhere {
            Some(node) => format!(
                "is not there but on {}; name the nodes in the order of the parts: {}",
                node.address().display(),
                address_of(table)
            ),
            None => format!(
                "is not there: the node was restarted, or is another node; name the same nodes as before \
                 ({}), or {ADVICE}",
                address_of(table)
            ),
        };
        let reason = format!("part {} of {} {what}", number + 1, table.layout().parts());
        Err(StoreError::PartMissing { path: self.nodes[number].path(&part_name), reason })
    }
}

/// Returns the name of the generation to which a part belongs, if `name` is the name of part number `number`.
fn part_of(name: &str, number: usize) -> Option<&str> {
    let (generation, key) = name.strip_suffix(&format!(".part{}", number + 1))?.rsplit_once('-')?;
    (key.len() == 16 && key.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(generation)
}

impl Store for SpreadStore {
    fn address(&self) -> &Path {
        &self.address
    }

    /// Lists the generations over several nodes of which this is the first.
    fn list(&self) -> Result<Vec<String>, StoreError> {
        let names = self.first.list()?;
        let is_spread = |name: &&String| names.iter().any(|part| part_of(part, 0) == Some(name.as_str()));
        Ok(names.iter().filter(is_spread).cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        let (first, table) = self.open_checked(name)?;
        let parts = (0..self.nodes.len()).map(|number| self.open_part(name, &table, number));
        let parts = parts.collect::<Result<_, _>>()?;
        Ok(Arc::new(SpreadGeneration { path: self.path(name), first, parts, table }))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        if self.striping.objects().len() == 0 {
            let reason = format!(
                "{}: the files to stripe over these nodes are not known; write to a folder, and copy that \
                 there (`bathyal copy`)",
                self.path(name).display()
            );
            return Err(StoreError::Striping { reason });
        }
        self.first.check_publishable(name, replace)?;
        self.check_nodes(name)?;
        if replace == Replace::Generation { self.check_replaceable(name) } else { Ok(()) }
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        self.check(name, replace)?;
        self.remove_unused_parts(name)?;
        let table = Table::new(name, &self.striping);
        let bytes = table.to_bytes()?;
        let first = self.first.begin_draft(name, replace)?;
        first.replace(NODES_NAME, &bytes)?;
        let mut parts = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let part = node.begin_draft(&table.part_name(number), Replace::Generation)?;
            part.replace(NODES_NAME, &bytes)?;
            parts.push(part);
        }
        Ok(self.draft(name, replace, table, (first, parts)))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        self.check(name, replace)?;
        self.remove_unused_parts(name)?;
        let published_table = self.published_table(name)?;
        let mut drafts = Vec::new();
        for first in self.first.abandoned_drafts(name, replace)? {
            let Ok(table) = table_in(&first, first.address()) else { continue };
            let mut parts = Vec::new();
            for (number, node) in self.nodes.iter().enumerate() {
                let found = node.abandoned_drafts(&table.part_name(number), Replace::Generation)?;
                parts.extend(found.into_iter().next());
            }
            // A draft that was killed after it was published needs no more work. Resuming it would use its
            // key twice.
            let is_done = published_table.as_ref() == Some(&table);
            if !is_done && parts.len() == self.nodes.len() && table.has_striping(&self.striping) {
                drafts.push(self.draft(name, replace, table, (first, parts)));
            }
        }
        Ok(drafts)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let (_, table) = self.open_checked(name)?;
        self.check_replaceable(name)?;
        self.check_nodes(name)?;
        self.first.delete_generation(name)?;
        self.remove_parts(&table)
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        match self.delete(name) {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        self.remove_unused_parts(name)?;
        self.remove_drafts(name)
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        self.first.leftovers()
    }
}

/// A published generation over several nodes.
#[derive(Debug)]
struct SpreadGeneration {
    path: PathBuf,
    first: NodeGeneration,
    parts: Vec<NodeGeneration>,
    table: Table,
}

impl Generation for SpreadGeneration {
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
