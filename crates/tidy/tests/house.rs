//! The repository keeps its own style.

use bathyal_tidy::{functions, imports, licences, links, text, tree};

fn demand_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn names_and_lines_keep_the_style() {
    let files = tree::files(&tree::root()).unwrap();
    assert!(files.len() > 10, "the repository was not found");
    for (name, lines) in text::long_files(&files) {
        println!("{name}: {lines} lines: worth a look");
    }
    demand_none(text::complaints(&files));
}

#[test]
fn functions_are_short() {
    demand_none(functions::complaints(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn imports_go_in_no_circles() {
    let complaints = imports::complaints(&tree::files(&tree::root()).unwrap());
    demand_none(complaints.into_iter().map(|(_, complaint)| complaint).collect());
}

#[test]
fn documentation_points_at_what_is_there() {
    demand_none(links::complaints(&tree::files(&tree::root()).unwrap()));
}

#[test]
fn no_file_names_the_folder_that_it_was_written_in() {
    let root = tree::root();
    // A folder as short as `/src` says nothing about anyone's machine.
    if root.components().count() < 4 {
        return;
    }
    let here = format!("{}/", root.display());
    let files = tree::files(&root).unwrap();
    let names = |text: &String| text.lines().any(|line| text::names_path_below(line, &here));
    let naming = files.iter().filter(|file| file.text.as_ref().is_some_and(names));
    demand_none(naming.map(|file| format!("{}: names {here}", file.name)).collect());
}

#[test]
fn dependencies_have_allowed_licences() {
    let root = tree::root();
    let allowed = licences::allowed(&std::fs::read_to_string(root.join("deny.toml")).unwrap()).unwrap();
    let packages = licences::packages(&root).unwrap();
    let weigh = |(package, licence): &(String, String)| {
        licences::complaint(licence, &allowed).map(|what| format!("{package} {what}"))
    };
    demand_none(packages.iter().filter_map(weigh).collect());
}
