//! The modules of a crate, and the imports of each file from others.

use std::collections::{BTreeMap, BTreeSet};

use super::Import;
use super::paths::{self, FileContents, Path, Use};
use crate::tree::SourceFile;

/// Most re-exports between a name and its definition: more than any real source has.
const MOST_STEPS: usize = 32;

/// The modules of a crate.
pub(super) struct Tree {
    /// The file that defines each module.
    modules: BTreeMap<Path, String>,
    items: BTreeSet<(Path, String)>,
    /// The full path of each name that a module imports; `None` for names of other crates.
    names: BTreeMap<(Path, String), Option<Path>>,
    /// The modules from which a module imports all names.
    globs: BTreeMap<Path, Vec<Path>>,
    files: Vec<(String, FileContents)>,
}

impl Tree {
    /// Reads the sources of the crate in the folder `krate`.
    ///
    /// # Errors
    /// A sentence that begins with `file:line:` for a file that is not valid Rust.
    pub(super) fn read(krate: &str, files: &[&SourceFile]) -> Result<Tree, String> {
        let root = format!("{krate}/src/");
        let mut read = Vec::new();
        for file in files {
            let module = module_of(file.name.strip_prefix(&root).unwrap_or(&file.name));
            let text = file.text.as_deref().unwrap_or_default();
            let contents = paths::read(text, &module)
                .map_err(|error| format!("{}:{}: {error}", file.name, error.span().start().line))?;
            read.push((module, file.name.clone(), contents));
        }
        let tests: Vec<Path> = read.iter().flat_map(|(_, _, contents)| contents.tests.clone()).collect();
        read.retain(|(module, _, _)| !tests.iter().any(|test| module.starts_with(test)));
        let mut tree = Tree {
            modules: read.iter().map(|(module, name, _)| (module.clone(), name.clone())).collect(),
            items: BTreeSet::new(),
            names: BTreeMap::new(),
            globs: BTreeMap::new(),
            files: Vec::new(),
        };
        for (_, name, contents) in &read {
            tree.items.extend(contents.items.iter().cloned());
            for module in &contents.modules {
                // A module with its own file is in the map already.
                tree.modules.entry(module.clone()).or_insert_with(|| name.clone());
            }
        }
        for (_, name, contents) in read {
            for import in &contents.uses {
                let path = tree.full_path(&import.module, &import.path);
                match (&import.name, path) {
                    (Some(name), path) => {
                        drop(tree.names.insert((import.module.clone(), name.clone()), path))
                    }
                    (None, Some(path)) => tree.globs.entry(import.module.clone()).or_default().push(path),
                    (None, None) => {}
                }
            }
            tree.files.push((name, contents));
        }
        Ok(tree)
    }

    /// Returns all imports of one file from another.
    pub(super) fn imports(&self) -> Vec<Import> {
        let mut found = Vec::new();
        for (file, contents) in &self.files {
            let uses = contents.uses.iter().filter(|import| !self.is_re_export(import));
            let uses = uses.map(|import| (&import.module, &import.path, import.line));
            let mentions = contents.mentions.iter();
            let mentions = mentions.map(|mention| (&mention.module, &mention.path, mention.line));
            for (module, path, line) in uses.chain(mentions) {
                let path = self.full_path(module, path);
                let Some(to) = path.and_then(|path| self.defining_file(&path, MOST_STEPS)) else {
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

    /// Returns true if `import` re-exports an item from below its own module.
    fn is_re_export(&self, import: &Use) -> bool {
        let Use { module, path, public, .. } = import;
        let path = self.full_path(module, path);
        *public && path.is_some_and(|path| path.len() > module.len() && path.starts_with(module))
    }

    /// Returns the path from the root of the crate for `path` as written in `module`; `None` if it leads out
    /// of the crate or does not begin with a module.
    fn full_path(&self, module: &Path, path: &Path) -> Option<Path> {
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

    /// Returns the file that defines the item at `path`, from the root of the crate. It is the file of the
    /// longest prefix that is a module, or the file from which that module imports the name. `steps` limits
    /// the number of imports.
    fn defining_file(&self, path: &Path, steps: usize) -> Option<&str> {
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
            if let Some(target) = self.names.get(&(module.clone(), name.clone())) {
                return self.defining_file(&[target.as_ref()?.as_slice(), rest].concat(), steps);
            }
            let globs = self.globs.get(&module).into_iter().flatten();
            let mut defining = globs.filter(|glob| self.items.contains(&((*glob).clone(), name.clone())));
            if let Some(glob) = defining.next() {
                module = glob.clone();
            }
            break;
        }
        self.modules.get(&module).map(String::as_str)
    }
}

/// Returns the module that a file defines, from its path below `src`.
fn module_of(inner: &str) -> Path {
    let mut parts: Path = inner.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || parts.len() == 1 && matches!(last, Some("lib" | "main")) {
        parts.pop();
    }
    parts
}
