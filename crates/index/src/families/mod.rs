//! The index families, one folder each with builder and searcher, and the registry that lists them.

pub mod cluster;
pub mod flat;
pub mod graph;
pub mod lsh;
pub mod partitioned;
pub mod spann;

use crate::build::options::{BuildOptions, FamilyOptions, GivenOptions};
use crate::error::IndexError;
use crate::family::{Family, Stored};
use crate::format::manifest::Manifest;
use std::path::Path;

/// All families; the first is the default.
pub static FAMILIES: &[&Family] =
    &[&cluster::FAMILY, &graph::FAMILY, &spann::FAMILY, &flat::FAMILY, &lsh::FAMILY, &partitioned::FAMILY];

/// The default options of the first family.
impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions::of(cluster::ClusterOptions::default())
    }
}

/// Returns the family of this name.
///
/// # Errors
/// [`IndexError::Parameter`] for an unknown name; its text lists the known families.
pub fn find(name: &str) -> Result<&'static Family, IndexError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        IndexError::Parameter(format!("unknown family '{name}': it is one of {}", names.join(", ")))
    })
}

/// Returns the options of a family: the given ones, and the defaults of all others.
///
/// # Errors
/// [`IndexError::Parameter`] for an unknown family, for an option that the family does not have, and for a
/// value that the option does not accept.
pub fn options(family: &str, given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    let family = find(family)?;
    let has_option = |family: &Family, name: &str| family.options.iter().any(|option| option.name == name);
    if let Some(name) = given.keys().find(|name| !has_option(family, name)) {
        let known: Vec<&str> = family.options.iter().map(|option| option.name).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let others: Vec<&str> =
            FAMILIES.iter().filter(|other| has_option(other, name)).map(|other| other.name).collect();
        let what = match others.as_slice() {
            [] => format!("{name} is an option of no family"),
            others => format!("{name} is an option of {}, not of {}", others.join(" and "), family.name),
        };
        return Err(IndexError::Parameter(format!("{what}; the options of {} are: {known}", family.name)));
    }
    let options = (family.parse)(given)?;
    options.builder().check()?;
    Ok(options)
}

/// Returns the index that a manifest describes, as its family reads and checks it.
///
/// # Errors
/// [`IndexError::Parameter`] for a family that this version does not have, and [`IndexError::Damaged`].
pub(crate) fn stored(directory: &Path, manifest: &Manifest) -> Result<Box<dyn Stored>, IndexError> {
    let family = find(&manifest.family).map_err(|error| {
        let (path, by) = (directory.display(), &manifest.written_by);
        IndexError::Parameter(format!(
            "{path}: {error}; the index was written by {by}; open it with that version"
        ))
    })?;
    let path = || directory.join(crate::format::manifest::MANIFEST_NAME);
    (family.read)(manifest).map_err(|reason| IndexError::damaged(path(), "the manifest", reason))
}
