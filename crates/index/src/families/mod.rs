//! The index families, one folder each with builder and searcher, and the registry that lists them.
//!
//! Each family is a feature of the crate, and no family imports another one. A build without a family leaves
//! out its folder and its line of the registry; nothing else depends on the feature.

#[cfg(feature = "cluster")]
pub mod cluster;
#[cfg(feature = "flat")]
pub mod flat;
#[cfg(feature = "graph")]
pub mod graph;
#[cfg(feature = "lsh")]
pub mod lsh;
#[cfg(feature = "partitioned")]
pub mod partitioned;
#[cfg(feature = "spann")]
pub mod spann;

use crate::build::options::{BuildOptions, FamilyOptions, GivenOptions};
use crate::error::IndexError;
use crate::family::{Capability, Family, Stored};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_gpu::GpuError;
use std::path::Path;

/// All families of this build; the first is the default.
pub static FAMILIES: &[&Family] = &[
    #[cfg(feature = "cluster")]
    &cluster::FAMILY,
    #[cfg(feature = "graph")]
    &graph::FAMILY,
    #[cfg(feature = "spann")]
    &spann::FAMILY,
    #[cfg(feature = "flat")]
    &flat::FAMILY,
    #[cfg(feature = "lsh")]
    &lsh::FAMILY,
    #[cfg(feature = "partitioned")]
    &partitioned::FAMILY,
];

/// The families that a build may leave out, by their names, which are also the names of their features.
const FEATURES: &[&str] = &["cluster", "graph", "spann", "flat", "lsh", "partitioned"];

#[cfg(not(any(
    feature = "cluster",
    feature = "graph",
    feature = "spann",
    feature = "flat",
    feature = "lsh",
    feature = "partitioned"
)))]
compile_error!(
    "an index needs a family: enable one of the features `cluster`, `graph`, `spann`, `flat`, `lsh` and \
     `partitioned`, or `families` for all of them"
);

/// The default options of the first family.
impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions::of((FAMILIES[0].defaults)())
    }
}

/// Returns the family of this name.
///
/// # Errors
/// [`IndexError::Parameter`] for a family that this build left out, with its feature, and for an unknown
/// name, with the known families.
pub fn find(name: &str) -> Result<&'static Family, IndexError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    found.copied().ok_or_else(|| IndexError::Parameter(left_out(name).unwrap_or_else(|| unknown(name))))
}

/// Returns the error of a family that this build left out; `None` for other names.
fn left_out(name: &str) -> Option<String> {
    let is_left_out = FEATURES.contains(&name) && FAMILIES.iter().all(|family| family.name != name);
    is_left_out.then(|| {
        format!("family '{name}' was left out of this build: enable the feature `{name}` of bathyal")
    })
}

/// Returns the error of a name that no family has.
fn unknown(name: &str) -> String {
    let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
    format!("unknown family '{name}': it is one of {}", names.join(", "))
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
/// [`IndexError::Parameter`] for a family that this version or this build does not have, and
/// [`IndexError::Damaged`].
pub(crate) fn stored(directory: &Path, manifest: &Manifest) -> Result<Box<dyn Stored>, IndexError> {
    let family = find(&manifest.family).map_err(|error| {
        let (path, by) = (directory.display(), &manifest.written_by);
        IndexError::Parameter(match left_out(&manifest.family) {
            Some(reason) => format!("{path}: {reason}"),
            None => format!("{path}: {error}; the index was written by {by}; open it with that version"),
        })
    })?;
    let path = || directory.join(MANIFEST_NAME);
    (family.read)(manifest).map_err(|reason| IndexError::damaged(path(), "the manifest", reason))
}

/// Returns true if `family` is a family of this build whose indexes offer `capability`.
pub fn offers(family: &str, capability: Capability) -> bool {
    find(family).is_ok_and(|family| family.offers(capability))
}

/// Returns the sentence that refuses a capability for `family`, which lacks it. The sentence names the
/// families of this build that offer it.
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
            let options = BuildOptions { threads: 1, ..BuildOptions::of((family.defaults)()) };
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

    #[test]
    fn every_family_is_a_feature() {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let built: Vec<&str> = FEATURES.iter().copied().filter(|name| left_out(name).is_none()).collect();
        assert_eq!(names, built);
        assert_eq!(left_out("annoy"), None);
    }
}
