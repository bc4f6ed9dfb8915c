//! Conversion of ids and columns of metadata between Python and the library: Arrow data through the Arrow C
//! interface, arrays of numpy, and lists.

mod capsule;
mod columns;
mod from_python;
mod numbers;
mod to_python;
mod values;

pub(crate) use columns::{BatchReader, Columns};
pub(crate) use from_python::{ids, metadata};
pub(crate) use to_python::ids as ids_to_python;
