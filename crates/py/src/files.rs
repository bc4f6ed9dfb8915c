//! Files of vectors and ids, and exact neighbours.

use crate::arrays::{matrix, vectors};
use crate::detached::run_detached;
use crate::errors::Failure;
use crate::index::card;
use bathyal_index::exact_neighbors_on;
use bathyal_kernels::{Element, Metric, MetricName};
use bathyal_vectors::groundtruth::{MeanRecall, OverallRatio};
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{self, FileFormat, IdFile, NO_ID, VectorError, VectorFile, VectorWriter};
use numpy::ndarray::ArrayView1;
use numpy::{PyArray2, PyReadonlyArray2};
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use std::ffi::CString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Bytes written between two checks for Ctrl-C.
const BLOCK_BYTES: usize = 8 << 20;

/// Ids, and distances if there are any, both `queries x k`.
type Neighbors<'py> = (Bound<'py, PyArray2<u32>>, Option<Bound<'py, PyArray2<f32>>>);

/// The mean and the 99th percentile over the queries, if any has a ratio, and the number of queries without
/// one.
type Ratio = (Option<f64>, Option<f64>, usize);

/// Returns the metric of this name; warns with Bathyal's name if the name is another system's.
pub(crate) fn metric(name: &str) -> PyResult<MetricName> {
    let metric = name.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    if let Some(note) = Metric::note_on(name) {
        let note = CString::new(note)?;
        // The warning is for the caller of the package's function.
        Python::attach(|py| PyErr::warn(py, &py.get_type::<PyUserWarning>(), &note, 2))?;
    }
    Ok(metric)
}

/// Returns the element, count and dim of a file of vectors, after checking its header.
#[pyfunction]
pub(crate) fn describe_vectors(path: PathBuf) -> PyResult<(&'static str, usize, usize)> {
    let file = VectorFile::open(path).map_err(Failure::from)?;
    Ok((file.element().name(), file.count(), file.dim()))
}

/// Writes an array to a file in the format of its extension; the file appears only when it is complete.
#[pyfunction]
pub(crate) fn write_vectors(py: Python<'_>, path: PathBuf, array: &Bound<'_, PyAny>) -> PyResult<()> {
    let data = vectors(array, "vectors")?;
    // Bits are packed in bytes.
    let bits = matches!(FileFormat::from_path(&path), Ok(FileFormat::Bin(Element::B1)))
        .then(|| data.as_bits())
        .flatten();
    let data = bits.unwrap_or(data);
    run_detached(py, None, |watch| -> Result<(), Failure> {
        let mut writer = VectorWriter::create(path, data.element(), data.dim())?;
        let block = (BLOCK_BYTES / data.row_bytes()).max(1);
        for start in (0..data.count()).step_by(block) {
            if watch.cancelled() {
                return Err(VectorError::Cancelled.into());
            }
            let rows = start..(start + block).min(data.count());
            writer.push_rows(data.rows(rows).unwrap_or_default())?;
        }
        writer.finish()?;
        Ok(())
    })
}

/// Returns the ids, and the distances if there are any, of a file of neighbours.
#[pyfunction]
pub(crate) fn read_ids(py: Python<'_>, path: PathBuf) -> PyResult<Neighbors<'_>> {
    let found = IdFile::open(path).map_err(Failure::from)?;
    neighbors(py, &found)
}

/// Writes ids, and distances if given and if the format has them; the file appears only when it is complete.
#[pyfunction]
pub(crate) fn write_ids(
    path: PathBuf,
    ids: PyReadonlyArray2<'_, u32>,
    distances: Option<PyReadonlyArray2<'_, f32>>,
) -> PyResult<()> {
    let k = ids.as_array().ncols();
    let distances = distances.map(|d| d.as_array().iter().copied().collect());
    let ids = ids.as_array().iter().copied().collect();
    let found = IdFile::from_parts(k, ids, distances).map_err(Failure::from)?;
    Ok(bathyal_vectors::write_ids(path, &found).map_err(Failure::from)?)
}

/// Copies a file of vectors or ids to another format: `(rows, columns, element)`.
#[pyfunction]
pub(crate) fn convert(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    element: Option<&str>,
    rows: Option<(u64, u64)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, usize, Option<&'static str>)> {
    let element: Option<Element> =
        element.map(str::parse).transpose().map_err(|error| PyValueError::new_err(format!("{error}")))?;
    let range = rows.map(|(start, end)| start..end);
    let done = run_detached(py, progress, |watch| {
        bathyal_vectors::convert(input, output, element, range, watch).map_err(Failure::from)
    })?;
    Ok((done.count, done.dim, done.element.map(Element::name)))
}

/// Finds the exact nearest neighbours of each query, `by` a number of threads (0 means all cores) and a
/// device.
#[pyfunction]
pub(crate) fn groundtruth<'py>(
    py: Python<'py>,
    base: &Bound<'_, PyAny>,
    queries: &Bound<'_, PyAny>,
    metric: &str,
    k: usize,
    by: (usize, &str),
    progress: Option<Py<PyAny>>,
) -> PyResult<Neighbors<'py>> {
    let name = self::metric(metric)?;
    let (base, metric) = vectors(base, "base")?.for_metric(name).map_err(Failure::from)?;
    let (queries, _) = vectors(queries, "queries")?.for_metric(name).map_err(Failure::from)?;
    let (threads, card) = (NonZeroUsize::new(by.0), card(by.1)?);
    let found = run_detached(py, progress, |watch| {
        exact_neighbors_on(card.as_ref(), &base, &queries, metric, k, threads, watch).map_err(Failure::from)
    })?;
    neighbors(py, &found)
}

/// Returns the overall ratio of `queries x k` ids and distances, compared with exact ones, `queries x k` or
/// more: the mean and the 99th percentile over the queries, and the number of queries without a ratio. `None`
/// under ip.
#[pyfunction]
pub(crate) fn overall_ratio(
    ids: PyReadonlyArray2<'_, u32>,
    distances: PyReadonlyArray2<'_, f32>,
    truth: PyReadonlyArray2<'_, u32>,
    true_distances: PyReadonlyArray2<'_, f32>,
    metric: &str,
) -> PyResult<Option<Ratio>> {
    let (queries, k) = ids.as_array().dim();
    let ids: Vec<u32> = ids.as_array().iter().copied().collect();
    let distances: Vec<f32> = distances.as_array().iter().copied().collect();
    let exact = IdFile::from_parts(
        truth.as_array().ncols(),
        truth.as_array().iter().copied().collect(),
        Some(true_distances.as_array().iter().copied().collect()),
    );
    let exact = exact.map_err(Failure::from)?;
    // The Hamming distance is the squared l2 distance of bits.
    let metric = match self::metric(metric)? {
        MetricName::Metric(metric) => metric,
        MetricName::Hamming => Metric::L2,
    };
    let Some(mut ratio) = OverallRatio::new(metric, &exact) else { return Ok(None) };
    ratio.add(&exact, &ids, &distances, k, queries).map_err(Failure::from)?;
    Ok(Some((ratio.mean(), ratio.p99(), ratio.left_out())))
}

/// Returns the mean recall at `k`; `None` if no query has a true neighbour. Rows of more or fewer ids are cut
/// or filled up.
#[pyfunction]
pub(crate) fn recall(
    ids: PyReadonlyArray2<'_, u32>,
    truth: PyReadonlyArray2<'_, u32>,
    true_distances: Option<PyReadonlyArray2<'_, f32>>,
    k: usize,
) -> PyResult<Option<f64>> {
    let (ids, truth) = (ids.as_array(), truth.as_array());
    let filled = |row: ArrayView1<'_, u32>| -> Vec<u32> {
        row.iter().copied().chain(std::iter::repeat(NO_ID)).take(k).collect()
    };
    let found: Vec<u32> = ids.rows().into_iter().flat_map(filled).collect();
    let distances = true_distances.map(|distances| distances.as_array().iter().copied().collect());
    let exact = IdFile::from_parts(truth.ncols(), truth.iter().copied().collect(), distances);
    let mut mean = MeanRecall::default();
    mean.add(&exact.map_err(Failure::from)?, &found, k, ids.nrows()).map_err(Failure::from)?;
    Ok(mean.mean())
}

fn neighbors<'py>(py: Python<'py>, found: &IdFile) -> PyResult<Neighbors<'py>> {
    let distances = found.all_distances().map(|d| matrix(py, d.to_vec(), found.k())).transpose()?;
    Ok((matrix(py, found.all_ids().to_vec(), found.k())?, distances))
}
