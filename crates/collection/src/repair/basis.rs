//! What a repair begins with: the newest version that can be read, or what the segments say by themselves.

use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::log::logs;
use crate::place::{Part, Place};
use crate::schema::Schema;
use crate::segment::{Faults, StandaloneSegment};
use crate::version::{FORMAT, SegmentEntry, Version, now, numbers};
use std::collections::BTreeSet;

/// See the module's description.
pub(super) struct Basis {
    pub(super) version: Version,
    /// Its number; `None` if no version could be read.
    pub(super) number: Option<u64>,
    /// Later versions that could not be read.
    pub(super) unreadable: Vec<u64>,
    /// Of each segment what is deleted; `None` where that is not known.
    pub(super) deleted: Vec<Option<RowBits>>,
    /// Segments that it does not name, and a later one may have, the newest last; none where all versions can
    /// be read.
    pub(super) unnamed: Vec<SegmentEntry>,
    pub(super) notes: Vec<String>,
}

impl Basis {
    /// Finds it. Without any version only if it is `allowed` to take what segments say by themselves.
    ///
    /// # Errors
    /// [`CollectionError::NotACollection`]; [`CollectionError::Damaged`] without a version that can be read;
    /// [`CollectionError::LaterVersion`]; [`CollectionError::Store`] where a store does not answer.
    pub(super) fn find(place: &Place, allowed: bool, faults: &mut Faults) -> Result<Basis, CollectionError> {
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
                let others = segments_of(place)?.into_iter().filter(|name| !named(name)).collect();
                let others = alone(place, others, faults)?;
                unnamed = of_collection(place, others, (&version.id, &version.schema), faults);
                notes.push(format!(
                    "version {number} is the newest that can be read; what came later is taken from the logs"
                ));
            }
            return Ok(Basis { version, number: Some(number), unreadable, deleted, unnamed, notes });
        }
        let segments = segments_of(place)?;
        let path = place.path().to_path_buf();
        if segments.is_empty() {
            let reason = "no version of it can be read, and no segment is there".into();
            return Err(CollectionError::NotACollection { path, reason });
        }
        if !allowed {
            let reason = "no version of it can be read, so it is not known which rows were deleted or \
                          replaced; --keep-uncertain (keep_uncertain) takes all that its segments hold";
            return Err(CollectionError::damaged(path, "its versions", reason));
        }
        Basis::of_segments(place, segments, unreadable, faults)
    }

    /// What the segments say by themselves.
    fn of_segments(
        place: &Place,
        segments: Vec<String>,
        unreadable: Vec<u64>,
        faults: &mut Faults,
    ) -> Result<Basis, CollectionError> {
        let found = alone(place, segments, faults)?;
        let Some(newest) = found.last() else {
            let reason = "no version and no segment of it can be read";
            return Err(CollectionError::damaged(place.path(), "its versions", reason));
        };
        let id = newest.collection.clone();
        let mut schema = newest.schema.clone();
        for (at, field) in schema.vectors.iter_mut().enumerate() {
            let mut families = found.iter().filter_map(|alone| alone.schema.vectors.get(at));
            let large = families.find(|other| other.family != field.family);
            field.family = large.map_or(field.family.clone(), |other| other.family.clone());
        }
        let entries = of_collection(place, found, (&id, &schema), faults);
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
        };
        let note = "no version can be read: rows that were deleted or replaced before may be there again; options of the index \
                    family are those that it has by default";
        let (unnamed, notes) = (Vec::new(), vec![note.into()]);
        Ok(Basis { version, number: None, unreadable, deleted, unnamed, notes })
    }
}

/// What segments say of themselves, the newest last, as far as their names say that.
fn alone(
    place: &Place,
    names: Vec<String>,
    faults: &mut Faults,
) -> Result<Vec<StandaloneSegment>, CollectionError> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        match StandaloneSegment::read(place, &name) {
            Ok(alone) => found.push(alone),
            Err(error) => faults.record(error)?,
        }
    }
    found.sort_by_key(|alone| number_of(&alone.entry.name));
    Ok(found)
}

/// Those whose rows have what `schema` says, of the collection `id`.
fn of_collection(
    place: &Place,
    found: Vec<StandaloneSegment>,
    (id, schema): (&str, &Schema),
    faults: &mut Faults,
) -> Vec<SegmentEntry> {
    let shape = |schema: &Schema| {
        let fields = schema.vectors.iter().map(|f| (f.name.clone(), f.dim, f.element, f.metric));
        (schema.id_kind, schema.columns.clone(), fields.collect::<Vec<_>>())
    };
    let (of_it, others): (Vec<StandaloneSegment>, Vec<StandaloneSegment>) =
        found.into_iter().partition(|alone| alone.collection == id && shape(&alone.schema) == shape(schema));
    for other in others {
        faults.add(format!("{}: {} is of another collection", place.path().display(), other.entry.name));
    }
    of_it.into_iter().map(|alone| alone.entry).collect()
}

/// The number in the name of a segment, which is [`Version::next_segment`] of the version that was the latest
/// when it was begun: of two, the newer one has the larger, but for segments that were written side by side.
pub(super) fn number_of(name: &str) -> u64 {
    name.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn segments_of(place: &Place) -> Result<Vec<String>, CollectionError> {
    let names = place.store().list()?.into_iter();
    let segment = |name: String| match Part::parse(&name) {
        Some(Part::Segment(segment, _)) => Some(segment),
        _ => None,
    };
    Ok(names.filter_map(segment).collect::<BTreeSet<_>>().into_iter().collect())
}
