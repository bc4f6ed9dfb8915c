//! Builds with a graphics card: they make the same index as builds without one, byte for byte,
//! but for graphs. A build that a card cannot help is refused. The card is emulated and runs the kernels of a
//! real one.

use crate::cases::{case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use crate::files::contents;
use bathyal_gpu::Card;
use bathyal_index::build::planned_memory;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphOptions, Index, IndexError, OpenOptions,
    PartitionedOptions, SearchOptions, SpannOptions, StoreAs, build, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::sync::Arc;

fn card(options: EmulatedOptions) -> Arc<EmulatedCard> {
    Arc::new(EmulatedCard::new(options))
}

/// Checks that builds with and without a card make the same files. Includes the real card of the
/// number `BATHYAL_CARD`, if that is set (`make check-gpu`). Returns the number of launches of the emulated
/// card.
fn check_same_files(data: &VectorFile, options: &BuildOptions, memory_bytes: u64, what: &str) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let emulated = card(EmulatedOptions { memory_bytes, ..EmulatedOptions::default() });
    let mut cards = vec![None, Some(emulated.clone() as Arc<dyn Card>)];
    if let Ok(number) = std::env::var("BATHYAL_CARD") {
        cards.push(Some(bathyal_gpu::card::open(number.parse().unwrap()).unwrap()));
    }
    let built = cards.into_iter().enumerate().map(|(number, card)| {
        let path = dir.path().join(number.to_string());
        build(data, &path, &BuildOptions { card, ..options.clone() }, &Silent).unwrap();
        contents(&path)
    });
    let built: Vec<_> = built.collect();
    for with_card in &built[1..] {
        assert!(built[0].keys().eq(with_card.keys()), "{what}");
        for (name, bytes) in &built[0] {
            assert!(bytes == &with_card[name], "{what}: {name}");
        }
    }
    assert!(emulated.launches() > 0 && emulated.taken_bytes() == 0, "{what}");
    emulated.launches()
}

const PLENTY: u64 = 1 << 30;

fn families() -> Vec<FamilyOptions> {
    vec![
        ClusterOptions { group_vectors: 40, ..ClusterOptions::default() }.into(),
        SpannOptions::default().into(),
        FlatOptions { code_bytes: Some(16), ..FlatOptions::default() }.into(),
        LshOptions::default().into(),
        PartitionedOptions::default().into(),
    ]
}

#[test]
fn a_card_does_not_change_the_index_of_any_family_but_graphs() {
    let mut launches = BTreeMap::new();
    for family in families() {
        let name = family.family();
        let options = BuildOptions { threads: 1, ..quick_build(family) };
        launches.insert(name, check_same_files(&vectors(Element::F32, 1200, 24, 1), &options, PLENTY, name));
    }
    // All families compute true neighbours on the card. These two also assign vectors to groups there.
    assert!(launches["cluster"] > launches["flat"] && launches["spann"] > launches["flat"], "{launches:?}");
}

#[test]
fn a_card_does_not_change_the_index_of_any_metric_and_element() {
    for (at, metric) in Metric::ALL.into_iter().enumerate() {
        // Each element with a metric.
        for (_, element) in (at..).zip(Element::ALL).filter(|(number, _)| case_runs(*number, 3)) {
            let family = ClusterOptions { group_vectors: 40, ..ClusterOptions::default() };
            let options = BuildOptions { metric, threads: 2, ..quick_build(family) };
            check_same_files(
                &vectors(element, 1500, 33, 1),
                &options,
                PLENTY,
                &format!("{metric} {element}"),
            );
        }
    }
}

#[test]
fn a_card_of_little_memory_does_not_change_the_index() {
    // The card cannot hold all points, so that the build copies those of some groups at a time.
    let data = vectors(Element::U8, 1500, 33, 1);
    let families: [FamilyOptions; 2] = [
        ClusterOptions { group_vectors: 40, ..ClusterOptions::default() }.into(),
        SpannOptions::default().into(),
    ];
    for family in families {
        let (name, family) = (family.family(), quick_build(family));
        check_same_files(&data, &BuildOptions { threads: 2, ..family }, 120_000, name);
    }
}

#[test]
fn the_loss_of_a_stored_form_is_measured_on_a_card_as_well() {
    let family = FlatOptions::default();
    let options = BuildOptions { store_as: Some(StoreAs::I8), threads: 1, ..quick_build(family) };
    check_same_files(&vectors(Element::F32, 900, 24, 1), &options, PLENTY, "stored as i8");
}

/// Builds a graph with or without a card. Returns its recall at three candidate lists, and its files.
fn recalls(
    (data, queries): (&VectorFile, &VectorFile),
    options: &BuildOptions,
    card: Option<Arc<dyn Card>>,
) -> ([f64; 3], BTreeMap<String, Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build(data, &path, &BuildOptions { card, ..options.clone() }, &Silent).unwrap();
    assert!(verify(&path, &Silent).unwrap().sound);
    let truth = exact_neighbors(data, queries, options.metric, 10, None, &Silent).unwrap();
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let recalls = [10, 20, 40].map(|list| {
        let options = SearchOptions { effort: Effort::SearchList(list), ..SearchOptions::default() };
        let found = index.search(queries, &options, Control::default()).unwrap();
        recall(&truth, &found.ids, 10, queries.count()).unwrap()
    });
    (recalls, contents(&path))
}

#[test]
fn a_graph_that_is_built_with_a_card_reaches_the_same_recall() {
    let glove = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/glove-words/vectors.f16bin");
    let glove = VectorFile::open(glove).unwrap();
    let words = |rows| {
        let rows = glove.rows(rows).unwrap().to_vec();
        VectorFile::from_rows(glove.element(), glove.dim(), rows).unwrap()
    };
    let count = full_or_quick(3000, 1200);
    let sets = [
        (Metric::L2, vectors(Element::U8, count, 24, 1), vectors(Element::U8, 200, 24, 2)),
        (Metric::InnerProduct, vectors(Element::F32, count, 24, 1), vectors(Element::F32, 200, 24, 2)),
        (Metric::Cosine, words(0..count), words(3000..3200)),
    ];
    for (_, (metric, data, queries)) in
        sets.into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2))
    {
        let family = GraphOptions { max_degree: 24, search_list: 40, ..GraphOptions::default() };
        // On one thread, so that the recall is the same in every run.
        let options = BuildOptions { metric, threads: 1, ..quick_build(family) };
        let card = || Some(card(EmulatedOptions::default()) as Arc<dyn Card>);
        let (alone, _) = recalls((&data, &queries), &options, None);
        let (with_card, graph) = recalls((&data, &queries), &options, card());
        println!("{metric}: {alone:?} without a card, {with_card:?} with one");
        for (alone, with_card) in alone.into_iter().zip(with_card) {
            assert!(with_card >= alone - 0.01, "{metric}: {with_card} with a card, {alone} without");
        }
        let same = metric != Metric::L2 || recalls((&data, &queries), &options, card()).1 == graph;
        assert!(same, "on one thread the graph is the same in every run");
    }
}

fn refusal(family: FamilyOptions, options: EmulatedOptions) -> IndexError {
    let (dir, card) = (tempfile::tempdir().unwrap(), card(options));
    let options = BuildOptions { card: Some(card.clone()), ..quick_build(family) };
    let error = build(&vectors(Element::F32, 1200, 24, 1), &dir.path().join("index"), &options, &Silent)
        .map(drop)
        .unwrap_err();
    assert_eq!(card.taken_bytes(), 0);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{error}: nothing is left");
    error
}

#[test]
fn builds_that_a_card_cannot_help_are_refused_with_a_reason() {
    let error = refusal(FlatOptions::default().into(), EmulatedOptions::default()).to_string();
    assert!(error.contains("nothing to do") && error.contains("--device"), "{error}");
    for options in [
        EmulatedOptions { fails_at: 1, ..EmulatedOptions::default() },
        EmulatedOptions { memory_bytes: 1000, ..EmulatedOptions::default() },
    ] {
        let error = refusal(ClusterOptions::default().into(), options);
        assert!(matches!(error, IndexError::Gpu(_)), "{error}");
    }
}

#[test]
fn the_memory_for_a_card_counts_towards_the_budget_of_a_build() {
    let (data, dir) = (vectors(Element::F32, 1200, 24, 1), tempfile::tempdir().unwrap());
    let options = BuildOptions { threads: 1, ..quick_build(ClusterOptions::default()) };
    let with_card = |options: &BuildOptions| {
        let card = card(EmulatedOptions::default()) as Arc<dyn Card>;
        BuildOptions { card: Some(card), ..options.clone() }
    };
    let alone = planned_memory(&data, &options);
    let needed = planned_memory(&data, &with_card(&options));
    assert_eq!(needed - alone, 80 << 20);
    let within = |memory_bytes| BuildOptions { memory_bytes: Some(memory_bytes), ..options.clone() };
    let report = build(&data, &dir.path().join("index"), &with_card(&within(needed)), &Silent).unwrap();
    assert_eq!(report.planned_memory_bytes, needed);
    let error = build(&data, &dir.path().join("less"), &with_card(&within(alone)), &Silent).unwrap_err();
    assert!(matches!(error, IndexError::Memory { needed: least, .. } if least > alone), "{error}");
}
