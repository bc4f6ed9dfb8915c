//! Indexes in object stores: options, copies between places, and what is left over.

use crate::attend::attend;
use crate::errors::Failure;
use bathyal_index::{CopyOptions, PruneOptions, StoreOptions, holding};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Keys and values of the options of a store.
pub(crate) type Pairs = Vec<(String, String)>;

/// How a store is reached.
pub(crate) fn store_options(pairs: Pairs) -> PyResult<StoreOptions> {
    Ok(StoreOptions::new(pairs).map_err(Failure::from)?)
}

/// Copies an index from any place to any other; returns the report as JSON.
#[pyfunction]
#[pyo3(signature = (source, target, overwrite, progress))]
pub(crate) fn copy(
    py: Python<'_>,
    source: (PathBuf, Pairs),
    target: (PathBuf, Pairs),
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let options = CopyOptions { from: store_options(source.1)?, to: store_options(target.1)?, overwrite };
    attend(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::copy(&source.0, &target.0, &options, watch)?)?)
    })
}

/// Removes from a store what of an index is left over; returns the report as JSON.
#[pyfunction]
pub(crate) fn prune(
    py: Python<'_>,
    index: (PathBuf, Pairs),
    kept_hours: u32,
    dry_run: bool,
) -> PyResult<String> {
    let store = store_options(index.1)?;
    let kept = Duration::from_secs(u64::from(kept_hours) * 3600);
    attend(py, None, |_| -> Result<String, Failure> {
        let holding = holding(&index.0, &store)?;
        Ok(serde_json::to_string(&holding.prune(&PruneOptions { kept, dry_run })?)?)
    })
}

/// The indexes and collections in a folder, a bucket or a memory node, as JSON.
#[pyfunction]
pub(crate) fn listing(py: Python<'_>, place: (PathBuf, Pairs)) -> PyResult<String> {
    let store = store_options(place.1)?;
    attend(py, None, |_| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_collection::listing(&place.0, &store)?)?)
    })
}
