//! Names from other systems, and how much the command prints.

use crate::harness::{bathyal, copy, shared};

#[test]
fn metric_names_of_other_systems_are_understood_with_a_note() {
    let folder = copy();
    let cases = [
        ("euclidean", "l2", "squared"),
        ("Dot", "ip", "negated"),
        ("angular", "cosine", "1 - cosine"),
        ("inner-product", "ip", "negated"),
    ];
    for (name, metric, words) in cases {
        let ran = bathyal(folder.path(), &format!("build base.fbin {name} --metric={name} --json"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.mentions(&[&format!("note: the metric '{name}' is called {metric} here"), words]);
        assert_eq!(ran.stderr.matches("note:").count(), 1, "{}", ran.stderr);
        let built: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(built["metric"], metric);
    }
    // No note with --quiet, or for another spelling of the same name.
    bathyal(folder.path(), "build base.fbin plain --metric L2").good();
    bathyal(folder.path(), "build base.fbin quiet --metric euclidean --quiet").good();
    let ran = bathyal(folder.path(), "groundtruth base.fbin queries.fbin x.ibin --metric COS -k 3");
    ran.mentions(&["the metric 'COS' is called cosine"]);
    // Either name gives the same index.
    let identity = |index: &str| {
        bathyal(folder.path(), &format!("inspect {index} --json")).json()["manifest"]["identity"].clone()
    };
    assert_eq!(identity("plain"), identity("euclidean"));
}

#[test]
fn names_of_other_systems_are_refused_with_a_hint() {
    let (search, build) = ("search idx queries.fbin", "build base.fbin other --metric l2");
    let bench = "bench idx queries.fbin --groundtruth gt.ibin";
    let groundtruth = "groundtruth base.fbin queries.fbin x.ibin";
    let cases = [
        (search, "--nprobe 8", "'--probes'"),
        (search, "--top-k=5", "'-k'"),
        (search, "--topk 5", "'-k'"),
        (search, "-K 5", "'-k'"),
        (search, "--ef 100", "'--search-list'"),
        (search, "--efSearch 100", "'--search-list'"),
        (search, "-L 100", "'--search-list'"),
        (search, "--metric euclidean", "the metric belongs to the index"),
        (search, "--distance l2", "the metric belongs to the index"),
        (search, "--out x.ibin", "'--output'"),
        (search, "-o x.ibin", "'--output'"),
        (search, "--num-threads 4", "'--threads'"),
        (search, "-j4", "'--threads'"),
        (search, "--gt gt.ibin", "'--groundtruth'"),
        (search, "--ram 1GB", "'--memory'"),
        (search, "--width 4", "'--in-flight'"),
        (bench, "--ef 100", "'--search-lists'"),
        (bench, "-W 8", "'--beam-width'"),
        (build, "--distance l2", "'--metric'"),
        (build, "-R 32", "'--max-degree'"),
        (build, "--M 32", "'--max-degree'"),
        (build, "-M 32", "'--max-degree'"),
        (build, "--ef-construction 200", "'--search-list'"),
        (build, "--nlist 100", "--group-vectors"),
        (build, "--force", "'--overwrite'"),
        (build, "--output other", "the index is the second argument"),
        (build, "--index-type hnsw", "'--family'"),
        (build, "--dtype i8", "--store-as"),
        (build, "--probes 3", "--probes is an option of search"),
        (groundtruth, "--metrics l2", "'--metric'"),
        (groundtruth, "--space l2", "'--metric'"),
        (groundtruth, "--output y.ibin", "the output is the third argument"),
    ];
    for (line, slip, answer) in cases {
        let ran = bathyal(shared(), &format!("{line} {slip}"));
        ran.mentions(&["unexpected argument", answer]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{slip}: {ran:?}");
    }
    // The help does not show them.
    for command in ["search", "build", "bench", "groundtruth"] {
        let help = bathyal(shared(), &format!("{command} --help")).good();
        assert!(!help.contains("nprobe") && !help.contains("--force") && !help.contains("--gt "), "{help}");
    }
}

#[test]
fn equivalent_spellings_are_accepted() {
    let run = |more: &str| bathyal(shared(), &format!("search idx queries.fbin --json {more}")).json();
    for more in ["-k 4", "-k4", "--k 4", "--k=4"] {
        assert_eq!(run(more)["k"], 4, "{more}");
    }
    assert_eq!(run("--threads auto")["threads"], run("--threads=0")["threads"]);
    bathyal(shared(), "search idx queries.fbin --threads many").fails(2, &["0 or auto means all cores"]);
}

#[test]
fn quiet_prints_only_the_answer() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    let noisy = "search idx queries.fbin --device gpu:100,cpu";
    assert!(run(noisy).stderr.contains("note: "));
    assert!(run(&format!("{noisy} --quiet")).good().contains("recall@10"));
    assert!(run(&format!("-q {noisy}")).good().contains("recall@10"));
    // The error of a failed command is printed all the same.
    run("search none queries.fbin -q").fails(1, &["bathyal: none"]);
    for line in ["search idx queries.fbin -qv", "verify idx --quiet --progress", "-q verify idx -v"] {
        run(line).fails(2, &["--quiet and --", "contradict each other"]);
    }
    let help = run("verify --help").good();
    assert!(help.contains("-q, --quiet") && help.contains("-v, --verbose"), "{help}");
}

#[test]
fn verbose_prints_details() {
    let folder = copy();
    let run = |line: &str| {
        let ran = bathyal(folder.path(), line);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    };
    let built = run("build base.fbin told --metric euclidean -v --family graph --max-degree 8");
    built.mentions(&[
        "metric             euclidean (given)",
        "threads            0 (default)",
        "opened base.fbin: 400 vectors of 12 f32",
        "planned: graph index of 400 vectors",
        "first pass: ",
        "calibrating: ",
    ]);
    assert!(built.stdout.starts_with("told: 400 vectors"), "{}", built.stdout);
    let searched = run("search told queries.fbin -v --json");
    searched.mentions(&[
        "opened told: graph index, 400 vectors of 12 f32, l2, in ",
        "opened queries.fbin: 25 ",
        "searched with search_list ",
    ]);
    let answer: serde_json::Value = serde_json::from_str(&searched.stdout).unwrap();
    assert_eq!(answer["queries"], 25);
    for line in [
        "inspect told",
        "verify told",
        "copy told other",
        "convert base.fbin base.fvecs",
        "groundtruth base.fbin queries.fbin gt2.ibin",
        "bench told queries.fbin --groundtruth gt.ibin --search-lists 20 --repeats 1",
        "convert-layout told packed --layout csr",
    ] {
        let ran = run(&format!("{line} --verbose"));
        let command = line.split(' ').next().unwrap();
        ran.mentions(&[&format!("bathyal {} {command}\n", env!("CARGO_PKG_VERSION")), "(given)"]);
    }
}
