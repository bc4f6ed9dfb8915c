//! Reading of the modules, items and paths in a source file.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A path of a module or an item: from the root of the crate, or as written.
pub(super) type Path = Vec<String>;

/// The modules, items and paths in one file.
#[derive(Default)]
pub(super) struct FileContents {
    /// Modules in the file, and those that it declares.
    pub(super) modules: Vec<Path>,
    /// Modules that hold only tests, with all modules below them.
    pub(super) tests: Vec<Path>,
    /// Items that modules define: the module and the name.
    pub(super) items: Vec<(Path, String)>,
    /// Every name in a `use`.
    pub(super) uses: Vec<Use>,
    /// Every other path.
    pub(super) mentions: Vec<Mention>,
}

/// A name that a module imports with `use`.
pub(super) struct Use {
    /// The importing module.
    pub(super) module: Path,
    /// The path as written; for `use a::*` it is `a`.
    pub(super) path: Path,
    /// The name in the importing module; `None` for `*`.
    pub(super) name: Option<String>,
    /// True if the `use` is a re-export.
    pub(super) public: bool,
    pub(super) line: usize,
}

/// A path in the code.
pub(super) struct Mention {
    /// The module that contains the path.
    pub(super) module: Path,
    /// The path as written.
    pub(super) path: Path,
    pub(super) line: usize,
}

/// Reads the text of the file of `module`.
pub(super) fn read(text: &str, module: &Path) -> Result<FileContents, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut reader = ImportReader { module: module.clone(), contents: FileContents::default() };
    reader.visit_file(&file);
    Ok(reader.contents)
}

struct ImportReader {
    module: Path,
    contents: FileContents,
}

impl ImportReader {
    fn mention(&mut self, path: Path, line: usize) {
        if path.len() > 1 {
            self.contents.mentions.push(Mention { module: self.module.clone(), path, line });
        }
    }

    /// Adds the names of a `use` tree, whose paths begin with `prefix`.
    fn add_use(&mut self, tree: &syn::UseTree, prefix: &Path, public: bool) {
        let line = tree.span().start().line;
        let mut add = |path: Path, name: Option<String>| {
            self.contents.uses.push(Use { module: self.module.clone(), path, name, public, line });
        };
        let extended = |name: &syn::Ident| {
            let mut path = prefix.clone();
            // `a::{self}` is `a`.
            if name != "self" || path.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.add_use(&path.tree, &extended(&path.ident), public),
            syn::UseTree::Name(name) => add(extended(&name.ident), extended(&name.ident).pop()),
            syn::UseTree::Rename(rename) => add(extended(&rename.ident), Some(rename.rename.to_string())),
            syn::UseTree::Glob(_) => add(prefix.clone(), None),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_use(item, prefix, public))
            }
        }
    }

    /// Adds the paths in the arguments of a macro, which are tokens and not yet syntax.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Path = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.mention(std::mem::take(&mut path), line);
                    (path, line) = (vec![name.to_string()], name.span().start().line);
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.mention(std::mem::take(&mut path), line);
                    self.add_tokens(group.stream());
                }
                _ => self.mention(std::mem::take(&mut path), line),
            }
            colons = 0;
        }
        self.mention(path, line);
    }
}

/// Returns true if `attributes` include a `cfg` that is only set in tests.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test_cfg = |attribute: &syn::Attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words: Vec<String> =
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
        let has = |word: &str| words.iter().any(|found| found == word);
        list.path.is_ident("cfg") && has("test") && !has("not") && !has("any")
    };
    attributes.iter().any(is_test_cfg)
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the name that an item defines.
fn defined_name(item: &syn::Item) -> Option<&syn::Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for ImportReader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let is_test = is_for_tests(attributes(item));
        if let syn::Item::Mod(module) = item {
            let mut path = self.module.clone();
            path.push(module.ident.to_string());
            if is_test {
                self.contents.tests.push(path);
                return;
            }
            self.contents.modules.push(path.clone());
            let outer = std::mem::replace(&mut self.module, path);
            visit::visit_item(self, item);
            self.module = outer;
            return;
        }
        if is_test {
            return;
        }
        if let Some(name) = defined_name(item) {
            self.contents.items.push((self.module.clone(), name.to_string()));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.add_use(&item.tree, &Path::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        if path.leading_colon.is_none() {
            self.mention(segments.collect(), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // The path of `pub(in crate::a)` limits visibility and is not an import.
    }
}
