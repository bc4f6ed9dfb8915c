//! The basis of a repair: the newest version that can be read, or the segments without a version.

use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::log::logs;
use crate::schema::Schema;
use crate::segment::{Faults, StandaloneSegment};
use crate::version::{FORMAT, SegmentEntry, Version, now, numbers};
use std::collections::BTreeSet;

/// The basis of a repair.
pub(super) struct RepairBasis {
    pub(super) version: Version,
    /// Number of the version; `None` if no version could be read.
    pub(super) number: Option<u64>,
    /// Later versions that could not be read.
    pub(super) unreadable: Vec<u64>,
    /// The deleted rows of each segment; `None` if they are unknown.
    pub(super) deleted: Vec<Option<RowBits>>,
    /// Segments that the version does not name but a later one may have named, newest last. Empty if all
    /// versions can be read.
    pub(super) unnamed: Vec<SegmentEntry>,
    pub(super) notes: Vec<String>,
}

impl RepairBasis {
    /// Finds the basis. Segments without a version are used only if `allowed`.
    ///
    /// # Errors
    /// [`CollectionError::NotACollection`]; [`CollectionError::Damaged`] if no version can be read;
    /// [`CollectionError::LaterVersion`]; [`CollectionError::Store`] if the store does not answer.
    pub(super) fn find(
        place: &CollectionLocation,
        allowed: bool,
        faults: &mut Faults,
    ) -> Result<RepairBasis, CollectionError> {
        let mut unreadable = Vec::new();
        for number in numbers(place)?.into_iter().rev() {
            let (version, generation) = match Version::load(place, number) {
                Ok(read) => read,
                Err(error) => {
                    faults.record(error)?;
                    unreadable.push(number);
                    continue;
                }
            };
            let mut deleted = Vec::with_capacity(version.segments.len());
            for segment in &version.segments {
                deleted.push(match segment.read_deleted(&*generation) {
                    Ok(rows) => Some(RowBits::from_bitmap(&rows)),
                    Err(error) => faults.record(error).map(|()| None)?,
                });
            }
            let (mut unnamed, mut notes) = (Vec::new(), Vec::new());
            if !unreadable.is_empty() {
                let named = |name: &String| version.segments.iter().any(|segment| segment.name == *name);
                let unnamed_names = segments_of(place)?.into_iter().filter(|name| !named(name)).collect();
                let unnamed_names = read_standalone(place, unnamed_names, faults)?;
                unnamed = entries_of_collection(place, unnamed_names, (&version.id, &version.schema), faults);
                notes.push(format!(
                    "version {number} is the newest that can be read; later changes are taken from the logs"
                ));
            }
            return Ok(RepairBasis { version, number: Some(number), unreadable, deleted, unnamed, notes });
        }
        let segments = segments_of(place)?;
        let path = place.path().to_path_buf();
        if segments.is_empty() {
            let reason = "no version of it can be read, and it has no segments".into();
            return Err(CollectionError::NotACollection { path, reason });
        }
        if !allowed {
            let reason = "no version of it can be read, so it is unknown which rows were deleted or \
                          replaced; --keep-uncertain (keep_uncertain) keeps all rows of its segments";
            return Err(CollectionError::damaged(path, "its versions", reason));
        }
        RepairBasis::from_segments(place, segments, unreadable, faults)
    }

    /// Makes a basis of the segments alone.
    fn from_segments(
        place: &CollectionLocation,
        segments: Vec<String>,
        unreadable: Vec<u64>,
        faults: &mut Faults,
    ) -> Result<RepairBasis, CollectionError> {
        let found = read_standalone(place, segments, faults)?;
        let Some(newest) = found.last() else {
            let reason = "no version and no segment of it can be read";
            return Err(CollectionError::damaged(place.path(), "its versions", reason));
        };
        let id = newest.collection.clone();
        let mut schema = newest.schema.clone();
        for (at, field) in schema.vectors.iter_mut().enumerate() {
            let mut families = found.iter().filter_map(|segment| segment.schema.vectors.get(at));
            let large = families.find(|other| other.family != field.family);
            field.family = large.map_or(field.family.clone(), |other| other.family.clone());
        }
        let entries = entries_of_collection(place, found, (&id, &schema), faults);
        let first = logs(place)?.first().copied().unwrap_or(1);
        let next = entries.iter().map(|entry| number_of(&entry.name)).max().unwrap_or(0).saturating_add(1);
        let deleted = entries.iter().map(|_| None).collect();
        let version = Version {
            bathyal_collection: FORMAT,
            id,
            number: unreadable.first().copied().unwrap_or(1),
            schema,
            through: first.saturating_sub(1),
            log: None,
            next_segment: next,
            writer: String::new(),
            published: now(),
            segments: entries,
            calibrations: Vec::new(),
        };
        let note = "no version can be read: rows that were deleted or replaced may be back; options of the \
                    indexes are the defaults of their families";
        let (unnamed, notes) = (Vec::new(), vec![note.into()]);
        Ok(RepairBasis { version, number: None, unreadable, deleted, unnamed, notes })
    }
}

/// Reads segments without a version, newest last by the numbers in their names.
fn read_standalone(
    place: &CollectionLocation,
    names: Vec<String>,
    faults: &mut Faults,
) -> Result<Vec<StandaloneSegment>, CollectionError> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        match StandaloneSegment::read(place, &name) {
            Ok(segment) => found.push(segment),
            Err(error) => faults.record(error)?,
        }
    }
    found.sort_by_key(|segment| number_of(&segment.entry.name));
    Ok(found)
}

/// Returns the entries of those segments that belong to the collection `id` and fit `schema`.
fn entries_of_collection(
    place: &CollectionLocation,
    found: Vec<StandaloneSegment>,
    (id, schema): (&str, &Schema),
    faults: &mut Faults,
) -> Vec<SegmentEntry> {
    let shape = |schema: &Schema| {
        let fields = schema.vectors.iter().map(|f| (f.name.clone(), f.dim, f.element, f.metric));
        (schema.id_kind, schema.columns.clone(), fields.collect::<Vec<_>>())
    };
    let (matching, others): (Vec<StandaloneSegment>, Vec<StandaloneSegment>) = found
        .into_iter()
        .partition(|segment| segment.collection == id && shape(&segment.schema) == shape(schema));
    for other in others {
        faults.add(format!("{}: {} is of another collection", place.path().display(), other.entry.name));
    }
    matching.into_iter().map(|segment| segment.entry).collect()
}

/// Returns the number in the name of a segment. It is [`Version::next_segment`] of the version that was the
/// latest when the segment was begun. A newer segment has a larger number, unless two were written at the
/// same time.
pub(super) fn number_of(name: &str) -> u64 {
    name.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn segments_of(place: &CollectionLocation) -> Result<Vec<String>, CollectionError> {
    let names = place.store().list()?.into_iter();
    let segment = |name: String| match Part::parse(&name) {
        Some(Part::Segment(segment, _)) => Some(segment),
        _ => None,
    };
    Ok(names.filter_map(segment).collect::<BTreeSet<_>>().into_iter().collect())
}
