//! The Python module `bathyal._bathyal`: converts arguments, releases the GIL (the interpreter's lock), maps
//! errors.
//!
//! The module is private to the Python package in `python/bathyal`, which names, checks and documents all
//! arguments. Options of a family have their defaults only in the family.

mod advice;
mod answers;
mod arrays;
mod awaited;
mod building;
mod collection;
mod command;
mod detached;
mod errors;
mod files;
mod index;
mod searches;
mod served;
mod snapshot;
mod stores;
mod tables;

use pyo3::prelude::*;

#[pymodule]
fn _bathyal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Load the C API of numpy now: during the first call, Ctrl-C could interrupt the loading, which then
    // panics.
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
    module.add_function(wrap_pyfunction!(advice::advise, module)?)?;
    module.add_function(wrap_pyfunction!(advice::advice_page, module)?)?;
    module.add_function(wrap_pyfunction!(advice::advice_plans, module)?)?;
    module.add_function(wrap_pyfunction!(advice::check_plan, module)?)?;
    module.add_function(wrap_pyfunction!(advice::probe, module)?)?;
    module.add_function(wrap_pyfunction!(building::build, module)?)?;
    module.add_function(wrap_pyfunction!(building::plan, module)?)?;
    module.add_function(wrap_pyfunction!(index::compact, module)?)?;
    module.add_function(wrap_pyfunction!(index::list_families, module)?)?;
    module.add_function(wrap_pyfunction!(index::verify, module)?)?;
    module.add_function(wrap_pyfunction!(index::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(index::convert_layout, module)?)?;
    module.add_function(wrap_pyfunction!(index::convert_stripes, module)?)?;
    module.add_function(wrap_pyfunction!(stores::copy, module)?)?;
    module.add_function(wrap_pyfunction!(stores::prune, module)?)?;
    module.add_function(wrap_pyfunction!(stores::remove, module)?)?;
    module.add_function(wrap_pyfunction!(stores::listing, module)?)?;
    module.add_function(wrap_pyfunction!(searches::range_search, module)?)?;
    module.add_function(wrap_pyfunction!(searches::search_many, module)?)?;
    module.add_function(wrap_pyfunction!(collection::search_collections, module)?)?;
    module.add_function(wrap_pyfunction!(searches::search_file, module)?)?;
    module.add_function(wrap_pyfunction!(searches::warm, module)?)?;
    module.add_function(wrap_pyfunction!(searches::explain, module)?)?;
    module.add_function(wrap_pyfunction!(searches::explain_batch, module)?)?;
    module.add_function(wrap_pyfunction!(searches::stats, module)?)?;
    module.add_function(wrap_pyfunction!(served::rows_to_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(served::columns_to_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(served::ids_to_json, module)?)?;
    module.add_function(wrap_pyfunction!(served::queries_to_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(served::arrow_to_found, module)?)?;
    module.add_function(wrap_pyfunction!(served::arrow_to_rows, module)?)?;
    module.add_function(wrap_pyfunction!(files::describe_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(files::read_ids, module)?)?;
    module.add_function(wrap_pyfunction!(files::write_ids, module)?)?;
    module.add_function(wrap_pyfunction!(files::convert, module)?)?;
    module.add_function(wrap_pyfunction!(files::groundtruth, module)?)?;
    module.add_function(wrap_pyfunction!(files::overall_ratio, module)?)?;
    module.add_function(wrap_pyfunction!(files::recall, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    module.add_function(wrap_pyfunction!(errors::message_in_python, module)?)?;
    Ok(())
}
