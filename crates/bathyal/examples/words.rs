//! Finds the words that are used like a given word, among 50,000 real vectors, by cosine.
//!
//!     cargo run --release -p bathyal --example words -- ocean

use bathyal::families::graph::GraphOptions;
use bathyal::{BuildOptions, Control, Index, Metric, OpenOptions, SearchOptions, Silent, VectorFile};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let word = std::env::args().nth(1).unwrap_or("ocean".into());
    println!("{word}: {}", nearest_words(&word, 50_000)?.join(", "));
    Ok(())
}

/// Returns the eight words nearest to `word` among the `most` most frequent.
fn nearest_words(word: &str, most: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/glove-words");
    let words = std::fs::read_to_string(folder.join("words.txt"))?;
    let words: Vec<&str> = words.lines().take(most).collect();
    let all = VectorFile::open(folder.join("vectors.f16bin"))?;
    let rows = all.rows(0..words.len()).ok_or("there are fewer vectors than words")?.to_vec();
    let data = VectorFile::from_rows(all.element(), all.dim(), rows)?;

    let index = tempfile::tempdir()?;
    let path = index.path().join("words");
    // A family other than the default one. Each family has its own struct of options.
    let family = GraphOptions { max_degree: 32, search_list: 64, ..GraphOptions::default() };
    let options = BuildOptions { metric: Metric::Cosine, ..BuildOptions::of(family) };
    bathyal::build(&data, &path, &options, &Silent)?;

    let index = Index::open(&path, &OpenOptions::default())?;
    let row = words.iter().position(|other| *other == word).ok_or("the word is not among them")?;
    let query = VectorFile::from_rows(data.element(), data.dim(), data.row(row).to_vec())?;
    let options = SearchOptions { k: 9, ..SearchOptions::default() };
    let found = index.search(&query, &options, Control::default())?;
    // The nearest is the word itself.
    Ok(found.ids[1..].iter().map(|id| words[*id as usize].to_string()).collect())
}

#[test]
fn monday_is_like_tuesday() {
    let nearest = nearest_words("monday", 3000).unwrap();
    assert!(nearest.contains(&"tuesday".to_string()), "{nearest:?}");
    let error = nearest_words("qqq", 300).unwrap_err().to_string();
    assert!(error.contains("not among"), "{error}");
}
