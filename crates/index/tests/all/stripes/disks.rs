//! Folders in place of disks, and indexes that are striped over them.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, StripeOptions,
    build, verify_in,
};
use bathyal_index::{StoreOptions, find};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Bytes of a unit. A part of a file of these tests has several units.
pub const UNIT: u32 = 4096;

/// A folder that contains one folder for each disk.
pub struct Disks {
    dir: TempDir,
}

impl Disks {
    pub fn new() -> Disks {
        let dir = tempfile::tempdir().unwrap();
        let disks = Disks { dir };
        ["a", "b", "c", "d"].iter().for_each(|name| fs::create_dir(disks.path(name)).unwrap());
        disks
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a stripe over the disks of these names.
    pub fn stripe(&self, names: &[&str]) -> StripeOptions {
        StripeOptions { stripe_bytes: UNIT, ..StripeOptions::over(names.iter().map(|name| self.path(name))) }
    }

    /// Builds an index of data from `seed` under `name`, and replaces an index of that name. The index is
    /// striped over the disks, or not striped if there are none.
    pub fn build(&self, name: &str, seed: u64, disks: &[&str]) -> PathBuf {
        let path = self.path(name);
        let options = BuildOptions {
            threads: 1,
            overwrite: true,
            stripe: (!disks.is_empty()).then(|| self.stripe(disks)),
            ..quick_build(ClusterOptions { group_vectors: 20, ..ClusterOptions::default() })
        };
        build(&vectors(Element::U8, 600, 32, seed), &path, &options, &Silent).unwrap();
        path
    }

    /// Returns the sorted files on a disk.
    pub fn files(&self, disk: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            self.path(disk).read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Returns the part of `vectors.bin` on a disk.
    pub fn part(&self, disk: &str) -> PathBuf {
        let files = self.files(disk);
        let found: Vec<_> =
            files.into_iter().filter(|path| path.to_string_lossy().contains("vectors.bin")).collect();
        assert_eq!(found.len(), 1, "one part on {disk}: {found:?}");
        found[0].clone()
    }
}

/// Returns the ids that a search of the index at `path` finds. `moved` are the folders of its parts, or none.
pub fn answers(path: &Path, moved: &[PathBuf]) -> Result<Vec<u32>, IndexError> {
    let index = Index::open(path, &OpenOptions { stripe: moved.to_vec(), ..OpenOptions::default() })?;
    let queries = vectors(Element::U8, 10, 32, 9);
    let options = SearchOptions { effort: Effort::SearchList(30), threads: 1, ..SearchOptions::default() };
    Ok(index.search(&queries, &options, Control::default())?.ids)
}

/// Returns the faults that `verify` finds.
pub fn faults(path: &Path) -> Vec<String> {
    verify_in(find(path, &[], &StoreOptions::default()).unwrap().as_ref(), &Silent).unwrap().faults
}
