//! Import and export of rows. Files are streamed: memory holds a few megabytes of a file of any size.
//!
//! | ending of the name | format | ids | vectors |
//! |---|---|---|---|
//! | `.parquet` `.pq` | Parquet, of any codec | a column | columns of lists of numbers |
//! | `.arrow` `.feather` `.ipc` `.arrows` | Arrow IPC file or stream | a column | columns of number lists |
//! | `.jsonl` `.ndjson` | a JSON object on each line | a key | keys with arrays of numbers |
//! | those of [`FileFormat`](bathyal_vectors::FileFormat) | vectors | row numbers, or a file of ids | all |
//!
//! [`import`] reads the rows that [`export`] wrote, and [`schema_of_file`] reads their schema.

mod arrow;
mod export;
mod guess;
mod id_file;
mod import;
mod json_lines;
mod json_rows;
mod json_values;
mod kind;
mod row_tables;
mod sink;
mod source;
mod table;
mod vectors;

pub use export::{ExportOptions, ExportReport, export};
pub use guess::{GuessOptions, schema_of_file};
pub use id_file::read_ids;
pub use import::{ImportMode, ImportOptions, ImportReport, import};
pub use json_rows::{JsonRow, JsonRows};
pub use json_values::times_of_texts;
pub use row_tables::{ArrowRows, ReadRows, RowTables};

/// Key of a file's metadata under which an export stores the schema of the collection.
const SCHEMA_KEY: &str = "bathyal.collection.schema";
