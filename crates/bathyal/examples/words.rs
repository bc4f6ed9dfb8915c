//! The words that are used like a word, among 50,000: real vectors, searched by cosine.
//!
//!     cargo run --release -p bathyal --example words -- ocean

use bathyal::families::graph::GraphOptions;
use bathyal::{BuildOptions, Control, Index, Metric, OpenOptions, SearchOptions, Silent, VectorFile};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1).unwrap_or("ocean".into());
    println!("{wanted}: {}", near(&wanted, 50_000)?.join(", "));
    Ok(())
}

/// The eight words nearest to `wanted` among the `most` most frequent.
fn near(wanted: &str, most: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/glove-words");
    let words = std::fs::read_to_string(folder.join("words.txt"))?;
    let words: Vec<&str> = words.lines().take(most).collect();
    let all = VectorFile::open(folder.join("vectors.f16bin"))?;
    let rows = all.rows(0..words.len()).ok_or("there are fewer vectors than words")?.to_vec();
    let data = VectorFile::from_rows(all.element(), all.dim(), rows)?;

    let index = tempfile::tempdir()?;
    let path = index.path().join("words");
    // A family other than the default one; what it may be told is a struct of its own.
    let family = GraphOptions { max_degree: 32, search_list: 64, ..GraphOptions::default() };
    let options = BuildOptions { metric: Metric::Cosine, ..BuildOptions::of(family) };
    bathyal::build(&data, &path, &options, &Silent)?;

    let index = Index::open(&path, &OpenOptions::default())?;
    let row = words.iter().position(|word| *word == wanted).ok_or("that word is not among them")?;
    let query = VectorFile::from_rows(data.element(), data.dim(), data.row(row).to_vec())?;
    let options = SearchOptions { k: 9, ..SearchOptions::default() };
    let found = index.search(&query, &options, Control::default())?;
    // The nearest is the word itself.
    Ok(found.ids[1..].iter().map(|id| words[*id as usize].to_string()).collect())
}

#[test]
fn monday_is_like_tuesday() {
    let near = near("monday", 3000).unwrap();
    assert!(near.contains(&"tuesday".to_string()), "{near:?}");
    assert!(near_unknown().contains("not among"), "a word that nobody uses");
}

#[cfg(test)]
fn near_unknown() -> String {
    near("qqq", 300).unwrap_err().to_string()
}
