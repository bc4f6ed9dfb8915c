//! Removing what no reader needs any more.

use super::writer::LogWriter;
use crate::error::CollectionError;
use crate::place::{Part, Place};
use crate::version::Version;
use std::collections::BTreeSet;

/// What is to stay.
struct Needed {
    versions: BTreeSet<u64>,
    segments: BTreeSet<String>,
    /// Logs whose last record comes before this one are in the segments.
    next: u64,
}

/// What lies in a place, as it was listed.
#[derive(Debug)]
pub(crate) struct Listed {
    parts: Vec<Part>,
    /// Of what was never finished.
    traces: Vec<Part>,
}

impl Listed {
    /// Looks at a place. To be done before it is asked what is in use: whatever was begun by then is known to be.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn of(place: &Place) -> Result<Listed, CollectionError> {
        let parts = |names: Vec<String>| names.iter().filter_map(|name| Part::of(name)).collect();
        Ok(Listed { parts: parts(place.store().list()?), traces: parts(place.store().leftovers()?) })
    }
}

/// Removes what is not needed any more, in this order. What is left after an error the next call removes.
///
/// # Errors
/// [`CollectionError::Store`].
pub(crate) fn remove(place: &Place, unneeded: &[Part]) -> Result<(), CollectionError> {
    Ok(unneeded.iter().try_for_each(|part| place.store().erase(&part.name()))?)
}

impl LogWriter {
    /// Removes what [`LogWriter::unneeded`] says.
    ///
    /// # Errors
    /// Those of both.
    pub(crate) fn sweep(
        &mut self,
        version: &Version,
        keep: usize,
        in_use: &dyn Fn() -> BTreeSet<String>,
    ) -> Result<(), CollectionError> {
        let place = self.place.clone();
        let listed = Listed::of(&place)?;
        remove(&place, &self.unneeded(listed, (version, keep), &in_use())?)
    }

    /// What can be removed: all versions but the latest `keep`, segments that no kept version names, logs all of whose records are in
    /// the segments of `version`, which is the latest, and what of all these was never finished. The segments `in_use` stay: they are
    /// being written. What there is no name for is left alone. Names are given once, so all of it can be removed at any time.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another one has taken over; [`CollectionError::Store`].
    pub(crate) fn unneeded(
        &mut self,
        listed: Listed,
        (version, keep): (&Version, usize),
        in_use: &BTreeSet<String>,
    ) -> Result<Vec<Part>, CollectionError> {
        let place = self.place.clone();
        // After the lists: whatever another one adds is in none of them, or comes after its version.
        if !self.is_current()? {
            self.usable = false;
            return Err(CollectionError::Fenced { path: place.path().to_path_buf() });
        }
        let Listed { parts, traces } = listed;
        let needed = needed(&place, (version, keep), in_use, &parts);
        let mut logs: Vec<u64> =
            parts.iter().filter_map(first_of).filter(|first| *first <= self.first).collect();
        logs.sort_unstable();
        // The oldest first, so that none is missing between two.
        let over = logs.windows(2).filter(|pair| pair[1] <= needed.next);
        let mut unneeded: Vec<Part> = over.map(|pair| Part::Log(pair[0])).collect();
        let left = traces.into_iter().filter(|part| first_of(part).is_none_or(|first| first < self.first));
        for part in parts.into_iter().filter(|part| first_of(part).is_none()).chain(left) {
            let stays = match &part {
                // Later ones are about to be published by whoever takes over.
                Part::Version(number) => *number >= version.number || needed.versions.contains(number),
                Part::Segment(name, _) => needed.segments.contains(name),
                Part::Log(_) => false,
            };
            if !stays {
                unneeded.push(part);
            }
        }
        Ok(unneeded)
    }
}

fn first_of(part: &Part) -> Option<u64> {
    if let Part::Log(first) = part { Some(*first) } else { None }
}

fn needed(
    place: &Place,
    (version, keep): (&Version, usize),
    in_use: &BTreeSet<String>,
    parts: &[Part],
) -> Needed {
    let number = |part: &Part| if let Part::Version(number) = part { Some(*number) } else { None };
    let mut versions: Vec<u64> = parts.iter().filter_map(number).collect();
    versions.retain(|number| *number < version.number);
    versions.sort_unstable();
    let kept: BTreeSet<u64> =
        versions.into_iter().rev().take(keep.max(1) - 1).chain([version.number]).collect();
    let mut segments = in_use.clone();
    segments.extend(version.segments.iter().map(|segment| segment.name.clone()));
    for number in kept.iter().filter(|number| **number != version.number) {
        // One that cannot be read has no readers.
        if let Ok((older, _)) = Version::read(place, *number) {
            segments.extend(older.segments.into_iter().map(|segment| segment.name));
        }
    }
    Needed { versions: kept, segments, next: version.through + 1 }
}
