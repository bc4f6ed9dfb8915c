//! Checks queries and search options, and derives the parameters of a search.

use super::Index;
use super::options::{Effort, MAX_BEAM_WIDTH, MAX_MULTI_PROBE, MAX_SEARCH_LIST, SearchOptions};
use crate::calibrate::solve::Solved;
use crate::error::IndexError;
use crate::extent;
use crate::family::{CardUse, Knob};
use crate::query::changes::Changes;
use crate::query::{self, SearchMode, SearchParams, beam_width_on};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Refuses a search that a graphics card does not support.
fn check_card(card: &CardUse, options: &SearchOptions, list: usize, width: u32) -> Result<(), IndexError> {
    let advice = "ask for less, or open the index without the card";
    if list > card.list as usize {
        let text =
            format!("{list} candidates are more than the {} that a graphics card keeps; {advice}", card.list);
        return Err(IndexError::Parameter(text));
    }
    if let Some(most) = card.width.filter(|most| width > *most) {
        let text = format!("beam_width is {width}; on a graphics card it is {most} at most: {advice}");
        return Err(IndexError::Parameter(text));
    }
    if card.width.is_some() && options.mode == Some(SearchMode::Pipelined) {
        let text = "mode is pipelined, but on a graphics card searches go hop by hop: leave the mode out, or open the index without the \
                    card";
        return Err(IndexError::Parameter(text.into()));
    }
    Ok(())
}

impl Index {
    /// Refuses queries that do not fit the index, and values in `rows` for which no distance is defined.
    pub(super) fn check_queries(&self, queries: &VectorFile, rows: Range<usize>) -> Result<(), IndexError> {
        self.check_vectors(queries, rows, ("queries", "query"))
    }

    /// Returns `vectors` in the element of this index: an index of bits also accepts bytes, with eight bits
    /// each. Methods of the index accept either. Callers that compare vectors with those of the index by
    /// other means need this conversion.
    pub fn in_own_element<'a>(&self, vectors: &'a VectorFile) -> Cow<'a, VectorFile> {
        let bits = if self.element() == Element::B1 { vectors.as_bits() } else { None };
        bits.map_or(Cow::Borrowed(vectors), Cow::Owned)
    }

    /// Refuses vectors that do not fit the index. `all` and `one` name them in errors.
    pub(super) fn check_vectors(
        &self,
        queries: &VectorFile,
        rows: Range<usize>,
        (all, one): (&str, &str),
    ) -> Result<(), IndexError> {
        let queries = &*self.in_own_element(queries);
        let refuse =
            |what: String| Err(IndexError::Parameter(format!("{}: {what}", queries.path().display())));
        if queries.dim() != self.dim() {
            return refuse(format!(
                "the {all} have {} dimensions, the index has {}",
                queries.dim(),
                self.dim()
            ));
        }
        if queries.element() != self.element() {
            return refuse(format!(
                "the {all} are {}, the index holds {}; convert them with `bathyal convert`",
                queries.element(),
                self.element()
            ));
        }
        if rows == (0..queries.count()) {
            queries.check_finite()?
        } else {
            queries.check_rows(rows.clone())?
        }
        extent::check_queries(queries, rows.clone(), self.metric(), self.manifest.stored_scale())?;
        if self.metric() == Metric::Cosine {
            let zero = |row: &usize| !extent::has_direction(self.element(), queries.row(*row));
            if let Some(row) = rows.clone().find(zero) {
                return refuse(format!(
                    "{one} {row} is all zeros, which has no direction and so no cosine distance"
                ));
            }
        }
        Ok(())
    }

    /// Checks the options, and returns the parameters of the search with notes for the user.
    pub(super) fn params(
        &self,
        options: &SearchOptions,
        changes: Option<&Arc<Changes>>,
    ) -> Result<(SearchParams, Vec<String>), IndexError> {
        let vectors = self.vectors_with(changes);
        let refuse = |what: String| Err(IndexError::Parameter(what));
        let mut notes = Vec::new();
        if options.k == 0 {
            return refuse("k is 0; ask for at least one neighbour".into());
        }
        let card = self.searcher().card();
        let beam_width = options.beam_width.unwrap_or_else(|| {
            let widest = card.and_then(|card| card.width).unwrap_or(MAX_BEAM_WIDTH);
            beam_width_on(&self.profile).min(widest)
        });
        if beam_width == 0 || beam_width > MAX_BEAM_WIDTH {
            return refuse(format!("beam_width is {beam_width}; it must be between 1 and {MAX_BEAM_WIDTH}"));
        }
        if options.probes == Some(0) {
            return refuse("probes is 0; at least one group must be scanned".into());
        }
        if options.prune.is_some_and(|prune| !(prune >= 0.0 && prune.is_finite())) {
            return refuse(
                "prune must be 0 or above: lists more than 1 + prune times as far as the nearest are skipped"
                    .into(),
            );
        }
        if let Some(places) = options.multi_probe.filter(|places| *places > MAX_MULTI_PROBE) {
            return refuse(format!("multi_probe is {places}; it must be at most {MAX_MULTI_PROBE}"));
        }
        self.check_knobs(options)?;
        if options.in_flight == Some(0) {
            return refuse("in_flight is 0; at least one query must run on each thread".into());
        }
        let k = options.k.min(vectors);
        if k < options.k {
            notes.push(format!("asked for {} neighbours, the index holds only {k} vectors", options.k));
        }
        let effort = match options.effort {
            Effort::SearchList(0) => return refuse("search_list is 0; it must be at least k".into()),
            Effort::SearchList(l) if l > MAX_SEARCH_LIST => {
                return refuse(format!("search_list is {l}; it must be at most {MAX_SEARCH_LIST}"));
            }
            Effort::SearchList(l) if (l as usize) < k => {
                return refuse(format!("search_list is {l}, which must be at least k = {k}"));
            }
            Effort::SearchList(l) => self.stored.effort_of(l),
            Effort::Recall(recall) => {
                if !(recall > 0.0 && recall <= 1.0) {
                    return refuse(format!("recall is {recall}; it must be above 0 and at most 1"));
                }
                match self.calibrated_effort(k, recall, options.calibration, &mut notes)? {
                    Some(effort) => effort,
                    None => self.effort_for(k, recall, vectors, &mut notes),
                }
            }
            Effort::Ratio(ratio) => self.effort_for_ratio(k, ratio, vectors, &mut notes)?,
        };
        let list = effort.search_list.max(k);
        if let Some(card) = card {
            check_card(&card, options, list, beam_width)?;
        }
        let named = matches!(options.effort, Effort::SearchList(_)) || options.probes.is_some();
        if named && self.split.codes_left_out > 0 {
            notes.push(
                "the memory budget has space only for shorter codes, with which a given search_list or probes finds less; allow \
                 more memory, or ask for a recall"
                    .into(),
            );
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
        Ok((params, notes))
    }

    /// Returns true if searches of this index support this kind of effort. All support a recall; the others
    /// depend on the family.
    pub fn supports(&self, effort: Effort) -> bool {
        let knob = match effort {
            Effort::Recall(_) => return true,
            Effort::SearchList(_) => Knob::SearchList,
            Effort::Ratio(_) => Knob::Ratio,
        };
        self.stored.knobs().contains(&knob)
    }

    /// Refuses options that the index's family does not support.
    fn check_knobs(&self, options: &SearchOptions) -> Result<(), IndexError> {
        let known = self.stored.knobs();
        let given = [
            (Knob::SearchList, matches!(options.effort, Effort::SearchList(_))),
            (Knob::Probes, options.probes.is_some()),
            (Knob::Prune, options.prune.is_some()),
            (Knob::BeamWidth, options.beam_width.is_some()),
            (Knob::MultiProbe, options.multi_probe.is_some()),
            (Knob::Mode, options.mode.is_some()),
            (Knob::Ratio, matches!(options.effort, Effort::Ratio(_))),
        ];
        let Some((knob, _)) = given.into_iter().find(|(knob, given)| *given && !known.contains(knob)) else {
            return Ok(());
        };
        let known: Vec<&str> = known.iter().map(|knob| knob.name()).collect();
        Err(IndexError::Parameter(format!(
            "{}: a search of this {} index knows no {}; it knows {}",
            self.directory.display(),
            self.manifest.family,
            knob.name(),
            if known.is_empty() { "none".into() } else { known.join(", ") }
        )))
    }

    /// Returns the effort for a recall.
    fn effort_for(&self, k: usize, recall: f32, vectors: usize, notes: &mut Vec<String>) -> query::Effort {
        let solved = self.opened.effort(k, recall, &self.machine());
        if solved.is_none_or(|solved| !solved.reached) {
            notes.extend(self.manifest.stored.and_then(|stored| stored.falls_short(recall)));
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
        let solved = self.opened.early_effort(k, recall, &self.machine())?;
        Some(settled(solved, "", &mut Vec::new()))
    }

    /// Returns the effort for an overall ratio.
    fn effort_for_ratio(
        &self,
        k: usize,
        ratio: f32,
        vectors: usize,
        notes: &mut Vec<String>,
    ) -> Result<query::Effort, IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        if !(ratio >= 1.0 && ratio.is_finite()) {
            return refuse(format!(
                "ratio is {ratio}; it must be at least 1, for example 1.05: the vectors found are then 5% farther away than the \
                 nearest, on average"
            ));
        }
        if self.metric() == Metric::InnerProduct {
            return refuse(format!(
                "{}: there is no ratio under ip, since an inner product is not a distance; ask for a recall",
                self.directory.display()
            ));
        }
        match self.opened.effort_for_ratio(k, ratio, &self.machine()) {
            Some(solved) => Ok(settled(solved, &format!("an overall ratio of {ratio}"), notes)),
            None if self.opened.effort(k, 1.0, &self.machine()).is_none() => {
                // There are too few vectors for a calibration: comparing all of them is exact and cheap.
                Ok(query::Effort { search_list: vectors, probes: vectors, prune: 0.0 })
            }
            None => refuse(format!(
                "{}: the ratio of its answers for k = {k} was not measured when it was built; ask for a recall, or build or \
                 compact it with this version",
                self.directory.display()
            )),
        }
    }
}

/// Returns the effort that calibration found for `asked`. Adds a note if it does not reach that.
fn settled(solved: Solved, asked: &str, notes: &mut Vec<String>) -> query::Effort {
    if !solved.reached {
        notes.push(format!(
            "the calibration of this index does not reach {asked}; searching with its largest effort, search_list {}",
            solved.effort.search_list
        ));
    }
    // The limit for callers also holds for the calibration in a manifest.
    let search_list = solved.effort.search_list.min(MAX_SEARCH_LIST as usize);
    query::Effort { search_list, ..solved.effort }
}
