//! The files of the repository follow its style.

use bathyal_tidy::{functions, imports, licences, links, text, tree, words};

fn assert_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn names_and_lines_follow_the_style() {
    let files = tree::files(&tree::root()).unwrap();
    assert!(files.len() > 10, "the repository was not found");
    for (name, lines) in text::long_files(&files) {
        println!("{name}: {lines} lines: the file is getting long");
    }
    assert_none(text::complaints(&files));
}

#[test]
fn functions_are_short() {
    let files = tree::files(&tree::root()).unwrap();
    assert_none(functions::complaints(&files));
}

#[test]
fn doc_comments_and_columns_follow_the_style() {
    assert_none(words::complaints(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn imports_form_no_circles() {
    let complaints = imports::complaints(&tree::files(&tree::root()).unwrap());
    assert_none(complaints.into_iter().map(|(_, complaint)| complaint).collect());
}

#[test]
fn links_of_the_documentation_have_targets() {
    assert_none(links::complaints(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn no_file_names_the_folder_of_the_repository() {
    let root = tree::root();
    // A folder as short as `/src` is not specific to one machine.
    if root.components().count() < 4 {
        return;
    }
    let folder = format!("{}/", root.display());
    let files = tree::files(&root).unwrap();
    let names_folder = |text: &String| text.lines().any(|line| text::names_path_below(line, &folder));
    let found = files.iter().filter(|file| file.text.as_ref().is_some_and(names_folder));
    assert_none(found.map(|file| format!("{}: names {folder}", file.name)).collect());
}

#[test]
fn dependencies_have_allowed_licences() {
    let root = tree::root();
    let allowed = licences::allowed(&std::fs::read_to_string(root.join("deny.toml")).unwrap()).unwrap();
    let packages = licences::packages(&root).unwrap();
    let complaint = |(package, licence): &(String, String)| {
        licences::complaint(licence, &allowed).map(|what| format!("{package} {what}"))
    };
    assert_none(packages.iter().filter_map(complaint).collect());
}
