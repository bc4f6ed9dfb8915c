//! Reads lines of JSON as tables.

use super::json_values::{id_column, metadata_column, vector_column};
use super::kind::{file_error, io_error};
use super::table::ANY_VECTOR;
use crate::error::CollectionError;
use crate::schema::Schema;
use arrow_array::{ArrayRef, RecordBatch};
use serde_json::{Map, Value};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// The longest line in bytes. A longer one means that the file is of another kind.
const MAX_LINE: u64 = 64 << 20;

/// The number of a line, from 1, and its object.
type Line = (u64, Map<String, Value>);

/// Reads a JSON object from each line.
pub(super) struct LineReader {
    input: Box<dyn BufRead>,
    path: PathBuf,
    line: u64,
    bytes: u64,
    /// An object that was read ahead and begins the next table.
    next: Option<Line>,
}

impl LineReader {
    pub(super) fn new(input: Box<dyn BufRead>, path: &Path) -> LineReader {
        LineReader { input, path: path.to_path_buf(), line: 0, bytes: 0, next: None }
    }

    /// Returns the number of bytes read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Returns the next rows as a table: at most `rows`, of about `bytes` bytes of text; `None` at the end.
    /// If `same_keys` is true, all rows have the same keys.
    pub(super) fn next(
        &mut self,
        schema: &Schema,
        id: &str,
        rows: usize,
        bytes: usize,
        same_keys: bool,
    ) -> Result<Option<RecordBatch>, CollectionError> {
        let (mut lines, mut objects) = (Vec::new(), Vec::<Map<String, Value>>::new());
        let start = self.bytes;
        while objects.len() < rows && (self.bytes - start) < bytes as u64 {
            let Some((line, object)) = self.object()? else { break };
            if same_keys && objects.first().is_some_and(|first| !first.keys().eq(object.keys())) {
                self.next = Some((line, object));
                break;
            }
            lines.push(line);
            objects.push(object);
        }
        if objects.is_empty() {
            return Ok(None);
        }
        self.table(schema, id, &lines, &objects).map(Some)
    }

    /// Returns the next object with its line number. Empty lines are skipped.
    fn object(&mut self) -> Result<Option<Line>, CollectionError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = (&mut self.input).take(MAX_LINE + 1).read_until(b'\n', &mut text);
            let read = read.map_err(io_error(&self.path, "read the file"))? as u64;
            if read == 0 {
                return Ok(None);
            }
            (self.line, self.bytes) = (self.line + 1, self.bytes + read);
            let line_error = |reason: String| file_error(&self.path, format!("line {}: {reason}", self.line));
            if read > MAX_LINE {
                return Err(line_error(format!(
                    "is longer than {MAX_LINE} bytes; every row is an object on a line of its own"
                )));
            }
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let object = serde_json::from_slice::<Map<String, Value>>(&text);
            let hint =
                "; every row is an object on a line of its own, such as {\"id\": 1, \"vector\": [0.5, 1]}";
            return object
                .map(|object| Some((self.line, object)))
                .map_err(|error| line_error(format!("{error}{hint}")));
        }
    }

    fn table(
        &self,
        schema: &Schema,
        id: &str,
        lines: &[u64],
        objects: &[Map<String, Value>],
    ) -> Result<RecordBatch, CollectionError> {
        table_of_objects(schema, id, objects, |row, reason| {
            file_error(&self.path, format!("line {}: {reason}", lines[row]))
        })
    }
}

/// Converts JSON objects to a table. `refuse` makes the error for a row, by its position and the reason.
pub(super) fn table_of_objects(
    schema: &Schema,
    id: &str,
    objects: &[Map<String, Value>],
    refuse: impl Fn(usize, String) -> CollectionError,
) -> Result<RecordBatch, CollectionError> {
    let column = |name: &str| objects.iter().map(|object| object.get(name)).collect::<Vec<_>>();
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    let ids = id_column(schema.id_kind, &column(id))
        .map_err(|(row, reason)| refuse(row, format!("{id:?}: {reason}")))?;
    columns.push((id.to_string(), ids));
    for (row, object) in objects.iter().enumerate() {
        for name in object.keys() {
            if columns.iter().any(|(known, _)| known == name) {
                continue;
            }
            let is_vector = schema.vectors.iter().any(|field| field.name == *name);
            let is_any_vector =
                name == ANY_VECTOR && schema.vectors.len() == 1 && schema.column(name).is_err();
            let values = if is_vector || is_any_vector {
                vector_column(&column(name))
            } else {
                let number = schema.column(name).map_err(|error| refuse(row, error.to_string()))?;
                metadata_column(schema.columns[number].kind.data_type(), &column(name))
            };
            let values = values.map_err(|(row, reason)| refuse(row, format!("{name:?}: {reason}")))?;
            columns.push((name.clone(), values));
        }
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}
