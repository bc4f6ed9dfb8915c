//! Invalid command lines (exit code 2), and parameters that the library refuses (exit code 1).

use crate::harness::{VECTORS, bathyal, shared};

#[test]
fn an_invalid_command_line_is_a_usage_error() {
    let cases: [(&str, &[&str]); 22] = [
        ("", &["Usage: bathyal"]),
        ("polish idx", &["unrecognized subcommand 'polish'"]),
        ("search idx", &["<QUERIES>"]),
        ("search idx queries.fbin -k 0", &["invalid value '0'", "1..="]),
        ("search idx queries.fbin -k ten", &["invalid value 'ten'"]),
        ("search idx queries.fbin --recall 1.5", &["recall is 1.5", "above 0 and at most 1"]),
        ("search idx queries.fbin --recall 0.9 --search-list 50", &["give one of them"]),
        ("search idx queries.fbin --tier tape", &["invalid value 'tape'", "file", "dram"]),
        ("search idx queries.fbin --device tpu", &["unknown device 'tpu'", "cpu, gpu, gpu:N"]),
        ("search idx queries.fbin --numa both", &["invalid value 'both'", "off, interleave, copy"]),
        ("search idx queries.fbin --radius near", &["invalid value 'near'"]),
        ("search idx queries.fbin --radius 1 --search-list 50", &["cannot be used with"]),
        ("search idx queries.fbin --limit 5", &["--radius"]),
        ("build base.fbin other --metric l2 --family forest", &["forest", "cluster", "graph"]),
        ("build base.fbin other", &["--metric"]),
        ("build base.fbin other --metric manhattan", &["unknown metric 'manhattan'", "l2, ip, cosine"]),
        ("build base.fbin other --metric l2 --memory lots", &["'lots' is no size", "2GB"]),
        ("build base.fbin other --metric l2 --code-kind morse", &["morse"]),
        ("build base.fbin other --metric l2 --store-as u8", &["unknown form 'u8'", "f16 or i8"]),
        ("build base.fbin other --metric l2 --code pq", &["--code-kind"]),
        ("search idx queries.fbin --width 4", &["--in-flight"]),
        ("convert base.fbin other.fbin --rows 5..5", &["FIRST..LAST"]),
    ];
    for (line, parts) in cases {
        bathyal(shared(), line).fails(2, parts);
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_the_range() {
    let (search, graph) = ("search idx queries.fbin", "build base.fbin other --metric l2 --family graph");
    let cases: [(String, i32, &[&str]); 15] = [
        (format!("{search} --tier gpu"), 1, &["the tier gpu", "--device gpu"]),
        (format!("{search} --mini-batch 8"), 1, &["--mini-batch", "--device gpu"]),
        // The machine has no driver, or no such card.
        (format!("{search} --device gpu:100"), 1, &["graphics card"]),
        (format!("{graph} --device gpu:100"), 1, &["graphics card"]),
        ("groundtruth base.fbin queries.fbin x.ibin --device gpu:100".into(), 1, &["graphics card"]),
        (format!("{search} -k 10 --search-list 5"), 1, &["search_list is 5", "at least k = 10"]),
        (format!("{search} --beam-width 100000"), 2, &["beam_width is 100000", "between 1 and"]),
        (format!("{search} --beam-width 0"), 2, &["beam_width is 0", "between 1 and"]),
        (format!("{search} --multi-probe 65"), 2, &["multi_probe is 65", "at most 64"]),
        (format!("{graph} --alpha 0.5"), 2, &["alpha is 0.5", "between 1 and"]),
        (format!("{graph} --max-degree 0"), 2, &["max_degree is 0", "between 1 and"]),
        (format!("{graph} --max-degree many"), 2, &["max_degree is \"many\"", "expected u32"]),
        (format!("{graph} --layout coupled"), 2, &["layout", "padded, page_local or csr"]),
        (format!("{graph} --search-list 0"), 2, &["search_list is 0", "between 1 and"]),
        (
            format!("groundtruth base.fbin queries.fbin other.ibin -k {}", VECTORS + 1),
            1,
            &["k = 401", "1 to 400"],
        ),
    ];
    for (line, code, parts) in cases {
        bathyal(shared(), &line).fails(code, parts);
    }
    assert!(!shared().join("other").exists());
}

#[test]
fn options_of_another_family_are_refused_by_name() {
    let cases: [(&str, &[&str]); 3] = [
        ("", &["max_degree is an option of graph, not of cluster", "group_vectors"]),
        ("--family cluster", &["max_degree is an option of graph, not of cluster", "group_vectors"]),
        ("--family spann", &["max_degree is an option of graph, not of spann", "centroid_share"]),
    ];
    for (family, parts) in cases {
        bathyal(shared(), &format!("build base.fbin other --metric l2 {family} --max-degree 16"))
            .fails(2, parts);
    }
    bathyal(shared(), "build base.fbin other --metric l2 --family tree")
        .fails(2, &["tree", "cluster", "graph"]);
    assert!(!shared().join("other").exists());
}

#[test]
fn a_budget_too_small_is_refused_with_the_number_needed() {
    let build = bathyal(shared(), "build base.fbin other --metric l2 --memory 1MB");
    build.fails(1, &["building this index needs", "bytes", "1000000 bytes (1.00 MB) are allowed"]);
    let search = bathyal(shared(), "search idx queries.fbin --memory 1kB");
    search.fails(1, &["needs", "1000 bytes", "allow at least that much"]);
    assert!(!shared().join("other").exists());
}
