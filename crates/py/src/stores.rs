//! Indexes and collections in stores: options, copies, leftovers, removal and listings.

use crate::detached::run_detached;
use crate::errors::Failure;
use bathyal_index::{CopyOptions, PruneOptions, StoreOptions, holding};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Keys and values of the options of a store.
pub(crate) type Pairs = Vec<(String, String)>;

/// Converts the options of a store.
pub(crate) fn store_options(pairs: Pairs) -> PyResult<StoreOptions> {
    Ok(StoreOptions::new(pairs).map_err(Failure::from)?)
}

/// Copies an index between any two places; returns the report as JSON.
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
    run_detached(py, progress, |watch| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_index::copy(&source.0, &target.0, &options, watch)?)?)
    })
}

/// Removes leftovers of an index from a store; returns the report as JSON.
#[pyfunction]
pub(crate) fn prune(
    py: Python<'_>,
    index: (PathBuf, Pairs),
    kept_hours: u32,
    dry_run: bool,
) -> PyResult<String> {
    let store = store_options(index.1)?;
    let kept = Duration::from_secs(u64::from(kept_hours) * 3600);
    run_detached(py, None, |_| -> Result<String, Failure> {
        let holding = holding(&index.0, &store)?;
        Ok(serde_json::to_string(&holding.prune(&PruneOptions { kept, dry_run })?)?)
    })
}

/// Removes an index or a collection; returns what was removed as JSON.
#[pyfunction]
pub(crate) fn remove(py: Python<'_>, target: (PathBuf, Pairs)) -> PyResult<String> {
    let store = store_options(target.1)?;
    run_detached(py, None, |_| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_collection::remove(&target.0, &store)?)?)
    })
}

/// Lists the indexes and collections in a folder, a bucket or a memory node, as JSON.
#[pyfunction]
pub(crate) fn listing(py: Python<'_>, place: (PathBuf, Pairs)) -> PyResult<String> {
    let store = store_options(place.1)?;
    run_detached(py, None, |_| -> Result<String, Failure> {
        Ok(serde_json::to_string(&bathyal_collection::listing(&place.0, &store)?)?)
    })
}
