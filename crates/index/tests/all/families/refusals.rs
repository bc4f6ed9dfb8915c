//! The number of bytes that a refusal names: it is enough for the same search, and no smaller one is.

use crate::cases::case_runs;
use crate::families::kinds::{KINDS, Kind, Shared};
use crate::families::places::{PLACES, VARIANTS};
use bathyal_index::{Effort, Index, IndexError, OpenOptions, SearchOptions, SearchResult};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::path::PathBuf;

/// Queries of a search: more than threads.
const QUERIES: usize = 6;

/// One search of an index, with any budget.
struct Search {
    queries: VectorFile,
    path: PathBuf,
    /// The options that open the index, without a budget.
    opening: OpenOptions,
    options: SearchOptions,
    /// True if the options are known when the index is opened.
    announced: bool,
}

impl Search {
    fn with(&self, bytes: u64) -> Result<SearchResult, IndexError> {
        let opening = OpenOptions { memory_bytes: Some(bytes), wait: true, ..self.opening.clone() };
        let opening = if self.announced { opening.for_search(&self.options) } else { opening };
        Index::open(&self.path, &opening)?.search(&self.queries, &self.options, Control::default())
    }

    /// Returns the number that the refusal of `bytes` names; `None` if they are enough.
    fn refusal(&self, bytes: u64, what: &str) -> Option<u64> {
        match self.with(bytes) {
            Ok(_) => None,
            Err(IndexError::Memory { needed, given, .. }) => {
                assert!(given == bytes && needed > given, "{what}: {needed} for {bytes}");
                Some(needed)
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Calls `each` with the cases of a search of every family on every tier, each with a description.
fn each_search(announced: bool, efforts: impl Fn(Kind) -> Vec<Effort>, each: impl Fn(&Search, &str)) {
    let rows = (0..QUERIES).flat_map(|row| Shared::get().queries.row(row).to_vec()).collect();
    let queries =
        VectorFile::from_rows(Shared::get().data.element(), Shared::get().data.dim(), rows).unwrap();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let path = Shared::get().path(number);
        for (at, place) in PLACES.iter().chain(&VARIANTS).enumerate() {
            // The copies on several nodes replace each other.
            if place.in_parts || !case_runs(number + 2 * at, 7) {
                continue;
            }
            let (path, opening) = place.locate(&path);
            for (threads, effort) in [1, 2, 5]
                .into_iter()
                .flat_map(|threads| efforts(kind).into_iter().map(move |effort| (threads, effort)))
            {
                let options = SearchOptions { effort, threads, ..SearchOptions::default() };
                let what = format!("{} on {}, {threads} threads, {effort:?}", kind.name, place.name);
                let (queries, path, opening) = (queries.clone(), path.clone(), opening.clone());
                each(&Search { queries, path, opening, options, announced }, &what);
            }
        }
    }
}

#[test]
fn the_number_of_a_refusal_is_the_least_that_is_enough() {
    let efforts = |kind: Kind| vec![Effort::Recall(0.95), kind.effort(400)];
    each_search(true, efforts, |search, what| {
        let enough = search.refusal(0, what).unwrap_or_else(|| panic!("{what}: no need"));
        assert_eq!(search.refusal(enough, what), None, "{what}: {enough} bytes, which a refusal names");
        assert_eq!(search.refusal(enough - 1, what), Some(enough), "{what}: one byte less");
        assert_eq!(search.refusal(enough / 2, what), Some(enough), "{what}: half of it");
    });
}

/// A library user opens an index before the searches are known. The index may open with a budget that is too
/// small for a long list of candidates.
#[test]
fn a_search_names_the_least_budget_for_which_its_index_should_be_opened() {
    let efforts = |kind: Kind| vec![Effort::Recall(1.0), kind.effort(400), kind.effort(2000)];
    each_search(false, efforts, |search, what| {
        let opened = search.refusal(0, what).unwrap_or_else(|| panic!("{what}: no need"));
        let Some(enough) = search.refusal(opened, what) else { return };
        assert_eq!(search.refusal(enough, what), None, "{what}: {enough} bytes, which the search names");
        assert_eq!(search.refusal(enough - 1, what), Some(enough), "{what}: one byte less");
    });
}

/// Returns the number of bytes that a note says are enough for all threads.
fn enough_for_all_threads(found: &SearchResult) -> Option<u64> {
    let note = found.notes.iter().find(|note| note.contains("search threads"))?;
    let number = note.split("a budget of ").nth(1)?.split(' ').next()?;
    number.parse().ok()
}

#[test]
fn a_budget_for_fewer_threads_is_used_and_the_note_names_the_one_for_all() {
    each_search(
        false,
        |_| vec![Effort::Recall(0.95)],
        |search, what| {
            let opened = search.refusal(0, what).unwrap_or_else(|| panic!("{what}: no need"));
            let few = search.with(opened).unwrap_or_else(|error| panic!("{what}: {error}"));
            let Some(enough) = enough_for_all_threads(&few) else {
                assert_eq!(few.threads, search.options.threads, "{what}");
                return;
            };
            assert!(few.threads < search.options.threads && enough > opened, "{what}");
            let all = search.with(enough).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((all.threads, enough_for_all_threads(&all)), (search.options.threads, None), "{what}");
            let less = search.with(enough - 1).unwrap_or_else(|error| panic!("{what}: {error}"));
            // It is not known whether another tier reads pages in memory in place.
            if search.opening.wrap.is_none() {
                assert_eq!(enough_for_all_threads(&less), Some(enough), "{what}: one byte less");
            }
        },
    );
}
