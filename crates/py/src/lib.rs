//! The Python module `bathyal._bathyal`: converts arguments, releases the interpreter's lock, maps errors.
//!
//! Everything here is private to the Python package in `python/bathyal`, which checks arguments, names them and
//! documents them. What a family is told has its defaults in the family, and nowhere else.

mod answers;
mod arrays;
mod attend;
mod awaited;
mod collection;
mod command;
mod errors;
mod files;
mod index;
mod searches;
mod snapshot;
mod stores;
mod tables;

use pyo3::prelude::*;

#[pymodule]
fn _bathyal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Loads what arrays need of numpy now: at the first call a Ctrl-C could break the loading, which panics.
    drop(numpy::PyArray1::<f32>::zeros(py, 0, false));
    module.add("Error", py.get_type::<errors::Error>())?;
    module.add("DamagedIndexError", py.get_type::<errors::DamagedIndexError>())?;
    module.add("DuplicateIdError", py.get_type::<errors::DuplicateIdError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<index::IndexHandle>()?;
    module.add_class::<awaited::Awaited>()?;
    module.add_class::<answers::Costs>()?;
    module.add_class::<collection::CollectionHandle>()?;
    module.add_class::<snapshot::SnapshotHandle>()?;
    module.add_class::<snapshot::ScanHandle>()?;
    module.add_class::<snapshot::Cancel>()?;
    module.add_class::<tables::Columns>()?;
    module.add_class::<tables::BatchReader>()?;
    module.add_function(wrap_pyfunction!(index::build, module)?)?;
    module.add_function(wrap_pyfunction!(index::compact, module)?)?;
    module.add_function(wrap_pyfunction!(index::list_families, module)?)?;
    module.add_function(wrap_pyfunction!(index::verify, module)?)?;
    module.add_function(wrap_pyfunction!(index::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(index::convert_layout, module)?)?;
    module.add_function(wrap_pyfunction!(index::convert_stripes, module)?)?;
    module.add_function(wrap_pyfunction!(stores::copy, module)?)?;
    module.add_function(wrap_pyfunction!(stores::prune, module)?)?;
    module.add_function(wrap_pyfunction!(stores::listing, module)?)?;
    module.add_function(wrap_pyfunction!(searches::range_search, module)?)?;
    module.add_function(wrap_pyfunction!(searches::search_many, module)?)?;
    module.add_function(wrap_pyfunction!(collection::search_collections, module)?)?;
    module.add_function(wrap_pyfunction!(searches::search_file, module)?)?;
    module.add_function(wrap_pyfunction!(searches::warm, module)?)?;
    module.add_function(wrap_pyfunction!(searches::explain, module)?)?;
    module.add_function(wrap_pyfunction!(searches::stats, module)?)?;
    module.add_function(wrap_pyfunction!(files::describe_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(files::read_ids, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_ids, module)?)?;
    module.add_function(wrap_pyfunction!(files::convert, module)?)?;
    module.add_function(wrap_pyfunction!(files::groundtruth, module)?)?;
    module.add_function(wrap_pyfunction!(files::overall_ratio, module)?)?;
    module.add_function(wrap_pyfunction!(files::recall, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    module.add_function(wrap_pyfunction!(errors::told_in_python, module)?)?;
    Ok(())
}
