//! `bathyal collection`: writes and searches of rows, messages for mistakes, and the state after a kill.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use bathyal_console::Kind;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Outcome, bathyal, command, names, shared, write_vectors};

/// Runs the command with arguments that may contain spaces.
fn run(folder: &Path, arguments: &[&str]) -> Outcome {
    Outcome::of(command(folder, &[&["collection"], arguments].concat()).output().unwrap())
}

/// Runs the command with `text` on its standard input.
fn feed(folder: &Path, arguments: &[&str], text: &str) -> Outcome {
    let mut command = command(folder, &[&["collection"], arguments].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Outcome::of(child.wait_with_output().unwrap())
}

/// A folder with a collection `c` of 40 rows: ids `r0` to `r39`, vectors on a line, years and languages.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let create = "create c --id string --vector embedding:3 --column year:int64 --column lang:string \
                  --column tags:list<string>";
    run(folder.path(), &create.split(' ').collect::<Vec<_>>()).good();
    let line = |row: i64| {
        let lang = if row % 4 == 0 {
            "null".into()
        } else {
            format!("{:?}", ["-", "de", "fr", "en"][row as usize % 4])
        };
        format!(
            "{{\"id\": \"r{row}\", \"vector\": [{row}, 0, 1], \"year\": {}, \"lang\": {lang}, \"tags\": \
             [\"t{}\"]}}\n",
            2000 + row,
            row % 3
        )
    };
    let text: String = (0..40).map(line).collect();
    std::fs::write(folder.path().join("rows.jsonl"), text).unwrap();
    let printed = run(folder.path(), &["add", "c", "rows.jsonl"]).good();
    assert!(
        printed.contains("c: 40 rows: 40 added") && printed.contains("the collection has 40 rows"),
        "{printed}"
    );
    folder
}

fn first(answer: &Value) -> Vec<String> {
    let neighbors = answer["results"][0]["neighbors"].as_array().unwrap();
    neighbors.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// The search for the 3 rows nearest to a vector, without filters.
const SEARCH: [&str; 8] = ["search", "c", "--vector", "7.2,0,1", "-k", "3", "--recall", "1"];

/// Searches the collection of [`folder`] with filters, and checks the rows, their columns and the notes.
fn check_filtered_searches(here: &Path) {
    let filter = ["--filter", "year >= 2010 and lang in ('de', 'en')"];
    let answer = run(
        here,
        &[&SEARCH[..], &filter, &["--json", "--columns", "lang", "--vectors", "--explain"]].concat(),
    )
    .json();
    assert_eq!((first(&answer), &answer["k"]), (vec!["r11".into(), "r13".into(), "r15".into()], &json!(3)));
    assert_eq!(answer["results"][0]["neighbors"][1]["lang"], "de");
    assert_eq!(answer["results"][0]["neighbors"][1]["embedding"], json!([13.0, 0.0, 1.0]));
    assert!(answer["results"][0]["neighbors"][1].get("year").is_none(), "{answer}");
    assert_eq!((&answer["matches"], &answer["plans"][0]["part"]), (&json!(15), &json!("memory")));
    let printed = run(here, &[&SEARCH[..], &filter, &["--explain"]].concat()).good();
    for part in
        ["1 queries, k 3: 15 rows match the filter", "part          memory", "id   distance", "lang", "r13"]
    {
        assert!(printed.contains(part), "no {part} in {printed}");
    }
    // The JSON output has the same rows.
    let filter = ["--filter", r#"{"year": {"$gte": 2010}, "lang": {"$in": ["en", "de"]}}"#];
    assert_eq!(
        first(&run(here, &[&SEARCH[..], &filter, &["--json"]].concat()).json()),
        ["r11", "r13", "r15"]
    );
    assert_eq!(run(here, &["count", "c", "--filter", filter[1]]).good(), "15\n");
    // Fewer than k rows match.
    let ran = run(here, &[&SEARCH[..], &["--filter", "year > 2037"]].concat());
    ran.mentions(&["asked for 3 neighbours, only 2 rows match"]);
}

#[test]
fn rows_are_written_found_changed_and_counted() {
    let folder = folder();
    let here = folder.path();
    assert_eq!(first(&run(here, &[&SEARCH[..], &["--json"]].concat()).json()), ["r7", "r8", "r6"]);
    check_filtered_searches(here);

    let printed = feed(
        here,
        &["update", "c", "-"],
        "{\"id\": \"r3\", \"year\": 1900}\n{\"id\": \"x\", \"lang\": \"xx\"}\n",
    )
    .good();
    assert!(printed.contains("2 rows: 1 replaced, 1 without a row to update"), "{printed}");
    let got = run(here, &["get", "c", "r3", "--vectors"]).good();
    let expected = r#"{"id":"r3","year":1900,"lang":"en","tags":["t0"],"embedding":[3.0,0.0,1.0]}"#;
    assert_eq!(got.trim_end(), expected);
    let printed = feed(
        here,
        &["upsert", "c", "-"],
        "{\"id\": \"r3\", \"vector\": [9, 9, 9]}\n{\"id\": \"new\", \"vector\": [1, 1, 1]}",
    )
    .good();
    assert!(printed.contains("1 added, 1 replaced"), "{printed}");
    assert_eq!(
        run(here, &["get", "c", "r3", "--columns", "lang"]).good().trim_end(),
        r#"{"id":"r3","lang":null}"#
    );
    let answer = run(here, &["delete", "c", "r0", "r1", "nobody", "--json"]).json();
    assert_eq!(
        (&answer["deleted"], &answer["missing"], &answer["total"]),
        (&json!(2), &json!(1), &json!(39))
    );
    let printed = run(here, &["delete", "c", "--filter", "year < 2010"]).good();
    assert!(printed.contains("7 rows deleted, 32 remain"), "{printed}");
    run(here, &["delete", "c", "--filter", "{}"]).fails(1, &["an empty filter", "would delete all rows"]);
    run(here, &["delete", "c", "--filter", ""]).fails(2, &["--filter", "empty"]);
    std::fs::write(here.join("gone.txt"), "r20\nr21\n").unwrap();
    assert!(run(here, &["delete", "c", "--ids", "gone.txt"]).good().contains("2 rows deleted, 30 remain"));

    let report = run(here, &["inspect", "c", "--json"]).json();
    assert_eq!((&report["rows"], &report["schema"]["id"]), (&json!(30), &json!("string")));
    let printed = run(here, &["compact", "c"]).good();
    assert!(printed.contains("0 segments became 1"), "{printed}");
    let printed = run(here, &["inspect", "c"]).good();
    for part in [
        "a collection of 30 rows",
        "embedding: 3 f32, l2, cluster",
        "tags: list<string>",
        "30 rows in 1 segments",
    ] {
        assert!(printed.contains(part), "no {part} in {printed}");
    }
    assert!(run(here, &["verify", "c"]).good().contains("c: sound: 30 rows"));
    assert_eq!(first(&run(here, &[&SEARCH[..], &["--json"]].concat()).json())[0], "r10");
}

#[test]
fn collections_move_through_files_and_are_copied() {
    let folder = folder();
    let here = folder.path();
    for file in ["out.parquet", "out.arrow"] {
        let answer = run(here, &["export", "c", file, "--json"]).json();
        assert_eq!((&answer["rows"], &answer["ids"]), (&json!(40), &Value::Null));
        let second = format!("{file}.collection");
        run(here, &["create", &second, "--like", file]).good();
        run(here, &["import", &second, file]).good();
        let line = |collection: &str| run(here, &["get", collection, "r7", "r8", "--vectors"]).good();
        assert_eq!(line(&second), line("c"));
    }
    let printed = run(
        here,
        &["export", "c", "some.jsonl", "--filter", "year < 2003", "--columns", "year", "--no-vectors"],
    )
    .good();
    assert!(printed.contains("some.jsonl: 3 rows from c"), "{printed}");
    let text = std::fs::read_to_string(here.join("some.jsonl")).unwrap();
    assert_eq!(text.lines().next(), Some(r#"{"id":"r0","year":2000}"#));
    run(here, &["export", "c", "base.fbin"]).good();
    assert_eq!(names(here).iter().filter(|name| name.starts_with("base")).count(), 2, "{:?}", names(here));
    let report = run(here, &["inspect", "c", "--json"]).json();
    std::fs::write(here.join("schema.json"), report.to_string()).unwrap();
    run(here, &["create", "third", "--schema", "schema.json"]).good();
    run(here, &["add", "third", "base.fbin", "--ids", "base.ids.txt"]).good();
    assert_eq!(run(here, &["count", "third"]).good(), "40\n");
    let printed = run(here, &["copy", "c", "fourth"]).good();
    assert!(printed.contains("fourth: 40 rows in 1 segments"), "{printed}");
    run(here, &["copy", "c", "fourth"]).fails(1, &["fourth: already exists"]);
    assert_eq!(run(here, &["count", "fourth", "--filter", "contains(tags, 't0')"]).good(), "14\n");
}

#[test]
fn the_rows_found_by_many_queries_are_written_to_a_file() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    write_vectors(here, "base.fbin", 3000, 12, 1);
    write_vectors(here, "queries.fbin", 20, 12, 2);
    run(here, &["create", "c", "--like", "base.fbin", "--metric", "euclidean", "--quiet"]).good();
    run(here, &["add", "c", "base.fbin"]).good();
    run(here, &["compact", "c"]).good();
    let ran = run(here, &["search", "c", "queries.fbin", "-k", "5", "--output", "found.jsonl"]);
    assert!(ran.good().contains("and 17 more queries, which the output file has"));
    let text = std::fs::read_to_string(here.join("found.jsonl")).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (text.lines().count(), &last["query"], last["neighbors"].as_array().unwrap().len()),
        (20, &json!(19), 5)
    );
    run(here, &["search", "c", "queries.fbin", "--output", "found.ibin"]).fails(2, &["found.ibin", ".jsonl"]);
    run(here, &["search", "c", "base.fbin", "-k", "1", "--filter", "id = 17", "--show", "1"]).mentions(&[]);
    run(here, &["get", "c", "17", "99999"]).fails_with_answer(1, &["there is no row with the id \"99999\""]);
    run(here, &["get", "c", "seventeen"]).fails(2, &["\"seventeen\" is not a whole number"]);
}

impl Outcome {
    /// As [`Outcome::fails`], for a command that also prints an answer.
    #[track_caller]
    fn fails_with_answer(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.stdout.is_empty());
        self.mentions(parts);
    }
}

#[test]
fn messages_for_mistakes_name_what_is_valid() {
    let folder = folder();
    let here = folder.path();
    let cases: [(&[&str], i32, &[&str]); 22] = [
        (&["search", "c", "--vector", "1,2", "-k", "3"], 2, &["--vector has 2 numbers", "have 3"]),
        (&["search", "c", "--vector", "1,2,x"], 2, &["invalid value 'x'"]),
        (&["search", "c"], 2, &["QUERIES"]),
        (&["search", "c", "--vector", "1,2,3", "--filter", "year >="], 2, &["--filter"]),
        (&["search", "c", "--vector", "1,2,3", "--filter", "{\"year\": {\"$gtr\": 1}}"], 2, &["$gtr"]),
        (&["search", "c", "--vector", "1,2,3", "--filter", "{\"year\": "], 2, &["is not valid JSON"]),
        (&["search", "c", "--vector", "1,2,3", "--filter", "yaer = 1"], 1, &["yaer", "year"]),
        (&["search", "c", "--vector", "1,2,3", "--filter", "year = 'x'"], 1, &["year"]),
        (
            &["search", "c", "--vector", "1,2,3", "--columns", "yaer"],
            1,
            &["there is no column \"yaer\"; there is year"],
        ),
        (
            &["search", "c", "--vector", "1,2,3", "--field", "title"],
            1,
            &["there is no field of vectors \"title\""],
        ),
        (&["search", "c", "--vector", "1,2,3", "--where", "year = 1"], 2, &["'--filter'"]),
        (&["search", "nothing", "--vector", "1,2,3"], 1, &["nothing: is not a collection", "create"]),
        (&["add", "c", "rows.jsonl"], 1, &["40 of the ids are there already", "nothing was written"]),
        (&["add", "c", "rows.csv"], 1, &["rows.csv", ".parquet"]),
        (&["add", "c", "none.parquet"], 1, &["none.parquet", "find the file"]),
        (&["add", "c", "rows.jsonl", "--durability", "maybe"], 2, &["disk, system"]),
        (&["create", "c", "--vector", "v:3"], 1, &["c: already exists"]),
        (&["create", "d"], 2, &["--vector"]),
        (&["create", "d", "--vector", "v:3:f32:l2:more"], 2, &["NAME:DIM:ELEMENT:METRIC"]),
        (&["create", "d", "--vector", "v:3", "--column", "v:int64"], 1, &["\"v\" is there twice"]),
        (&["create", "d", "--vector", "v:3", "--max-degree", "9"], 2, &["max_degree is an option of graph"]),
        (&["delete", "c"], 2, &["ID"]),
    ];
    for (arguments, code, parts) in cases {
        run(here, arguments).fails(code, parts);
        let ran = run(here, &[arguments, &["--json"]].concat());
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let kind = report["error"]["kind"].as_str().unwrap();
        assert!(Kind::ALL.iter().any(|known| known.name() == kind && *known != Kind::Internal), "{report}");
    }
    assert!(!here.join("d").exists());
    assert_eq!(run(here, &["count", "c"]).good(), "40\n");
    let kind = |arguments: &[&str]| {
        let ran = run(here, &[arguments, &["--json"]].concat());
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["error"]["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(&["count", "nothing"]), "not_found");
    std::fs::create_dir(here.join("empty")).unwrap();
    assert_eq!(kind(&["count", "empty"]), "not_an_index");
    assert_eq!(kind(&["add", "c", "rows.jsonl"]), "exists");
    assert_eq!(kind(&["get", "c", "nobody"]), "not_found");
    std::fs::write(here.join("bad.jsonl"), "{\"id\": 1}").unwrap();
    assert_eq!(kind(&["add", "c", "bad.jsonl"]), "invalid_data");
}

#[test]
fn commands_for_indexes_name_the_command_for_a_collection() {
    let folder = folder();
    let here = folder.path();
    write_vectors(here, "queries.fbin", 3, 3, 1);
    for (line, instead) in [
        ("search c queries.fbin", "search"),
        ("inspect c", "inspect"),
        ("verify c", "verify"),
        ("get c 1", "get"),
        ("insert c queries.fbin", "add"),
        ("delete c --ids 1", "delete"),
        ("compact c", "compact"),
        ("copy c elsewhere", "copy"),
    ] {
        bathyal(here, line)
            .fails(3, &["c: is a collection, not an index", &format!("`bathyal collection {instead} c`")]);
    }
    bathyal(here, "build c built --metric l2").fails(1, &["c: is a collection; export it first"]);
    // A command for collections on an index.
    bathyal(shared(), "collection count idx").fails(3, &["idx: is not a collection"]);
}

#[test]
fn damage_is_found_and_gives_exit_code_3() {
    let folder = folder();
    let here = folder.path();
    run(here, &["compact", "c"]).good();
    let rows = names(&here.join("c")).into_iter().find(|name| name.ends_with("-rows")).unwrap();
    let file = here.join("c").join(rows).join("rows.parquet");
    let mut content = std::fs::read(&file).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&file, content).unwrap();
    let ran = run(here, &["verify", "c", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.code, &report["sound"], &report["error"]["kind"]),
        (Some(3), &json!(false), &json!("damaged")),
        "{report}"
    );
}

/// Starts an import of far more rows than the memory for writes holds, sends a signal meanwhile, and returns
/// the outcome.
#[cfg(unix)]
fn interrupted(here: &Path, signal: i32) -> Outcome {
    let arguments =
        ["collection", "add", "big", "base.fbin", "--progress", "--write-memory", "4MB", "--json"];
    let mut child = command(here, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let first = lines.next().expect("progress is shown").unwrap();
    assert!(first.contains("% after"), "{first}");
    // SAFETY: sends a signal to a child of this process that nobody has waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    let stderr: Vec<String> = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    Outcome { stderr: stderr.join("\n"), ..Outcome::of(output) }
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_a_kill_leave_whole_batches() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    write_vectors(here, "base.fbin", 60_000, 64, 1);
    run(here, &["create", "big", "--like", "base.fbin"]).good();
    let ran = interrupted(here, libc::SIGINT);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    ran.mentions(&["cancelled; of base.fbin the first ", "rows were written"]);
    let count = || run(here, &["count", "big"]).good().trim().parse::<u64>().unwrap();
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let message = report["error"]["message"].as_str().unwrap();
    let printed: u64 =
        message.split("the first ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(count(), printed);
    run(here, &["delete", "big", "--filter", "id >= 0"]).good();
    let ran = interrupted(here, libc::SIGKILL);
    assert_eq!(ran.code, None, "{ran:?}");
    let left = count();
    assert!(left > 0 && left < 60_000, "{left}");
    run(here, &["verify", "big"]).good();
    let answer = run(here, &["upsert", "big", "base.fbin", "--json"]).json();
    assert_eq!(
        (&answer["rows"], &answer["replaced"], &answer["total"]),
        (&json!(60_000), &json!(left), &json!(60_000))
    );
}

/// Returns the only folder of the collection `c` whose name begins with `begin` and ends with `end`.
fn part(here: &Path, begin: &str, end: &str) -> std::path::PathBuf {
    let parts = std::fs::read_dir(here.join("c")).unwrap().map(|entry| entry.unwrap().path());
    let fits = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end)
    };
    let mut parts: Vec<_> = parts.filter(fits).collect();
    parts.sort();
    parts.pop().unwrap()
}

#[test]
fn repair_saves_a_damaged_collection_and_prints_the_losses() {
    let folder = folder();
    let here = folder.path();
    // An undamaged collection is saved whole.
    let printed = run(here, &["repair", "c", "--to", "whole"]).good();
    assert!(printed.contains("whole: 40 rows of c: nothing is lost"), "{printed}");
    assert_eq!(run(here, &["count", "whole"]).good(), "40\n");
    run(here, &["repair", "c", "--to", "whole"]).fails(1, &["whole: already exists"]);
    run(here, &["compact", "c"]).good();
    let rows = "{\"id\": \"late\", \"vector\": [9, 9, 9]}\n{\"id\": \"later\", \"vector\": [8, 8, 8]}\n";
    feed(here, &["add", "c", "-"], rows).good();
    // Without its metadata a segment loses its rows; their ids are known.
    let metadata = part(here, "s-", "-rows").join("rows.parquet");
    let bytes = std::fs::read(&metadata).unwrap();
    std::fs::write(&metadata, vec![0; bytes.len()]).unwrap();
    let repair = ["repair", "c", "--to", "less", "--lost-ids", "lost.jsonl"];
    let ran = run(here, &repair);
    assert!(ran.stdout.contains("less: 2 rows of c: 40 rows are lost"), "{}", ran.stdout);
    assert_eq!(ran.code, Some(3));
    ran.mentions(&["not all of c could be saved", "40 rows are lost"]);
    assert_eq!(run(here, &["count", "less"]).good(), "2\n");
    run(here, &["verify", "less"]).good();
    let lost = std::fs::read_to_string(here.join("lost.jsonl")).unwrap();
    assert!(lost.lines().count() == 40 && lost.contains("{\"id\":\"r39\"}"), "{lost}");
    std::fs::write(&metadata, bytes).unwrap();
    // The latest log is missing: the rest must not pass for the whole collection.
    std::fs::remove_dir_all(part(here, "l-", "")).unwrap();
    run(here, &["count", "c"]).fails(3, &["l-", "is not there", "repair"]);
    let ran = run(here, &["repair", "c", "--to", "early", "--json"]);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&answer["rows"], &answer["lost_log"], &answer["complete"]),
        (&json!(40), &json!(true), &json!(false))
    );
    assert_eq!(ran.code, Some(3));
    ran.mentions(&["the newest log is missing"]);
    assert_eq!(run(here, &["count", "early"]).good(), "40\n");
}
