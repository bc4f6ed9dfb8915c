//! Rows from files and to files, as a stream: whatever the size of a file, memory holds a few megabytes of it.
//!
//! | ending of the name | what it is | ids | vectors |
//! |---|---|---|---|
//! | `.parquet` `.pq` | Parquet, of any codec | a column | columns of lists of numbers |
//! | `.arrow` `.feather` `.ipc` `.arrows` | Arrow IPC, as a file or a stream | a column | columns of lists of numbers |
//! | `.jsonl` `.ndjson` | a JSON object on each line | a key | keys with arrays of numbers |
//! | those of [`FileFormat`](bathyal_vectors::FileFormat) | vectors alone | row numbers, or a file of ids | all |
//!
//! What [`export`] writes, [`import`] reads as the same rows, and [`schema_of_file`] as the same schema.

mod arrow;
mod export;
mod guess;
mod id_file;
mod import;
mod json_lines;
mod json_rows;
mod json_values;
mod kind;
mod sink;
mod source;
mod table;
mod vectors;

pub use export::{ExportOptions, Exported, export};
pub use guess::{GuessOptions, schema_of_file};
pub use id_file::read_ids;
pub use import::{ImportOptions, Imported, Importing, import};
pub use json_rows::{JsonRow, JsonRows};

/// The key of the metadata of a file under which an export puts the schema of the collection.
const SCHEMA_KEY: &str = "bathyal.collection.schema";
