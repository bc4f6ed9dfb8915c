//! Completions, manual pages, and plans of builds.

use std::process::Command;

use crate::harness::{bathyal, copy, names, shared};

#[test]
fn every_shell_gets_completions() {
    let marks = [
        ("bash", "complete -F _bathyal"),
        ("zsh", "#compdef bathyal"),
        ("fish", "complete -c bathyal"),
        ("elvish", "edit:completion:arg-completer[bathyal]"),
        ("powershell", "Register-ArgumentCompleter"),
    ];
    for (shell, mark) in marks {
        let script = bathyal(shared(), &format!("completions {shell}")).good();
        for part in [mark, "search", "groundtruth", "search-list", "verbose", "group-vectors"] {
            assert!(script.contains(part), "{shell}: no {part}");
        }
        assert!(!script.contains("nprobe") && !script.contains("ef-construction"), "{shell} teaches slips");
        let report = bathyal(shared(), &format!("completions {shell} --json")).json();
        assert_eq!(
            (&report["shell"], report["script"].as_str().map(str::trim_end)),
            (&shell.into(), Some(script.trim_end()))
        );
    }
    bathyal(shared(), "completions tcsh")
        .fails(2, &["invalid value 'tcsh'", "bash, elvish, fish, powershell, zsh"]);
}

#[cfg(unix)]
#[test]
fn bash_understands_its_completions() {
    let script = bathyal(shared(), "completions bash").good();
    // The script is too long for an argument of a process.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bathyal.bash");
    std::fs::write(&file, script).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
    // Check that it completes commands.
    let asked = "source \"$1\"; COMP_WORDS=(bathyal sea); COMP_CWORD=1; _bathyal bathyal sea bathyal; \
                 echo \"${COMPREPLY[*]}\"";
    let ran = Command::new("bash").args(["-c", asked, "bash"]).arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "search", "{ran:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let report = bathyal(folder.path(), "man --output pages/man1 --json").json();
    let pages = names(&folder.path().join("pages/man1"));
    assert_eq!(report["pages"], serde_json::json!(pages));
    let commands = [
        "build",
        "search",
        "bench",
        "groundtruth",
        "convert",
        "convert-layout",
        "convert-stripes",
        "copy",
        "prune",
        "remove",
        "list",
        "warm",
        "memory-node",
        "insert",
        "delete",
        "compact",
        "collection",
        "collection-create",
        "collection-search",
        "inspect",
        "verify",
        "probe",
        "completions",
        "man",
    ];
    for command in commands {
        assert!(pages.contains(&format!("bathyal-{command}.1")), "{command}: {pages:?}");
    }
    assert!(pages.contains(&"bathyal.1".to_owned()) && !pages.iter().any(|page| page.contains("help")));
    for page in &pages {
        let text = std::fs::read_to_string(folder.path().join("pages/man1").join(page)).unwrap();
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{page}");
        assert!(!text.contains("nprobe"), "{page} teaches slips");
    }
    let page = bathyal(shared(), "man search").good();
    assert!(page.contains("search\\-list") && page.contains("Examples"), "{page}");
    assert!(bathyal(shared(), "man").good().contains(".TH bathyal 1"));
    assert!(bathyal(shared(), "man collection create").good().contains("collection"));
    bathyal(shared(), "man polish").fails(2, &["bathyal has no command 'polish'", "search"]);
    bathyal(shared(), "man search polish").fails(2, &["bathyal search has no command 'polish'; it has none"]);
    let refused = bathyal(shared(), "man --output base.fbin");
    refused.fails(1, &["base.fbin: cannot write the pages"]);
}

#[test]
fn a_plan_agrees_with_the_build() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    for family in ["cluster", "graph", "spann", "flat", "lsh", "partitioned"] {
        let line = format!("build base.fbin {family} --metric l2 --family {family} --json");
        let plan = run(&format!("{line} --plan")).json();
        assert!(!folder.path().join(family).exists(), "{family} was built");
        let built = run(&line).json();
        assert_eq!(built["planned_memory_bytes"], plan["memory"]["planned_bytes"], "{family}");
        let number = |key: &str| plan[key].as_u64().unwrap();
        let bounds = number("least_index_bytes")..=number("most_index_bytes");
        assert!(bounds.contains(&built["index_bytes"].as_u64().unwrap()), "{family}: {bounds:?}");
        assert_eq!((&plan["family"], &plan["vectors"]), (&family.into(), &400.into()));
    }
    let text = run("build base.fbin other --metric l2 --plan --family graph --memory 1GB").good();
    for part in [
        "graph index of 400 vectors of 12 f32, l2",
        "max_degree 64",
        "1.00 GB allowed: fits",
        "graph.bin",
        "calibrating",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    // A plan that needs more memory is printed with advice, and fails as the build does.
    let small = run("build base.fbin other --metric l2 --plan --memory 1MB --json");
    let plan: serde_json::Value = serde_json::from_str(&small.stdout).unwrap();
    assert_eq!((&plan["memory"]["fits"], &plan["error"]["kind"]), (&false.into(), &"memory".into()));
    assert!(plan["memory"]["advice"].as_str().unwrap().contains("allow at least that much"));
    let refused = run("build base.fbin other --metric l2 --memory 1MB");
    assert_eq!((refused.code, &refused.stderr), (small.code, &small.stderr));
    let needed = &plan["memory"]["needed_bytes"];
    run(&format!("build base.fbin --metric l2 --plan --memory {needed}")).good();
    let text = run("build base.fbin other --metric l2 --plan --memory 1MB");
    assert!(text.code == Some(1) && text.stdout.contains("TOO LITTLE"), "{text:?}");
    run("build none.fbin other --metric l2 --plan").fails(1, &["none.fbin"]);
    run("build base.fbin other --metric l2 --plan --store-as f16 --code-bytes 99999")
        .fails(2, &["code_bytes"]);
    assert!(!folder.path().join("other").exists());
}

#[test]
fn vectors_that_do_not_exist_are_planned_like_a_file() {
    let folder = copy();
    let run = |line: &str| bathyal(folder.path(), line);
    for family in ["cluster", "graph", "spann", "flat", "lsh", "partitioned"] {
        let options = format!("--metric l2 --family {family} --memory 1GB --plan --json");
        let of_file = run(&format!("build base.fbin {options}")).json();
        let of_shape = run(&format!("build --vectors 400 --dim 12 {options}")).json();
        assert_eq!(of_file, of_shape, "{family}");
    }
    let large = "build --plan --vectors 100000000 --dim 768 --metric cosine --json";
    let plan = run(&format!("{large} --element f16 --memory 64GB")).json();
    assert_eq!((&plan["element"], &plan["data_bytes"]), (&"f16".into(), &153_600_000_000_u64.into()));
    assert!(plan["least_index_bytes"].as_u64() > plan["data_bytes"].as_u64());
    run(&format!("{large} --memory 1MB")).fails(1, &["building this index needs"]);
    run("build other --vectors 9 --dim 3 --metric l2").fails(2, &["--vectors"]);
    run("build --vectors 9 --dim 3 --metric l2").fails(2, &["--plan"]);
    run("build --plan --vectors 9 --metric l2").fails(2, &["--dim"]);
    run("build --plan --metric l2").fails(2, &["DATA"]);
    run("build base.fbin --metric l2").fails(2, &["INDEX"]);
    run("build --plan --vectors 0 --dim 3 --metric l2").fails(1, &["no vectors"]);
    run("build --plan --vectors 9 --dim 65537 --metric l2").fails(1, &["dim"]);
    run("build --plan --vectors 5000000000 --dim 3 --metric l2").fails(1, &["4294967295"]);
    run("build base.fbin --plan --metric l2 --element f16").fails(2, &["--vectors"]);
}
