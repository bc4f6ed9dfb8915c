//! Parts of requests and answers that several operations have.

use crate::failure::Refusal;
use bathyal_collection::{Filter, Id, IdKind, Ids, Schema};
use bathyal_console::Kind;
use bathyal_index::{Effort, NamedEfforts};
use bathyal_kernels::Element;
use bathyal_vectors::{VectorFile, encode_row};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The most neighbours that the answers to one request have together.
const MAX_NEIGHBORS: usize = 1_000_000;

/// The most bytes of vectors that an answer has.
const MAX_VECTOR_BYTES: usize = 64 << 20;

/// The error of every operation, as `Refusal` writes it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorAnswer {
    error: ErrorContent,
}

/// The content of an error.
#[derive(Serialize, ToSchema)]
struct ErrorContent {
    /// A name that does not change between versions, such as `not_found`.
    kind: String,
    /// The fault, its place, and what to do.
    message: String,
    /// Of a filter in words: the number of characters before the fault.
    #[schema(required = false)]
    position: Option<usize>,
}

/// A filter, as text (`"year >= 2020 and lang in ('de', 'en')"`) or as JSON (`{"year": {"$gte": 2020}}`).
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(value_type = Value)]
pub(crate) struct GivenFilter(Value);

impl GivenFilter {
    pub(crate) fn read(&self) -> Result<Filter, Refusal> {
        Ok(match &self.0 {
            Value::String(text) => Filter::parse(text)?,
            other => Filter::from_json(other)?,
        })
    }

    /// Returns `refusal` of work with the filter `given`, with the position of the fault if the filter is
    /// written in words and does not fit `schema`.
    pub(crate) fn place(given: Option<&GivenFilter>, schema: &Schema, refusal: Refusal) -> Refusal {
        let text = given.and_then(|filter| filter.0.as_str());
        match text.map(|text| Filter::check(text, schema)) {
            Some(Err(error)) if refusal.kind == Kind::InvalidArgument => error.into(),
            _ => refusal,
        }
    }
}

/// Reads a filter, if there is one.
pub(crate) fn filter_of(given: Option<&GivenFilter>) -> Result<Option<Filter>, Refusal> {
    given.map(GivenFilter::read).transpose()
}

/// An id: a whole number or a string, as the collection has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum GivenId {
    /// A number from 0 to 2^64 - 1.
    Number(u64),
    /// A string of 1 to 1,024 bytes.
    Text(String),
}

impl GivenId {
    pub(crate) fn id(&self) -> Id {
        match self {
            GivenId::Number(number) => Id::Number(*number),
            GivenId::Text(text) => Id::Text(text.clone()),
        }
    }

    pub(crate) fn of(id: Id) -> GivenId {
        match id {
            Id::Number(number) => GivenId::Number(number),
            Id::Text(text) => GivenId::Text(text),
        }
    }
}

/// Converts ids to those of a collection.
pub(crate) fn ids_of(kind: IdKind, given: &[GivenId]) -> Result<Ids, Refusal> {
    let ids: Vec<Id> = given.iter().map(GivenId::id).collect();
    Ok(Ids::from_ids(kind, &ids)?)
}

/// Converts efforts by name to one.
pub(crate) fn effort_of(named: NamedEfforts) -> Result<Effort, Refusal> {
    Ok(named.effort()?)
}

/// Returns the queries of a request that has either one vector or several.
pub(crate) fn vectors_of(
    one: Option<Vec<f32>>,
    several: Option<Vec<Vec<f32>>>,
) -> Result<Option<Vec<Vec<f32>>>, Refusal> {
    match (one, several) {
        (None, None) => Ok(None),
        (Some(one), None) => Ok(Some(vec![one])),
        (None, Some(several)) if several.is_empty() => {
            Err(Refusal::invalid("`vectors` is empty; send at least one query"))
        }
        (None, several) => Ok(several),
        (Some(_), Some(_)) => Err(Refusal::invalid("send either `vector` or `vectors`, not both")),
    }
}

/// Converts queries to vectors of an element and a dimension.
pub(crate) fn queries_of(vectors: &[Vec<f32>], element: Element, dim: usize) -> Result<VectorFile, Refusal> {
    let mut rows = Vec::with_capacity(vectors.len() * element.row_bytes(dim));
    for (at, vector) in vectors.iter().enumerate() {
        let wrong = |reason: String| Refusal::invalid(format!("query {at}: {reason}"));
        // Bits may be given as bytes, eight in each, as answers have them.
        let is_packed = element == Element::B1 && vector.len() == element.row_bytes(dim) && dim > 1;
        let stored_as = if is_packed { Element::U8 } else { element };
        if !is_packed && vector.len() != dim {
            return Err(wrong(format!("has {} components; the vectors have {dim}", vector.len())));
        }
        encode_row(stored_as, vector, &mut rows).map_err(|(component, advice)| {
            wrong(format!("{element} cannot hold the component {}: {advice}", vector[component]))
        })?;
    }
    VectorFile::from_rows(element, dim, rows).map_err(|error| Refusal::invalid(error.to_string()))
}

/// Refuses a search whose answers would be too large.
pub(crate) fn check_size(queries: usize, k: usize) -> Result<(), Refusal> {
    match queries.checked_mul(k) {
        Some(neighbors) if neighbors <= MAX_NEIGHBORS => Ok(()),
        _ => Err(Refusal::invalid(format!(
            "{queries} queries with {k} neighbours each are too many for one request: all together may have \
             {MAX_NEIGHBORS}; send fewer queries, or ask for fewer neighbours"
        ))),
    }
}

/// Refuses an answer with too many vectors.
pub(crate) fn check_vector_bytes(rows: usize, row_bytes: usize) -> Result<(), Refusal> {
    match rows.checked_mul(row_bytes) {
        Some(bytes) if bytes <= MAX_VECTOR_BYTES => Ok(()),
        _ => Err(Refusal::invalid(format!(
            "{rows} vectors of {row_bytes} bytes are too many for one answer, which may have \
             {MAX_VECTOR_BYTES} bytes of vectors; ask for fewer rows at once"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_converted_or_refused_by_their_number() {
        let bytes = |vectors: &[Vec<f32>], element, dim| {
            queries_of(vectors, element, dim).map(|queries| queries.row(0).to_vec()).map_err(|e| e.message)
        };
        assert_eq!(bytes(&[vec![1.0, 255.0]], Element::U8, 2).unwrap(), [1, 255]);
        assert_eq!(bytes(&[vec![255.0, 1.0]], Element::B1, 16).unwrap(), [255, 1]);
        assert_eq!(bytes(&[vec![1.0; 8]], Element::B1, 8).unwrap().len(), 1);
        let wrong = bytes(&[vec![1.0, 2.0], vec![1.0]], Element::F32, 2).unwrap_err();
        assert!(wrong.contains("query 1: has 1 components; the vectors have 2"), "{wrong}");
        let wrong = bytes(&[vec![1.0, 256.0]], Element::U8, 2).unwrap_err();
        assert!(wrong.contains("cannot hold the component 256"), "{wrong}");
        assert!(bytes(&[vec![f32::NAN, 1.0]], Element::F32, 2).is_ok(), "the search refuses it");
    }

    #[test]
    fn filters_and_ids_have_two_forms() {
        let read = |json: &str| serde_json::from_str::<GivenFilter>(json).unwrap().read().unwrap();
        assert_eq!(read("\"year >= 2020\""), read("{\"year\": {\"$gte\": 2020}}"));
        let ids: Vec<GivenId> = serde_json::from_str("[18446744073709551615, \"a\"]").unwrap();
        assert_eq!(ids, [GivenId::Number(u64::MAX), GivenId::Text("a".into())]);
        assert!(ids_of(IdKind::Number, &ids).is_err());
        assert!(serde_json::from_str::<GivenId>("-1").is_err());
    }

    #[test]
    fn answers_that_are_too_large_are_refused() {
        check_size(1000, 1000).unwrap();
        assert!(check_size(1001, 1000).is_err() && check_size(usize::MAX, 2).is_err());
        check_vector_bytes(16 << 10, 4096).unwrap();
        assert!(check_vector_bytes(16 << 10, 4097).is_err() && check_vector_bytes(usize::MAX, 2).is_err());
    }
}
