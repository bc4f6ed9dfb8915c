//! The modules of a crate, and what each file imports from others.

use std::collections::{BTreeMap, BTreeSet};

use super::Import;
use super::paths::{self, Path, Spoken, Use};
use crate::tree::SourceFile;

/// Names that lead to names that lead to names: more than any sane source has.
const MOST_STEPS: usize = 32;

/// The modules of a crate.
pub(super) struct Tree {
    /// The file that each module is defined in.
    modules: BTreeMap<Path, String>,
    items: BTreeSet<(Path, String)>,
    /// What a name that a module uses means, from the crate down; `None` of names of other crates.
    names: BTreeMap<(Path, String), Option<Path>>,
    /// Modules all of whose names a module uses.
    globs: BTreeMap<Path, Vec<Path>>,
    files: Vec<(String, Spoken)>,
}

impl Tree {
    /// Reads the sources of the crate in the folder `krate`.
    ///
    /// # Errors
    /// A sentence that begins with `file:line:`, of a file that is no Rust.
    pub(super) fn read(krate: &str, files: &[&SourceFile]) -> Result<Tree, String> {
        let root = format!("{krate}/src/");
        let mut read = Vec::new();
        for file in files {
            let module = module_of(file.name.strip_prefix(&root).unwrap_or(&file.name));
            let text = file.text.as_deref().unwrap_or_default();
            let spoken = paths::read(text, &module)
                .map_err(|error| format!("{}:{}: {error}", file.name, error.span().start().line))?;
            read.push((module, file.name.clone(), spoken));
        }
        let tests: Vec<Path> = read.iter().flat_map(|(_, _, spoken)| spoken.tests.clone()).collect();
        read.retain(|(module, _, _)| !tests.iter().any(|test| module.starts_with(test)));
        let mut tree = Tree {
            modules: read.iter().map(|(module, name, _)| (module.clone(), name.clone())).collect(),
            items: BTreeSet::new(),
            names: BTreeMap::new(),
            globs: BTreeMap::new(),
            files: Vec::new(),
        };
        for (_, name, spoken) in &read {
            tree.items.extend(spoken.items.iter().cloned());
            for module in &spoken.modules {
                // One that has a file of its own stands there already.
                tree.modules.entry(module.clone()).or_insert_with(|| name.clone());
            }
        }
        for (_, name, spoken) in read {
            for one in &spoken.uses {
                let path = tree.full(&one.module, &one.path);
                match (&one.name, path) {
                    (Some(called), path) => {
                        drop(tree.names.insert((one.module.clone(), called.clone()), path))
                    }
                    (None, Some(path)) => tree.globs.entry(one.module.clone()).or_default().push(path),
                    (None, None) => {}
                }
            }
            tree.files.push((name, spoken));
        }
        Ok(tree)
    }

    /// All imports of one file from another.
    pub(super) fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        for (file, spoken) in &self.files {
            let uses = spoken.uses.iter().filter(|one| !self.hands_on(one));
            let uses = uses.map(|one| (&one.module, &one.path, one.line));
            let mentions = spoken.mentions.iter().map(|(module, path, line)| (module, path, *line));
            for (module, path, line) in uses.chain(mentions) {
                let Some(to) = self.full(module, path).and_then(|path| self.file(&path, MOST_STEPS)) else {
                    continue;
                };
                if to != file {
                    found.push(Import { from: file.clone(), line, to: to.to_owned() });
                }
            }
        }
        found.dedup();
        found
    }

    /// Whether `one` only shows to others what lies below its own module.
    fn hands_on(&self, one: &Use) -> bool {
        let path = self.full(&one.module, &one.path);
        one.public && path.is_some_and(|path| path.len() > one.module.len() && path.starts_with(&one.module))
    }

    /// `path` as it is written in `module`, from the crate down; `None` if it leads out of the crate or is no path of
    /// modules.
    fn full(&self, module: &Path, path: &Path) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let mut down = match first.as_str() {
            "crate" => Path::new(),
            "self" => module.clone(),
            "super" => module.split_last()?.1.to_vec(),
            name => {
                let mut below = module.clone();
                below.push(name.to_owned());
                return self.modules.contains_key(&below).then(|| [below.as_slice(), rest].concat());
            }
        };
        for name in rest {
            match name.as_str() {
                "super" => drop(down.pop()?),
                name => down.push(name.to_owned()),
            }
        }
        Some(down)
    }

    /// The file that defines what `path`, from the crate down, names: that of its longest part that is a module, or
    /// where that module has the name from.
    fn file(&self, path: &Path, steps: usize) -> Option<&str> {
        let steps = steps.checked_sub(1)?;
        let mut module = Path::new();
        for (at, name) in path.iter().enumerate() {
            module.push(name.clone());
            if self.modules.contains_key(&module) {
                continue;
            }
            module.pop();
            let rest = &path[at + 1..];
            if self.items.contains(&(module.clone(), name.clone())) {
                break;
            }
            if let Some(meant) = self.names.get(&(module.clone(), name.clone())) {
                return self.file(&[meant.as_ref()?.as_slice(), rest].concat(), steps);
            }
            let spread = self.globs.get(&module).into_iter().flatten();
            let mut spread = spread.filter(|of| self.items.contains(&((*of).clone(), name.clone())));
            if let Some(of) = spread.next() {
                module = of.clone();
            }
            break;
        }
        self.modules.get(&module).map(String::as_str)
    }
}

/// The module that a file defines, by its path below `src`.
fn module_of(inner: &str) -> Path {
    let mut parts: Path = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || parts.len() == 1 && matches!(last, Some("lib" | "main")) {
        parts.pop();
    }
    parts
}
