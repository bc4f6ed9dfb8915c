//! Objects that lie in parts on several disks, or in several stores, unit after unit in turn.
//!
//! Which objects of a draft are striped, and over which folders, is said when a store is made ([`Striping`]). The folder
//! of such a generation holds a *table* (`table`) that says where the parts of its objects lie; each part begins with a
//! header (`header`) that says what it is part of, so that a part that is missing, cut, or of another object is named
//! when the object is opened ([`Parts`]).
//!
//! The name of a part has a number in it that no other draft has, so parts of two generations never meet, and a table
//! knows the folder that it was written into, so that a copy of that folder is not taken for the owner of the parts.

mod header;
mod part;
mod parts;
mod table;

pub use header::HEADER_BYTES;
pub use part::PartBytes;
pub use parts::Parts;
pub(crate) use table::remove_parts;
pub use table::{TABLE_NAME, Table};

use crate::disk::{Disk, Kind};
use crate::error::StoreError;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of a unit where nobody says otherwise: pages of 4 KB never cross units, and lists of 48 KB do so in less than one read
/// of five, where at 64 KB three of four would. Files of a hundred megabytes and more are loaded evenly; above 1 MB they no
/// longer are (`docs/stripes.md` has the table).
pub const DEFAULT_STRIPE_BYTES: u32 = 256 << 10;
/// Units are multiples of this: of what any device aligns reads to.
pub const UNIT_STEP: u32 = 4096;
/// Longest unit.
pub const MOST_STRIPE_BYTES: u32 = 64 << 20;
/// Most parts of an object.
pub const MOST_PARTS: usize = 64;

/// Which objects are striped, and over which folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Striping {
    folders: Vec<String>,
    stripe_bytes: u32,
    objects: Vec<String>,
}

impl Striping {
    /// The objects `objects` in units of `stripe_bytes`, in turn in `folders`, each of which should be on a disk of its own.
    /// Relative folders are taken from where the process works now.
    ///
    /// # Errors
    /// [`StoreError::Striping`] for fewer than two folders or more than [`MOST_PARTS`], for one that is named twice or that is
    /// no text, and for a unit that is no multiple of [`UNIT_STEP`] up to [`MOST_STRIPE_BYTES`].
    pub fn new(folders: &[PathBuf], stripe_bytes: u32, objects: &[&str]) -> Result<Striping, StoreError> {
        let refuse = |reason: String| Err(StoreError::Striping { reason });
        if folders.len() < 2 || folders.len() > MOST_PARTS {
            return refuse(format!(
                "{} given; an index is striped over 2 to {MOST_PARTS} folders, each on a disk of its own, and one that is to \
                 lie on one disk is not striped",
                match folders.len() {
                    1 => "one folder is".to_string(),
                    n => format!("{n} folders are"),
                }
            ));
        }
        check_unit(stripe_bytes)?;
        let mut named: Vec<String> = Vec::new();
        for folder in folders {
            let absolute = std::path::absolute(folder).map_err(|e| StoreError::io("find", folder, e))?;
            let Some(text) = absolute.to_str() else {
                return refuse(format!("the name of {} is no text; choose one that is", folder.display()));
            };
            if named.iter().any(|other| other == text) {
                return refuse(format!("{text} is named twice; each part needs a folder of its own"));
            }
            named.push(text.to_string());
        }
        let objects = objects.iter().map(ToString::to_string).collect();
        Ok(Striping { folders: named, stripe_bytes, objects })
    }

    /// The objects `objects` in units of `stripe_bytes`, in turn in the stores at `addresses`, which were found to be different
    /// ones.
    ///
    /// # Errors
    /// As [`Striping::new`].
    pub fn over_stores(
        addresses: Vec<String>,
        stripe_bytes: u32,
        objects: &[&str],
    ) -> Result<Striping, StoreError> {
        check_unit(stripe_bytes)?;
        let objects = objects.iter().map(ToString::to_string).collect();
        Ok(Striping { folders: addresses, stripe_bytes, objects })
    }

    /// The folders, in the order of the parts.
    pub fn folders(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.folders.iter().map(Path::new)
    }

    /// What is striped.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.objects.iter().map(String::as_str)
    }

    /// Refuses folders that cannot hold the parts of a generation at `target`.
    pub(crate) fn check(&self, disk: &dyn Disk, target: &Path) -> Result<(), StoreError> {
        let mut seen: Vec<((u64, u64), &Path)> = Vec::new();
        let replaced = disk.stat(target).ok().map(|found| found.identity);
        for folder in self.folders() {
            let path = folder.display();
            let refuse = |reason: String| Err(StoreError::Striping { reason });
            // It is not made: where a disk is not mounted, it would lie on another one.
            let Ok(found) = disk.stat(folder) else {
                return refuse(format!("{path}: there is no such folder; mount its disk, or make it"));
            };
            if found.kind != Kind::Folder {
                return refuse(format!(
                    "{path}: is no folder; parts of a striped index are put into folders"
                ));
            }
            if let Some((_, other)) = seen.iter().find(|(identity, _)| *identity == found.identity) {
                return refuse(format!(
                    "{path} and {} are the same folder; each part needs one of its own",
                    other.display()
                ));
            }
            if !disk.may_change(folder) {
                return refuse(format!(
                    "{path}: this user may not write to it; change its permissions or its owner"
                ));
            }
            let within = |above: &Path| disk.stat(above).ok().map(|found| found.identity) == replaced;
            if replaced.is_some() && folder.ancestors().any(within) {
                return refuse(format!(
                    "{path}: lies within {}, which is removed when it is replaced; choose a folder elsewhere",
                    target.display()
                ));
            }
            seen.push((found.identity, folder));
        }
        Ok(())
    }
}

fn check_unit(stripe_bytes: u32) -> Result<(), StoreError> {
    if stripe_bytes == 0 || !stripe_bytes.is_multiple_of(UNIT_STEP) || stripe_bytes > MOST_STRIPE_BYTES {
        let reason =
            format!("a unit of {stripe_bytes} bytes is no multiple of {UNIT_STEP} up to {MOST_STRIPE_BYTES}");
        return Err(StoreError::Striping { reason });
    }
    Ok(())
}

/// How bytes are dealt out to parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deal {
    /// Bytes of a unit.
    pub(crate) unit: u64,
    /// Number of parts.
    pub(crate) parts: u64,
}

impl Deal {
    /// Number of parts.
    pub fn parts(self) -> usize {
        self.parts as usize
    }

    /// Bytes of a unit.
    pub fn stripe_bytes(self) -> u64 {
        self.unit
    }

    /// Bytes of an object of `total` bytes that part number `part` holds. Of the bytes from `a` to `b` of any object it holds
    /// those from `share(a)` to `share(b)`, back to back.
    pub fn share(self, total: u64, part: usize) -> u64 {
        let (units, rest, part) = (total / self.unit, total % self.unit, part as u64);
        let whole = units / self.parts + u64::from(part < units % self.parts);
        whole * self.unit + if part == units % self.parts { rest } else { 0 }
    }

    /// The part that holds `offset`, where in it, and how many bytes follow there.
    pub fn locate(self, offset: u64) -> (usize, u64, u64) {
        let (number, within) = (offset / self.unit, offset % self.unit);
        ((number % self.parts) as usize, number / self.parts * self.unit + within, self.unit - within)
    }

    /// Which part holds which of the `len` bytes from `offset` on, in their order: places among these bytes.
    pub fn runs(self, offset: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut start = 0_usize;
        std::iter::from_fn(move || {
            let (part, _, run) = self.locate(offset + start as u64);
            let end = len.min(start.saturating_add(usize::try_from(run).unwrap_or(usize::MAX)));
            let range = start..end;
            start = end;
            (!range.is_empty()).then_some((part, range))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_what_is_dealt() {
        for parts in 2..5_u64 {
            let deal = Deal { unit: 10, parts };
            for total in 0..200_u64 {
                let mut dealt = vec![0; parts as usize];
                for offset in 0..total {
                    let (part, at, left) = deal.locate(offset);
                    assert_eq!((at, left), (dealt[part], 10 - offset % 10));
                    dealt[part] += 1;
                }
                let shares: Vec<u64> = (0..parts as usize).map(|part| deal.share(total, part)).collect();
                assert_eq!(shares, dealt, "{total} bytes in {parts} parts");
                for from in [0, 7, 10, 25] {
                    let mut after: Vec<u64> =
                        (0..parts as usize).map(|part| deal.share(from, part)).collect();
                    for (part, range) in deal.runs(from, total.saturating_sub(from) as usize) {
                        let (owner, at, _) = deal.locate(from + range.start as u64);
                        assert_eq!((owner, at), (part, after[part]), "back to back");
                        after[part] += range.len() as u64;
                    }
                    assert!(total < from || after == shares, "{from} to {total} in {parts} parts");
                }
                let reach = bathyal_tier::layer::stripe::StripeTier::reach(shares.into_iter(), 10);
                assert_eq!(reach, total);
            }
        }
    }

    #[test]
    fn stripings_that_make_no_sense_are_refused() {
        let folders = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let refused =
            |names: &[&str], unit| Striping::new(&folders(names), unit, &[]).unwrap_err().to_string();
        assert!(refused(&["/a"], 4096).contains("one folder is given"));
        assert!(refused(&[], 4096).contains("0 folders are given"));
        assert!(refused(&["/a", "/b", "/a"], 4096).contains("named twice"));
        assert!(refused(&["/a", "/b"], 5000).contains("no multiple of 4096"));
        assert!(refused(&["/a", "/b"], 0).contains("no multiple of 4096"));
        let many: Vec<String> = (0..=MOST_PARTS).map(|i| format!("/{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refused(&many, 4096).contains("65 folders"));
    }
}
