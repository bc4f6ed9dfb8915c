//! Vectors of f32 that are stored as f16 or i8.

use crate::cases::{CaseSelection, case_runs, full_or_quick};
use crate::clustered::vectors;
use crate::families::answers::{Allowed, same_everywhere};
use crate::families::kinds::{Family, KINDS};
use crate::families::places::{open, some};
use crate::files::write_manifest;
use bathyal_index::format::manifest::{FORMAT_VERSION, Manifest, SMALLER_VERSION};
use bathyal_index::{
    BuildOptions, Effort, GraphLayoutChoice, Index, IndexError, Loss, OpenOptions, RangeOptions, SearchMode,
    SearchOptions, StoreAs, StoredEntry, build, convert_layout, inspect, search_many, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;

const FORMS: [StoreAs; 2] = [StoreAs::F16, StoreAs::I8];

/// Returns the recall and the error that a stored form must keep to on the vectors of these tests.
fn allowed(store_as: StoreAs) -> Allowed {
    match store_as {
        StoreAs::F16 => Allowed { recall: 0.95, error: 1e-2 },
        StoreAs::I8 => Allowed { recall: 0.92, error: 4e-2 },
    }
}

/// Returns the vectors with each value multiplied by `factor`.
fn scaled(vectors: &VectorFile, factor: f32) -> VectorFile {
    let rows = (0..vectors.count()).flat_map(|row| vectors.row(row).as_chunks::<4>().0);
    let scaled = rows.flat_map(|value| (f32::from_le_bytes(*value) * factor).to_le_bytes()).collect();
    VectorFile::from_rows(Element::F32, vectors.dim(), scaled).unwrap()
}

#[test]
fn every_metric_reaches_its_recall_in_every_layout_on_every_tier() {
    let (data, queries) = (vectors(Element::F32, 800, 24, 1), vectors(Element::F32, 40, 24, 2));
    let mut cases = CaseSelection::one_in(5);
    for metric in Metric::ALL {
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        for store_as in FORMS {
            let dir = tempfile::tempdir().unwrap();
            let taken = KINDS.into_iter().enumerate().filter(|_| cases.next_runs());
            for (at, kind) in taken {
                let what = format!("{metric} {store_as} {}", kind.name);
                let path = dir.path().join(kind.name);
                let options = BuildOptions { store_as: Some(store_as), ..kind.options(metric) };
                kind.build_with(&path, &data, &options);
                same_everywhere(kind, some(at), &path, &queries, &truth, &allowed(store_as), &what);
                let index = open(&path, OpenOptions::default());
                assert_eq!(
                    (index.element(), index.manifest().format_version),
                    (Element::F32, SMALLER_VERSION)
                );
                let stored = index.manifest().stored.expect("a form");
                let loss = stored.loss.expect("a measured loss");
                assert!(loss.k == 10 && loss.queries == 800, "{what}: {loss:?}");
                assert!(f64::from(loss.recall) >= allowed(store_as).recall, "{what}: {loss:?}");
                assert!(loss.distance_error > 0.0 && loss.distance_error < 1e-2, "{what}: {loss:?}");
                let warmed = index.warm(&SearchOptions::default(), Control::default()).unwrap();
                assert!(warmed.queries > 0, "{what}");
            }
        }
    }
}

#[test]
fn the_measured_loss_is_that_of_exact_search() {
    // A search that compares all vectors is exact search of the stored vectors.
    let (data, queries) = (vectors(Element::F32, 700, 24, 3), vectors(Element::F32, 200, 24, 4));
    for (metric, store_as) in Metric::ALL.into_iter().flat_map(|metric| FORMS.map(|form| (metric, form))) {
        let dir = tempfile::tempdir().unwrap();
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let kind = KINDS.into_iter().find(|kind| kind.family == Family::Cluster).unwrap();
        let options = BuildOptions {
            store_as: Some(store_as),
            calibration: Some(queries.clone()),
            calibration_queries: queries.count(),
            ..kind.options(metric)
        };
        let path = dir.path().join("index");
        kind.build_with(&path, &data, &options);
        let index = open(&path, OpenOptions::default());
        let all =
            SearchOptions { effort: Effort::SearchList(700), probes: Some(700), ..SearchOptions::default() };
        let found = index.search(&queries, &all, Control::default()).unwrap();
        let measured = recall(&truth, &found.ids, 10, 200).unwrap();
        let loss = index.manifest().stored.unwrap().loss.unwrap();
        assert_eq!(loss.queries, 200);
        assert!((measured - f64::from(loss.recall)).abs() < 1e-3, "{metric} {store_as}: {measured} {loss:?}");
        let shown = inspect(&path, &Silent).unwrap().manifest.stored.unwrap().to_string();
        assert!(shown.contains(&format!("{:.4} of the 10 nearest", loss.recall)), "{shown}");
    }
}

#[test]
fn a_stored_form_takes_its_share_of_the_bytes() {
    let data = vectors(Element::F32, full_or_quick(1500, 600), 384, 5);
    let dir = tempfile::tempdir().unwrap();
    // Files of graphs contain links as well.
    for kind in
        KINDS.into_iter().filter(|kind| !matches!(kind.family, Family::Graph(_)) && kind.code.is_none())
    {
        let bytes = |name: &str, store_as: Option<StoreAs>| {
            let path = dir.path().join(format!("{} {name}", kind.name));
            kind.build_with(&path, &data, &BuildOptions { store_as, ..kind.options(Metric::L2) });
            let manifest = Manifest::read(&path).unwrap();
            assert_eq!(manifest.data_bytes, data.data_bytes());
            assert_eq!(manifest.format_version == FORMAT_VERSION, store_as.is_none());
            manifest.paged_file().bytes as f64
        };
        let given = bytes("given", None);
        let shares = FORMS.map(|form| bytes(form.name(), Some(form)) / given);
        assert!(shares[0] <= 0.56 && shares[1] <= 0.31, "{}: {shares:?}", kind.name);
    }
}

#[test]
fn values_of_any_magnitude_of_f32_can_be_stored() {
    let (data, queries) = (vectors(Element::F32, 400, 16, 6), vectors(Element::F32, 20, 16, 7));
    let mut cases = CaseSelection::one_in(5);
    for (factor, metric) in [
        (1e13, Metric::L2),
        (1e-13, Metric::L2),
        (1e12, Metric::InnerProduct),
        (1e17, Metric::Cosine),
        (1e-32, Metric::Cosine),
    ] {
        let (data, queries) = (scaled(&data, factor), scaled(&queries, factor));
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        for (store_as, kind) in FORMS.into_iter().flat_map(|form| KINDS.map(|kind| (form, kind))) {
            if !cases.next_runs() {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("index");
            kind.build_with(&path, &data, &BuildOptions { store_as: Some(store_as), ..kind.options(metric) });
            let found =
                kind.search(&open(&path, OpenOptions::default()), &queries, SearchMode::Batched).unwrap();
            let share = recall(&truth, &found.ids, 10, 20).unwrap();
            assert!(share >= 0.88, "{factor:e} {metric} {store_as} {}: {share}", kind.name);
            let (near, exact) = (found.distances[0], truth.distances(0).unwrap()[0]);
            assert!(
                (near / exact - 1.0).abs() < 0.1,
                "{factor:e} {metric} {store_as}: {near:e}, not {exact:e}"
            );
        }
    }
}

#[test]
fn a_conversion_to_another_layout_keeps_the_stored_form() {
    let (data, queries) = (vectors(Element::F32, 500, 16, 11), vectors(Element::F32, 20, 16, 12));
    let padded = KINDS.into_iter().find(|kind| kind.name == "padded").unwrap();
    for store_as in FORMS {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("padded"), dir.path().join("csr"));
        padded.build_with(
            &from,
            &data,
            &BuildOptions { store_as: Some(store_as), ..padded.options(Metric::L2) },
        );
        convert_layout(&from, &to, GraphLayoutChoice::Csr, 1, &Silent).unwrap();
        assert!(verify(&to, &Silent).unwrap().sound);
        let (one, other) = (open(&from, OpenOptions::default()), open(&to, OpenOptions::default()));
        assert_eq!(one.manifest().stored, other.manifest().stored);
        let [one, other] =
            [one, other].map(|index| padded.search(&index, &queries, SearchMode::Batched).unwrap());
        assert_eq!((one.ids, one.distances), (other.ids, other.distances));
    }
}

#[test]
fn indexes_of_different_stored_forms_are_searched_together() {
    let (data, queries) = (vectors(Element::F32, 600, 16, 13), vectors(Element::F32, 20, 16, 14));
    let kind = KINDS[0];
    let dir = tempfile::tempdir().unwrap();
    let built = [None, Some(StoreAs::F16), Some(StoreAs::I8)].map(|store_as| {
        let path = dir.path().join(format!("{store_as:?}"));
        kind.build_with(&path, &data, &BuildOptions { store_as, ..kind.options(Metric::L2) });
        open(&path, OpenOptions::default())
    });
    let all: Vec<&Index> = built.iter().collect();
    let found =
        search_many(&all, &queries, &kind.search_options(SearchMode::Batched), Control::default()).unwrap();
    let truth = exact_neighbors(&data, &queries, Metric::L2, 3, None, &Silent).unwrap();
    // The nearest vector of each query is found thrice, at distances in the same units.
    for query in 0..queries.count() {
        let distance = |rank: usize| found.distances[query * found.k + rank];
        assert!(
            (distance(2) - distance(0)).abs() <= 0.05 * distance(0),
            "{query}: {:?}",
            &found.distances[query * found.k..][..3]
        );
        assert!((distance(0) / truth.distances(query).unwrap()[0] - 1.0).abs() < 0.05);
    }
}

#[test]
fn vectors_that_have_no_smaller_form_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    for kind in KINDS {
        for element in [Element::F16, Element::U8, Element::I8, Element::Bf16, Element::B1] {
            let options = BuildOptions { store_as: Some(StoreAs::I8), ..kind.options(Metric::L2) };
            let refused = build(&vectors(element, 20, 4, 1), &path, &options, &Silent).unwrap_err();
            assert!(matches!(refused, IndexError::Parameter(_)), "{refused}");
            let message = refused.to_string();
            assert!(
                message.contains("store_as is i8") && message.contains(&format!("the data is {element}")),
                "{message}"
            );
        }
        // The queries are so far from the vectors that f32 has no distance in the units of the stored values.
        let data = scaled(&vectors(Element::F32, 300, 8, 1), 1e-13);
        kind.build_with(
            &path,
            &data,
            &BuildOptions { store_as: Some(StoreAs::I8), overwrite: true, ..kind.options(Metric::L2) },
        );
        let index = open(&path, OpenOptions::default());
        let refused = index.search(&scaled(&data, 1e17), &SearchOptions::default(), Control::default());
        assert!(matches!(refused, Err(IndexError::Parameter(_))), "{refused:?}");
    }
}

#[test]
fn a_recall_out_of_reach_is_explained() {
    // One vector is so long that the stored bytes of the others hardly differ.
    let near = vectors(Element::F32, 600, 16, 8);
    let mut rows: Vec<u8> = (0..600).flat_map(|row| near.row(row).to_vec()).collect();
    rows[..4].copy_from_slice(&20_000.0_f32.to_le_bytes());
    let data = VectorFile::from_rows(Element::F32, 16, rows).unwrap();
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        kind.build_with(
            &path,
            &data,
            &BuildOptions { store_as: Some(StoreAs::I8), ..kind.options(Metric::L2) },
        );
        let index = open(&path, OpenOptions::default());
        let loss = index.manifest().stored.unwrap().loss.unwrap();
        assert!(loss.recall < 0.5, "{}: {loss:?}", kind.name);
        let wanted = SearchOptions { effort: Effort::Recall(0.95), ..SearchOptions::default() };
        let notes = index.search(&data, &wanted, Control::default()).unwrap().notes.join("; ");
        assert!(notes.contains("does not reach recall 0.95"), "{}: {notes}", kind.name);
        assert!(notes.contains("stored as i8") && notes.contains("store_as f16"), "{}: {notes}", kind.name);
    }
}

#[test]
fn the_radius_of_a_range_search_is_in_the_units_of_the_data() {
    let (data, queries) =
        (scaled(&vectors(Element::F32, 500, 16, 9), 1e-3), vectors(Element::F32, 10, 16, 10));
    let queries = scaled(&queries, 1e-3);
    for (number, metric) in [Metric::L2, Metric::Cosine].into_iter().enumerate() {
        let truth = exact_neighbors(&data, &queries, metric, 20, None, &Silent).unwrap();
        for (_, kind) in KINDS.into_iter().enumerate().filter(|(at, _)| case_runs(number + at, 2)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("index");
            kind.build_with(
                &path,
                &data,
                &BuildOptions { store_as: Some(StoreAs::F16), ..kind.options(metric) },
            );
            let index = open(&path, OpenOptions::default());
            for query in 0..queries.count() {
                let one = VectorFile::from_rows(Element::F32, 16, queries.row(query).to_vec()).unwrap();
                let radius = truth.distances(query).unwrap()[9] * 1.001;
                let options = RangeOptions::default();
                let found = index.range_search(&one, radius, &options, Control::default()).unwrap();
                let hits = truth.ids(query)[..10].iter().filter(|id| found.ids.contains(id)).count();
                assert!(hits >= 8, "{metric} {}: {hits}", kind.name);
                assert!(found.distances.iter().all(|distance| *distance <= radius));
            }
        }
    }
}

/// A description, and a change of a manifest.
type Lie = (&'static str, fn(&mut Manifest));

/// Returns changes that make a manifest contradict its index.
fn lies() -> Vec<Lie> {
    fn stored(manifest: &mut Manifest) -> &mut StoredEntry {
        manifest.stored.as_mut().unwrap()
    }
    fn loss(manifest: &mut Manifest) -> &mut Loss {
        stored(manifest).loss.as_mut().unwrap()
    }
    vec![
        ("no scale", |manifest| stored(manifest).scale = 0.0),
        ("a negative scale", |manifest| stored(manifest).scale = -1.0),
        ("a huge scale", |manifest| stored(manifest).scale = 1e30),
        ("a tiny scale", |manifest| stored(manifest).scale = 1e-30),
        ("a recall above 1", |manifest| loss(manifest).recall = 1.5),
        ("no queries", |manifest| loss(manifest).queries = 0),
        ("no neighbours", |manifest| loss(manifest).k = 0),
        ("negative errors", |manifest| loss(manifest).distance_error = -0.1),
        ("an old version", |manifest| manifest.format_version = FORMAT_VERSION),
        ("no stored form", |manifest| manifest.stored = None),
        ("another element", |manifest| manifest.element = "u8".into()),
        ("cosine with a scale", |manifest| manifest.metric = "cosine".into()),
    ]
}

#[test]
fn contradictory_stored_forms_are_damage() {
    let data = vectors(Element::F32, 300, 8, 1);
    for kind in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        kind.build_with(
            &path,
            &data,
            &BuildOptions { store_as: Some(StoreAs::I8), ..kind.options(Metric::L2) },
        );
        let sound = Manifest::read(&path).unwrap();
        for (what, lie) in lies() {
            let mut manifest = sound.clone();
            lie(&mut manifest);
            write_manifest(&path, &manifest);
            let opened = Index::open(&path, &OpenOptions::default());
            assert!(
                matches!(opened, Err(IndexError::Damaged { .. })),
                "{} {what}: {:?}",
                kind.name,
                opened.err()
            );
            assert!(!verify(&path, &Silent).unwrap().sound, "{} {what}", kind.name);
        }
        // The lengths of the files do not fit another form.
        let mut manifest = sound.clone();
        manifest.stored.as_mut().unwrap().element = StoreAs::F16;
        write_manifest(&path, &manifest);
        assert!(!verify(&path, &Silent).unwrap().sound, "{}", kind.name);
        write_manifest(&path, &sound);
        assert!(verify(&path, &Silent).unwrap().sound);
    }
}
