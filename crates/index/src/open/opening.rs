//! Opening an index: its parts are read, planned and loaded.

use super::calibrations::Calibrations;
use super::card_fallback::{CardTrouble, Reopening};
use super::change_log::{Changing, FoundLog};
use super::known_places::KnownPlaces;
use super::live_audit::LiveAudit;
use super::loaded::Loaded;
use super::memory_plan::{Division, Planning, SearchPlan};
use super::parts::IndexParts;
use super::pool::{JobContext, PoolClient, process};
use super::store_traffic::StoreTraffic;
use super::stored::StoredIndex;
use super::tier::{LoadedPages, Pages, TierChoice, arrives, check_card, open_tier};
use super::{Index, OpenOptions};
use crate::audit::AuditOptions;
use crate::error::IndexError;
use crate::families;
use crate::family::MemorySplit;
use crate::format::ids::load_ids;
use crate::locate::find;
use crate::query::changes::Changes;
use bathyal_store::{Generation, StoreError};
use bathyal_vectors::progress::{Progress, Silent};
use std::path::Path;
use std::sync::Arc;

impl Index {
    /// Opens the index at `path`.
    ///
    /// # Errors
    /// [`IndexError`]: no index there, a later version, damage in anything that is loaded, too small a
    /// budget.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Index, IndexError> {
        Index::open_attended(path, options, &Silent)
    }

    /// Opens the index at `path`. If [`OpenOptions::tier`] loads the pages into memory, `progress` reports
    /// that, and may cancel it.
    ///
    /// # Errors
    /// As [`Index::open`], and [`IndexError::Cancelled`].
    pub fn open_attended(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        let directory = || find(&path, &options.stripe, &options.store);
        match Index::open_or_go_on(&directory()?, options, progress) {
            // The index was replaced while it was opened: open the new one.
            Err(IndexError::Store(StoreError::Replaced { .. })) => {
                Index::open_or_go_on(&directory()?, options, progress)
            }
            opened => opened,
        }
    }

    /// Opens an index in any store. The store finds the parts of a striped index.
    ///
    /// # Errors
    /// As [`Index::open_attended`]; [`IndexError::Parameter`] for [`OpenOptions::stripe`] and
    /// [`OpenOptions::processor_goes_on`].
    pub fn open_in(
        directory: &dyn Generation,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        if !options.stripe.is_empty() {
            let what = "pass the folders of the parts of a striped index to `find`, not to `open_in`";
            return Err(IndexError::Parameter(what.into()));
        }
        if options.processor_goes_on {
            let what = "processor_goes_on is an option of `open`, not of `open_in`, which cannot open the \
                        index again";
            return Err(IndexError::Parameter(what.into()));
        }
        Opening { directory, options, progress }.open(None)
    }

    /// Opens the index, without the card if that is missing and the options allow it.
    fn open_or_go_on(
        directory: &Arc<dyn Generation>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        // If the card is missing, vectors that were to be in its memory are read from the file.
        let has_tier =
            options.tier != TierChoice::Card || options.card.is_some() || options.card_missing.is_none();
        let from_file = (!has_tier).then(|| OpenOptions { tier: TierChoice::File, ..options.clone() });
        let options = from_file.as_ref().unwrap_or(options);
        let opened = Opening { directory: &**directory, options, progress }.open(Some(directory));
        match (opened, &options.card_missing) {
            (Err(IndexError::Gpu(missing)), _) if options.processor_goes_on => {
                let without = OpenOptions { card: None, card_missing: Some(missing), ..options.clone() };
                Index::open_or_go_on(directory, &without, progress)
            }
            (Err(source @ (IndexError::Memory { .. } | IndexError::NoMemory { .. })), Some(missing)) => {
                Err(IndexError::WithoutCard { card: missing.to_string(), source: Arc::new(source) })
            }
            (opened, _) => opened,
        }
    }
}

/// The inputs of opening an index.
struct Opening<'a> {
    directory: &'a dyn Generation,
    options: &'a OpenOptions,
    progress: &'a dyn Progress,
}

impl Opening<'_> {
    /// Opens the index. `kept` is its directory if the index may be opened again without its card.
    fn open(&self, kept: Option<&Arc<dyn Generation>>) -> Result<Index, IndexError> {
        let Opening { directory, options, .. } = *self;
        options.check_mini_batch()?;
        let stored = StoredIndex::read(directory)?;
        check_card(options)?;
        if options.card.is_some() {
            families::check_card(stored.family(), stored.manifest())?;
        }
        let log = FoundLog::read(directory, stored.manifest(), stored.family())?;
        let logged = log.as_ref().map(FoundLog::taken_bytes);
        let planning = Planning::new(directory, &stored, options, logged)?;
        let division = planning.split(&stored, options.memory_bytes)?;
        let copies = self.load(&stored, &planning, &division.split)?;
        let tiers = copies.iter().map(|copy| copy.tier().clone()).collect();
        let opened = copies.iter().map(|copy| copy.opened().clone()).collect();
        let Some(mut loaded) = copies.into_iter().next() else {
            return Err(IndexError::Internal("an index without a copy".into()));
        };
        let changing = log.map(|log| self.changing(log, &stored, &loaded)).transpose()?;
        // If nothing else keeps the loaded pages, only their tier does.
        let pages = loaded.take_pages();
        let trouble = kept.map_or_else(CardTrouble::default, |directory| {
            let bytes = planning.standby_bytes();
            self.reopening(directory.clone(), &stored, &loaded, pages, division, bytes).trouble(options)
        });
        let thread_bytes = loaded.thread_bytes(planning.is_far());
        let plan = SearchPlan::new(division.split, planning, thread_bytes);
        let memory = plan.search_memory(options.search_memory.as_ref());
        let client = PoolClient::new(tiers, plan.nodes().cloned(), loaded.engine(), thread_bytes, memory);
        let contexts = JobContext::lanes(Arc::new(client), opened, trouble.standby.clone());
        let traffic = directory.traffic().map(StoreTraffic::new);
        let (known_places, process) = (KnownPlaces::default(), process());
        let calibrations = Calibrations::of(directory);
        let parts = Arc::new(IndexParts {
            stored,
            loaded,
            plan,
            changing,
            calibrations,
            contexts,
            traffic,
            trouble,
            known_places,
            process,
        });
        let audit = options.audit.map(|audit| start_audit(&parts, audit)).transpose()?;
        Ok(Index { audit: audit.map(Arc::new), parts })
    }

    /// Loads the part of the index that is in memory: one copy, or one for each NUMA node.
    fn load(
        &self,
        stored: &StoredIndex,
        planning: &Planning,
        split: &MemorySplit,
    ) -> Result<Vec<Loaded>, IndexError> {
        let Opening { directory, options, progress } = *self;
        let (manifest, family) = (stored.manifest(), stored.family());
        let arriving = arrives(directory, manifest, family, split, options)?;
        let mut of_first = None;
        planning.placement().load(|_| {
            // Pages that are not in memory have no copies: all copies use the tier of the first.
            let tier_of_first = of_first.clone().filter(|_| split.pages == 0);
            let pages = tier_of_first.map_or_else(
                || open_tier(directory, manifest, family, split, options, arriving, progress),
                |tier| Ok(Pages::of(tier)),
            )?;
            let copy = Loaded::new(directory, stored, split, options, arriving, pages)?;
            of_first.get_or_insert_with(|| copy.tier().clone());
            Ok(copy)
        })
    }

    /// Applies the changes since the build.
    fn changing(&self, log: FoundLog, stored: &StoredIndex, loaded: &Loaded) -> Result<Changing, IndexError> {
        let ids = load_ids(self.directory, stored.manifest())?;
        let changes = Changes::none(ids, stored.form()?, stored.dim());
        log.apply(changes, &**loaded.opened())
    }

    /// Keeps what opening the index without its card takes.
    fn reopening(
        &self,
        directory: Arc<dyn Generation>,
        stored: &StoredIndex,
        loaded: &Loaded,
        pages: Option<LoadedPages>,
        division: Division,
        bytes: u64,
    ) -> Reopening {
        let in_card = self.options.tier == TierChoice::Card;
        let profile = if in_card { loaded.tier().profile() } else { loaded.profile() };
        Reopening {
            directory,
            manifest: stored.manifest().clone(),
            bytes,
            division,
            profile: profile.clone(),
            tier: self.options.tier.clone(),
            shared: loaded.tier().is_shared(),
            pages,
        }
    }
}

/// Starts the audit of the searches of an index.
fn start_audit(parts: &Arc<IndexParts>, options: AuditOptions) -> Result<LiveAudit, IndexError> {
    if parts.loaded.opened().in_place().is_some() {
        let reason = "an index that is changed in place cannot be audited: its rows have no fixed places";
        return Err(parts.stored.refusal(reason));
    }
    let index = Index { audit: None, parts: parts.clone() };
    LiveAudit::start(options, move |answers, pace| index.audit_answers(answers, pace))
}
