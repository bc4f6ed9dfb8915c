//! Files of vectors and of ids: readers, writers, and conversion between them.
//!
//! | extension | holds | layout |
//! |---|---|---|
//! | `.fbin` `.f16bin` `.bf16bin` `.u8bin` `.i8bin` | f32, f16, bf16, u8, i8 vectors | bin |
//! | `.b1bin` | vectors of bits | bin |
//! | `.fvecs` `.bvecs` | f32, u8 vectors | vecs: every row is i32 dim, then dim elements |
//! | `.npy` | f32, f16, u8, i8 vectors; others are converted | NumPy |
//! | `.ibin` | ids, and optionally distances | neighbours |
//! | `.rbin` | results of range searches (written only) | ranges |
//! | `.npy` | ids (read only) | NumPy |
//! | `.ivecs` | ids | every row is i32 k, then k i32 ids; -1 is a missing id |
//!
//! All numbers are little-endian. The layouts:
//!
//! * bin (big-ann-benchmarks): u32 count, u32 dim, then count x dim elements. For bits, dim is a multiple of
//!   8 and the first bit is the highest of its byte (`numpy.packbits`).
//! * NumPy: versions 1 to 3, elements `<f4` `<f2` `|u1` `|i1`, two-dimensional, C order. Other plain numbers
//!   and
//!   orders are read into memory ([`VectorFile::open_converted`]).
//! * neighbours: u32 queries, u32 k, queries x k u32 ids, then (optional) queries x k f32 distances. The
//!   largest id is a missing id.
//! * ranges: u32 queries, u32 total, queries x u32 counts, total x u32 ids, total x f32 distances.
//!
//! Vector files are mapped, or read block by block where memory is limited ([`RowReader`]), so the disk alone
//! bounds their size. Each header is checked against the length of its file before it is used.

mod buffer;
mod check;
mod convert;
mod error;
mod file;
mod format;
pub mod groundtruth;
mod ids;
mod ids_writer;
mod npy;
mod npy_numbers;
pub mod progress;
mod ranges;
mod rows;
mod writer;

pub use buffer::VectorBuffer;
pub use convert::{ConversionSummary, convert, encode_row};
pub use error::VectorError;
pub use file::{Access, ContentSummary, LargestValue, VectorFile};
pub use format::{FileFormat, MAX_DIM};
pub use ids::{IdFile, IdFormat, NO_ID};
pub use ids_writer::IdWriter;
pub use ranges::{check_range_path, write_ranges};
pub use rows::{RowBlock, RowReader};
pub use writer::{AtomicFile, VectorWriter, bin_header_bytes, write_ids};
