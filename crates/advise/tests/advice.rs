//! Advice about small generated sets, compared with indexes that are then built.

use bathyal_advise::default_family::LEAST_CHOICE_VECTORS;
use bathyal_advise::{
    Advice, AdviceOptions, AdviceRequest, AdviceTier, AssumedData, ExplainedByPlan, FamilyChoice, FilterPlan,
    FilteredPrediction, IndexLimits, IndexPrediction, PageFormat, PlanFile, SamplePace, VectorShape, advise,
    compare_with_plan,
};
use bathyal_index::cost::deviation::Assumption;
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, RowSet, SearchOptions, StoreOptions, WithinPlan, build,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::{Control, TierProfile};
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{OverallRatio, exact_neighbors};
use bathyal_vectors::progress::{Progress, Silent};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const DIM: usize = 24;

/// Centres of the vectors: so few that the neighbours of a query in the smallest pilot have its centre, too.
const CENTRES: usize = 20;

/// Returns vectors around random centres.
fn vectors(count: usize, seed: u64) -> VectorFile {
    let mut random = StdRng::seed_from_u64(seed);
    let centres: Vec<f32> = (0..CENTRES * DIM).map(|_| random.random_range(-10.0..10.0)).collect();
    let mut rows = Vec::new();
    for _ in 0..count {
        let centre = random.random_range(0..CENTRES) * DIM;
        for component in &centres[centre..centre + DIM] {
            rows.extend((component + random.random_range(-3.0..3.0_f32)).to_le_bytes());
        }
    }
    VectorFile::from_rows(Element::F32, DIM, rows).unwrap()
}

/// Returns the first `count` vectors, and the others.
fn split(vectors: &VectorFile, count: usize) -> (VectorFile, VectorFile) {
    let part = |rows: std::ops::Range<usize>| {
        VectorFile::from_rows(Element::F32, DIM, vectors.rows(rows).unwrap().to_vec()).unwrap()
    };
    (part(0..count), part(count..vectors.count()))
}

fn disk() -> AdviceTier {
    let profile = TierProfile {
        kind: "file".into(),
        granularity: 4096,
        alignment: 512,
        addressable: false,
        latency_ns: 80_000,
        iops: 1e5,
        bandwidth_bytes_per_s: 2e9,
        depth: 64,
        ..AdviceTier::dram().profile
    };
    AdviceTier::file("disk", profile)
}

fn quick() -> AdviceOptions {
    AdviceOptions {
        tiers: vec![AdviceTier::dram(), disk()],
        threads: 2,
        concurrency: 8,
        pace: SamplePace::Quick,
        ..AdviceOptions::default()
    }
}

fn advice(data: &VectorFile, options: AdviceOptions) -> Result<Advice, IndexError> {
    advise(data, None, &AdviceRequest::new(options).unwrap(), &Silent)
}

#[test]
fn predicted_sizes_and_counters_are_those_of_the_built_index() {
    // The sample has half of the vectors.
    let (data, queries) = split(&vectors(16_200, 1), 16_000);
    let families = ["cluster", "spann", "flat"].map(String::from).to_vec();
    let found = advice(&data, AdviceOptions { families, ..quick() }).unwrap();
    assert!(found.indexes.left_out.is_empty() && found.indexes.ranked.len() == 8, "{found:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut built: Vec<String> = Vec::new();
    for rank in 0..found.indexes.ranked.len() {
        let plan = PlanFile::of(&found, rank).unwrap();
        let path = folder.path().join(plan.index.label.replace([' ', ','], "-"));
        if !built.contains(&plan.index.label) {
            let options = plan.build_options(BuildOptions { threads: 2, ..BuildOptions::default() }).unwrap();
            build(&data, &path, &options, &Silent).unwrap();
            assert_eq!(PlanFile::kept_at(&path, &StoreOptions::default()).unwrap(), plan);
            assert_eq!(PlanFile::parse(&plan.text().unwrap()), Ok(plan.clone()));
            built.push(plan.index.label.clone());
        }
        let index = Index::open(&path, &plan.open_options()).unwrap();
        check_explained(&index, &queries, &plan);
        let compared = compare_with_plan(&plan, &index, &queries, Control::default()).unwrap();
        let number = |name: &str| {
            compared.numbers.iter().find(|number| number.name == name).unwrap_or_else(|| panic!("{name}"))
        };
        let what = format!("{} on {}", plan.index.label, plan.index.tier);
        let ratio = number("index bytes").ratio;
        assert!((0.97..1.03).contains(&ratio) || number("index bytes").within, "{what}: {ratio}");
        // A flat index answers a batch in one pass, with memory and reads of its own.
        if plan.index.build.family != "flat" {
            let memory = number("memory bytes");
            assert!(memory.measured <= memory.predicted.high, "{what}: {memory:?}");
            // The buffers in use depend on how many reads of a file wait at once.
            let in_memory = plan.profile.addressable;
            assert!(!in_memory || (0.8..1.2).contains(&memory.ratio), "{what}: {memory:?}");
        }
        if plan.index.build.family == "cluster" {
            let reads = number("reads a query");
            assert!(reads.within, "{what}: {reads:?}");
        }
    }
}

#[test]
fn searches_under_filters_are_predicted_with_their_plan() {
    let (data, queries) = split(&vectors(16_200, 1), 16_000);
    let families = ["cluster", "spann", "flat"].map(String::from).to_vec();
    // The second has fewer rows than neighbours that are wanted.
    let filters = vec![0.3, 0.0005];
    let found = advice(&data, AdviceOptions { families, filters, tiers: vec![disk()], ..quick() }).unwrap();
    assert!(found.notes.iter().any(|note| note.contains("under each one")), "{:?}", found.notes);
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for rank in 0..found.indexes.ranked.len() {
        let plan = PlanFile::of(&found, rank).unwrap();
        assert_eq!(PlanFile::parse(&plan.text().unwrap()), Ok(plan.clone()));
        assert_eq!(plan.index.filters.len(), 2, "{plan:?}");
        let path = folder.path().join(plan.index.label.replace([' ', ','], "-"));
        let options = plan.build_options(BuildOptions { threads: 2, ..BuildOptions::default() }).unwrap();
        build(&data, &path, &options, &Silent).unwrap();
        let index = Index::open(&path, &plan.open_options()).unwrap();
        for filter in &plan.index.filters {
            let mut random = StdRng::seed_from_u64(77);
            let ids = (0..16_000_u32).filter(|_| random.random_bool(filter.share));
            let set = Arc::new(RowSet::from_ids(16_000, ids));
            let options =
                SearchOptions { k: plan.k, effort: Effort::Recall(plan.recall), ..SearchOptions::default() };
            let what = format!("{} {filter:?}", plan.index.label);
            let (actual, _) = index.plan_within(&options, &set).unwrap();
            assert_eq!(actual == WithinPlan::Scan, filter.plan == FilterPlan::Scan, "{actual:?} {what}");
            let found = index.search_within(&queries, &options, &set, Control::default()).unwrap();
            compared += 1;
            assert!(filter.loads.iter().all(|load| load.queries_per_second.value > 0.0), "{what}");
            if plan.index.build.family == "flat" {
                // The queries of a batch share all that they read.
                continue;
            }
            let count = queries.count() as f64;
            let full = found.totals.full_distances as f64 / count / filter.full_distances.value;
            assert!((0.5..2.0).contains(&full), "{full} {what}");
            let reads = found.totals.reads as f64 / count / filter.reads.value;
            assert!(actual == WithinPlan::Scan || (0.5..2.0).contains(&reads), "{reads} {what}");
        }
    }
    assert_eq!(compared, 8);
    let ranked = &found.indexes.ranked;
    let words: Vec<String> = ranked.iter().flat_map(|index| index.further_words(8)).collect();
    assert!(words.len() == 8 && words[0].starts_with("a filter that 30% match: "), "{words:?}");
}

#[test]
fn limits_hold_under_filters_and_in_collections() {
    let data = vectors(4_000, 1);
    let families = vec!["cluster".to_owned()];
    let plain = AdviceOptions { families, tiers: vec![AdviceTier::dram()], ..quick() };
    let changing = advice(&data, AdviceOptions { rows_a_day: Some(1_000), ..plain.clone() }).unwrap();
    let one = &changing.indexes.ranked[0];
    let updates = one.updates.as_ref().unwrap();
    assert!(updates.dram_bytes.value > one.dram_bytes.value + 1e8, "the memory for writes: {updates:?}");
    assert!(updates.segments >= 1.0 && updates.merge_seconds_a_day.value > 0.0, "{updates:?}");
    let speed = |loads: &[bathyal_advise::PredictedLoad]| loads[0].queries_per_second.value;
    assert!(speed(&updates.loads) < speed(&one.loads), "{one:?}");
    assert!(one.further_words(8)[0].contains("1000 rows replaced a day"));
    // Memory that is enough for the index is not enough for the collection.
    let limits = IndexLimits { dram_bytes: Some(100_000_000), ..IndexLimits::default() };
    let limited = AdviceOptions { rows_a_day: Some(1_000), limits, ..plain.clone() };
    let found = advice(&data, limited).unwrap();
    assert!(found.indexes.left_out[0].reasons[0].starts_with("memory "), "{:?}", found.indexes.left_out);
    let found = advice(&data, AdviceOptions { limits, ..plain.clone() }).unwrap();
    assert_eq!(found.indexes.ranked.len(), 1);
    let many = advice(&data, AdviceOptions { rows_a_day: Some(1 << 40), ..plain.clone() }).unwrap();
    let reasons = &many.indexes.left_out[0].reasons;
    assert!(reasons[0].starts_with("merges of the rows"), "{reasons:?}");
    for (bad, word) in [
        (AdviceOptions { filters: vec![0.0], ..plain.clone() }, "share of a filter is 0"),
        (AdviceOptions { filters: vec![f64::NAN], ..plain.clone() }, "share of a filter is NaN"),
        (AdviceOptions { filters: vec![1.0], ..plain.clone() }, "share of a filter is 1"),
        (AdviceOptions { filters: vec![0.5; 9], ..plain.clone() }, "9 shares"),
        (AdviceOptions { rows_a_day: Some(0), ..plain.clone() }, "rows a day is 0"),
        (AdviceOptions { ratio: Some(0.9), ..plain.clone() }, "at least 1"),
        (AdviceOptions { ratio: Some(1.1), more_recalls: vec![0.9], ..plain.clone() }, "instead of recalls"),
        (AdviceOptions { ratio: Some(1.1), metric: Metric::InnerProduct, ..plain }, "inner products"),
    ] {
        let refused = AdviceRequest::new(bad).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}

#[test]
fn filters_of_a_collection_that_changes_are_predicted_over_its_segments() {
    let data = vectors(8_000, 1);
    let families = vec!["cluster".to_owned()];
    let plain = AdviceOptions {
        families,
        tiers: vec![disk()],
        vectors: Some(2_000_000),
        filters: vec![0.1, 0.000_004],
        ..quick()
    };
    let index = advice(&data, plain.clone()).unwrap();
    let changing = advice(&data, AdviceOptions { rows_a_day: Some(100_000), ..plain }).unwrap();
    let (index, collection) = (&index.indexes.ranked[0], &changing.indexes.ranked[0]);
    let updates = collection.updates.as_ref().unwrap();
    let shares = |one: &IndexPrediction| one.filters.iter().map(|filter| filter.share).collect::<Vec<_>>();
    assert_eq!(shares(collection), shares(index));
    assert!(updates.segments > 1.5, "{updates:?}");
    for (filter, of_index) in collection.filters.iter().zip(&index.filters) {
        let (scanned, all) = (filter.full_distances.value, 2_000_000.0 * filter.share);
        assert!(filter.reads.value > 0.0 && filter.reads.low < filter.reads.high, "{filter:?}");
        match filter.plan {
            // As many rows match in all segments together.
            FilterPlan::Scan => assert!((0.7..1.3).contains(&(scanned / all)), "{filter:?}"),
            // Several segments are searched instead of one index.
            FilterPlan::Search => assert!(filter.reads.value > 1.2 * of_index.reads.value, "{filter:?}"),
        }
    }
    let plans: Vec<FilterPlan> = collection.filters.iter().map(|filter| filter.plan).collect();
    assert_eq!(plans, [FilterPlan::Search, FilterPlan::Scan]);
    assert_eq!(collection.further_words(8).len(), 3, "{:?}", collection.further_words(8));
    // A collection of small segments has no index, and compares the rows that match.
    let few = AdviceOptions { rows_a_day: Some(10), filters: vec![0.5], tiers: vec![disk()], ..quick() };
    let few = advice(&vectors(3_000, 1), few).unwrap();
    let filters: Vec<&[FilteredPrediction]> =
        few.indexes.ranked.iter().map(|one| one.filters.as_slice()).collect();
    assert!(!filters.is_empty() && filters.iter().all(|of| of.len() == 1), "{filters:?}");
}

#[test]
fn a_ratio_is_answered_by_the_least_recall_that_has_it() {
    let (data, queries) = split(&vectors(4_200, 1), 4_000);
    let families = ["cluster", "flat"].map(String::from).to_vec();
    let plain = AdviceOptions { families, tiers: vec![AdviceTier::dram()], ..quick() };
    let with = |ratio: f32| advice(&data, AdviceOptions { ratio: Some(ratio), ..plain.clone() }).unwrap();
    let (near, far) = (with(1.0002), with(1.1));
    let cluster = |advice: &Advice| {
        let found = advice.indexes.ranked.iter().find(|one| one.build.family == "cluster");
        found.cloned().unwrap()
    };
    let (of_near, of_far) = (cluster(&near), cluster(&far));
    assert!(of_far.recall < of_near.recall, "{} {}", of_far.recall, of_near.recall);
    assert!(of_far.reads.value < of_near.reads.value, "{of_far:?}\n{of_near:?}");
    for (one, most) in [(&of_near, 1.0002), (&of_far, 1.1)] {
        assert!(one.pilot_ratio.unwrap() <= most, "{one:?}");
        assert!(one.further_words(8)[0].contains(&format!("recall {}", one.recall)));
    }
    assert_eq!(near.quality_words(), "ratio@10 of 1.0002 at most");
    // The plan has the recall of its index, and a whole index has the ratio with it.
    let rank = near.indexes.ranked.iter().position(|one| one.build.family == "cluster").unwrap();
    let plan = PlanFile::of(&near, rank).unwrap();
    assert_eq!(plan.recall, of_near.recall);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build(&data, &path, &plan.build_options(BuildOptions::default()).unwrap(), &Silent).unwrap();
    let index = Index::open(&path, &plan.open_options()).unwrap();
    let options =
        SearchOptions { k: plan.k, effort: Effort::Recall(plan.recall), ..SearchOptions::default() };
    let found = index.search(&queries, &options, Control::default()).unwrap();
    let truth = exact_neighbors(&data, &queries, Metric::L2, plan.k, None, &Silent).unwrap();
    let mut ratio = OverallRatio::new(Metric::L2, &truth).unwrap();
    ratio.add(&truth, &found.ids, &found.distances, found.k, queries.count()).unwrap();
    assert!(ratio.mean().unwrap() <= 1.0005, "{:?}", ratio.mean());
    // A scan misses nothing.
    let exact = AdviceOptions { families: vec!["flat".into()], ratio: Some(1.0), ..plain };
    assert_eq!(advice(&data, exact).unwrap().indexes.ranked[0].pilot_ratio, Some(1.0));
}

/// Explains queries beside the plan that `index` keeps, as `plan` assumes and otherwise.
fn check_explained(index: &Index, queries: &VectorFile, plan: &PlanFile) {
    let kept = PlanFile::kept_by(index.manifest()).unwrap().unwrap();
    let explain = |options: &SearchOptions| {
        let batch = index.explain_batch(queries, 0..queries.count(), options, Control::default()).unwrap();
        ExplainedByPlan::of_batch(index, options, batch)
    };
    let options =
        SearchOptions { k: plan.k, effort: Effort::Recall(plan.recall), ..SearchOptions::default() };
    let found = explain(&options);
    let compared = found.plan.unwrap();
    let other_tier = kept.profile.addressable != plan.profile.addressable;
    assert_eq!(compared.differences.len(), usize::from(other_tier), "{compared:?}");
    let number = |name: &str| compared.numbers.iter().find(|number| number.name == name).unwrap();
    assert_eq!(number("reads").measured, found.explanation.actual.reads);
    assert_eq!(number("codes").predicted, kept.index.code_distances);
    assert!(number("vectors").measured > 0.0 && number("processor, us").measured > 0.0);
    // A flat index reads the same for each query, and its reads are known.
    if plan.index.build.family == "flat" && !other_tier {
        assert!(number("vectors").within, "{compared:?}");
        assert!((0.95..1.05).contains(&number("reads").ratio), "{compared:?}");
        assert!(compared.failed.iter().all(|failed| failed.assumption == Assumption::ProcessorTime));
    }
    let other = explain(&SearchOptions { k: 3, effort: Effort::Recall(0.5), ..options }).plan.unwrap();
    let said = other.differences.join("; ");
    assert!(said.contains("for k 10, and this search has k 3"), "{said}");
    assert!(said.contains("for recall 0.95, and this search has recall 0.5"), "{said}");
}

#[test]
fn a_limit_excludes_candidates_with_the_reason() {
    let data = vectors(6_000, 2);
    let bytes = data.data_bytes();
    let limits = IndexLimits { disk_bytes: Some(bytes * 3), ..IndexLimits::default() };
    let options = AdviceOptions { limits, families: vec!["spann".into(), "flat".into()], ..quick() };
    let found = advice(&data, options.clone()).unwrap();
    let coupled = found.indexes.left_out.iter().find(|one| one.label == "spann, coupled").unwrap();
    assert!(coupled.reasons[0].contains("times the data, over your"), "{coupled:?}");
    assert!(found.indexes.ranked.iter().all(|one| one.disk_bytes.high <= 3.0 * bytes as f64));
    // A limit that nothing meets is not an error, and the note names it.
    let limits = IndexLimits { dram_bytes: Some(1), ..IndexLimits::default() };
    let none = advice(&data, AdviceOptions { limits, ..options }).unwrap();
    assert!(none.indexes.ranked.is_empty() && PlanFile::of(&none, 0).is_none());
    assert!(
        none.notes.iter().any(|note| note.contains("memory") && note.contains("over your 1 B")),
        "{none:?}"
    );
    assert!(none.indexes.left_out.iter().all(|one| !one.reasons.is_empty()));
}

#[test]
fn sets_of_which_nothing_can_be_said_are_refused() {
    let message = |data: &VectorFile| advice(data, quick()).unwrap_err().to_string();
    assert!(message(&vectors(100, 3)).contains("needs 2000 at least"));
    let one = vectors(1, 3).row(0).repeat(3_000);
    let same = VectorFile::from_rows(Element::F32, DIM, one).unwrap();
    assert!(message(&same).contains("are the same"), "{}", message(&same));
    let fewer = AdviceOptions { vectors: Some(10), ..quick() };
    assert!(advice(&vectors(3_000, 3), fewer).unwrap_err().to_string().contains("fewer than"));
    let folder = tempfile::tempdir().unwrap();
    let missing = AdviceOptions { work_folder: Some(folder.path().join("none")), ..quick() };
    let refused = advice(&vectors(3_000, 3), missing).unwrap_err().to_string();
    assert!(refused.contains("pilots cannot be built here"), "{refused}");
    let other = VectorFile::from_rows(Element::F32, 2, vec![0; 8]).unwrap();
    let request = AdviceRequest::new(quick()).unwrap();
    let refused = advise(&vectors(3_000, 3), Some(&other), &request, &Silent).unwrap_err().to_string();
    assert!(refused.contains("1 queries of 2 f32"), "{refused}");
}

/// Ends the work at a number of questions.
struct EndsAfter {
    left: AtomicUsize,
}

impl Progress for EndsAfter {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err()
    }
}

#[test]
fn advice_can_be_cancelled_and_leaves_no_folder() {
    let (data, folder) = (vectors(4_000, 4), tempfile::tempdir().unwrap());
    let options = AdviceOptions { work_folder: Some(folder.path().into()), ..quick() };
    let request = AdviceRequest::new(options).unwrap();
    for left in [0, 1, 5, 30, 100] {
        let ends = EndsAfter { left: AtomicUsize::new(left) };
        let ended = advise(&data, None, &request, &ends);
        assert!(matches!(ended, Err(IndexError::Cancelled)), "{left}: {ended:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{left}");
    }
}

#[test]
fn plans_are_read_back_and_foreign_files_are_refused() {
    let data = vectors(3_000, 5);
    let found = advice(&data, AdviceOptions { families: vec!["flat".into()], ..quick() }).unwrap();
    let plan = PlanFile::of(&found, 0).unwrap();
    let text = plan.text().unwrap();
    assert_eq!(PlanFile::parse(&text).unwrap(), plan);
    assert_eq!(plan.check_fits(3_000, DIM as u32, "f32", "l2").unwrap(), None);
    let note = plan.check_fits(3_001, DIM as u32, "f32", "l2").unwrap();
    assert!(note.is_some_and(|note| note.contains("3000, and this is 3001")));
    let refused = plan.check_fits(3_000, 3, "u8", "ip").unwrap_err().to_string();
    assert!(
        refused.contains("dim") && refused.contains("element") && refused.contains("metric"),
        "{refused}"
    );
    for (bad, word) in [
        ("", "is not a plan"),
        ("{}", "plan_version"),
        (&text.replace("\"plan_version\": 1", "\"plan_version\": 2"), "version 2"),
        (&text.replace("\"recall\"", "\"remembered\""), "was changed"),
        (&text[..text.len() / 2], "is not a plan"),
    ] {
        let refused = PlanFile::parse(bad).unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    assert!(PlanFile::read(&path).unwrap_err().to_string().contains("plan.json"));
    std::fs::write(&path, text).unwrap();
    assert_eq!(PlanFile::read(&path).unwrap(), plan);
}

#[test]
fn the_page_and_the_plot_show_every_index_and_need_nothing_else() {
    let data = vectors(4_000, 6);
    let limits = IndexLimits { disk_bytes: Some(data.data_bytes() * 3), ..IndexLimits::default() };
    let named = AdviceTier { name: "<a & b>".into(), ..disk() };
    let options = AdviceOptions { tiers: vec![AdviceTier::dram(), named], limits, ..quick() };
    let found = advice(&data, options).unwrap();
    let (page, plot) = (PageFormat::Html.text(&found).unwrap(), PageFormat::Svg.text(&found).unwrap());
    assert!(page.contains(&plot) && !page.contains("<script") && !page.contains("<a & b>"), "{page}");
    assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
    assert_eq!(page.matches("<tr>").count(), 1 + found.indexes.ranked.len());
    for index in &found.indexes.ranked {
        assert!(page.contains(&format!("<td>{}</td>", index.label)), "{}", index.label);
        let tier = index.tier.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        // Above against memory, below against disk.
        assert_eq!(plot.matches(&format!("{} on {tier}", index.label)).count(), 2, "{}", index.label);
    }
    assert!(found.indexes.left_out.iter().any(|one| !one.reasons.is_empty()), "{found:?}");
    for one in &found.indexes.left_out {
        assert!(one.reasons.iter().all(|reason| page.contains(reason)), "{:?}", one.reasons);
    }
    let again: Advice = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(PageFormat::Html.text(&again).unwrap(), page);
    // Without any index there is a page, too.
    let limits = IndexLimits { dram_bytes: Some(1), ..IndexLimits::default() };
    let none = AdviceOptions { limits, families: vec!["flat".into()], ..quick() };
    let page = PageFormat::Html.text(&advice(&data, none).unwrap()).unwrap();
    assert!(page.contains("No index meets all limits") && page.contains("over your 1 B"), "{page}");
}

#[test]
fn pages_have_a_known_ending_and_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| PageFormat::of_file(&folder.path().join(name));
    assert_eq!((of("a.html").unwrap(), of("a.SVG").unwrap()), (PageFormat::Html, PageFormat::Svg));
    std::fs::create_dir(folder.path().join("b.html")).unwrap();
    for (name, why) in
        [("a.pdf", ".html"), ("a", ".html"), (".svg", ".html"), ("b.html", "a folder"), ("c/a.svg", "exist")]
    {
        let refused = of(name).unwrap_err().to_string();
        assert!(refused.contains(why), "{name}: {refused}");
    }
}

#[test]
fn data_is_assumed_without_a_sample_and_intervals_say_so() {
    let assumed = AssumedData::of_dim(DIM);
    let shape = VectorShape { element: Element::F32, dim: DIM, count: 1_000_000 };
    let data = assumed.vectors(shape, SamplePace::Quick.rows(), 1, &Silent).unwrap();
    let given = AdviceOptions {
        vectors: Some(1_000_000),
        families: vec!["cluster".into(), "flat".into()],
        tiers: vec![disk()],
        ..quick()
    };
    let known = advice(&data, given.clone()).unwrap();
    let found = advice(&data, AdviceOptions { assumed: Some(assumed.clone()), ..given }).unwrap();
    assert_eq!((found.vectors, found.assumed.as_ref()), (1_000_000, Some(&assumed)));
    assert!(found.notes[0].contains("no data was given") && found.notes[0].contains("sample"), "{found:?}");
    for index in &found.indexes.ranked {
        let same = |one: &&IndexPrediction| one.label == index.label;
        let known = known.indexes.ranked.iter().find(same).unwrap();
        assert_eq!(index.disk_bytes.value, known.disk_bytes.value);
        assert!(index.disk_bytes.factor() < 1.01, "{:?}", index.disk_bytes);
        if index.build.family == "flat" {
            assert_eq!(index.reads, known.reads);
        } else {
            let wider = index.reads.factor() / known.reads.factor();
            assert!((wider / assumed.widened_by - 1.0).abs() < 0.01, "{wider}");
        }
        // Times of the two advices differ, but not the width of their intervals.
        let width = |one: &IndexPrediction| one.load(8).unwrap().queries_per_second.factor();
        assert!(width(index) > 1.5 * width(known), "{} {}", width(index), width(known));
    }
    let text = serde_json::to_string(&found).unwrap();
    assert!(text.contains("\"assumed\":{\"clusters\""), "{text}");
}

#[test]
fn copies_that_the_sample_cannot_show_are_noted_and_widen_the_intervals() {
    let families = vec!["cluster".to_owned()];
    let one = |data: &VectorFile, vectors: Option<u64>| {
        let options = AdviceOptions { families: families.clone(), vectors, ..quick() };
        let found = advice(data, options).unwrap();
        let noted = found.notes.iter().any(|note| note.contains("near copy"));
        let reads = found.indexes.ranked[0].reads;
        (found.statistics.near_copies, noted, reads.high / reads.value)
    };
    // Each of 500 vectors eight times, a little changed.
    let mut random = StdRng::seed_from_u64(9);
    let few = vectors(500, 3);
    let copies = (0..8).flat_map(|_| 0..500).flat_map(|row| few.row(row).to_vec()).collect::<Vec<u8>>();
    let changed = copies.chunks_exact(4).flat_map(|bytes| {
        let component = f32::from_le_bytes(bytes.try_into().unwrap());
        (component + random.random_range(-0.1..0.1_f32)).to_le_bytes()
    });
    let copies = VectorFile::from_rows(Element::F32, DIM, changed.collect()).unwrap();
    let (share, noted, wide) = one(&copies, Some(40_000));
    assert!(share > 0.9 && noted, "{share}");
    let (usual, usual_noted, narrow) = one(&vectors(4_000, 3), Some(40_000));
    assert!(usual < 0.1 && !usual_noted && wide > 1.5 * narrow, "{usual} {wide} {narrow}");
    // The sample is the whole set.
    assert!(!one(&copies, None).1);
}

#[test]
fn several_recalls_are_answered_from_the_same_pilots() {
    let data = vectors(6_000, 7);
    let options = AdviceOptions { families: vec!["cluster".into()], tiers: vec![disk()], ..quick() };
    let one = advice(&data, options.clone()).unwrap();
    let found =
        advice(&data, AdviceOptions { recall: 0.8, more_recalls: vec![0.95, 0.99], ..options }).unwrap();
    let recalls: Vec<f32> = found.other_recalls.iter().map(|other| other.recall).collect();
    assert_eq!((found.recall, recalls), (0.8, vec![0.95, 0.99]));
    // The counters of each recall are those of a request for it alone, and rise with it, apart from that of
    // the least effort.
    let reads = |advice: &Advice| advice.indexes.ranked[0].reads.value;
    assert_eq!(reads(&found.other_recalls[0]), reads(&one));
    assert!(reads(&found) <= reads(&one) && reads(&one) < reads(&found.other_recalls[1]), "{found:?}");
    assert_eq!(PlanFile::of(&found.other_recalls[1], 0).unwrap().recall, 0.99);
    assert_eq!(PageFormat::Html.text(&found).unwrap().matches("<svg").count(), 3);
}

#[test]
fn a_plan_for_other_vectors_is_refused() {
    let (data, queries) = split(&vectors(6_050, 4), 6_000);
    let found = advice(&data, AdviceOptions { families: vec!["cluster".into()], ..quick() }).unwrap();
    let plan = PlanFile::of(&found, 0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (fewer, half) = (folder.path().join("fewer"), folder.path().join("half"));
    let options = plan.build_options(BuildOptions { threads: 2, ..BuildOptions::default() }).unwrap();
    build(&split(&data, 3_000).0, &fewer, &options, &Silent).unwrap();
    let index = Index::open(&fewer, &plan.open_options()).unwrap();
    let compared = compare_with_plan(&plan, &index, &queries, Control::default()).unwrap();
    assert!(compared.failed[0].contains("6000, and this is 3000"), "{:?}", compared.failed);
    let rows = data.rows(0..data.count()).unwrap().to_vec();
    let narrow = VectorFile::from_rows(Element::F32, DIM / 2, rows).unwrap();
    build(&narrow, &half, &options, &Silent).unwrap();
    let index = Index::open(&half, &plan.open_options()).unwrap();
    let refused = compare_with_plan(&plan, &index, &queries, Control::default()).unwrap_err().to_string();
    assert!(refused.contains("half") && refused.contains("dim 24, and this is 12"), "{refused}");
    let mut other = plan.clone();
    other.index.build.family = "flat".into();
    let index = Index::open(&fewer, &plan.open_options()).unwrap();
    let refused = compare_with_plan(&other, &index, &queries, Control::default()).unwrap_err().to_string();
    assert!(refused.contains("is of family cluster, and its plan of flat"), "{refused}");
}

#[test]
fn a_build_within_a_limit_of_memory_asks_nobody() {
    let many = LEAST_CHOICE_VECTORS;
    let data = VectorFile::from_rows(Element::U8, 4, vec![1; 4 * many]).unwrap();
    let options = BuildOptions { memory_bytes: Some(4 << 30), ..BuildOptions::default() };
    let folder = tempfile::tempdir().unwrap();
    let asked = FamilyChoice::of_build(&data, &folder.path().join("idx"), &options, &Silent);
    assert_eq!(asked.unwrap(), None);
}

#[test]
fn a_build_without_a_family_takes_the_default_one_for_few_vectors() {
    let data = vectors(4_000, 5);
    let folder = tempfile::tempdir().unwrap();
    let options = BuildOptions { threads: 2, ..BuildOptions::default() };
    let target = folder.path().join("idx");
    assert_eq!(FamilyChoice::of_build(&data, &target, &options, &Silent).unwrap(), None);
    // Asked all the same, nothing is as fast as a cluster index from a disk.
    let choice = FamilyChoice::on(&data, disk(), &options, &Silent).unwrap();
    assert_eq!(choice.build.family, "cluster", "{choice:?}");
    let labels: Vec<&str> = choice.predicted.iter().map(|one| one.label.as_str()).collect();
    assert!(labels[0].starts_with("cluster") && labels.contains(&"flat"), "{labels:?}");
    assert!(labels.contains(&"graph, page_local"), "{labels:?}");
    // The index keeps the prediction, and is otherwise that of a build that asks nothing.
    let with_choice = choice.build_options(options.clone()).unwrap();
    assert_eq!(with_choice.family.family(), "cluster");
    let chosen = build(&data, &target, &with_choice, &Silent).unwrap();
    let usual = build(&data, &folder.path().join("usual"), &options, &Silent).unwrap();
    assert_eq!(chosen.index_bytes, usual.index_bytes);
    let kept = PlanFile::kept_at(&target, &StoreOptions::default()).unwrap();
    assert_eq!((kept.vectors, kept.index.build.family.as_str()), (4_000, "cluster"));
    let index = Index::open(&target, &kept.open_options()).unwrap();
    let compared = compare_with_plan(&kept, &index, &split(&data, 100).0, Control::default());
    assert!(compared.is_ok(), "{compared:?}");
    let given = BuildOptions { calibration: Some(split(&data, 100).0), ..options };
    let choice = FamilyChoice::on(&data, disk(), &given, &Silent).unwrap();
    assert!(choice.predicted.iter().all(|one| one.label != "flat"), "nothing to calibrate: {choice:?}");
}
