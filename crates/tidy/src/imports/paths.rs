//! The paths that a source file names.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A path of a module or an item, from the crate down or as it is written.
pub(super) type Path = Vec<String>;

/// What one file says.
#[derive(Default)]
pub(super) struct Spoken {
    /// Modules within the file, and those that are declared in it.
    pub(super) modules: Vec<Path>,
    /// Modules below which all is tests.
    pub(super) tests: Vec<Path>,
    /// Names that modules define: the module and the name.
    pub(super) items: Vec<(Path, String)>,
    /// Every `use` of one name.
    pub(super) uses: Vec<Use>,
    /// Every other path: the module that it stands in, the path, the line.
    pub(super) mentions: Vec<(Path, Path, usize)>,
}

/// A name that a module uses.
pub(super) struct Use {
    pub(super) module: Path,
    /// As it is written; of `use a::*` that of `a`.
    pub(super) path: Path,
    /// What it is called there; `None` of `*`.
    pub(super) name: Option<String>,
    /// Whether it is handed on to others.
    pub(super) public: bool,
    pub(super) line: usize,
}

/// Reads the file of the module `module`.
pub(super) fn read(text: &str, module: &Path) -> Result<Spoken, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader { module: module.clone(), spoken: Spoken::default() };
    reader.visit_file(&file);
    Ok(reader.spoken)
}

struct Reader {
    module: Path,
    spoken: Spoken,
}

impl Reader {
    fn mention(&mut self, path: Path, line: usize) {
        if path.len() > 1 {
            self.spoken.mentions.push((self.module.clone(), path, line));
        }
    }

    fn take_use(&mut self, tree: &syn::UseTree, before: &Path, public: bool) {
        let line = tree.span().start().line;
        let mut take = |path: Path, name: Option<String>| {
            self.spoken.uses.push(Use { module: self.module.clone(), path, name, public, line });
        };
        let with = |name: &syn::Ident| {
            let mut path = before.clone();
            // `a::{self}` is `a`.
            if name != "self" || path.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.take_use(&path.tree, &with(&path.ident), public),
            syn::UseTree::Name(name) => take(with(&name.ident), with(&name.ident).pop()),
            syn::UseTree::Rename(rename) => take(with(&rename.ident), Some(rename.rename.to_string())),
            syn::UseTree::Glob(_) => take(before.clone(), None),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.take_use(item, before, public))
            }
        }
    }

    /// Paths in the arguments of a macro, which are no syntax yet.
    fn tokens(&mut self, tokens: TokenStream) {
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
                    self.tokens(group.stream());
                }
                _ => self.mention(std::mem::take(&mut path), line),
            }
            colons = 0;
        }
        self.mention(path, line);
    }
}

/// Whether `attributes` say that what follows is for tests.
fn of_tests(attributes: &[syn::Attribute]) -> bool {
    let test = |attribute: &syn::Attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words: Vec<String> =
            list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
        let says = |word: &str| words.iter().any(|said| said == word);
        list.path.is_ident("cfg") && says("test") && !says("not") && !says("any")
    };
    attributes.iter().any(test)
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

fn defined(item: &syn::Item) -> Option<&syn::Ident> {
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

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let test = of_tests(attributes(item));
        if let syn::Item::Mod(module) = item {
            let mut path = self.module.clone();
            path.push(module.ident.to_string());
            if test {
                self.spoken.tests.push(path);
                return;
            }
            self.spoken.modules.push(path.clone());
            let outer = std::mem::replace(&mut self.module, path);
            visit::visit_item(self, item);
            self.module = outer;
            return;
        }
        if test {
            return;
        }
        if let Some(name) = defined(item) {
            self.spoken.items.push((self.module.clone(), name.to_string()));
        }
        visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.take_use(&item.tree, &Path::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string());
        if path.leading_colon.is_none() {
            self.mention(segments.collect(), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(in crate::a)` says who may look, which is no import.
    }
}
