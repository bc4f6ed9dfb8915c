//! The manifest's entry of a striped file, whose units lie on several disks or nodes in turn. The store knows
//! the locations of the parts.

use super::manifest::{FileEntry, require};
use crate::error::IndexError;
use bathyal_store::stripe::{MOST_PARTS, MOST_STRIPE_BYTES, Parts, UNIT_STEP};
use bathyal_store::{Backing, Object};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A striped file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeEntry {
    /// The key that only the parts of one build share, as sixteen hexadecimal digits.
    pub key: String,
    /// Bytes of a unit.
    pub stripe_bytes: u32,
    /// The parts, in order.
    pub parts: Vec<PartEntry>,
}

/// A part of a striped file, without the part's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEntry {
    /// Bytes of the file in this part.
    pub bytes: u64,
    /// CRC-32C of these bytes.
    pub crc32c: u32,
}

fn key_of(parts: &Parts) -> String {
    format!("{:016x}", parts.key())
}

impl StripeEntry {
    /// Returns the entry of a file; `None` if the file is not striped.
    pub(crate) fn from_object(object: &dyn Object) -> Result<Option<StripeEntry>, IndexError> {
        let Backing::Parts(parts) = object.backing()? else { return Ok(None) };
        let entries = parts.lengths().zip(parts.checksums()?);
        Ok(Some(StripeEntry {
            key: key_of(&parts),
            stripe_bytes: parts.stripe_bytes(),
            parts: entries.map(|(bytes, crc32c)| PartEntry { bytes, crc32c }).collect(),
        }))
    }

    /// Checks the entry of a file of `bytes` bytes.
    pub(super) fn check(&self, bytes: u64) -> Result<(), String> {
        let unit = self.stripe_bytes;
        let units = unit > 0 && unit.is_multiple_of(UNIT_STEP) && unit <= MOST_STRIPE_BYTES;
        require(units, "the unit of a stripe is not a multiple of 4096 up to 64 MB")?;
        require(
            (2..=MOST_PARTS).contains(&self.parts.len()),
            "a striped file has fewer than 2 or more than 64 parts",
        )?;
        let sum = self.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.bytes));
        require(sum == Some(bytes), "the lengths of the parts do not add up to the length of the file")?;
        require(self.key.len() == 16, "the key of a stripe does not have sixteen digits")
    }
}

/// Refuses parts that differ from the manifest's entry.
pub(super) fn check(object: &dyn Object, file: &FileEntry) -> Result<(), IndexError> {
    let Some(stripe) = &file.stripe else { return Ok(()) };
    let damaged = |reason: String| Err(IndexError::damaged(object.address(), "its parts", reason));
    let Backing::Parts(parts) = object.backing()? else {
        return damaged("it is a single file, but the manifest describes a striped one".into());
    };
    let found = (key_of(&parts), parts.stripe_bytes(), parts.lengths().len());
    let expected = (stripe.key.clone(), stripe.stripe_bytes, stripe.parts.len());
    if found != expected {
        return damaged(format!(
            "they are {} parts in units of {} bytes with the key {}; those of this index are {} in units of \
             {} with the key {}: stripe.json is that of another index or build",
            found.2, found.1, found.0, expected.2, expected.1, expected.0
        ));
    }
    Ok(parts.check_lengths(file.bytes)?)
}

/// Returns the damaged parts, each with a sentence that states what is wrong.
pub(crate) fn damaged_parts(
    object: &dyn Object,
    file: &FileEntry,
) -> Result<Vec<(PathBuf, String)>, IndexError> {
    let (Some(stripe), Backing::Parts(parts)) = (&file.stripe, object.backing()?) else {
        return Ok(Vec::new());
    };
    let all = parts.paths().zip(&stripe.parts).zip(parts.checksums()?);
    let differing = all.filter(|((_, entry), found)| entry.crc32c != *found);
    let describe = |((path, entry), found): ((&Path, &PartEntry), u32)| {
        let reason =
            format!("this part has the checksum {found:08x}, the manifest says {:08x}", entry.crc32c);
        (path.to_path_buf(), reason)
    };
    Ok(differing.map(describe).collect())
}
