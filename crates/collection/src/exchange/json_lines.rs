//! Lines of JSON as tables.

use super::json_values::{ids_of, lists_of, values_of};
use super::kind::{bad, refused};
use super::table::ANY_VECTOR;
use crate::error::CollectionError;
use crate::schema::Schema;
use arrow_array::{ArrayRef, RecordBatch};
use serde_json::{Map, Value};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

/// Bytes of a line at most: one that is longer is of another kind of file.
const MAX_LINE: u64 = 64 << 20;

/// The number of a line, from 1, and the object in it.
type Line = (u64, Map<String, Value>);

/// Reads a JSON object from each line.
pub(super) struct LineReader {
    from: Box<dyn BufRead>,
    path: PathBuf,
    line: u64,
    bytes: u64,
    /// An object that begins the next table, and its line.
    next: Option<Line>,
}

impl LineReader {
    pub(super) fn new(from: Box<dyn BufRead>, path: &Path) -> LineReader {
        LineReader { from, path: path.to_path_buf(), line: 0, bytes: 0, next: None }
    }

    /// Bytes that were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// The next rows as a table, at most `rows`, of about `bytes` bytes of text; `None` at the end. If `same_keys`, all of them have
    /// the same keys.
    pub(super) fn next(
        &mut self,
        schema: &Schema,
        id: &str,
        rows: usize,
        bytes: usize,
        same_keys: bool,
    ) -> Result<Option<RecordBatch>, CollectionError> {
        let (mut lines, mut objects) = (Vec::new(), Vec::<Map<String, Value>>::new());
        let began = self.bytes;
        while objects.len() < rows && (self.bytes - began) < bytes as u64 {
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

    /// The next object, and its line. Empty lines are passed over.
    fn object(&mut self) -> Result<Option<Line>, CollectionError> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = (&mut self.from).take(MAX_LINE + 1).read_until(b'\n', &mut text);
            let read = read.map_err(refused(&self.path, "read the file"))? as u64;
            if read == 0 {
                return Ok(None);
            }
            (self.line, self.bytes) = (self.line + 1, self.bytes + read);
            let wrong = |reason: String| bad(&self.path, format!("line {}: {reason}", self.line));
            if read > MAX_LINE {
                return Err(wrong(format!(
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
                .map_err(|error| wrong(format!("{error}{hint}")));
        }
    }

    fn table(
        &self,
        schema: &Schema,
        id: &str,
        lines: &[u64],
        objects: &[Map<String, Value>],
    ) -> Result<RecordBatch, CollectionError> {
        let wrong = |row: usize, reason: String| bad(&self.path, format!("line {}: {reason}", lines[row]));
        let column = |name: &str| objects.iter().map(|object| object.get(name)).collect::<Vec<_>>();
        let mut columns: Vec<(String, ArrayRef)> = Vec::new();
        let ids = ids_of(schema.id_kind, &column(id))
            .map_err(|(row, reason)| wrong(row, format!("{id:?}: {reason}")))?;
        columns.push((id.to_string(), ids));
        for (row, object) in objects.iter().enumerate() {
            for name in object.keys() {
                if columns.iter().any(|(known, _)| known == name) {
                    continue;
                }
                let vector = schema.vectors.iter().any(|field| field.name == *name);
                let any = name == ANY_VECTOR && schema.vectors.len() == 1 && schema.column(name).is_err();
                let values = if vector || any {
                    lists_of(&column(name))
                } else {
                    let known = schema.column(name).map_err(|error| wrong(row, error.to_string()))?;
                    values_of(schema.columns[known].kind.data_type(), &column(name))
                };
                let values = values.map_err(|(row, reason)| wrong(row, format!("{name:?}: {reason}")))?;
                columns.push((name.clone(), values));
            }
        }
        Ok(RecordBatch::try_from_iter(columns)?)
    }
}
