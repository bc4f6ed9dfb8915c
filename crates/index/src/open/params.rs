//! Derives the parameters of a search from its request, and refuses what the index does not support.

use super::Index;
use super::request::{Effort, MAX_BEAM_WIDTH, MAX_SEARCH_LIST, SearchOptions, SearchRequest};
use super::stored::StoredIndex;
use crate::calibrate::solve::Solved;
use crate::cost::demand::Execution;
use crate::cost::layout::LayoutAdvice;
use crate::error::IndexError;
use crate::family::{CardUse, Knob};
use crate::query::changes::Changes;
use crate::query::{self, SearchMode, SearchParams, beam_width_on};
use bathyal_kernels::Metric;
use std::sync::Arc;

/// Added to the answers of a search whose effort was not chosen by the calibration of the codes in memory.
const SHORTER_CODES: &str = "the memory budget has space only for shorter codes, with which a given \
                             search_list or probes finds less; allow more memory, or ask for a recall";

/// Queries in flight on each thread for the comparison of layouts: enough that latency, which is the same for
/// both, does not limit the throughput.
const HIDING_IN_FLIGHT: u32 = 1 << 20;

/// Refuses a search that a graphics card does not support.
fn check_card(card: &CardUse, options: &SearchOptions, list: usize, width: u32) -> Result<(), IndexError> {
    let refuse = |reason: String| Err(IndexError::Parameter(reason));
    let advice = "ask for less, or open the index without the card";
    if list > card.list as usize {
        return refuse(format!(
            "{list} candidates are more than the {} that a graphics card keeps; {advice}",
            card.list
        ));
    }
    if let Some(most) = card.width.filter(|most| width > *most) {
        return refuse(format!("beam_width is {width}; on a graphics card it is {most} at most: {advice}"));
    }
    if card.width.is_some() && options.mode == Some(SearchMode::Pipelined) {
        return refuse(
            "mode is pipelined, but on a graphics card searches go hop by hop: leave the mode out, or open \
             the index without the card"
                .into(),
        );
    }
    Ok(())
}

impl Index {
    /// Returns the parameters of a search, with notes for the user.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for a request that this index does not support.
    pub(super) fn params(
        &self,
        request: &SearchRequest,
        changes: Option<&Arc<Changes>>,
    ) -> Result<(SearchParams, Vec<String>), IndexError> {
        let options = request.options();
        self.stored.check_knobs(options)?;
        let (vectors, mut notes) = (self.vectors_with(changes), Vec::new());
        let k = options.k.min(vectors);
        if k < options.k {
            notes.push(format!("asked for {} neighbours, the index holds only {k} vectors", options.k));
        }
        let effort = self.effort(options, k, changes, &mut notes)?;
        let list = effort.search_list.max(k);
        let card = self.searcher().card();
        let beam_width = options.beam_width.unwrap_or_else(|| {
            let widest = card.and_then(|card| card.width).unwrap_or(MAX_BEAM_WIDTH);
            beam_width_on(self.loaded.profile()).min(widest)
        });
        if let Some(card) = card {
            check_card(&card, options, list, beam_width)?;
        }
        let named = matches!(options.effort, Effort::SearchList(_)) || options.probes.is_some();
        if named && self.plan.split().codes_left_out > 0 {
            notes.push(SHORTER_CODES.into());
        }
        let params = SearchParams {
            k,
            search_list: list,
            probes: options.probes.map_or(effort.probes, |probes| probes as usize),
            prune: options.prune.unwrap_or(if options.probes.is_some() { 0.0 } else { effort.prune }),
            beam_width: beam_width as usize,
            multi_probe: options.multi_probe.unwrap_or(0) as usize,
            mode: options.mode.unwrap_or_else(|| self.default_mode()),
            timed: options.timed,
            early: self.early_effort(k, options),
        };
        notes.extend(self.advice_for(&params, options.threads).map(|advice| advice.note()));
        Ok((params, notes))
    }

    /// Returns the advice to convert the index to the layout that suits its tier; `None` if its own suits it,
    /// or if it cannot be converted. Without a profile with a measured bandwidth there is no advice.
    ///
    /// # Errors
    /// As [`Index::search`], for options that the index does not support.
    pub fn layout_advice(&self, options: &SearchOptions) -> Result<Option<LayoutAdvice>, IndexError> {
        let (params, _) = self.params(&SearchRequest::new(options)?, self.changes().as_ref())?;
        Ok(self.advice_for(&params, options.threads))
    }

    /// Returns the advice for searches with these parameters on `threads` threads; 0 means all cores.
    fn advice_for(&self, params: &SearchParams, threads: usize) -> Option<LayoutAdvice> {
        let machine = self.loaded.machine();
        // The bytes of a query matter only where the device's bandwidth is known.
        if machine.profile.bandwidth_bytes_per_s <= 0.0 {
            return None;
        }
        let [own, other] = self.searcher().layouts(params, &machine)?;
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = if threads > 0 { threads } else { cores() };
        let execution = Execution {
            threads: u32::try_from(threads).unwrap_or(u32::MAX),
            in_flight: HIDING_IN_FLIGHT,
            issue_ns: machine.device().issue_ns,
        };
        LayoutAdvice::find(&own, &other, machine.profile, &execution)
    }

    /// Returns the effort of a search for `k` vectors.
    fn effort(
        &self,
        options: &SearchOptions,
        k: usize,
        changes: Option<&Arc<Changes>>,
        notes: &mut Vec<String>,
    ) -> Result<query::Effort, IndexError> {
        let vectors = self.vectors_with(changes);
        match options.effort {
            Effort::Probability { probability, within } => {
                let deleted = changes.map_or(0, |changes| changes.counts().1);
                self.promised_effort((probability, within), deleted, notes)
            }
            Effort::SearchList(list) if (list as usize) < k => {
                Err(IndexError::Parameter(format!("search_list is {list}, which must be at least k = {k}")))
            }
            Effort::SearchList(list) => Ok(self.stored.family().effort_of(list)),
            Effort::Recall(recall) => match self.calibrated_effort(k, recall, options.calibration, notes)? {
                Some(effort) => Ok(effort),
                None => Ok(self.effort_for(k, recall, vectors, notes)),
            },
            Effort::Ratio(ratio) => self.effort_for_ratio(k, ratio, vectors, notes),
        }
    }

    /// Returns true if searches of this index support this kind of effort. All support a recall; the others
    /// depend on the family.
    pub fn supports(&self, effort: Effort) -> bool {
        let knob = match effort {
            Effort::Recall(_) => return true,
            Effort::SearchList(_) => Knob::SearchList,
            Effort::Ratio(_) => Knob::Ratio,
            Effort::Probability { .. } => Knob::Probability,
        };
        self.stored.family().knobs().contains(&knob)
    }

    /// Returns the effort for a recall.
    fn effort_for(&self, k: usize, recall: f32, vectors: usize, notes: &mut Vec<String>) -> query::Effort {
        let solved = self.loaded.opened().effort(k, recall, &self.loaded.machine());
        if solved.is_none_or(|solved| !solved.reached) {
            notes.extend(self.stored.manifest().stored.and_then(|stored| stored.falls_short(recall)));
        }
        let Some(solved) = solved else {
            // There are too few vectors for a calibration: comparing all of them is exact and cheap.
            return query::Effort { search_list: vectors, probes: vectors, prune: 0.0 };
        };
        settled(solved, &format!("recall {recall}"), notes)
    }

    /// Returns the effort of queries that begin before all codes are loaded; `None` unless the effort is
    /// given by a recall alone.
    fn early_effort(&self, k: usize, options: &SearchOptions) -> Option<query::Effort> {
        let Effort::Recall(recall) = options.effort else { return None };
        if options.probes.is_some() || options.prune.is_some() {
            return None;
        }
        let solved = self.loaded.opened().early_effort(k, recall, &self.loaded.machine())?;
        Some(settled(solved, "", &mut Vec::new()))
    }

    /// Returns the effort that is promised to find a vector within a ratio of the nearest distance, and adds
    /// the promise to the notes. `deleted` vectors were deleted since the build.
    fn promised_effort(
        &self,
        (probability, within): (f32, f32),
        deleted: u64,
        notes: &mut Vec<String>,
    ) -> Result<query::Effort, IndexError> {
        let refuse = |reason: String| self.stored.refusal(reason);
        if self.metric() == Metric::InnerProduct {
            let reason = "no probability is promised under ip, since an inner product is not a distance";
            return Err(refuse(format!("{reason}; ask for a recall")));
        }
        // Families without this capability do not know the option, and have refused it before.
        let Some(family) = self.loaded.opened().capabilities().promised else {
            return Err(refuse("no probability is promised; ask for a recall".into()));
        };
        let promised = family.promise(probability, within, deleted).map_err(refuse)?;
        notes.push(promised.note);
        Ok(promised.effort)
    }

    /// Returns the effort for an overall ratio.
    fn effort_for_ratio(
        &self,
        k: usize,
        ratio: f32,
        vectors: usize,
        notes: &mut Vec<String>,
    ) -> Result<query::Effort, IndexError> {
        if self.metric() == Metric::InnerProduct {
            let reason =
                "there is no ratio under ip, since an inner product is not a distance; ask for a recall";
            return Err(self.stored.refusal(reason));
        }
        let (opened, machine) = (self.loaded.opened(), self.loaded.machine());
        match opened.effort_for_ratio(k, ratio, &machine) {
            Some(solved) => Ok(settled(solved, &format!("an overall ratio of {ratio}"), notes)),
            None if opened.effort(k, 1.0, &machine).is_none() => {
                // There are too few vectors for a calibration: comparing all of them is exact and cheap.
                Ok(query::Effort { search_list: vectors, probes: vectors, prune: 0.0 })
            }
            None => Err(self.stored.refusal(format!(
                "the ratio of its answers for k = {k} was not measured when it was built; ask for a recall, \
                 or build or compact it with this version"
            ))),
        }
    }
}

impl StoredIndex {
    /// Refuses options that the index's family does not support.
    fn check_knobs(&self, options: &SearchOptions) -> Result<(), IndexError> {
        let known = self.family().knobs();
        let given = [
            (Knob::SearchList, matches!(options.effort, Effort::SearchList(_))),
            (Knob::Probes, options.probes.is_some()),
            (Knob::Prune, options.prune.is_some()),
            (Knob::BeamWidth, options.beam_width.is_some()),
            (Knob::MultiProbe, options.multi_probe.is_some()),
            (Knob::Mode, options.mode.is_some()),
            (Knob::Ratio, matches!(options.effort, Effort::Ratio(_))),
            (Knob::Probability, matches!(options.effort, Effort::Probability { .. })),
        ];
        let Some((knob, _)) = given.into_iter().find(|(knob, given)| *given && !known.contains(knob)) else {
            return Ok(());
        };
        let known: Vec<&str> = known.iter().map(|knob| knob.name()).collect();
        Err(self.refusal(format!(
            "a search of this {} index knows no {}; it knows {}",
            self.manifest().family,
            knob.name(),
            if known.is_empty() { "none".into() } else { known.join(", ") }
        )))
    }
}

/// Returns the effort that calibration found for `asked`. Adds a note if it does not reach that.
fn settled(solved: Solved, asked: &str, notes: &mut Vec<String>) -> query::Effort {
    if !solved.reached {
        notes.push(format!(
            "the calibration of this index does not reach {asked}; searching with its largest effort, \
             search_list {}",
            solved.effort.search_list
        ));
    }
    // The limit for callers also holds for the calibration in a manifest.
    let search_list = solved.effort.search_list.min(MAX_SEARCH_LIST as usize);
    query::Effort { search_list, ..solved.effort }
}
