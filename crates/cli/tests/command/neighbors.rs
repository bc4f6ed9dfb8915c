//! The neighbours in the output of searches.

use serde_json::{Value, json};

use crate::harness::{QUERIES, bathyal, shared};

#[test]
fn a_search_shows_the_neighbours_of_the_first_queries() {
    let text = bathyal(shared(), "search idx queries.fbin -k 7 --search-list 200").good();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("neighbours ")).expect("a table");
    assert!(text.starts_with("25 queries, k 7"), "{text}");
    for query in 0..3 {
        let line = lines[at + 1 + query];
        assert!(line.starts_with(&format!("  query {query} ")) && line.ends_with("and 2 more"), "{line}");
        assert_eq!(line.matches('(').count(), 5, "{line}");
    }
    // The table is aligned: closing parentheses are in one column.
    let columns = |line: &str| line.match_indices('(').map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(columns(lines[at + 1]), columns(lines[at + 2]));
    assert_eq!(lines[at + 4], format!("  and {} more queries; --output FILE writes all", QUERIES - 3));
    assert_eq!(lines.len(), at + 5);
}

#[test]
fn show_sets_the_number_of_queries() {
    let search = |more: &str| bathyal(shared(), &format!("search idx queries.fbin -k 4 {more}"));
    assert!(!search("--show 0").good().contains("neighbours"));
    assert!(search("--show 0 --json").json().get("first_neighbors").is_none());
    let all = search("--show 1000 --json").json();
    assert_eq!(all["first_neighbors"].as_array().unwrap().len(), QUERIES);
    assert!(!search("--show 1000").good().contains("more queries"));
    // The same with several blocks of queries.
    assert_eq!(search("--show 9 --block 2 --json").json()["first_neighbors"].as_array().unwrap().len(), 9);
    search("--show 3 --explain").fails(2, &["cannot be used with"]);
}

#[test]
fn json_has_the_same_neighbours_as_the_output_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("found.ibin");
    let line = format!("search idx queries.fbin -k 6 --search-list 400 --json --output {}", file.display());
    let report = bathyal(shared(), &line).json();
    let found = bathyal_vectors::IdFile::open(&file).unwrap();
    let first = report["first_neighbors"].as_array().unwrap();
    assert_eq!(first.len(), 3);
    for (query, report) in first.iter().enumerate() {
        assert_eq!(report["query"], query);
        assert_eq!(report["ids"], json!(found.ids(query)));
        let distances: Vec<f64> =
            report["distances"].as_array().unwrap().iter().map(|d| d.as_f64().unwrap()).collect();
        assert!(distances.is_sorted() && distances.len() == 6);
    }
    let text = bathyal(shared(), &line.replace("--json", "")).good();
    assert!(text.ends_with("and 22 more queries, which the output file has\n"), "{text}");
}

#[test]
fn other_searches_show_neighbours_too() {
    let many = "search idx queries.fbin --also graph.idx -k 3";
    let report = bathyal(shared(), &format!("{many} --json")).json();
    assert_eq!(report["first_neighbors"][2]["ids"].as_array().unwrap().len(), 3);
    assert!(bathyal(shared(), many).good().contains("\n  query 2 "));
    let near = bathyal(shared(), "search idx queries.fbin --radius 2 --json").json();
    let id_count = |found: &Value| found["ids"].as_array().unwrap().len();
    let first: usize = near["first_neighbors"].as_array().unwrap().iter().map(id_count).sum();
    assert!(first as u64 <= near["neighbors"].as_u64().unwrap());
    // No vector is within the radius.
    let none = bathyal(shared(), "search idx queries.fbin --radius 1e-9").good();
    assert!(none.contains("  query 0        none"), "{none}");
}

#[test]
fn inspect_is_short_without_full() {
    for index in ["idx", "graph.idx"] {
        let run = |more: &str| bathyal(shared(), &format!("inspect {index} {more}"));
        let (short, full) = (run("--json").json(), run("--json --full").json());
        let left_out: Vec<&str> =
            short["left_out"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert!(left_out.contains(&"manifest.files"), "{left_out:?}");
        assert!(left_out.contains(&"manifest.structure.calibration"), "{left_out:?}");
        // With the parts that were left out, both are equal.
        let mut whole = short.clone();
        whole.as_object_mut().unwrap().remove("left_out");
        for name in &left_out {
            let pointer = format!("/{}", name.replace('.', "/"));
            assert!(short.pointer(&pointer).is_none(), "{name}");
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let parent = whole.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.insert(key.to_owned(), full.pointer(&pointer).expect(name).clone());
        }
        assert_eq!(whole, full);
        assert!(short.to_string().len() < 1500, "{} bytes", short.to_string().len());
    }
    let (short, full) =
        (bathyal(shared(), "inspect graph.idx").good(), bathyal(shared(), "inspect graph.idx --full").good());
    assert!(!short.contains('#') && short.contains("--full"), "{short}");
    assert!(full.contains("####") && full.contains("file          graph.bin"), "{full}");
}
