//! The index families, a folder each, and the registry that lists them: builder beside searcher.

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

/// All families; the first is built where none is named.
pub static FAMILIES: &[&Family] =
    &[&cluster::FAMILY, &graph::FAMILY, &spann::FAMILY, &flat::FAMILY, &lsh::FAMILY, &partitioned::FAMILY];

/// The options of the first family, as they are by default.
impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions::of(cluster::ClusterOptions::default())
    }
}

/// The family of this name.
///
/// # Errors
/// [`IndexError::Parameter`] that names those that there are.
pub fn find(name: &str) -> Result<&'static Family, IndexError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        IndexError::Parameter(format!("unknown family '{name}': it is one of {}", names.join(", ")))
    })
}

/// The options of a family from what was given by name, the others as they are by default.
///
/// # Errors
/// [`IndexError::Parameter`] for an unknown family, for an option of another family or of none, and for a value that is not
/// what the option takes or makes no sense.
pub fn options(family: &str, given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    let family = find(family)?;
    let knows = |family: &Family, name: &str| family.options.iter().any(|option| option.name == name);
    if let Some(name) = given.keys().find(|name| !knows(family, name)) {
        let known: Vec<&str> = family.options.iter().map(|option| option.name).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let others: Vec<&str> =
            FAMILIES.iter().filter(|other| knows(other, name)).map(|other| other.name).collect();
        let what = match others.as_slice() {
            [] => format!("{name} is an option of no family"),
            others => format!("{name} is an option of {}, not of {}", others.join(" and "), family.name),
        };
        return Err(IndexError::Parameter(format!("{what}; those of {} are: {known}", family.name)));
    }
    let options = (family.parse)(given)?;
    options.builder().check()?;
    Ok(options)
}

/// What a manifest says of its index, read and checked by the family.
///
/// # Errors
/// [`IndexError::Parameter`] of a family that is not known here, [`IndexError::Damaged`].
pub(crate) fn stored(directory: &Path, manifest: &Manifest) -> Result<Box<dyn Stored>, IndexError> {
    let family = find(&manifest.family).map_err(|error| {
        let (path, by) = (directory.display(), &manifest.written_by);
        IndexError::Parameter(format!("{path}: {error}; it was written by {by}, which can search it"))
    })?;
    let path = || directory.join(crate::format::manifest::MANIFEST_NAME);
    (family.read)(manifest).map_err(|reason| IndexError::damaged(path(), "the manifest", reason))
}
