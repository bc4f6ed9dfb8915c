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

impl LogWriter {
    /// Removes all versions but the latest `keep`, segments that no kept version names, logs all of whose records are in the segments of
    /// `version`, which is the latest, and what of all these was never finished. The segments `in_use` stay: they are being written.
    /// What is in use is asked after the lists: whatever was begun by then is known to be. What it has no name for it leaves alone.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another one has taken over; [`CollectionError::Store`]. What is left then the next call removes.
    pub(crate) fn sweep(
        &mut self,
        version: &Version,
        keep: usize,
        in_use: &dyn Fn() -> BTreeSet<String>,
    ) -> Result<(), CollectionError> {
        let place = self.place.clone();
        let (published, traces) = (place.store().list()?, place.store().traces()?);
        // After the lists: whatever another one adds is in none of them, or comes after its version.
        if !self.is_current()? {
            self.usable = false;
            return Err(CollectionError::Fenced { path: place.path().to_path_buf() });
        }
        let parts: Vec<Part> = published.iter().filter_map(|name| Part::of(name)).collect();
        let needed = needed(&place, (version, keep), &in_use(), &parts);
        let mut logs: Vec<u64> =
            parts.iter().filter_map(first_of).filter(|first| *first <= self.first).collect();
        logs.sort_unstable();
        // The oldest first, so that none is missing between two.
        for pair in logs.windows(2).filter(|pair| pair[1] <= needed.next) {
            place.store().erase(&Part::Log(pair[0]).name())?;
        }
        let traces = traces.iter().filter_map(|name| Part::of(name));
        let left = traces.filter(|part| first_of(part).is_none_or(|first| first < self.first));
        for part in parts.into_iter().filter(|part| first_of(part).is_none()).chain(left) {
            let stays = match &part {
                // Later ones are about to be published by whoever takes over.
                Part::Version(number) => *number >= version.number || needed.versions.contains(number),
                Part::Segment(name, _) => needed.segments.contains(name),
                Part::Log(_) => false,
            };
            if !stays {
                place.store().erase(&part.name())?;
            }
        }
        Ok(())
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
