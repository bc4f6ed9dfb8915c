//! A disk in memory that simulates power failures.
//!
//! For every file it records the current bytes, the bytes at the last sync, and the writes since; for every
//! folder the same of its names. On a power failure, each write and each change of a name since the last sync
//! may or may not have reached the disk, in any order: a write possibly in part, a rename entirely or not at
//! all. This guarantees less than any file system in use.

use crate::disk::{Disk, DiskFile, FileKind, Locked, Stat};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The number of the root folder.
const ROOT: usize = 0;

/// A disk in memory that can lose power. Clones share its content.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<SimulatedState>>,
}

#[derive(Debug, Clone, Default)]
struct SimulatedState {
    nodes: Vec<DiskNode>,
    /// Changes of names that are not synced yet, in order.
    changes: Vec<Change>,
}

#[derive(Debug, Clone)]
enum DiskNode {
    File(FileContent),
    Folder(Names),
}

#[derive(Debug, Clone, Default)]
struct FileContent {
    present: Vec<u8>,
    durable: Vec<u8>,
    /// The writes since the last sync.
    writes: Vec<Write>,
    /// The open file that holds the lock.
    lock: Weak<SimulatedFile>,
}

#[derive(Debug, Clone)]
enum Write {
    Bytes(usize, Vec<u8>),
    Len(usize),
}

#[derive(Debug, Clone, Default)]
struct Names {
    present: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
}

/// Names that change atomically: each a folder, a name in it, and the node that it leads to afterwards, if
/// any.
type Change = Vec<(usize, String, Option<usize>)>;

impl Default for SimulatedDisk {
    fn default() -> SimulatedDisk {
        let state = SimulatedState { nodes: vec![DiskNode::Folder(Names::default())], changes: Vec::new() };
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }
}

impl Write {
    fn apply(&self, bytes: &mut Vec<u8>, part: usize) {
        match self {
            Write::Len(len) => bytes.resize(*len, 0),
            Write::Bytes(at, written) => {
                let written = &written[..part.min(written.len())];
                bytes.resize(bytes.len().max(at + written.len()), 0);
                bytes[*at..][..written.len()].copy_from_slice(written);
            }
        }
    }
}

impl SimulatedDisk {
    fn state(&self) -> MutexGuard<'_, SimulatedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an independent disk with the same content and no locked files.
    #[must_use]
    pub fn copy(&self) -> SimulatedDisk {
        let mut state = self.state().clone();
        for node in &mut state.nodes {
            if let DiskNode::File(content) = node {
                content.lock = Weak::new();
            }
        }
        SimulatedDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Simulates a power failure. `seed` selects which changes that were not synced are kept.
    pub fn lose_power(&self, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut state = self.state();
        for change in std::mem::take(&mut state.changes) {
            if random.random() {
                state.make_durable(&change);
            }
        }
        for node in &mut state.nodes {
            match node {
                DiskNode::Folder(names) => names.present = names.durable.clone(),
                DiskNode::File(content) => {
                    for write in std::mem::take(&mut content.writes) {
                        match random.random_range(0..3) {
                            0 => {}
                            1 => write.apply(&mut content.durable, random.random_range(0..4096)),
                            _ => write.apply(&mut content.durable, usize::MAX),
                        }
                    }
                    content.present = content.durable.clone();
                    content.lock = Weak::new();
                }
            }
        }
    }

    /// Returns the paths of all files and folders, sorted.
    pub fn paths(&self) -> Vec<String> {
        let state = self.state();
        let mut found = Vec::new();
        let mut pending = vec![(ROOT, String::new())];
        while let Some((node, path)) = pending.pop() {
            if let DiskNode::Folder(names) = &state.nodes[node] {
                pending.extend(names.present.iter().map(|(name, node)| (*node, format!("{path}/{name}"))));
            }
            found.push(path);
        }
        found.sort();
        found.retain(|path| !path.is_empty());
        found
    }
}

impl SimulatedState {
    fn folder(&self, node: usize) -> io::Result<&Names> {
        match &self.nodes[node] {
            DiskNode::Folder(names) => Ok(names),
            DiskNode::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn file(&mut self, node: usize) -> io::Result<&mut FileContent> {
        match &mut self.nodes[node] {
            DiskNode::File(content) => Ok(content),
            DiskNode::Folder(_) => Err(io::Error::new(ErrorKind::InvalidInput, "it is a folder, not a file")),
        }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut node = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                let name = name.to_str().ok_or(ErrorKind::InvalidInput)?;
                node = *self.folder(node)?.present.get(name).ok_or(ErrorKind::NotFound)?;
            }
        }
        Ok(node)
    }

    /// Returns the number of the path's parent folder, and the path's last name.
    fn parent(&self, path: &Path) -> io::Result<(usize, String)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidInput)?;
        let parent = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.folder(parent)?;
        Ok((parent, name.to_string()))
    }

    fn change(&mut self, change: Change) {
        for (folder, name, node) in &change {
            if let DiskNode::Folder(names) = &mut self.nodes[*folder] {
                match node {
                    Some(node) => names.present.insert(name.clone(), *node),
                    None => names.present.remove(name),
                };
            }
        }
        self.changes.push(change);
    }

    fn make_durable(&mut self, change: &Change) {
        for (folder, name, node) in change {
            if let DiskNode::Folder(names) = &mut self.nodes[*folder] {
                match node {
                    Some(node) => names.durable.insert(name.clone(), *node),
                    None => names.durable.remove(name),
                };
            }
        }
    }

    fn add(&mut self, path: &Path, node: DiskNode) -> io::Result<usize> {
        let (folder, name) = self.parent(path)?;
        if self.folder(folder)?.present.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.change(vec![(folder, name, Some(number))]);
        Ok(number)
    }

    fn open_or_create(&mut self, path: &Path, create: bool) -> io::Result<usize> {
        let node = match self.find(path) {
            Err(e) if e.kind() == ErrorKind::NotFound && create => {
                self.add(path, DiskNode::File(FileContent::default()))?
            }
            found => found?,
        };
        self.file(node)?;
        Ok(node)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        self.change(vec![(from, old, None), (to, new, Some(node))]);
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.state();
        let node = state.find(path)?;
        let identity = (1, node as u64);
        Ok(match &state.nodes[node] {
            DiskNode::File(content) => {
                Stat { kind: FileKind::File, len: content.present.len() as u64, identity }
            }
            DiskNode::Folder(_) => Stat { kind: FileKind::Folder, len: 0, identity },
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        Ok(state.folder(state.find(folder)?)?.present.keys().cloned().collect())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let node = self.state().open_or_create(path, false)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), node }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let node = self.state().open_or_create(path, true)?;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), node }))
    }

    fn lock(&self, path: &Path, create: bool) -> io::Result<Locked> {
        let mut state = self.state();
        let node = state.open_or_create(path, create)?;
        let content = state.file(node)?;
        if content.lock.strong_count() > 0 {
            return Ok(Locked::Busy);
        }
        let file = Arc::new(SimulatedFile { disk: self.clone(), node });
        content.lock = Arc::downgrade(&file);
        Ok(Locked::Held(file))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.state().add(path, DiskNode::Folder(Names::default())).map(|_| ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if let Ok(node) = state.find(to) {
            state.file(node)?;
        }
        state.rename(from, to)
    }

    fn rename_no_replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.find(to).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut state = self.state();
        let nodes = (state.find(one)?, state.find(other)?);
        let ((one, first), (other, second)) = (state.parent(one)?, state.parent(other)?);
        state.change(vec![(one, first, Some(nodes.1)), (other, second, Some(nodes.0))]);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.find(path)?;
        state.file(node).map_err(|_| io::Error::from(ErrorKind::IsADirectory))?;
        let (folder, name) = state.parent(path)?;
        state.change(vec![(folder, name, None)]);
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.folder(state.find(path)?)?.present.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let (folder, name) = state.parent(path)?;
        state.change(vec![(folder, name, None)]);
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let folder = state.find(path)?;
        state.folder(folder)?;
        let changes = std::mem::take(&mut state.changes);
        let (synced, unsynced): (Vec<_>, Vec<_>) =
            // A rename becomes durable when the folder that it leads to is synced, not earlier.
            changes.into_iter().partition(|change| change.last().is_some_and(|(at, ..)| *at == folder));
        synced.iter().for_each(|change| state.make_durable(change));
        // Changes of the same names that remain in a rename to another folder came earlier than the synced
        // ones, and are dropped.
        let is_synced =
            |at: usize, name: &str| synced.iter().flatten().any(|(a, n, _)| (*a, n.as_str()) == (at, name));
        let unsynced = unsynced.into_iter().map(|mut change| {
            change.retain(|(at, name, _)| !is_synced(*at, name));
            change
        });
        state.changes = unsynced.filter(|change| !change.is_empty()).collect();
        Ok(())
    }

    fn may_change(&self, _folder: &Path) -> bool {
        true
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    node: usize,
}

impl SimulatedFile {
    fn with_content<T>(&self, operation: impl FnOnce(&mut FileContent) -> T) -> io::Result<T> {
        Ok(operation(self.disk.state().file(self.node)?))
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        self.with_content(|content| content.present.len() as u64)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with_content(|content| {
            let bytes = content.present.get(offset as usize..).unwrap_or_default();
            let part = bytes.len().min(out.len());
            out[..part].copy_from_slice(&bytes[..part]);
            part
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with_content(|content| {
            let write = Write::Bytes(offset as usize, bytes.to_vec());
            write.apply(&mut content.present, usize::MAX);
            content.writes.push(write);
            bytes.len()
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_content(|content| {
            let write = Write::Len(len as usize);
            write.apply(&mut content.present, usize::MAX);
            content.writes.push(write);
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with_content(|content| {
            content.durable = content.present.clone();
            content.writes.clear();
        })
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((1, self.node as u64))
    }

    fn file(&self) -> Option<&File> {
        None
    }
}
