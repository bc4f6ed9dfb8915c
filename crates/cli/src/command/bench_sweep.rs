//! The efforts that `bench` measures.

use bathyal_console::Failure;
use bathyal_index::{Effort, Index, NamedEfforts, SearchOptions};

use super::measurement::search_options;
use crate::arguments::BenchArguments;

/// Factor between successive efforts: about seven points from recall 0.8 to 0.99.
const EFFORT_STEP: f64 = 1.4;

/// Most efforts of the default sweep: from k to about 30 k.
const EFFORTS: usize = 11;

/// The efforts to measure, in order. All were checked, so that a wrong one is refused before an index is
/// opened.
pub(super) struct Sweep<'a> {
    arguments: &'a BenchArguments,
    efforts: Vec<Effort>,
    /// The searches of these efforts by the usual calibration, for which an index is opened.
    pub(super) searches: Vec<SearchOptions>,
}

impl<'a> Sweep<'a> {
    /// Reads the efforts of `arguments`.
    ///
    /// # Errors
    /// Efforts that exclude each other or are out of range.
    pub(super) fn new(arguments: &'a BenchArguments) -> Result<Sweep<'a>, Failure> {
        let BenchArguments { recall: recalls, search_lists: lists, settings, .. } = arguments;
        let (recall, search_list) = (recalls.first().copied(), lists.first().copied());
        let named = NamedEfforts { recall, search_list, ..NamedEfforts::default() };
        named.effort().map_err(Failure::refused)?;
        let efforts: Vec<Effort> = match recalls.is_empty() {
            false => recalls.iter().copied().map(Effort::Recall).collect(),
            true => search_lists(lists, settings.k).into_iter().map(Effort::SearchList).collect(),
        };
        let searches = efforts.iter().map(|effort| search_options(settings, *effort));
        let searches = searches.collect::<Result<_, _>>()?;
        Ok(Sweep { arguments, efforts, searches })
    }

    /// Returns true if the user named no effort, so that the sweep may end where more effort gains nothing.
    pub(super) fn is_usual(&self) -> bool {
        self.arguments.recall.is_empty() && self.arguments.search_lists.is_empty()
    }

    /// Returns the options of the searches of `index`. One that takes no candidate list is searched for the
    /// usual recall if no effort was named.
    pub(super) fn options(&self, index: &Index) -> Result<Vec<SearchOptions>, Failure> {
        let named = self.arguments.calibration.as_ref().map(|name| index.calibration(name)).transpose()?;
        let calibration = named.unwrap_or_default();
        let usual = [Effort::default()];
        let takes_lists = index.supports(Effort::SearchList(1));
        let efforts = if self.is_usual() && !takes_lists { &usual[..] } else { &self.efforts };
        let options = efforts.iter().map(|effort| search_options(&self.arguments.settings, *effort));
        options.map(|options| Ok(SearchOptions { calibration, ..options? })).collect()
    }
}

/// Returns the candidate lists to measure: `given`, or if it is empty a geometric sweep from `k` up.
fn search_lists(given: &[u32], k: u32) -> Vec<u32> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let sweep = (0..EFFORTS as i32).map(|step| (f64::from(k) * EFFORT_STEP.powi(step)).round() as u32);
    let mut lists: Vec<u32> = sweep.collect();
    lists.dedup();
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_rises_from_k() {
        let lists = search_lists(&[], 10);
        assert_eq!((lists[0], lists.len()), (10, EFFORTS));
        assert!(lists.is_sorted());
        assert_eq!(search_lists(&[], 1)[..2], [1, 2]);
        assert_eq!(search_lists(&[50, 20], 10), [50, 20]);
    }
}
