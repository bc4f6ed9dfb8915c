//! Folders whose members know nothing of each other.

use super::Import;

/// Folders in which only `mod.rs` may import a member (a folder below). A file outside of such a folder may
/// not import a member either, except `lib.rs`, which re-exports.
pub(super) const APART: &[&str] = &["crates/index/src/families"];

/// Finds the imports of members of [`APART`] folders by other files.
pub(super) fn complaints(imports: &[Import]) -> Vec<String> {
    let complaint = |import: &Import| {
        let (folder, name) = APART.iter().find_map(|folder| Some((folder, member(folder, &import.to)?)))?;
        let importer = import.from.as_str();
        let may_import = importer == format!("{folder}/mod.rs")
            || importer.ends_with("/src/lib.rs")
            || member(folder, importer) == Some(name);
        let text =
            || format!("{importer}:{}: imports {}, which only {folder}/mod.rs may", import.line, import.to);
        (!may_import).then(text)
    };
    imports.iter().filter_map(complaint).collect()
}

/// Returns the member of `folder` that the file `name` belongs to; `None` for files outside of all members.
fn member<'a>(folder: &str, name: &'a str) -> Option<&'a str> {
    let inner = name.strip_prefix(folder)?.strip_prefix('/')?;
    inner.split_once('/').map(|(member, _)| member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_imported_only_by_themselves_and_by_the_registry() {
        let file = |name: &str| format!("crates/index/src/{name}");
        let import = |from: &str, to: &str| Import { from: file(from), line: 3, to: file(to) };
        let allowed = [
            import("families/mod.rs", "families/lsh/mod.rs"),
            import("families/lsh/build.rs", "families/lsh/options.rs"),
            import("families/lsh/build.rs", "partition/mod.rs"),
            import("open/mod.rs", "families/mod.rs"),
            import("lib.rs", "families/lsh/mod.rs"),
        ];
        assert_eq!(complaints(&allowed), Vec::<String>::new());
        let refused = [
            import("families/lsh/build.rs", "families/graph/write.rs"),
            import("proximity/grow.rs", "families/graph/options.rs"),
        ];
        let found = complaints(&refused);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/index/src/families/lsh/build.rs:3: "), "{found:?}");
    }
}
