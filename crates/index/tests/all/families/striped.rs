//! Every kind of index striped over disks: the same files, and the same answers and counters on every tier.

use crate::cases::case_runs;
use crate::families::kinds::{KINDS, Kind, Shared};
use crate::families::places::{PLACES, Place, VARIANTS, open};
use bathyal_index::format::manifest::{FileEntry, Manifest};
use bathyal_index::{
    BuildOptions, Index, IndexError, OpenOptions, SearchMode, StripeConversionOptions, StripeOptions,
    convert_stripes, verify,
};
use bathyal_kernels::Metric;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};

/// Returns the files of an index without their stripes.
fn files(path: &Path) -> Vec<FileEntry> {
    let files = Manifest::read(path).unwrap().files;
    files.into_iter().map(|file| FileEntry { stripe: None, ..file }).collect()
}

/// The same index in one file and striped.
struct Pair<'a> {
    kind: Kind,
    shared: &'a Shared,
    whole: PathBuf,
    striped: PathBuf,
}

impl Pair<'_> {
    fn check_on(&self, place: &Place) {
        self.check(place.open(&self.whole), place.open(&self.striped), place.name);
    }

    /// Checks that both indexes give the same answers and counters.
    fn check(&self, whole: Index, striped: Index, what: &str) {
        let what = format!("{} on {what}", self.kind.name);
        let [found, expected] = [&striped, &whole]
            .map(|index| self.kind.search(index, &self.shared.queries, SearchMode::Batched).unwrap());
        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
        assert_eq!(found.per_query, expected.per_query, "{what}");
        let stats = striped.stats();
        assert_eq!(whole.stats().parts, [], "{what}");
        if !stats.parts.is_empty() {
            let reads: u64 = stats.parts.iter().map(|part| part.reads).sum();
            let least = if self.kind.caches() { 1 } else { found.totals.reads };
            assert!(stats.parts.len() == 3 && reads >= least, "{what}: {stats:?}");
            let text = stats.to_prometheus();
            assert!(text.contains(&format!("part=\"{}\"", stats.parts[2].path)), "{text}");
        }
    }
}

#[test]
fn striped_indexes_answer_like_indexes_in_one_file() {
    let shared = Shared::get();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| dir.path().join(name));
        folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let stripe = StripeOptions { stripe_bytes: 8192, ..StripeOptions::over(&folders) };
        let (whole, striped) = (shared.path(number), dir.path().join("striped"));
        let options = StripeConversionOptions { stripe: Some(stripe.clone()), ..Default::default() };
        convert_stripes(&whole, &striped, &options, &Silent).unwrap();
        assert!(verify(&striped, &Silent).unwrap().sound, "{}", kind.name);

        let built = dir.path().join("built");
        let options = BuildOptions { stripe: Some(stripe), ..kind.options(Metric::L2) };
        kind.build_with(&built, &shared.data, &options);
        assert_eq!((files(&striped), files(&built)), (files(&whole), files(&whole)), "{}", kind.name);

        let pair = Pair { kind, shared, whole, striped };
        let places = PLACES.iter().chain(&VARIANTS).filter(|place| !place.in_parts).enumerate();
        places.filter(|(at, _)| case_runs(number + at, 5)).for_each(|(_, place)| pair.check_on(place));
        let index = PLACES[0].open(&pair.striped);
        kind.search(&index, &shared.queries, SearchMode::Pipelined).unwrap();
        assert!(index.stats().parts.iter().all(|part| part.reads > 0 && part.p99_us > 0), "{}", kind.name);

        // In the smallest budget some codes may stay on the disks.
        let little = OpenOptions { memory_bytes: Some(1), ..OpenOptions::default() };
        let Err(IndexError::Memory { needed, .. }) = Index::open(&pair.whole, &little).map(|_| ()) else {
            panic!("a byte was enough")
        };
        let little = OpenOptions { memory_bytes: Some(needed + (1 << 20)), ..OpenOptions::default() };
        pair.check(open(&pair.whole, little.clone()), open(&pair.striped, little), "little memory");
    }
}
