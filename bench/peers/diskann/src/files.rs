//! Files of vectors, of ground truth and of an index, and the memory of this process.

use anyhow::{Context, Result, bail, ensure};
use diskann_providers::storage::{get_compressed_pq_file, get_disk_index_file, get_pq_pivot_file};
use std::path::{Path, PathBuf};

/// An element type, from the file extension of big-ann-benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    U8,
    I8,
}

impl Element {
    pub(crate) fn of(path: &Path) -> Result<Element> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("fbin") => Ok(Element::F32),
            Some("u8bin") => Ok(Element::U8),
            Some("i8bin") => Ok(Element::I8),
            _ => bail!("{}: unknown extension; expected .fbin, .u8bin or .i8bin", path.display()),
        }
    }

    pub(crate) fn bytes(self) -> usize {
        if self == Element::F32 { 4 } else { 1 }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::U8 => "u8",
            Element::I8 => "i8",
        }
    }
}

/// An element that can be read from little-endian bytes.
pub(crate) trait FromBytes: Sized {
    fn all_from(bytes: &[u8]) -> Vec<Self>;
}

impl FromBytes for f32 {
    fn all_from(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }
}

impl FromBytes for u8 {
    fn all_from(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
}

impl FromBytes for i8 {
    fn all_from(bytes: &[u8]) -> Vec<i8> {
        bytes.iter().map(|b| b.cast_signed()).collect()
    }
}

/// A matrix in memory: `rows x width`, row-major.
pub(crate) struct Matrix<T> {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) values: Vec<T>,
}

fn header(bytes: &[u8], path: &Path) -> Result<(usize, usize)> {
    ensure!(bytes.len() >= 8, "{}: shorter than its header", path.display());
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok((word(0) as usize, word(4) as usize))
}

/// Reads the numbers of rows and dimensions of a file of vectors.
pub(crate) fn shape(path: &Path) -> Result<(usize, usize)> {
    use std::io::Read;
    let mut start = [0; 8];
    let mut file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    file.read_exact(&mut start).with_context(|| path.display().to_string())?;
    header(&start, path)
}

/// Reads all vectors of a file.
pub(crate) fn vectors<T: FromBytes>(path: &Path) -> Result<Matrix<T>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let (rows, width) = header(&bytes, path)?;
    let values = T::all_from(&bytes[8..]);
    ensure!(values.len() == rows * width, "{}: its length does not match its header", path.display());
    Ok(Matrix { rows, width, values })
}

/// Exact neighbours: ids and distances, each `queries x k`, nearest first.
pub(crate) struct GroundTruth {
    pub(crate) queries: usize,
    k: usize,
    ids: Vec<u32>,
    distances: Vec<f32>,
}

impl GroundTruth {
    pub(crate) fn read(path: &Path) -> Result<GroundTruth> {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let (queries, k) = header(&bytes, path)?;
        let half = queries * k * 4;
        ensure!(bytes.len() == 8 + 2 * half, "{}: has no distances", path.display());
        let words = bytes[8..8 + half].chunks_exact(4);
        let ids = words.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Ok(GroundTruth { queries, k, ids, distances: f32::all_from(&bytes[8 + half..]) })
    }

    /// Returns the mean recall@k of `found` (`queries x k`), by the rule of `bathyal search`: every id as
    /// near as the k-th nearest is correct, since the order of equal distances is arbitrary.
    pub(crate) fn recall(&self, found: &[u32], k: usize) -> f64 {
        let correct = |(query, row): (usize, &[u32])| {
            let range = query * self.k..(query + 1) * self.k;
            let (ids, distances) = (&self.ids[range.clone()], &self.distances[range]);
            let ties = distances[k..].iter().take_while(|d| **d <= distances[k - 1]).count();
            row.iter().filter(|id| ids[..k + ties].contains(id)).count()
        };
        let hits: usize = found.chunks(k).enumerate().map(correct).sum();
        hits as f64 / found.len().max(1) as f64
    }
}

/// The files of an index that a search reads: the graph, and the codes with their codebook.
pub(crate) struct IndexFiles {
    pub(crate) prefix: String,
}

impl IndexFiles {
    pub(crate) fn new(folder: &Path) -> Result<IndexFiles> {
        let prefix = folder.join("index");
        let prefix = prefix.to_str().with_context(|| format!("{}: not UTF-8", folder.display()))?;
        Ok(IndexFiles { prefix: prefix.to_owned() })
    }

    pub(crate) fn graph(&self) -> String {
        get_disk_index_file(&self.prefix)
    }

    pub(crate) fn pivots(&self) -> String {
        get_pq_pivot_file(&self.prefix)
    }

    pub(crate) fn codes(&self) -> String {
        get_compressed_pq_file(&self.prefix)
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> Result<u64> {
        Ok(size(self.graph())? + self.resident_bytes()?)
    }

    /// Returns the bytes of the files that are held in memory.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        Ok(size(self.pivots())? + size(self.codes())?)
    }
}

fn size(path: String) -> Result<u64> {
    Ok(std::fs::metadata(PathBuf::from(&path)).context(path)?.len())
}

/// Returns the peak of resident memory of this process, in bytes.
pub(crate) fn peak_rss_bytes() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is large enough, and all zeros are a valid `rusage` even if the call fails.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss.unsigned_abs() * 1024
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn rss_bytes() -> Result<u64> {
    let path = "/proc/self/statm";
    let words = std::fs::read_to_string(path).context(path)?;
    let pages: u64 = words.split(' ').nth(1).with_context(|| format!("{path}: too short"))?.parse()?;
    // SAFETY: `sysconf` reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * page_bytes.unsigned_abs())
}
