//! Ids of rows: numbers or strings that the user chooses.

use crate::error::CollectionError;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, StringArray, UInt64Array};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The longest id of a collection with string ids, in bytes.
pub const MAX_ID_BYTES: usize = 1024;

/// Type of the ids of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IdKind {
    /// Numbers from 0 to 2^64 - 1.
    #[serde(rename = "u64")]
    Number,
    /// Strings of 1 to [`MAX_ID_BYTES`] bytes, compared byte by byte.
    #[serde(rename = "string")]
    Text,
}

impl IdKind {
    /// Returns the Arrow type of ids.
    pub fn data_type(self) -> DataType {
        match self {
            IdKind::Number => DataType::UInt64,
            IdKind::Text => DataType::Utf8,
        }
    }
}

/// An id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// An id of a collection with numeric ids.
    Number(u64),
    /// An id of a collection with string ids.
    Text(String),
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => number.fmt(to),
            Id::Text(text) => text.fmt(to),
        }
    }
}

/// A list of ids. Clones share it.
#[derive(Debug, Clone, PartialEq)]
pub enum Ids {
    /// Numbers; none is null.
    Numbers(UInt64Array),
    /// Strings; none is null.
    Texts(StringArray),
}

impl Ids {
    /// Returns an empty list.
    pub fn none(kind: IdKind) -> Ids {
        match kind {
            IdKind::Number => Ids::Numbers(UInt64Array::from(Vec::<u64>::new())),
            IdKind::Text => Ids::Texts(StringArray::from(Vec::<&str>::new())),
        }
    }

    /// Converts an Arrow array of integers or strings.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for nulls, and for values that are not valid ids of this kind.
    pub fn from_array(kind: IdKind, array: &dyn Array) -> Result<Ids, CollectionError> {
        let refuse = |reason: String| CollectionError::Parameter(format!("the ids: {reason}"));
        if array.null_count() > 0 {
            return Err(refuse(format!("{} of them are null", array.null_count())));
        }
        let type_fits = match kind {
            IdKind::Number => array.data_type().is_integer(),
            IdKind::Text => {
                array.data_type().is_string() || matches!(array.data_type(), DataType::Dictionary(..))
            }
        };
        if !type_fits {
            let wanted = if kind == IdKind::Number { "whole numbers (u64)" } else { "strings" };
            return Err(refuse(format!(
                "they are {}, but the ids of the collection are {wanted}",
                array.data_type()
            )));
        }
        let strict = arrow_cast::CastOptions { safe: false, ..Default::default() };
        let cast = arrow_cast::cast_with_options(array, &kind.data_type(), &strict)
            .map_err(|error| refuse(format!("{error}; ids are numbers from 0 to 2^64 - 1")))?;
        // Values of a dictionary can also be null.
        if cast.null_count() > 0 {
            return Err(refuse(format!("{} of them are null", cast.null_count())));
        }
        let ids = match kind {
            IdKind::Number => Ids::Numbers(cast.as_primitive::<UInt64Type>().clone()),
            IdKind::Text => Ids::Texts(cast.as_string::<i32>().clone()),
        };
        ids.check()?;
        Ok(ids)
    }

    /// Creates a list of ids.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an id of the other kind, an empty string or a string that is too
    /// long.
    pub fn from_ids(kind: IdKind, ids: &[Id]) -> Result<Ids, CollectionError> {
        let wrong = || {
            CollectionError::Parameter("the ids are not of the collection's kind (numbers or strings)".into())
        };
        let ids = match kind {
            IdKind::Number => {
                let number = |id: &Id| if let Id::Number(number) = id { Some(*number) } else { None };
                Ids::Numbers(ids.iter().map(number).collect::<Option<Vec<u64>>>().ok_or_else(wrong)?.into())
            }
            IdKind::Text => {
                let mut texts = Vec::with_capacity(ids.len());
                for id in ids {
                    let Id::Text(text) = id else { return Err(wrong()) };
                    texts.push(text.as_str());
                }
                Ids::Texts(texts.into())
            }
        };
        ids.check()?;
        Ok(ids)
    }

    fn check(&self) -> Result<(), CollectionError> {
        let Ids::Texts(texts) = self else { return Ok(()) };
        let bad = texts.iter().flatten().position(|text| text.is_empty() || text.len() > MAX_ID_BYTES);
        match bad {
            None => Ok(()),
            Some(at) => Err(CollectionError::Parameter(format!(
                "the ids: the id at position {at} has {} bytes; an id has 1 to {MAX_ID_BYTES}",
                texts.value(at).len()
            ))),
        }
    }

    /// Returns their type.
    pub fn kind(&self) -> IdKind {
        match self {
            Ids::Numbers(_) => IdKind::Number,
            Ids::Texts(_) => IdKind::Text,
        }
    }

    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        match self {
            Ids::Numbers(numbers) => numbers.len(),
            Ids::Texts(texts) => texts.len(),
        }
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the id at position `at`.
    ///
    /// # Panics
    /// If `at` is not below [`Ids::len`], as indexing a slice does.
    pub fn get(&self, at: usize) -> Id {
        match self {
            Ids::Numbers(numbers) => Id::Number(numbers.value(at)),
            Ids::Texts(texts) => Id::Text(texts.value(at).to_string()),
        }
    }

    /// Compares the id at position `at` with the id at position `other` of `others`. Both lists are of the
    /// same kind.
    ///
    /// # Panics
    /// If a position is not below the number of ids.
    #[inline]
    pub fn compare(&self, at: usize, others: &Ids, other: usize) -> Ordering {
        match (self, others) {
            (Ids::Numbers(one), Ids::Numbers(two)) => one.value(at).cmp(&two.value(other)),
            (Ids::Texts(one), Ids::Texts(two)) => one.value(at).as_bytes().cmp(two.value(other).as_bytes()),
            // Lists of different kinds are never compared.
            (Ids::Numbers(_), Ids::Texts(_)) => Ordering::Less,
            (Ids::Texts(_), Ids::Numbers(_)) => Ordering::Greater,
        }
    }

    /// Returns the positions in ascending order of the ids; equal ids keep their order.
    pub fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        match self {
            Ids::Numbers(numbers) => order.sort_by_key(|at| numbers.value(*at as usize)),
            Ids::Texts(texts) => {
                order.sort_by(|one, two| {
                    texts.value(*one as usize).as_bytes().cmp(texts.value(*two as usize).as_bytes())
                });
            }
        }
        order
    }

    /// Returns the ids at these positions, in their order.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`] for a position that is not below the number of ids.
    pub fn take(&self, positions: &[u32]) -> Result<Ids, CollectionError> {
        let positions = arrow_array::UInt32Array::from(positions.to_vec());
        let taken = arrow_select::take::take(self.as_array(), &positions, None)?;
        Ok(match self {
            Ids::Numbers(_) => Ids::Numbers(taken.as_primitive::<UInt64Type>().clone()),
            Ids::Texts(_) => Ids::Texts(taken.as_string::<i32>().clone()),
        })
    }

    /// Returns `count` ids from position `first`, without a copy.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn slice(&self, first: usize, count: usize) -> Ids {
        match self {
            Ids::Numbers(numbers) => Ids::Numbers(numbers.slice(first, count)),
            Ids::Texts(texts) => Ids::Texts(texts.slice(first, count)),
        }
    }

    /// Concatenates lists of ids of one `kind`.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`] if the kinds differ, or if the text is too long for one array.
    pub fn concat(kind: IdKind, all: &[Ids]) -> Result<Ids, CollectionError> {
        if all.is_empty() {
            return Ok(Ids::none(kind));
        }
        let arrays: Vec<&dyn Array> = all.iter().map(Ids::as_array).collect();
        let joined = arrow_select::concat::concat(&arrays)?;
        Ok(match kind {
            IdKind::Number => Ids::Numbers(joined.as_primitive::<UInt64Type>().clone()),
            IdKind::Text => Ids::Texts(joined.as_string::<i32>().clone()),
        })
    }

    /// Returns the ids as an Arrow array.
    pub fn as_array(&self) -> &dyn Array {
        match self {
            Ids::Numbers(numbers) => numbers,
            Ids::Texts(texts) => texts,
        }
    }

    /// Returns the ids as a shared Arrow array.
    pub fn to_array(&self) -> ArrayRef {
        match self {
            Ids::Numbers(numbers) => Arc::new(numbers.clone()),
            Ids::Texts(texts) => Arc::new(texts.clone()),
        }
    }

    /// Returns the approximate bytes of memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Ids::Numbers(numbers) => 8 * numbers.len() as u64,
            Ids::Texts(texts) => {
                let offsets = texts.value_offsets();
                let text = offsets.last().zip(offsets.first()).map_or(0, |(end, begin)| end - begin);
                text as u64 + 4 * texts.len() as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{DictionaryArray, Int32Array};

    #[test]
    fn arrays_of_similar_types_are_converted_and_invalid_ids_are_refused() {
        let numbers = Ids::from_array(IdKind::Number, &Int32Array::from(vec![7, 3])).unwrap();
        assert_eq!(numbers, Ids::Numbers(vec![7, 3].into()));
        for bad in [Int32Array::from(vec![-1]), Int32Array::from(vec![Some(1), None])] {
            assert!(Ids::from_array(IdKind::Number, &bad).is_err(), "{bad:?}");
        }
        assert!(Ids::from_array(IdKind::Text, &Int32Array::from(vec![1])).is_err());
        let values = Arc::new(StringArray::from(vec![Some("a"), None]));
        let dictionary = DictionaryArray::new(Int32Array::from(vec![0, 1]), values);
        assert!(Ids::from_array(IdKind::Text, &dictionary).is_err());
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for bad in ["", &long] {
            assert!(Ids::from_array(IdKind::Text, &StringArray::from(vec!["a", bad])).is_err());
        }
    }

    #[test]
    fn ids_are_ordered_by_bytes_and_equal_ids_keep_their_order() {
        let texts = Ids::Texts(vec!["b", "a\u{e9}", "a", "b", "aa"].into());
        assert_eq!(texts.order(), [2, 4, 1, 0, 3]);
        assert_eq!(texts.take(&[2, 0]).unwrap(), Ids::Texts(vec!["a", "b"].into()));
        assert_eq!(texts.slice(3, 1).get(0), Id::Text("b".into()));
        assert_eq!(texts.compare(0, &texts, 3), Ordering::Equal);
        let numbers = Ids::Numbers(vec![u64::MAX, 0, 5].into());
        assert_eq!(numbers.order(), [1, 2, 0]);
        assert_eq!(Ids::concat(IdKind::Number, &[numbers.clone(), numbers]).unwrap().len(), 6);
    }
}
