//! Removes objects that no reader needs any more.

use super::writer::LogWriter;
use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::version::Version;
use std::collections::BTreeSet;

/// Objects that must be kept.
struct Needed {
    versions: BTreeSet<u64>,
    /// Names of segments and of queries.
    names: BTreeSet<String>,
    /// The first sequence number that is not in the segments. Logs that end before it are not needed.
    next: u64,
}

/// Result of listing a location.
#[derive(Debug)]
pub(crate) struct ListedParts {
    parts: Vec<Part>,
    /// Leftovers of generations that were never finished.
    traces: Vec<Part>,
}

impl ListedParts {
    /// Lists a location. The caller must list before it looks up which segments are in use: then every listed
    /// segment that is still being written counts as in use.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub(crate) fn list(place: &CollectionLocation) -> Result<ListedParts, CollectionError> {
        let parts = |names: Vec<String>| names.iter().filter_map(|name| Part::parse(name)).collect();
        Ok(ListedParts { parts: parts(place.store().list()?), traces: parts(place.store().leftovers()?) })
    }

    /// Returns all parts, with the leftovers, in no particular order.
    pub(crate) fn all(self) -> Vec<Part> {
        self.parts.into_iter().chain(self.traces).collect()
    }
}

/// Removes `unneeded` in this order. After an error, the next call removes the rest.
///
/// # Errors
/// [`CollectionError::Store`].
pub(crate) fn remove(place: &CollectionLocation, unneeded: &[Part]) -> Result<(), CollectionError> {
    Ok(unneeded.iter().try_for_each(|part| place.store().erase(&part.name()))?)
}

impl LogWriter {
    /// Removes everything that [`LogWriter::unneeded`] returns.
    ///
    /// # Errors
    /// As [`LogWriter::unneeded`] and [`remove`].
    pub(crate) fn sweep(
        &mut self,
        version: &Version,
        keep: usize,
        in_use: &dyn Fn() -> BTreeSet<String>,
    ) -> Result<(), CollectionError> {
        let place = self.place.clone();
        let listed = ListedParts::list(&place)?;
        remove(&place, &self.unneeded(listed, (version, keep), &in_use())?)
    }

    /// Returns the parts that can be removed: all versions but the latest `keep`; segments that no kept
    /// version names; queries that none names; logs whose records are all in the segments of `version`, the
    /// latest; and unfinished leftovers of all these. The segments and queries `in_use` are kept because they
    /// are being written. Foreign names are left alone. No name is used twice, so the parts can be removed at
    /// any later time.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if another writer has taken over; [`CollectionError::Store`].
    pub(crate) fn unneeded(
        &mut self,
        listed: ListedParts,
        (version, keep): (&Version, usize),
        in_use: &BTreeSet<String>,
    ) -> Result<Vec<Part>, CollectionError> {
        let place = self.place.clone();
        // This check must come after the listing: parts that another writer adds are not listed, or come
        // after its version.
        if !self.is_current()? {
            self.usable = false;
            return Err(CollectionError::Fenced { path: place.path().to_path_buf() });
        }
        let ListedParts { parts, traces } = listed;
        let needed = needed(&place, (version, keep), in_use, &parts);
        let mut logs: Vec<u64> =
            parts.iter().filter_map(first_of).filter(|first| *first <= self.first).collect();
        logs.sort_unstable();
        // The oldest log first, so that no log between two others is ever missing.
        let finished = logs.windows(2).filter(|pair| pair[1] <= needed.next);
        let mut unneeded: Vec<Part> = finished.map(|pair| Part::Log(pair[0])).collect();
        let leftovers =
            traces.into_iter().filter(|part| first_of(part).is_none_or(|first| first < self.first));
        for part in parts.into_iter().filter(|part| first_of(part).is_none()).chain(leftovers) {
            let keep_part = match &part {
                // Later versions are about to be published by a writer that takes over.
                Part::Version(number) => *number >= version.number || needed.versions.contains(number),
                Part::Segment(name, _) | Part::Queries(name) => needed.names.contains(name),
                Part::Log(_) => false,
            };
            if !keep_part {
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
    place: &CollectionLocation,
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
    let mut names = in_use.clone();
    names.extend(names_in(version));
    for number in kept.iter().filter(|number| **number != version.number) {
        // A version that cannot be read has no readers.
        if let Ok((older, _)) = Version::read(place, *number) {
            names.extend(names_in(&older));
        }
    }
    Needed { versions: kept, names, next: version.through + 1 }
}

/// Returns the names of the segments and queries of a version.
fn names_in(version: &Version) -> impl Iterator<Item = String> {
    let segments = version.segments.iter().map(|segment| segment.name.clone());
    segments.chain(version.calibrations.iter().map(|calibration| calibration.id.clone()))
}
