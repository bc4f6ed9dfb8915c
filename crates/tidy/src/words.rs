//! Checks of the first words of doc comments, and of the lengths of lines, in Rust files.

use crate::tree::SourceFile;

/// Most columns of a line.
pub const MAX_COLUMNS: usize = 110;

/// Words that a doc comment must not begin with. They make a clause the subject of its first sentence.
const CLAUSE_OPENINGS: [&str; 7] =
    ["What", "Whether", "Whoever", "Nobody", "So many", "That which", "How many"];

/// Finds the lines of more than [`MAX_COLUMNS`] columns, and the doc comments that begin with a clause, in
/// the Rust files among `files`.
pub fn complaints(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["rs"])) {
        let lines = file.text.iter().flat_map(|text| text.lines());
        // Marker of the doc comment in the line before.
        let mut previous = None;
        for (number, line) in lines.enumerate() {
            let mut complain = |what: String| found.push(format!("{}:{}: {what}", file.name, number + 1));
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                complain(format!("the line has {columns} columns, at most {MAX_COLUMNS} are allowed"));
            }
            let doc = doc_comment(line);
            let is_first = doc.is_some_and(|(marker, _)| previous != Some(marker));
            if let Some(words) = doc.and_then(|(_, text)| clause_opening(text)).filter(|_| is_first) {
                complain(format!("the doc comment begins with '{words}': begin with a noun or a verb"));
            }
            previous = doc.map(|(marker, _)| marker);
        }
    }
    found
}

/// Splits a line of a doc comment into its marker and its text.
fn doc_comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let split = |marker: &'static str| Some((marker, line.strip_prefix(marker)?));
    // A comment with four slashes is not a doc comment.
    ["///", "//!"].into_iter().find_map(split).filter(|(_, text)| !text.starts_with('/'))
}

/// Returns the words of [`CLAUSE_OPENINGS`] with which `text` begins.
fn clause_opening(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    CLAUSE_OPENINGS.into_iter().find(|words| {
        text.strip_prefix(words)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_about(name: &str, text: &str) -> Vec<String> {
        let file = SourceFile { name: name.into(), bytes: text.len() as u64, text: Some(text.into()) };
        complaints(&[file])
    }

    #[test]
    fn doc_comments_that_begin_with_a_clause_are_found() {
        for words in CLAUSE_OPENINGS {
            for text in [
                format!("/// {words} it is.\nfn f() {{}}\n"),
                format!("//! {words}, and so on.\n"),
                format!("struct A {{\n    /// {words}\n    b: u8,\n}}\n"),
                format!("//! A module.\n/// {words} it is.\nfn f() {{}}\n"),
            ] {
                assert_eq!(complaints_about("a.rs", &text).len(), 1, "{text}");
            }
        }
        let found = complaints_about("a.rs", "fn f() {}\n\n    /// Whether it is.\n");
        assert_eq!(found, ["a.rs:3: the doc comment begins with 'Whether': begin with a noun or a verb"]);
    }

    #[test]
    fn other_comments_are_not_found() {
        for text in [
            "/// Returns the name.\n/// What follows is ignored.\nfn f() {}\n",
            "/// Whatever fits.\n",
            "/// what_it_is\n",
            "// What a plain comment is.\n",
            "//// What four slashes are.\n",
            "let text = \"/// What a string is.\";\n",
            "///\n",
        ] {
            assert_eq!(complaints_about("a.rs", text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(complaints_about("a.md", "/// What it is.\n"), Vec::<String>::new());
    }

    #[test]
    fn lines_of_too_many_columns_are_found() {
        let wide = |columns: usize| format!("// {}\n", "é".repeat(columns - 3));
        assert_eq!(complaints_about("a.rs", &wide(MAX_COLUMNS)), Vec::<String>::new());
        let found = complaints_about("a.rs", &format!("\n{}", wide(MAX_COLUMNS + 1)));
        assert_eq!(found, ["a.rs:2: the line has 111 columns, at most 110 are allowed"]);
        assert_eq!(complaints_about("a.md", &wide(MAX_COLUMNS + 1)), Vec::<String>::new());
    }
}
