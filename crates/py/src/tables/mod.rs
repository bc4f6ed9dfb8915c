//! Ids and columns of metadata between Python and the library: Arrow data of any library through the Arrow C interface, arrays of
//! numpy, and lists.

mod capsule;
mod columns;
mod given;
mod numbers;
mod told;
mod values;

pub(crate) use columns::{BatchReader, Columns};
pub(crate) use given::{ids, metadata};
pub(crate) use told::ids as ids_to_python;
