//! Calibrations of an open index with queries of its user: how they are measured, published and chosen.
//!
//! `calibrate/given_queries.rs` says what a calibration is, `calibrate/log.rs` how it is written. The log of
//! calibrations is read when the first search asks for a recall.

use super::Index;
use super::control::with_control;
use super::pool::RawQueries;
use super::request::{Effort as Asked, MAX_SEARCH_LIST};
use crate::calibrate::choice::{CalibrationChoice, DEFAULT_CALIBRATION, NameHash};
use crate::calibrate::given_queries::{
    self, Conditions, EffortPoint, MEASURED_FACTORS, MEASURED_RECALLS, QueryCalibration, Reaching,
};
use crate::calibrate::log::{
    self, BUILD_NAME, CALIBRATIONS_NAME, CalibrationLog, CalibrationRecord, check_name,
};
use crate::calibrate::reach::{QueryLengths, Reach};
use crate::calibrate::trial::CALIBRATED_K;
use crate::calibrate::{Calibration, Curve};
use crate::cost::Machine;
use crate::error::IndexError;
use crate::format::manifest::Manifest;
use crate::query::{Effort, RowSet, SearchParams, beam_width_on};
use bathyal_store::{Durability, Generation, Log, Store, StoreError};
use bathyal_tier::{Control, TierProfile};
use bathyal_vectors::groundtruth::MeanRecall;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{IdFile, VectorFile};
use rand::SeedableRng;
use rand::seq::index::sample;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

/// The most queries that a calibration measures: the mean recall of so many is known to about 0.01.
pub const MOST_QUERIES: usize = 1000;
/// The fewest queries whose mean recall is known to about 0.02.
const FEW_QUERIES: u32 = 200;
/// The seed of the choice among more queries.
const SEED: u64 = 0xca11;

/// Options of [`Index::calibrate`].
#[derive(Debug, Clone)]
pub struct CalibrateOptions {
    /// The name of the calibration: letters, digits, `-`, `_` and `.`. One of the same name is replaced.
    pub name: String,
    /// The most queries to measure. Of more, a sample is taken.
    pub queries: usize,
    /// The true neighbours of all given queries. `None` finds them by one pass over the vectors of the index.
    pub truth: Option<IdFile>,
    /// Threads; 0 means all cores.
    pub threads: usize,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        CalibrateOptions { name: DEFAULT_CALIBRATION.into(), queries: MOST_QUERIES, truth: None, threads: 0 }
    }
}

/// The result of [`Index::calibrate`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalibrateReport {
    /// The calibration, as it was published.
    #[serde(flatten)]
    pub measured: QueryCalibration,
    /// The recall that searches with these queries found before, for each k, if they asked for 0.9, 0.95 and
    /// 0.99.
    pub before: Vec<RecallBefore>,
    /// Notes for the user, such as too few queries for a recall that is known well.
    pub notes: Vec<String>,
    /// Seconds to find the true neighbours.
    pub truth_seconds: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// The recall that the calibration of the build reached with other queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RecallBefore {
    /// Neighbours asked for.
    pub k: u32,
    /// The recall asked for.
    pub asked: f32,
    /// The recall found.
    pub found: f32,
}

/// The calibrations of an open index.
#[derive(Debug, Default)]
pub(super) struct Calibrations {
    /// `None` if the store has no logs.
    log: Option<Arc<dyn Log>>,
    /// The calibrations that were read or written last; `None` before that.
    known: RwLock<Option<Arc<CalibrationLog>>>,
    /// Set if another index was published under the name before the log was read: the log cannot be read any
    /// more, but the opened index can.
    was_replaced: AtomicBool,
    /// Set when a search has said so.
    was_noted: AtomicBool,
}

impl Calibrations {
    /// Returns the calibrations of the index in `directory`. Reads nothing yet.
    pub(super) fn of(directory: &dyn Generation) -> Calibrations {
        Calibrations { log: directory.log(CALIBRATIONS_NAME).ok(), ..Calibrations::default() }
    }

    /// Returns all calibrations; reads them if they were not read yet.
    pub(super) fn all(&self, manifest: &Manifest) -> Result<Arc<CalibrationLog>, IndexError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.map_or_else(|| self.read(manifest), Ok)
    }

    /// Returns all calibrations, with those of `choice`: another process may have measured them since the log
    /// was read.
    fn all_with(
        &self,
        manifest: &Manifest,
        choice: CalibrationChoice,
    ) -> Result<Arc<CalibrationLog>, IndexError> {
        let all = self.all(manifest)?;
        if choice.is_in(&all.calibrations) { Ok(all) } else { self.read(manifest) }
    }

    /// Returns true the first time that it is called, if the log could not be read because the index was
    /// replaced.
    fn takes_note(&self) -> bool {
        self.was_replaced.load(Ordering::Relaxed) && !self.was_noted.swap(true, Ordering::Relaxed)
    }

    /// Reads the log. If another index was published under the name, what was read before stays known.
    pub(super) fn read(&self, manifest: &Manifest) -> Result<Arc<CalibrationLog>, IndexError> {
        let found = match self.log.as_ref().map(|log| read_log(log.as_ref(), manifest)) {
            None => CalibrationLog::default(),
            Some(Err(IndexError::Store(StoreError::Replaced { .. }))) => {
                if let Some(known) = &*self.known.read().unwrap_or_else(PoisonError::into_inner) {
                    return Ok(known.clone());
                }
                self.was_replaced.store(true, Ordering::Relaxed);
                CalibrationLog::default()
            }
            Some(found) => found?,
        };
        Ok(self.set(found))
    }

    fn set(&self, log: CalibrationLog) -> Arc<CalibrationLog> {
        let log = Arc::new(log);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(log.clone());
        log
    }

    /// Returns the log.
    fn log(&self) -> Result<&Arc<dyn Log>, IndexError> {
        self.log.as_ref().ok_or_else(|| {
            IndexError::Parameter(
                "the memory of a node keeps no calibrations, only that of the build: build the index in a \
                 folder with such queries as its calibration, and copy it to the node"
                    .into(),
            )
        })
    }

    /// Appends a record to the log. Returns what is then known.
    fn append(
        &self,
        manifest: &Manifest,
        record: &CalibrationRecord,
    ) -> Result<Arc<CalibrationLog>, IndexError> {
        let log = self.log()?;
        let mut writer = log.write()?;
        // No other process appends from here on.
        let before = read_log(log.as_ref(), manifest)?;
        let identity = identity(log.as_ref(), manifest)?;
        let bytes = log::record(identity, record).map_err(IndexError::Internal)?;
        writer.append(before.end, &[&bytes], Durability::Disk)?;
        drop(writer);
        self.read(manifest)
    }
}

/// The calibrations of a copied index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CopiedCalibrations {
    /// Number of calibrations that the copy has; absent in JSON if there are none.
    #[serde(rename = "calibrations", skip_serializing_if = "is_zero")]
    pub copied: usize,
    /// Number of calibrations that the target store does not accept; absent in JSON if there are none.
    #[serde(rename = "calibrations_left_out", skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Copies the calibrations of `source` to the copy of the index that was published as `name`.
pub(super) fn copy_calibrations(
    source: &dyn Generation,
    store: &dyn Store,
    name: &str,
    manifest: &Manifest,
) -> Result<CopiedCalibrations, IndexError> {
    let all = Calibrations::of(source).all(manifest)?;
    let count = all.calibrations.len();
    if count == 0 {
        return Ok(CopiedCalibrations::default());
    }
    let target = Calibrations::of(store.open(name)?.as_ref());
    if target.log.is_none() {
        return Ok(CopiedCalibrations { copied: 0, left_out: count });
    }
    for calibration in &all.calibrations {
        target.append(manifest, &CalibrationRecord::Measured(calibration.clone()))?;
    }
    Ok(CopiedCalibrations { copied: count, left_out: 0 })
}

/// Copies those calibrations of `source` that are named `names` to `target`, a copy of the same index.
///
/// # Errors
/// [`IndexError`] if a log cannot be read or written, or is damaged.
pub fn copy_calibrations_named(
    source: &dyn Generation,
    target: &dyn Generation,
    names: &[&str],
) -> Result<(), IndexError> {
    let manifest = Manifest::load(target)?;
    let all = Calibrations::of(source).all(&manifest)?;
    let target = Calibrations::of(target);
    for calibration in all.calibrations.iter().filter(|known| names.contains(&known.name.as_str())) {
        target.append(&manifest, &CalibrationRecord::Measured(calibration.clone()))?;
    }
    Ok(())
}

fn identity(log: &dyn Log, manifest: &Manifest) -> Result<crate::format::identity::Identity, IndexError> {
    manifest.identity().map_err(|reason| IndexError::damaged(log.address(), "the manifest", reason))
}

/// Reads and checks a log of calibrations.
pub(super) fn read_log(log: &dyn Log, manifest: &Manifest) -> Result<CalibrationLog, IndexError> {
    let bytes = log.read(0)?;
    log::read(identity(log, manifest)?, manifest.vectors, &bytes)
        .map_err(|reason| IndexError::damaged(log.address(), "the calibrations", reason))
}

/// The queries of a calibration with their true neighbours.
struct CalibrationSample {
    queries: RawQueries,
    /// `queries x largest k`.
    truth: IdFile,
    /// The numbers of neighbours that get a curve, in ascending order.
    k: Vec<u32>,
}

impl Index {
    /// Measures which effort reaches which recall with `queries`, and publishes the result beside the index.
    /// From then on, searches that ask for a recall use it. Nothing of the index is built again.
    ///
    /// Use it if queries have another source than the vectors, for example texts that search images. At least
    /// some hundred queries are needed for a recall that is known to 0.02.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for queries, options or true neighbours that do not fit the index, for an
    /// index that compares all its vectors, and for one that has changed since its build;
    /// [`IndexError::Store`] if the store accepts no changes, or if another process calibrates the index now;
    /// [`IndexError::Cancelled`].
    pub fn calibrate(
        &self,
        queries: &VectorFile,
        options: &CalibrateOptions,
        progress: &dyn Progress,
    ) -> Result<CalibrateReport, IndexError> {
        let started = Instant::now();
        check_name(&options.name).map_err(IndexError::Parameter)?;
        self.check_calibrated(queries, options)?;
        let sample = with_control(progress, |control| self.sample(queries, options, control, progress))?;
        let truth_seconds = started.elapsed().as_secs_f64();
        let (curves, before) =
            with_control(progress, |control| self.curves(&sample, options.threads, control, progress))?;
        let lengths = self.lengths(&sample.queries);
        let reach = sample.k.iter().filter_map(|k| sample.reach(*k, &lengths)).collect();
        let measured_at = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let count = sample.queries.count as u32;
        let calibration = Calibration { queries: count, source: "given queries".into(), curves, reach };
        let (name, conditions) = (options.name.clone(), self.conditions());
        let measured = QueryCalibration { name, measured_at, conditions, calibration };
        self.calibrations.append(self.stored.manifest(), &CalibrationRecord::Measured(measured.clone()))?;
        let seconds = started.elapsed().as_secs_f64();
        let notes = few_measured(count).into_iter().collect();
        Ok(CalibrateReport { measured, before, notes, truth_seconds, seconds })
    }

    /// Returns the calibrations with queries of the user, in the order of their names.
    ///
    /// # Errors
    /// [`IndexError`] if their log cannot be read, or is damaged.
    pub fn calibrations(&self) -> Result<Vec<QueryCalibration>, IndexError> {
        Ok(self.calibrations.all(self.stored.manifest())?.calibrations.clone())
    }

    /// Removes a calibration. Returns false if there is none of this name.
    ///
    /// # Errors
    /// As [`Index::calibrate`].
    pub fn remove_calibration(&self, name: &str) -> Result<bool, IndexError> {
        let known = self.calibrations.read(self.stored.manifest())?;
        if !known.calibrations.iter().any(|known| known.name == name) {
            return Ok(false);
        }
        let record = CalibrationRecord::Removed { name: name.into(), removed: true };
        self.calibrations.append(self.stored.manifest(), &record)?;
        Ok(true)
    }

    /// Returns the choice of a calibration by its name; `build` is that of the build.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for an unknown name; its text lists the known ones.
    pub fn calibration(&self, name: &str) -> Result<CalibrationChoice, IndexError> {
        if name == BUILD_NAME {
            return Ok(CalibrationChoice::Build);
        }
        let choice = CalibrationChoice::Named(NameHash::of(name));
        let all = self.calibrations.all_with(self.stored.manifest(), choice)?;
        if choice.is_in(&all.calibrations) {
            return Ok(choice);
        }
        let names = all.calibrations.iter().map(|known| known.name.as_str());
        let names: Vec<&str> = std::iter::once(BUILD_NAME).chain(names).collect();
        Err(IndexError::Parameter(format!(
            "{}: there is no calibration {name:?}: it has {}; make one with `bathyal calibrate`",
            self.path().display(),
            names.join(", ")
        )))
    }

    /// Refuses a calibration of an index that has nothing to calibrate, and inputs that do not fit.
    fn check_calibrated(&self, queries: &VectorFile, options: &CalibrateOptions) -> Result<(), IndexError> {
        let refuse = |what: &str| Err(IndexError::Parameter(format!("{}: {what}", self.path().display())));
        self.check_process()?;
        self.check_queries(queries, 0..queries.count())?;
        if queries.count() == 0 || options.queries == 0 {
            return refuse("a calibration requires at least one query");
        }
        self.calibrations.log()?;
        if !self.has_efforts() {
            return refuse("a search of this index compares all vectors, so there is nothing to calibrate");
        }
        self.check_set(&RowSet::all(self.stored.vectors() as u32))?;
        let Some(truth) = &options.truth else { return Ok(()) };
        let (given, wanted) = (truth.queries(), queries.count());
        if given != wanted {
            return refuse(&format!("the true neighbours are those of {given} queries, not of {wanted}"));
        }
        Ok(truth.check_ids(self.len())?)
    }

    /// Returns true if searches for different recalls differ in their effort. A search of an index without
    /// codes or links compares all vectors, whatever recall is asked for.
    pub fn has_efforts(&self) -> bool {
        self.supports(Asked::SearchList(1))
            && self.loaded.opened().effort(1, 1.0, &self.loaded.machine()).is_some()
    }

    /// Chooses the queries and finds their true neighbours.
    fn sample(
        &self,
        queries: &VectorFile,
        options: &CalibrateOptions,
        control: Control<'_>,
        progress: &dyn Progress,
    ) -> Result<CalibrationSample, IndexError> {
        self.wait(control)?;
        let queries = &*self.in_own_element(queries);
        let mut random = rand::rngs::StdRng::seed_from_u64(SEED);
        let count = queries.count().min(options.queries);
        let mut rows = sample(&mut random, queries.count(), count).into_vec();
        rows.sort_unstable();
        let raw = RawQueries::from_rows(queries, &rows);
        let most = options.truth.as_ref().map_or(usize::MAX, IdFile::k).min(self.len());
        let k: Vec<u32> = CALIBRATED_K.into_iter().filter(|k| *k as usize <= most).collect();
        let wide = k.last().map_or(0, |k| *k as usize);
        if wide == 0 {
            return Err(IndexError::Parameter("a calibration requires true neighbours of each query".into()));
        }
        let truth = match &options.truth {
            Some(given) => rows_of(given, &rows)?,
            None => self.true_neighbors(&raw, wide, options.threads, control, progress)?,
        };
        Ok(CalibrationSample { queries: raw, truth, k })
    }

    /// Measures the recall of efforts.
    fn curves(
        &self,
        sample: &CalibrationSample,
        threads: usize,
        control: Control<'_>,
        progress: &dyn Progress,
    ) -> Result<(Vec<Curve<EffortPoint>>, Vec<RecallBefore>), IndexError> {
        let profiles = [
            self.loaded.profile().clone(),
            memory_profile(self.loaded.profile()),
            distant_profile(self.loaded.profile()),
        ];
        progress.stage("calibrating", (sample.k.len() * profiles.len()) as u64);
        let (mut curves, mut before) = (Vec::with_capacity(sample.k.len()), Vec::new());
        for (number, k) in sample.k.iter().enumerate() {
            let mut points = Vec::new();
            for (step, profile) in profiles.iter().enumerate() {
                self.add_points(sample, (*k as usize, profile), threads, control, &mut points)?;
                if step == 0 {
                    before.extend(recall_before(*k, &points));
                }
                progress.advance((number * profiles.len() + step + 1) as u64);
            }
            curves.push(given_queries::curve(*k, points));
        }
        Ok((curves, before))
    }

    /// Measures the efforts that are cheapest on a tier with this profile.
    fn add_points(
        &self,
        sample: &CalibrationSample,
        (k, profile): (usize, &TierProfile),
        threads: usize,
        control: Control<'_>,
        points: &mut Vec<EffortPoint>,
    ) -> Result<(), IndexError> {
        for asked in MEASURED_RECALLS.into_iter().chain(MEASURED_FACTORS) {
            let Some(effort) = self.effort_at(k, asked, profile) else { continue };
            let known = points.iter().find(|point| point.effort() == effort).map(|point| point.recall);
            let recall = match known.map_or_else(|| self.recall_at(sample, k, effort, threads, control), Ok) {
                Ok(recall) => recall,
                // More effort does not fit in the memory budget: the calibration ends here.
                Err(IndexError::Memory { .. }) if !points.is_empty() => break,
                Err(error) => return Err(error),
            };
            if known.is_none() {
                points.push(EffortPoint::new(effort, recall, asked));
            }
            if given_queries::is_enough(recall) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the mean recall@k of a sample's queries at an effort.
    fn recall_at(
        &self,
        sample: &CalibrationSample,
        k: usize,
        effort: Effort,
        threads: usize,
        control: Control<'_>,
    ) -> Result<f32, IndexError> {
        let params = self.params_of(effort, k);
        let queries = RawQueries { bytes: sample.queries.bytes.clone(), count: sample.queries.count };
        let threads = self.suited_threads(threads, queries.count, &params);
        let count = queries.count;
        let found = self.search_raw(queries, params, (threads, None), None, control)?;
        let mut recall = MeanRecall::default();
        recall
            .add(&sample.truth, &found.ids, k, count)
            .map_err(|error| IndexError::Internal(error.to_string()))?;
        Ok(recall.mean().unwrap_or(1.0) as f32)
    }

    /// Returns the cheapest effort on a tier with this profile for which the calibration of the build expects
    /// the recall `asked`, or the largest effort that the build measured, times `asked` above 1. `None` if a
    /// search compares all vectors.
    pub(super) fn effort_at(&self, k: usize, asked: f32, profile: &TierProfile) -> Option<Effort> {
        let machine = Machine { profile, ..self.loaded.machine() };
        let solved = self.loaded.opened().effort(k, asked.min(1.0), &machine)?.effort;
        let card = self.searcher().card().map_or(MAX_SEARCH_LIST, |card| card.list);
        let most_list = MAX_SEARCH_LIST.min(card) as usize;
        if asked > 1.0 {
            return Some(given_queries::extended(solved, asked, self.len(), most_list));
        }
        Some(Effort { search_list: solved.search_list.clamp(k.min(most_list), most_list), ..solved })
    }

    /// Returns the conditions under which this open index searches.
    fn conditions(&self) -> Conditions {
        Conditions {
            reads_candidates_alone: self.loaded.opened().capabilities().reads_candidates_alone,
            codes_left_out: self.plan.split().codes_left_out,
        }
    }

    /// Returns the cheapest effort of a calibration for a recall, and true if it reaches that.
    fn effort_of(&self, calibration: &QueryCalibration, k: usize, recall: f32) -> Option<(Effort, bool)> {
        let Reaching { efforts, reached } = calibration.reaching(k, recall);
        let same = calibration.conditions == self.conditions();
        let here = |(effort, asked): (Effort, f32)| match same {
            true => Some(effort),
            false => self.effort_at(k, asked, self.loaded.profile()),
        };
        let priced = efforts.into_iter().filter_map(here).map(|effort| (self.price(effort, k), effort));
        let cheapest = priced.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((cheapest.1, reached))
    }

    /// Returns the price of a query of this effort on this machine, in nanoseconds.
    pub(super) fn price(&self, effort: Effort, k: usize) -> f64 {
        let machine = self.loaded.machine();
        self.searcher().estimate(&self.params_of(effort, k), &machine).price_ns(&machine.device())
    }

    /// Returns the parameters of a search with defaults for all but its effort.
    fn params_of(&self, effort: Effort, k: usize) -> SearchParams {
        let widest = self.searcher().card().and_then(|card| card.width).unwrap_or(u32::MAX);
        SearchParams {
            k,
            search_list: effort.search_list.max(k),
            probes: effort.probes,
            prune: effort.prune,
            beam_width: beam_width_on(self.loaded.profile()).min(widest) as usize,
            multi_probe: 0,
            mode: self.default_mode(),
            timed: false,
            early: None,
        }
    }

    /// Returns the effort for a recall by the calibration of `choice`, with notes for the user. `None` if the
    /// calibration of the build decides.
    pub(super) fn calibrated_effort(
        &self,
        k: usize,
        recall: f32,
        choice: CalibrationChoice,
        notes: &mut Vec<String>,
    ) -> Result<Option<Effort>, IndexError> {
        if choice == CalibrationChoice::Build {
            return Ok(None);
        }
        let all = &self.calibrations.all_with(self.stored.manifest(), choice)?.calibrations;
        if self.calibrations.takes_note() {
            notes.push(format!(
                "{}: another index was published here, so the calibrations with given queries cannot be \
                 read; open the index again",
                self.path().display()
            ));
        }
        if !choice.is_in(all) {
            let what = format!("{}: the chosen calibration was removed meanwhile", self.path().display());
            return Err(IndexError::Parameter(what));
        }
        let named = choice.find(all);
        let efforts = choice.candidates(all).into_iter().filter_map(|calibration| {
            let (effort, reached) = self.effort_of(calibration, k, recall)?;
            Some((self.price(effort, k), effort, reached, &calibration.name))
        });
        let Some((price, effort, reached, name)) = efforts.max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Ok(None);
        };
        let build =
            self.effort_at(k, recall, self.loaded.profile()).map_or(0.0, |build| self.price(build, k));
        if named.is_none() && build > price {
            return Ok(None);
        }
        if !reached {
            notes.push(format!(
                "the calibration {name:?} of this index does not reach recall {recall}; searching with \
                 its largest effort, search_list {}",
                effort.search_list
            ));
        }
        Ok(Some(effort))
    }

    /// Returns how far the queries of the calibration are from their neighbours; empty if that was not
    /// measured.
    pub fn reach(&self) -> &[Reach] {
        self.stored.family().reach()
    }

    /// Returns the lengths of queries by which their distances are compared.
    pub(super) fn lengths(&self, queries: &RawQueries) -> QueryLengths {
        let rows = (0..queries.count).map(|row| queries.row(row));
        QueryLengths::of(self.metric(), self.element(), rows)
    }

    /// Returns how far the queries of the chosen calibration are from their neighbours, by which searches
    /// notice that theirs are unlike them. Reads nothing: it knows the calibrations that searches have used.
    pub fn chosen_reach(&self, choice: CalibrationChoice) -> Vec<Reach> {
        let known = self.calibrations.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        let all = known.as_ref().map_or(&[][..], |log| &log.calibrations);
        choice.find(all).map_or_else(|| self.reach().to_vec(), |chosen| chosen.calibration.reach.clone())
    }
}

impl CalibrationSample {
    /// Returns the distances of the queries to their true neighbour number `k`.
    fn reach(&self, k: u32, lengths: &QueryLengths) -> Option<Reach> {
        let last = |query: usize| {
            let distances = self.truth.distances(query)?;
            Some(distances.get(k as usize - 1)? / lengths.get(query))
        };
        let known: Vec<f32> = (0..self.queries.count).filter_map(last).collect();
        Reach::of(k, known.into_iter())
    }
}

/// Returns the rows of a file of ids.
fn rows_of(given: &IdFile, rows: &[usize]) -> Result<IdFile, IndexError> {
    let (mut ids, mut distances) = (Vec::new(), given.has_distances().then(Vec::new));
    for row in rows {
        ids.extend_from_slice(given.ids(*row));
        if let (Some(all), Some(of_row)) = (&mut distances, given.distances(*row)) {
            all.extend_from_slice(of_row);
        }
    }
    Ok(IdFile::from_parts(given.k(), ids, distances)?)
}

/// Returns the recall of the efforts that the calibration of the build chose, of `points` in ascending order
/// of [`EffortPoint::asked`].
fn recall_before(k: u32, points: &[EffortPoint]) -> impl Iterator<Item = RecallBefore> {
    let found = move |asked: f32| {
        let at = points.iter().rev().find(|point| point.asked <= asked)?;
        Some(RecallBefore { k, asked, found: at.recall })
    };
    [0.9, 0.95, 0.99].into_iter().filter_map(found)
}

/// Returns a note if a mean over so few queries says little about others.
pub fn few_measured(count: u32) -> Option<String> {
    (count < FEW_QUERIES).then(|| {
        format!(
            "{count} queries: the recall of other queries may differ from theirs by more than 0.02; \
             calibrate with {FEW_QUERIES} or more"
        )
    })
}

/// Returns the profile of memory, where many candidates and few probes are cheapest.
fn memory_profile(profile: &TierProfile) -> TierProfile {
    TierProfile {
        addressable: true,
        granularity: 64,
        alignment: 1,
        latency_ns: 100,
        iops: 1e8,
        bandwidth_bytes_per_s: 1e10,
        issue_ns: 0,
        rates: Vec::new(),
        ..profile.clone()
    }
}

/// Returns the profile of a distant store, where many probes and few candidates are cheapest.
fn distant_profile(profile: &TierProfile) -> TierProfile {
    TierProfile {
        addressable: false,
        latency_ns: 30_000_000,
        iops: 5_000.0,
        bandwidth_bytes_per_s: 1e9,
        depth: 512,
        issue_ns: 10_000,
        rates: Vec::new(),
        ..profile.clone()
    }
}
