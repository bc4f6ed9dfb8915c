//! Files of vectors and of ids: readers, writers, and conversion between them.
//!
//! | extension | holds | layout (all little-endian) |
//! |---|---|---|
//! | `.fbin` `.f16bin` `.u8bin` `.i8bin` | f32, f16, u8, i8 vectors | u32 count, u32 dim, then count x dim elements (big-ann-benchmarks) |
//! | `.bf16bin` | bf16 vectors | the same |
//! | `.b1bin` | vectors of bits | the same; dim counts bits, a multiple of 8, and the first is the highest bit of its byte (`numpy.packbits`) |
//! | `.fvecs` `.bvecs` | f32, u8 vectors | every row: i32 dim, then dim elements |
//! | `.npy` | f32, f16, u8, i8 vectors | NumPy versions 1 to 3, `<f4` `<f2` `\|u1` `\|i1`, two-dimensional, C order |
//! | `.ibin` | ids, and distances | u32 queries, u32 k, queries x k u32 ids, then (optional) queries x k f32 distances; the largest id is a missing one |
//! | `.rbin` | ids and distances of ranges (only written) | u32 queries, u32 total, queries x u32 counts, total x u32 ids, total x f32 distances |
//! | `.ivecs` | ids | every row: i32 k, then k i32 ids; -1 is a missing one |
//!
//! Vector files are mapped, or read block by block where memory is limited ([`RowReader`]), so their size is bounded by the
//! disk. What a header says
//! is checked against the length of the file before anything is believed.

mod check;
mod convert;
mod error;
mod file;
mod format;
pub mod groundtruth;
mod ids;
mod ids_writer;
mod npy;
pub mod progress;
mod ranges;
mod room;
mod rows;
mod writer;

pub use convert::{Converted, convert, encode_row};
pub use error::VectorError;
pub use file::{Access, Content, Largest, VectorFile};
pub use format::{FileFormat, MAX_DIM};
pub use ids::{IdFile, IdFormat, NO_ID};
pub use ids_writer::IdWriter;
pub use ranges::{check_range_path, write_ranges};
pub use room::VectorRoom;
pub use rows::{RowBlock, RowReader};
pub use writer::{AtomicFile, VectorWriter, bin_header_bytes, write_ids};
