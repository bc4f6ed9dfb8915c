//! The index families, one folder each with builder and searcher, and the registry that lists them.

pub mod cluster;
pub mod flat;
pub mod graph;
pub mod lsh;
pub mod partitioned;
pub mod spann;

use crate::build::options::{BuildOptions, FamilyOptions, GivenOptions};
use crate::error::IndexError;
use crate::family::{Capability, Family, Stored};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_gpu::GpuError;
use std::path::Path;

/// All families; the first is the default.
pub static FAMILIES: &[&Family] = &[
    &cluster::FAMILY,
    &graph::FAMILY,
    &spann::FAMILY,
    &flat::FAMILY,
    &lsh::FAMILY,
    &partitioned::FAMILY,
];

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
    let path = || directory.join(MANIFEST_NAME);
    (family.read)(manifest).map_err(|reason| IndexError::damaged(path(), "the manifest", reason))
}

/// Returns true if `family` is a family of this build whose indexes offer `capability`.
pub fn offers(family: &str, capability: Capability) -> bool {
    find(family).is_ok_and(|family| family.offers(capability))
}

/// Returns the sentence that refuses a capability for `family`, which lacks it. The sentence names the families
/// of this build that offer it.
pub fn refusal(family: &str, capability: Capability) -> String {
    let able = FAMILIES.iter().filter(|other| other.offers(capability));
    capability.refusal(family, &able.map(|other| other.name).collect::<Vec<_>>())
}

/// Checks that a graphics card can search the index that `manifest` describes.
///
/// # Errors
/// [`GpuError::Unsuited`].
pub(crate) fn check_card(stored: &dyn Stored, manifest: &Manifest) -> Result<(), GpuError> {
    match stored.capabilities().card {
        Some(card) => card.check_card(manifest),
        None => Err(GpuError::Unsuited(refusal(&manifest.family, Capability::Card))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::build_in;
    use crate::family::Knob;
    use bathyal_kernels::Element;
    use bathyal_store::Store;
    use bathyal_store::memory::MemoryStore;
    use bathyal_vectors::VectorFile;
    use bathyal_vectors::progress::Silent;

    #[test]
    fn families_declare_the_capabilities_that_their_indexes_have() {
        let values = (0..3200).map(|i| (i * i % 97) as f32);
        let rows = values.flat_map(f32::to_le_bytes).collect();
        let data = VectorFile::from_rows(Element::F32, 16, rows).unwrap();
        let store = MemoryStore::new("memory");
        for family in FAMILIES {
            let family_options = options(family.name, &GivenOptions::new()).unwrap();
            let options = BuildOptions { threads: 1, ..BuildOptions::of(family_options) };
            build_in(&data, &store, family.name, &options, &Silent).unwrap();
            let generation = store.open(family.name).unwrap();
            let manifest = Manifest::load(generation.as_ref()).unwrap();
            let index = stored(generation.address(), &manifest).unwrap();
            let has = |capability| match capability {
                Capability::Card => index.capabilities().card.is_some(),
                Capability::Changes => index.capabilities().changes.is_some(),
                Capability::Ratio => index.knobs().contains(&Knob::Ratio),
            };
            for capability in [Capability::Card, Capability::Changes, Capability::Ratio] {
                assert_eq!(family.offers(capability), has(capability), "{} {capability:?}", family.name);
            }
        }
    }
}
