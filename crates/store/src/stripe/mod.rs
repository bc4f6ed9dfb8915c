//! Striped objects: their units are distributed in turn over parts on several disks, or in several stores.
//!
//! A [`Striping`] lists the objects of a draft to stripe and the folders of the parts. The folder of such a
//! generation contains a *table* (`table`) with the locations of the parts. Each part begins with a header
//! (`header`) that identifies it, so a part that is missing, truncated or of another object is reported by
//! name when the object is opened ([`Parts`]).
//!
//! The name of a part contains a number that is unique to its draft, so parts of two generations never
//! collide. A table records the inode number of the folder that it was written into, so that a copy of that
//! folder is not taken for the owner of the parts.

mod header;
mod part;
mod parts;
mod table;

pub use header::HEADER_BYTES;
pub use part::PartBytes;
pub use parts::Parts;
pub(crate) use table::remove_parts;
pub use table::{TABLE_NAME, Table};

use crate::disk::{Disk, FileKind};
use crate::error::StoreError;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The default length of a unit in bytes. Pages of 4 KB never cross units. Fewer than one in five reads of
/// posting lists of 48 KB cross units; with units of 64 KB, three in four would. Files of 100 MB and more are
/// distributed evenly; with units above 1 MB they are not (`docs/stripes.md` has the table).
pub const DEFAULT_STRIPE_BYTES: u32 = 256 << 10;
/// Units are multiples of this many bytes, the largest alignment of reads that devices require.
pub const UNIT_STEP: u32 = 4096;
/// The longest unit in bytes.
pub const MOST_STRIPE_BYTES: u32 = 64 << 20;
/// The most parts of an object.
pub const MOST_PARTS: usize = 64;

/// The objects to stripe, the folders or stores of their parts, and the length of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Striping {
    folders: Vec<String>,
    stripe_bytes: u32,
    objects: Vec<String>,
}

impl Striping {
    /// Stripes the objects `objects` over `folders` in units of `stripe_bytes`. Each folder should be on a
    /// disk of its own. Relative folders are resolved against the current directory.
    ///
    /// # Errors
    /// [`StoreError::Striping`] for fewer than two folders or more than [`MOST_PARTS`], for a folder that is
    /// given twice or is not Unicode, and for a unit that is no multiple of [`UNIT_STEP`] up to
    /// [`MOST_STRIPE_BYTES`].
    pub fn new(folders: &[PathBuf], stripe_bytes: u32, objects: &[&str]) -> Result<Striping, StoreError> {
        let refuse = |reason: String| Err(StoreError::Striping { reason });
        if folders.len() < 2 || folders.len() > MOST_PARTS {
            return refuse(format!(
                "{} given; striping needs 2 to {MOST_PARTS} folders, each on a disk of its own; for an index \
                 on one disk, leave it out",
                match folders.len() {
                    1 => "one folder is".to_string(),
                    n => format!("{n} folders are"),
                }
            ));
        }
        check_unit(stripe_bytes)?;
        let mut paths: Vec<String> = Vec::new();
        for folder in folders {
            let absolute = std::path::absolute(folder).map_err(|e| StoreError::io("find", folder, e))?;
            let Some(text) = absolute.to_str() else {
                return refuse(format!(
                    "the name of {} is not Unicode; choose another folder",
                    folder.display()
                ));
            };
            if paths.iter().any(|other| other == text) {
                return refuse(format!("{text} is named twice; each part needs a folder of its own"));
            }
            paths.push(text.to_string());
        }
        let objects = objects.iter().map(ToString::to_string).collect();
        Ok(Striping { folders: paths, stripe_bytes, objects })
    }

    /// Stripes the objects `objects` over the stores at `addresses` in units of `stripe_bytes`. The caller
    /// has checked that the stores are different.
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

    /// Returns the folders, or the addresses of stores, in the order of the parts.
    pub fn folders(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.folders.iter().map(Path::new)
    }

    /// Returns the names of the objects to stripe.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &str> {
        self.objects.iter().map(String::as_str)
    }

    /// Returns an error if a folder cannot hold parts of a generation at `target`.
    pub(crate) fn check(&self, disk: &dyn Disk, target: &Path) -> Result<(), StoreError> {
        let mut seen: Vec<((u64, u64), &Path)> = Vec::new();
        let replaced = disk.stat(target).ok().map(|found| found.identity);
        for folder in self.folders() {
            let path = folder.display();
            let refuse = |reason: String| Err(StoreError::Striping { reason });
            // A missing folder is not created: if its disk is not mounted, it would be created on another
            // disk.
            let Ok(found) = disk.stat(folder) else {
                return refuse(format!(
                    "{path}: there is no such folder; mount its disk, or create the folder"
                ));
            };
            if found.kind != FileKind::Folder {
                return refuse(format!("{path}: is not a folder; the parts of a striped index need folders"));
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
            let is_replaced = |above: &Path| disk.stat(above).ok().map(|found| found.identity) == replaced;
            if replaced.is_some() && folder.ancestors().any(is_replaced) {
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
        let reason = format!(
            "the unit must be a multiple of {UNIT_STEP} bytes up to {MOST_STRIPE_BYTES}, not {stripe_bytes}"
        );
        return Err(StoreError::Striping { reason });
    }
    Ok(())
}

/// The distribution of an object's bytes over the parts of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeLayout {
    /// The length of a unit in bytes.
    pub(crate) unit: u64,
    /// The number of parts.
    pub(crate) parts: u64,
}

/// The location of a byte of an object within the parts of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOffset {
    /// The number of the part, from 0.
    pub(crate) part: usize,
    /// The offset within the part, behind its header.
    pub(crate) offset: u64,
    /// Bytes from there to the end of the unit.
    pub(crate) run: u64,
}

impl StripeLayout {
    /// The number of parts.
    pub fn parts(self) -> usize {
        self.parts as usize
    }

    /// The length of a unit in bytes.
    pub fn stripe_bytes(self) -> u64 {
        self.unit
    }

    /// Returns how many bytes of an object of `total` bytes part number `part` holds. Of the object's bytes
    /// from `a` to `b`, the part holds those from `share(a)` to `share(b)` of its own, contiguously.
    pub fn share(self, total: u64, part: usize) -> u64 {
        let (units, rest, part) = (total / self.unit, total % self.unit, part as u64);
        let whole = units / self.parts + u64::from(part < units % self.parts);
        whole * self.unit + if part == units % self.parts { rest } else { 0 }
    }

    /// Returns the location of the byte at `offset` of the object.
    pub fn locate(self, offset: u64) -> PartOffset {
        let (number, within) = (offset / self.unit, offset % self.unit);
        PartOffset {
            part: (number % self.parts) as usize,
            offset: number / self.parts * self.unit + within,
            run: self.unit - within,
        }
    }

    /// Splits the `len` bytes from `offset` on into runs, each within one part. Yields the part and the range
    /// of each run, relative to `offset`, in order.
    pub fn runs(self, offset: u64, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut start = 0_usize;
        std::iter::from_fn(move || {
            let PartOffset { part, run, .. } = self.locate(offset + start as u64);
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
    fn shares_equal_the_bytes_located_in_each_part() {
        for parts in 2..5_u64 {
            let layout = StripeLayout { unit: 10, parts };
            for total in 0..200_u64 {
                let mut located = vec![0; parts as usize];
                for offset in 0..total {
                    let found = layout.locate(offset);
                    assert_eq!((found.offset, found.run), (located[found.part], 10 - offset % 10));
                    located[found.part] += 1;
                }
                let shares: Vec<u64> = (0..parts as usize).map(|part| layout.share(total, part)).collect();
                assert_eq!(shares, located, "{total} bytes in {parts} parts");
                for from in [0, 7, 10, 25] {
                    let mut after: Vec<u64> =
                        (0..parts as usize).map(|part| layout.share(from, part)).collect();
                    for (part, range) in layout.runs(from, total.saturating_sub(from) as usize) {
                        let found = layout.locate(from + range.start as u64);
                        assert_eq!((found.part, found.offset), (part, after[part]), "runs are contiguous");
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
    fn invalid_stripings_are_refused() {
        let folders = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let refused =
            |names: &[&str], unit| Striping::new(&folders(names), unit, &[]).unwrap_err().to_string();
        assert!(refused(&["/a"], 4096).contains("one folder is given"));
        assert!(refused(&[], 4096).contains("0 folders are given"));
        assert!(refused(&["/a", "/b", "/a"], 4096).contains("named twice"));
        assert!(refused(&["/a", "/b"], 5000).contains("a multiple of 4096"));
        assert!(refused(&["/a", "/b"], 0).contains("a multiple of 4096"));
        let many: Vec<String> = (0..=MOST_PARTS).map(|i| format!("/{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refused(&many, 4096).contains("65 folders"));
    }
}
