//! Ids and distances of nearest neighbours: ground truth.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::error::VectorError;
use super::file::map_file;
use super::format::{BIN_HEADER_BYTES, ROW_PREFIX_BYTES, bin_header, check_prefix, prefixed_rows};
use super::npy_numbers;

/// Most ids of a query. As with dims, a larger number means that the file has another format.
const MAX_K: u64 = super::format::MAX_DIM as u64;

/// Marker in place of a missing id, where a query has fewer than `k` neighbours: -1 of 32 bits. No vector has
/// this id.
pub const NO_ID: u32 = u32::MAX;
/// Largest id in `.ivecs`, which stores ids as signed numbers.
const MOST_SIGNED: u32 = i32::MAX as u32;

/// The format of a file of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdFormat {
    /// `.ibin`: u32 queries, u32 k, all ids, then (optional) all distances.
    Ibin,
    /// `.ivecs`: every row begins with its k; no distances.
    Ivecs,
}

impl IdFormat {
    /// Returns the format that the extension of `path` stands for, in upper or lower case.
    ///
    /// # Errors
    /// [`VectorError::UnknownExtension`].
    pub fn from_path(path: &Path) -> Result<IdFormat, VectorError> {
        let found = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        match found.as_str() {
            "ibin" => Ok(IdFormat::Ibin),
            "ivecs" => Ok(IdFormat::Ivecs),
            _ => Err(VectorError::UnknownExtension {
                path: path.to_path_buf(),
                expected: ".ibin .ivecs",
                advice: match found.as_str() {
                    "hdf5" | "h5" => {
                        "convert it with the Python package: bathyal.write_ids(\"gt.ibin\", \
                         *bathyal.read_ids(FILE))"
                    }
                    _ => {
                        "expected a file of ids as `bathyal groundtruth` writes it, or .npy of whole numbers"
                    }
                },
                found,
            }),
        }
    }
}

/// The nearest neighbours of each query: `queries x k` ids and, where the file has them, distances.
///
/// Neighbours are sorted by distance, then by id; [`NO_ID`] stands for each missing one. Distances of the l2
/// metric are **squared**, as in big-ann-benchmarks. The values are held in memory: `queries x k x 8` bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct IdFile {
    path: PathBuf,
    k: usize,
    ids: Vec<u32>,
    distances: Option<Vec<f32>>,
}

impl IdFile {
    /// Reads `path`, whose extension is `.ibin`, `.ivecs` or `.npy`.
    ///
    /// # Errors
    /// As [`VectorFile::open`](super::VectorFile::open).
    pub fn open(path: impl AsRef<Path>) -> Result<IdFile, VectorError> {
        let path = path.as_ref();
        if is_npy(path) {
            let (k, ids) = npy_numbers::read_ids(path)?;
            return Ok(IdFile { path: path.to_path_buf(), ..IdFile::from_parts(k, ids, None)? });
        }
        let format = IdFormat::from_path(path)?;
        let (map, _file) = map_file(path, "ids")?;
        IdFile::parse(format, &map, path)
    }

    /// Reads `bytes`, a whole file of `format`; `path` is for messages.
    ///
    /// # Errors
    /// As [`IdFile::open`].
    pub fn parse(format: IdFormat, bytes: &[u8], path: &Path) -> Result<IdFile, VectorError> {
        if bytes.is_empty() {
            return Err(VectorError::Empty { path: path.to_path_buf(), what: "ids" });
        }
        match format {
            IdFormat::Ibin => parse_ibin(bytes, path),
            IdFormat::Ivecs => parse_ivecs(bytes, path),
        }
    }

    /// Takes ids (`queries x k`, row-major) and, if given, as many distances.
    ///
    /// # Errors
    /// [`VectorError::Argument`] if k is 0 or the lengths do not agree, [`VectorError::Empty`] without ids.
    pub fn from_parts(k: usize, ids: Vec<u32>, distances: Option<Vec<f32>>) -> Result<IdFile, VectorError> {
        let path = PathBuf::from("(ids in memory)");
        if ids.is_empty() {
            return Err(VectorError::Empty { path, what: "ids" });
        }
        if k == 0 || !ids.len().is_multiple_of(k) || distances.as_ref().is_some_and(|d| d.len() != ids.len())
        {
            let reason = format!(
                "got k = {k}, {} ids and {} distances; expected queries x k of each",
                ids.len(),
                distances.as_ref().map_or(0, Vec::len)
            );
            return Err(VectorError::Argument { path, reason });
        }
        Ok(IdFile { path, k, ids, distances })
    }

    /// Copies the queries `rows`.
    ///
    /// # Errors
    /// [`VectorError::Range`] if `rows` is empty or not within the queries.
    pub fn slice(&self, rows: Range<usize>) -> Result<IdFile, VectorError> {
        let found = rows.end.checked_mul(self.k).and_then(|end| {
            let part = rows.start.checked_mul(self.k)?..end;
            let distances = self.distances.as_ref().and_then(|all| all.get(part.clone()));
            Some((self.ids.get(part).filter(|ids| !ids.is_empty())?, distances))
        });
        match found {
            Some((ids, distances)) => Ok(IdFile {
                path: self.path.clone(),
                k: self.k,
                ids: ids.to_vec(),
                distances: distances.map(<[f32]>::to_vec),
            }),
            None => Err(VectorError::Range {
                path: self.path.clone(),
                start: rows.start as u64,
                end: rows.end as u64,
                count: self.queries() as u64,
            }),
        }
    }

    /// Returns the number of queries, at least 1.
    pub fn queries(&self) -> usize {
        self.ids.len() / self.k
    }

    /// Returns the number of neighbours of each query, at least 1.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Returns the `k` ids of query `query`, nearest first; an empty slice if there is no such query.
    pub fn ids(&self, query: usize) -> &[u32] {
        row_of(&self.ids, query, self.k)
    }

    /// Returns the `k` distances of query `query` (l2: squared); `None` if the file has no distances or there
    /// is no such query.
    pub fn distances(&self, query: usize) -> Option<&[f32]> {
        let row = row_of(self.distances.as_ref()?, query, self.k);
        (!row.is_empty()).then_some(row)
    }

    /// Returns true if the file has distances.
    pub fn has_distances(&self) -> bool {
        self.distances.is_some()
    }

    /// Returns all ids, `queries x k`, row-major.
    pub fn all_ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns all distances, `queries x k`, row-major.
    pub fn all_distances(&self) -> Option<&[f32]> {
        self.distances.as_deref()
    }

    /// Returns the path of the file, or a name in brackets for ids that are in memory only.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses ids that are not below `count`, the number of vectors. [`NO_ID`], a missing id, passes.
    ///
    /// # Errors
    /// [`VectorError::IdOutside`] for the first such id.
    pub fn check_ids(&self, count: usize) -> Result<(), VectorError> {
        match self.ids.iter().position(|id| *id as usize >= count && *id != NO_ID) {
            None => Ok(()),
            Some(at) => Err(VectorError::IdOutside {
                path: self.path.clone(),
                query: (at / self.k) as u64,
                id: self.ids[at],
                count: count as u64,
            }),
        }
    }
}

/// Returns true if the extension of `path` is that of NumPy, which may hold vectors or ids.
pub(crate) fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("npy"))
}

fn row_of<T>(all: &[T], query: usize, k: usize) -> &[T] {
    query.checked_mul(k).and_then(|start| all.get(start..start + k)).unwrap_or_default()
}

fn parse_ibin(bytes: &[u8], path: &Path) -> Result<IdFile, VectorError> {
    let (queries, k) = bin_header(bytes, path)?;
    if queries == 0 {
        return Err(VectorError::Empty { path: path.to_path_buf(), what: "ids" });
    }
    if k == 0 || k > MAX_K {
        let expected = format!("1 to {MAX_K}");
        return Err(VectorError::Header { path: path.to_path_buf(), field: "k", found: k, expected });
    }
    // Both are below 2^32 and k below 2^17, so this stays far below 2^64.
    let ids_bytes = queries * k * 4;
    let (without, with) = (BIN_HEADER_BYTES as u64 + ids_bytes, BIN_HEADER_BYTES as u64 + 2 * ids_bytes);
    let found = bytes.len() as u64;
    if found != without && found != with {
        let path = path.to_path_buf();
        let advice = format!("expected {without} bytes without distances or {with} with them; copy it again");
        return Err(if found < with {
            let expected = if found < without { without } else { with };
            VectorError::Truncated { path, found, expected, advice }
        } else {
            VectorError::OverLong { path, found, expected: with, advice }
        });
    }
    // The file has these bytes, so they fit usize.
    let (ids, distances) = bytes[BIN_HEADER_BYTES..].split_at(ids_bytes as usize);
    let distances = (!distances.is_empty())
        .then(|| distances.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect());
    Ok(IdFile { path: path.to_path_buf(), k: k as usize, ids: le_u32s(ids).collect(), distances })
}

fn parse_ivecs(bytes: &[u8], path: &Path) -> Result<IdFile, VectorError> {
    let rows = prefixed_rows(bytes, 4, "ids", path)?;
    let mut ids = Vec::with_capacity(rows.count * rows.dim);
    for (row, row_bytes) in bytes.chunks_exact(rows.stride).enumerate() {
        check_prefix(row_bytes, row, rows.dim, path)?;
        ids.extend(le_u32s(&row_bytes[ROW_PREFIX_BYTES..]));
    }
    check_signed(&ids, rows.dim, 0, path)?;
    Ok(IdFile { path: path.to_path_buf(), k: rows.dim, ids, distances: None })
}

/// Refuses ids that are negative in `.ivecs`. `ids` holds `k` a query, from query `first` on. -1 is [`NO_ID`]
/// and passes.
pub(crate) fn check_signed(ids: &[u32], k: usize, first: u64, path: &Path) -> Result<(), VectorError> {
    match ids.iter().position(|id| *id > MOST_SIGNED && *id != NO_ID) {
        None => Ok(()),
        Some(at) => Err(VectorError::IdSigned {
            path: path.to_path_buf(),
            query: first + (at / k) as u64,
            id: ids[at],
            signed: ids[at].cast_signed(),
        }),
    }
}

fn le_u32s(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b))
}
