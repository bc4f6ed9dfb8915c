//! Options that a family does not have. They are refused by name, and the error lists the options of the
//! family.

use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GivenOptions, GraphOptions, Index, IndexError,
    OpenOptions, PartitionedOptions, RangeOptions, SearchMode, SearchOptions, SpannOptions, build, families,
    inspect,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;

/// Returns each family with the search options that it has.
fn kinds() -> [(FamilyOptions, &'static [&'static str]); 7] {
    [
        (ClusterOptions::default().into(), &["search_list", "probes"]),
        (GraphOptions::default().into(), &["search_list", "beam_width", "mode"]),
        (SpannOptions::default().into(), &["search_list", "probes", "prune", "mode"]),
        (FlatOptions::default().into(), &[]),
        (PartitionedOptions::default().into(), &["search_list", "probes"]),
        (LshOptions::default().into(), &["search_list", "probes", "multi_probe", "ratio", "probability"]),
        (FlatOptions { code_bytes: Some(8), ..FlatOptions::default() }.into(), &["search_list"]),
    ]
}

/// Returns search options with one of them set, by name.
fn search_options() -> [(&'static str, SearchOptions); 8] {
    let options = SearchOptions { effort: Effort::Recall(0.9), ..SearchOptions::default() };
    [
        ("search_list", SearchOptions { effort: Effort::SearchList(20), ..options }),
        ("probes", SearchOptions { probes: Some(3), ..options }),
        ("prune", SearchOptions { prune: Some(0.5), ..options }),
        ("beam_width", SearchOptions { beam_width: Some(2), ..options }),
        ("multi_probe", SearchOptions { multi_probe: Some(0), ..options }),
        ("mode", SearchOptions { mode: Some(SearchMode::Batched), ..options }),
        ("ratio", SearchOptions { effort: Effort::Ratio(1.1), ..options }),
        (
            "probability",
            SearchOptions { effort: Effort::Probability { probability: 0.01, within: 50.0 }, ..options },
        ),
    ]
}

/// Returns the message of the error of an outcome.
fn refusal<T>(outcome: Result<T, IndexError>) -> String {
    match outcome.err() {
        Some(IndexError::Parameter(what)) => what,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_effort_that_a_family_does_not_have_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 500, 16, 1), vectors(Element::U8, 5, 16, 2));
    for (number, (family, known)) in kinds().into_iter().enumerate() {
        let name = family.family();
        let path = dir.path().join(number.to_string());
        build(&data, &path, &BuildOptions::of(family), &Silent).unwrap();
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        for (option, options) in search_options() {
            let found = index.search(&queries, &options, Control::default());
            let explained = index.explain(&queries, 0, &options, Control::default());
            let warmed = index.warm(&options, Control::default());
            if known.contains(&option) {
                assert_eq!(found.unwrap().ids.len(), 50, "{name} {option}");
                assert_eq!(explained.unwrap().ids.len(), 10, "{name} {option}");
                assert!(warmed.unwrap().queries > 0, "{name} {option}");
                continue;
            }
            let what = refusal(found);
            assert!(what.contains(&format!("{name} index knows no {option}")), "{what}");
            let listed = if known.is_empty() { "none".into() } else { known.join(", ") };
            assert!(what.ends_with(&format!("it knows {listed}")), "{what}");
            assert_eq!((refusal(explained), refusal(warmed)), (what.clone(), what));
        }
        let ranges = [
            ("beam_width", RangeOptions { beam_width: Some(2), ..RangeOptions::default() }),
            ("mode", RangeOptions { mode: Some(SearchMode::Pipelined), ..RangeOptions::default() }),
        ];
        for (option, options) in ranges {
            let found = index.range_search(&queries, 100.0, &options, Control::default());
            if known.contains(&option) {
                assert_eq!(found.unwrap().offsets.len(), 6, "{name} {option}");
            } else {
                let what = refusal(found);
                assert!(what.contains(&format!("knows no {option}")), "{what}");
            }
        }
    }
}

#[test]
fn build_options_of_another_family_or_of_none_are_refused_by_name() {
    let refused = |family: &str, name: &str, value: serde_json::Value| {
        refusal(families::options(family, &GivenOptions::from([(name.to_owned(), value)])))
    };
    for (family, name, owners) in [
        ("cluster", "max_degree", "graph"),
        ("cluster", "layout", "graph and spann"),
        ("graph", "group_vectors", "cluster"),
        ("graph", "centroid_share", "spann"),
        ("spann", "search_list", "graph"),
        ("spann", "group_vectors", "cluster"),
    ] {
        let what = refused(family, name, 8.into());
        assert!(what.starts_with(&format!("{name} is an option of {owners}, not of {family}")), "{what}");
        let own = families::find(family).unwrap().options.iter().map(|option| option.name);
        assert!(what.ends_with(&own.collect::<Vec<_>>().join(", ")), "{what}");
    }
    let what = refused("graph", "colour", "red".into());
    assert!(what.contains("colour is an option of no family") && what.contains("max_degree"), "{what}");
    let what = refusal(families::options("forest", &GivenOptions::new()));
    assert!(
        what.contains("forest") && kinds().iter().all(|(kind, _)| what.contains(kind.family())),
        "{what}"
    );
}

#[test]
fn values_that_an_option_does_not_take_are_refused_by_name() {
    for (family, name, value, expected) in [
        ("graph", "max_degree", serde_json::json!("many"), "max_degree"),
        ("graph", "max_degree", serde_json::json!(-1), "max_degree"),
        ("graph", "max_degree", serde_json::json!(0), "max_degree is 0"),
        ("graph", "layout", serde_json::json!("grouped"), "grouped"),
        ("graph", "alpha", serde_json::json!(0.5), "alpha is 0.5"),
        ("spann", "layout", serde_json::json!("padded"), "padded"),
        ("spann", "replicas", serde_json::json!(9), "replicas is 9"),
        ("spann", "code_kind", serde_json::json!("wax"), "wax"),
        ("cluster", "group_vectors", serde_json::json!(1.5), "group_vectors"),
        ("cluster", "code_kind", serde_json::json!("pq"), "pq"),
        ("flat", "code_kind", serde_json::json!("pq4"), "pq4"),
        ("flat", "code_bytes", serde_json::json!(0), "code_bytes"),
        ("lsh", "tables", serde_json::json!(0), "tables is 0"),
        ("lsh", "hashes", serde_json::json!(33), "hashes is 33"),
        ("lsh", "block_bytes", serde_json::json!(513), "block_bytes is 513"),
    ] {
        let what = refusal(families::options(family, &GivenOptions::from([(name.to_owned(), value)])));
        assert!(what.contains(expected), "{what}");
    }
}

#[test]
fn options_by_name_equal_those_of_the_options_struct() {
    let given = |values: &[(&str, serde_json::Value)]| {
        values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<GivenOptions>()
    };
    let same = |family: &str, values: &[(&str, serde_json::Value)], expected: FamilyOptions| {
        let found = families::options(family, &given(values)).unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    };
    for (family, _) in &kinds()[..5] {
        same(family.family(), &[], family.clone());
    }
    let coded = FlatOptions { code_bytes: Some(8), ..FlatOptions::default() };
    same("flat", &[("code_bytes", 8.into())], coded.into());
    same(
        "graph",
        &[("layout", "csr".into()), ("max_degree", 12.into()), ("code_kind", "rabitq2".into())],
        GraphOptions {
            layout: "csr".parse().unwrap(),
            max_degree: 12,
            code_kind: Some("rabitq2".parse().unwrap()),
            ..GraphOptions::default()
        }
        .into(),
    );
    same(
        "spann",
        &[("layout", "coupled".into()), ("centroid_share", 0.25.into()), ("list_limit", 9.into())],
        SpannOptions {
            layout: "coupled".parse().unwrap(),
            centroid_share: 0.25,
            list_limit: Some(9),
            ..SpannOptions::default()
        }
        .into(),
    );
    let groups = ClusterOptions { group_vectors: 30, code_bytes: Some(16), ..ClusterOptions::default() };
    same("cluster", &[("group_vectors", 30.into()), ("code_bytes", 16.into())], groups.into());
}

#[test]
fn a_calibration_uses_the_requested_number_of_queries_within_its_limits() {
    let (folder, data) = (tempfile::tempdir().unwrap(), vectors(Element::F32, 4000, 16, 5));
    let coded = || FlatOptions { code_bytes: Some(8), ..FlatOptions::default() };
    for own in
        [FamilyOptions::from(ClusterOptions::default()), coded().into(), GraphOptions::default().into()]
    {
        let mut identities = Vec::new();
        for queries in [250, 400] {
            let path = folder.path().join(format!("{}-{queries}", own.family()));
            let options = BuildOptions { calibration_queries: queries, ..BuildOptions::of(own.clone()) };
            build(&data, &path, &options, &Silent).unwrap();
            let report = inspect(&path, &Silent).unwrap().description.calibration.join("\n");
            // The others are made from these. A graph leaves the entry point out of the queries.
            let stand_ins = queries - 2 * (queries * 3 / 20);
            let known = [format!("{stand_ins} "), format!("{} ", stand_ins - 1)];
            assert!(known.iter().any(|known| report.contains(known)), "{queries}: {report}");
            identities.push(Index::open(&path, &OpenOptions::default()).unwrap().manifest().identity.clone());
        }
        assert_ne!(identities[0], identities[1], "the calibration is a part of the index");
        for queries in [0, 1001] {
            let path = folder.path().join("none");
            let options = BuildOptions { calibration_queries: queries, ..BuildOptions::of(own.clone()) };
            let refused = refusal(build(&data, &path, &options, &Silent));
            assert!(refused.contains(&format!("{queries} queries of a calibration: 1 to 1000")), "{refused}");
            assert!(!path.exists());
        }
    }
}
