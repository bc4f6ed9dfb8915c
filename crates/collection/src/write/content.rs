//! Content of an open collection: where it is, and the state that readers see.

use super::segments::OpenSegments;
use super::traffic::{Traffic, WrittenBytes};
use crate::bits::RowBits;
use crate::counters::SearchCounters;
use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::log::{LogReader, ReadOutcome};
use crate::options::CollectionOptions;
use crate::segment::{Segment, SegmentShare, largest_segment_scales};
use crate::state::{SegmentState, State};
use crate::version::{self, SegmentEntry, Version, random_digits};
use bathyal_index::StoredBefore;
use roaring::RoaringBitmap;
use std::sync::{Arc, PoisonError, RwLock};

/// Attempts to read the latest version; the writer may publish and remove versions in the meantime.
const READ_ATTEMPTS: usize = 10;

/// Content of an open collection. Readers, the writer and background work share it.
pub(crate) struct Content {
    pub(crate) place: CollectionLocation,
    pub(crate) options: CollectionOptions,
    pub(super) segments: OpenSegments,
    pub(super) traffic: Traffic,
    pub(crate) counters: SearchCounters,
    state: RwLock<Arc<State>>,
}

impl Content {
    /// Opens the latest version, or version `number`. Also returns the reader of the logs that another
    /// process writes, which continues where the state ends; `None` with a `number`: that version never
    /// changes.
    pub(super) fn open(
        place: CollectionLocation,
        options: CollectionOptions,
        number: Option<u64>,
    ) -> Result<(Content, Option<LogReader>), CollectionError> {
        let options = options.with_shared_search_memory();
        let segments = OpenSegments::new(&options);
        let states = StateReader { place: &place, options: &options, segments: &segments };
        let (state, reader) = match number {
            Some(number) => (states.version(number)?, None),
            None => {
                let (state, reader) = states.latest()?;
                (state, Some(reader))
            }
        };
        let (traffic, state) = (Traffic::default(), RwLock::new(Arc::new(state)));
        let counters = SearchCounters::default();
        Ok((Content { place, options, segments, traffic, counters, state }, reader))
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the state that later reads see. Only transitions of the writer do so.
    pub(super) fn set_state(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Returns the bytes written since the collection was opened.
    pub(crate) fn written_bytes(&self) -> WrittenBytes {
        self.traffic.bytes()
    }

    /// Returns the reader of states from the collection's store.
    pub(super) fn states(&self) -> StateReader<'_> {
        StateReader { place: &self.place, options: &self.options, segments: &self.segments }
    }

    /// Opens a segment that this handle has written. `state` is the state before it.
    pub(super) fn open_segment(&self, state: &State, entry: &SegmentEntry) -> Arc<Segment> {
        let others: u64 = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
        let (bytes, segments) = (entry.bytes, 1 + state.segments.len() as u64);
        let share = SegmentShare { bytes, all_bytes: others + bytes, segments };
        let schema = Arc::new(state.schema().clone());
        self.segments.segment(&self.place, (&self.options, share), &schema, entry)
    }

    /// Returns a name for a new segment. Its number is only for people.
    pub(super) fn segment_name(&self) -> String {
        format!("s-{}-{}", self.state().version.next_segment, random_digits(8))
    }

    /// Returns how the fields of the largest segment are stored. New rows use the same scales, because they
    /// will be merged with it.
    pub(super) fn largest_segment_scales(&self, state: &State) -> Vec<Option<StoredBefore>> {
        let entries = state.segments.iter().map(|segment| segment.segment.entry());
        let largest = entries.max_by_key(|entry| entry.rows).map(|entry| entry.name.as_str());
        largest_segment_scales(&self.place, state.schema(), largest)
    }
}

/// Reads states from versions and logs. Segments that are open stay open.
pub(super) struct StateReader<'a> {
    place: &'a CollectionLocation,
    options: &'a CollectionOptions,
    segments: &'a OpenSegments,
}

impl StateReader<'_> {
    /// Returns the state that a version describes. `deleted` holds the deleted rows of each segment.
    pub(super) fn of_version(&self, version: Version, deleted: &[RoaringBitmap]) -> State {
        let version = Arc::new(version);
        let schema = Arc::new(version.schema.clone());
        let all_bytes: u64 = version.segments.iter().map(|entry| entry.bytes).sum();
        let count = version.segments.len() as u64;
        let segment = |(entry, deleted): (&SegmentEntry, &RoaringBitmap)| {
            let share = SegmentShare { bytes: entry.bytes, all_bytes, segments: count };
            let segment = self.segments.segment(self.place, (self.options, share), &schema, entry);
            SegmentState::new(segment, RowBits::from_bitmap(deleted))
        };
        let segments = version.segments.iter().zip(deleted).map(segment).collect();
        State::from_version(version.clone(), segments)
    }

    /// Reads the latest version and the changes in the logs.
    pub(super) fn latest(&self) -> Result<(State, LogReader), CollectionError> {
        let path = self.place.path();
        let mut failure = None;
        for _ in 0..READ_ATTEMPTS {
            let Some(number) = version::numbers(self.place)?.last().copied() else {
                let reason =
                    "the folder holds no version of a collection; create one with `bathyal collection create`"
                        .into();
                return Err(CollectionError::NotACollection { path: path.to_path_buf(), reason });
            };
            let read = || {
                let (version, deleted) = Version::read(self.place, number)?;
                let mut state = self.of_version(version, &deleted);
                let mut reader = LogReader::new(self.place, &state.version);
                let read = reader.read(&mut |sequence, change| state.apply(sequence, change).map(|_| ()))?;
                Ok::<_, CollectionError>((state, reader, read))
            };
            match read() {
                Ok((state, reader, ReadOutcome::UpToDate)) => return Ok((state, reader)),
                // If there is no later version, this error is the cause.
                Ok((_, _, ReadOutcome::Superseded(error))) => failure = Some(error),
                Err(error) if error.has_moved() => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            let reason =
                format!("the logs do not continue the latest version, after {READ_ATTEMPTS} attempts");
            CollectionError::damaged(path, "its logs", reason)
        }))
    }

    /// Returns the state of version `number`, without later changes.
    fn version(&self, number: u64) -> Result<State, CollectionError> {
        let numbers = version::numbers(self.place)?;
        if !numbers.contains(&number) {
            let kept: Vec<String> = numbers.iter().map(u64::to_string).collect();
            return Err(CollectionError::Parameter(format!(
                "{}: there is no version {number}; the versions are: {}",
                self.place.path().display(),
                if kept.is_empty() { "none".into() } else { kept.join(", ") }
            )));
        }
        let (version, deleted) = Version::read(self.place, number)?;
        Ok(self.of_version(version, &deleted))
    }
}
