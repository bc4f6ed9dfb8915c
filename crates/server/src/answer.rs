//! Answers: JSON, or rows as Arrow.

use crate::body::{ARROW, JSON};
use crate::failure::Refusal;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bathyal_collection::CollectionError;
use bathyal_collection::Ids;
use bathyal_collection::exchange::{ArrowRows, JsonRows};
use bathyal_console::Kind;
use bathyal_index::StoredVectors;
use serde::Serialize;

/// Returns a value as JSON text.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Refusal> {
    serde_json::to_string(value)
        .map_err(|error| Refusal::new(Kind::Internal, format!("an answer as JSON: {error}")))
}

/// Returns an answer of JSON text.
pub(crate) fn json_text(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], text).into_response()
}

/// Returns a value as an answer.
pub(crate) fn json(value: &impl Serialize) -> Result<Response, Refusal> {
    Ok(json_text(StatusCode::OK, to_json(value)?))
}

/// Returns a value as JSON text for a header, which takes no other characters than those of ASCII.
pub(crate) fn to_header_json(value: &impl Serialize) -> Result<String, Refusal> {
    let text = to_json(value)?;
    if text.is_ascii() {
        return Ok(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
            continue;
        }
        // Only strings have other characters, and JSON writes them as UTF-16.
        for unit in character.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Ok(escaped)
}

/// Returns rows as an answer of Arrow. What JSON has besides the rows is in headers.
pub(crate) fn arrow(
    rows: ArrowRows,
    others: impl IntoIterator<Item = (HeaderName, String)>,
) -> Result<Response, Refusal> {
    let mut response = ([(header::CONTENT_TYPE, ARROW)], rows.into_stream()?).into_response();
    for (name, value) in others {
        let value = value.parse().map_err(|error| {
            Refusal::new(Kind::Internal, format!("the header {name} of the answer: {error}"))
        })?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Rows of a collection, with the vectors of named fields.
pub(crate) struct AnswerRows {
    pub(crate) ids: Ids,
    pub(crate) columns: arrow_array::RecordBatch,
    pub(crate) vectors: Vec<(String, StoredVectors)>,
}

impl AnswerRows {
    pub(crate) fn into_json_rows(self) -> Result<JsonRows, CollectionError> {
        JsonRows::new(self.ids, &self.columns, self.vectors)
    }

    pub(crate) fn into_arrow_rows(self) -> Result<ArrowRows, CollectionError> {
        ArrowRows::new(&self.ids, &self.columns, self.vectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_headers_is_json_of_ascii() {
        let text = to_header_json(&["plain", "größer 😀 \u{7f}"]).unwrap();
        assert!(text.is_ascii(), "{text}");
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, ["plain", "größer 😀 \u{7f}"]);
    }
}
