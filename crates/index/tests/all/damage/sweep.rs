//! The sweeps that damage the files of an index of any family, and the index that they damage.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::files;
use bathyal_index::format::manifest::{MANIFEST_NAME, Manifest};
use bathyal_index::{
    BuildOptions, Effort, FamilyOptions, Index, IndexError, OpenOptions, SearchOptions, TierChoice, build,
    verify,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::PathBuf;
use tempfile::TempDir;

const TIERS: [TierChoice; 2] = [TierChoice::File, TierChoice::Dram];

/// Changes a manifest so that it no longer describes the files of its index.
pub type Lie = fn(&mut Manifest);

/// An index whose files a test damages.
pub struct TestIndex {
    /// The folder that contains `path` alone.
    pub folder: TempDir,
    pub path: PathBuf,
    pub queries: VectorFile,
}

pub fn options(family: impl Into<FamilyOptions>) -> BuildOptions {
    BuildOptions { threads: 2, ..quick_build(family) }
}

/// Returns the 300 vectors of a [`TestIndex`].
pub fn data() -> VectorFile {
    vectors(Element::U8, 300, 16, 1)
}

impl TestIndex {
    pub fn build(family: impl Into<FamilyOptions>) -> TestIndex {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        build(&data(), &path, &options(family), &Silent).unwrap();
        TestIndex { folder, path, queries: vectors(Element::U8, 20, 16, 2) }
    }

    /// Returns the ids that a search of the index finds.
    pub fn answers(&self, tier: TierChoice) -> Result<Vec<u32>, IndexError> {
        let index = Index::open(&self.path, &OpenOptions { tier, ..OpenOptions::default() })?;
        // A search that compares all vectors has no candidate list.
        let compares_all = index.manifest().family == "flat" && index.memory_split().codes == 0;
        let effort = if compares_all { Effort::Recall(1.0) } else { Effort::SearchList(30) };
        let options = SearchOptions { effort, ..SearchOptions::default() };
        Ok(index.search(&self.queries, &options, Control::default())?.ids)
    }

    pub fn manifest(&self) -> Manifest {
        Manifest::read(&self.path).unwrap()
    }

    /// Returns the bytes of a file of the index.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap()
    }

    /// Replaces a file of the index, and leaves the manifest as it is.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path.join(name), bytes).unwrap();
    }

    /// Replaces a file of the index, and its length and checksum in the manifest.
    pub fn replace(&self, name: &str, bytes: &[u8]) {
        files::replace(&self.path, name, bytes);
    }

    /// Returns true if `verify` finds no damage.
    pub fn is_sound(&self) -> bool {
        verify(&self.path, &Silent).is_ok_and(|report| report.sound)
    }

    /// Returns true if searches of files have to read the file `name`.
    ///
    /// Searches of posting lists read the codes of centroids only under a small budget. Searches of groups
    /// read the places and positions of vectors only where they read single vectors.
    fn is_needed(&self, name: &str) -> bool {
        match self.manifest().family.as_str() {
            "spann" => !name.starts_with("code"),
            "cluster" => !["places.bin", "positions.bin"].contains(&name),
            _ => true,
        }
    }

    /// Flips `flips` bits of each file, one at a time. `verify` finds each of them. Searches of files and of
    /// memory return an error that names the file, or the ids of the sound index.
    pub fn flip_bits(&self, flips: usize) {
        let sound = TIERS.map(|tier| self.answers(tier).unwrap());
        for name in files::names(&self.path) {
            let (original, needed) = (self.read(&name), self.is_needed(&name));
            let mut refused = 0;
            for bit in bits(original.len(), flips) {
                self.write(&name, &flipped(&original, bit));
                // A flip in the version field reads as a later version, which is refused, too.
                assert!(!self.is_sound(), "{name}: verify did not find bit {bit}");
                for (tier, sound) in TIERS.into_iter().zip(&sound) {
                    match self.answers(tier) {
                        Ok(ids) => assert_eq!(&ids, sound, "{name}: bit {bit} changed an answer"),
                        Err(error) => {
                            // An error about the manifest may name the index instead.
                            assert!(name == MANIFEST_NAME || names(&error, &name), "{name}: {error}");
                            refused += 1;
                        }
                    }
                }
            }
            self.write(&name, &original);
            assert!(!needed || refused >= flips, "{name}: {refused} of {flips} flips were refused");
        }
        assert!(self.is_sound());
    }

    /// Removes and truncates each file that searches need. Searches return an error that names the file.
    pub fn remove_and_truncate(&self) {
        for name in files::names(&self.path) {
            if !self.is_needed(&name) {
                continue;
            }
            let original = self.read(&name);
            let check = || {
                let error = self.answers(TierChoice::File).unwrap_err();
                assert!(names(&error, &name), "{name}: {error}");
            };
            std::fs::remove_file(self.path.join(&name)).unwrap();
            check();
            for len in [0, 1, original.len() - 1] {
                self.write(&name, &original[..len]);
                check();
            }
            self.write(&name, &original);
        }
        self.answers(TierChoice::File).unwrap();
    }

    /// Writes each of the manifests that `lies` make of the sound one, with a checksum that fits. Searches
    /// fail and `verify` finds the damage.
    pub fn refuse_manifests(&self, lies: &[Lie]) {
        let sound = self.manifest();
        for (number, lie) in lies.iter().enumerate() {
            let mut manifest = sound.clone();
            lie(&mut manifest);
            files::write_manifest(&self.path, &manifest);
            assert!(self.answers(TierChoice::File).is_err(), "manifest {number}");
            assert!(!self.is_sound(), "manifest {number}");
        }
    }

    /// Checks that searches of files and of memory fail, and that `verify` finds the damage.
    pub fn check_refused(&self, what: &str) {
        for tier in TIERS {
            assert!(self.answers(tier.clone()).is_err(), "{what}: {tier:?}");
        }
        assert!(!self.is_sound(), "{what}");
    }
}

/// Returns the numbers of `count` bits, spread over `len` bytes.
pub fn bits(len: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (i * 7_919_911 + 13) % (len * 8))
}

/// Returns `bytes` with one bit flipped.
pub fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// Returns true if the error names the file `name`.
fn names(error: &IndexError, name: &str) -> bool {
    error.to_string().contains(name)
}
