//! What the manifest says of a file that lies in parts on several disks, unit after unit in turn. Where the parts are the
//! store knows.

use super::manifest::{FileEntry, require};
use crate::error::IndexError;
use bathyal_store::stripe::{MOST_PARTS, MOST_STRIPE_BYTES, Parts, UNIT_STEP};
use bathyal_store::{Backing, Object};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A file in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeEntry {
    /// What the parts of one build have in common with no others, as sixteen hexadecimal digits.
    pub key: String,
    /// Bytes of a unit.
    pub stripe_bytes: u32,
    /// The parts, in turn.
    pub parts: Vec<PartEntry>,
}

/// A part, without the header that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEntry {
    /// Bytes of the file that it holds.
    pub bytes: u64,
    /// CRC-32C of these.
    pub crc32c: u32,
}

fn key_of(parts: &Parts) -> String {
    format!("{:016x}", parts.key())
}

impl StripeEntry {
    /// What there is to say of a file; `None` of one that is whole.
    pub(crate) fn of(object: &dyn Object) -> Result<Option<StripeEntry>, IndexError> {
        let Backing::Parts(parts) = object.backing()? else { return Ok(None) };
        let entries = parts.lengths().zip(parts.checksums()?);
        Ok(Some(StripeEntry {
            key: key_of(&parts),
            stripe_bytes: parts.stripe_bytes(),
            parts: entries.map(|(bytes, crc32c)| PartEntry { bytes, crc32c }).collect(),
        }))
    }

    /// Checks the numbers of a file of `bytes` bytes.
    pub(super) fn check(&self, bytes: u64) -> Result<(), String> {
        let unit = self.stripe_bytes;
        let units = unit > 0 && unit.is_multiple_of(UNIT_STEP) && unit <= MOST_STRIPE_BYTES;
        require(units, "the unit of a stripe is no multiple of 4096 up to 64 MB")?;
        require((2..=MOST_PARTS).contains(&self.parts.len()), "a file is in one part, or in more than 64")?;
        let sum = self.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.bytes));
        require(sum == Some(bytes), "the parts of a file are not as long as the file")?;
        require(self.key.len() == 16, "the key of a stripe has not sixteen digits")
    }
}

/// Refuses parts that are not those that the manifest speaks of.
pub(super) fn check(object: &dyn Object, file: &FileEntry) -> Result<(), IndexError> {
    let Some(stripe) = &file.stripe else { return Ok(()) };
    let damaged = |reason: String| Err(IndexError::damaged(object.address(), "its parts", reason));
    let Backing::Parts(parts) = object.backing()? else {
        return damaged("the manifest says that it is striped, and it is one file".into());
    };
    let found = (key_of(&parts), parts.stripe_bytes(), parts.lengths().len());
    let wanted = (stripe.key.clone(), stripe.stripe_bytes, stripe.parts.len());
    if found != wanted {
        return damaged(format!(
            "they are {} parts in units of {} bytes with the key {}; those of this index are {} in units of {} with the key \
             {}: stripe.json is that of another index or build",
            found.2, found.1, found.0, wanted.2, wanted.1, wanted.0
        ));
    }
    Ok(parts.check_lengths(file.bytes)?)
}

/// The parts that do not hold what was written, with what was found.
pub(crate) fn damaged_parts(
    object: &dyn Object,
    file: &FileEntry,
) -> Result<Vec<(PathBuf, String)>, IndexError> {
    let (Some(stripe), Backing::Parts(parts)) = (&file.stripe, object.backing()?) else {
        return Ok(Vec::new());
    };
    let all = parts.paths().zip(&stripe.parts).zip(parts.checksums()?);
    let differing = all.filter(|((_, wanted), found)| wanted.crc32c != *found);
    let said = |((path, wanted), found): ((&Path, &PartEntry), u32)| {
        let reason =
            format!("this part has the checksum {found:08x}, the manifest says {:08x}", wanted.crc32c);
        (path.to_path_buf(), reason)
    };
    Ok(differing.map(said).collect())
}
