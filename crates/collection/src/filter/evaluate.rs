//! Evaluates filters over columns.

use super::cuts::Cuts;
use super::domain::{Domain, Values, after_prefix, float32, float64, rank32, rank64};
use super::json_key::{KeyValues, value_at};
use super::normal::{ListTest, Normal, Source, ValueSet};
use crate::error::CollectionError;
use crate::schema::{ID_COLUMN, Schema};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, RecordBatch, Scalar, StringArray,
};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType, TimeUnit};
use arrow_string::like;
use serde_json::Value;
use std::collections::HashSet;

/// A filter that is ready to be evaluated.
#[derive(Debug)]
pub(super) enum FilterPlan {
    Constant(bool),
    Single(Column, Matcher, UnorderedMatches),
    List(Column, ListPlan),
    All(Vec<FilterPlan>),
    Any(Vec<FilterPlan>),
}

/// A column of a batch.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    data_type: DataType,
    /// The path of a key, in a column of JSON.
    key: Option<String>,
}

/// For values outside the order: whether they match.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnorderedMatches {
    nan: bool,
    null: bool,
}

#[derive(Debug)]
pub(super) enum ListPlan {
    Null,
    NotNull,
    Has(Matcher),
    Lacks(Matcher),
}

/// Tests whether values are in a set.
#[derive(Debug)]
pub(super) enum Matcher {
    Numbers(Cuts<u64>),
    /// Values in one or a few ranges.
    Text(Cuts<String>),
    /// These strings, or all other strings.
    Strings {
        strings: HashSet<String>,
        within: bool,
    },
    /// Values of a key of JSON.
    Key(KeyValues),
}

impl FilterPlan {
    /// Creates the plan of a normal form for the columns of `schema`.
    pub(super) fn new(normal: Normal, schema: &Schema) -> FilterPlan {
        let plans =
            |parts: Vec<Normal>| parts.into_iter().map(|part| FilterPlan::new(part, schema)).collect();
        match normal {
            Normal::Constant(value) => FilterPlan::Constant(value),
            Normal::All(parts) => FilterPlan::All(plans(parts)),
            Normal::Any(parts) => FilterPlan::Any(plans(parts)),
            Normal::Single(source, ValueSet { values, nan, null }) => {
                let unordered = UnorderedMatches { nan: nan == Some(true), null: null == Some(true) };
                FilterPlan::Single(Column::new(source, schema), Matcher::new(values), unordered)
            }
            Normal::List(source, test) => {
                let test = match test {
                    ListTest::Null => ListPlan::Null,
                    ListTest::NotNull => ListPlan::NotNull,
                    ListTest::Has(values) => ListPlan::Has(Matcher::new(values)),
                    ListTest::Lacks(values) => ListPlan::Lacks(Matcher::new(values)),
                };
                FilterPlan::List(Column::new(source, schema), test)
            }
        }
    }

    /// Returns one bit for each row of `batch`: true if it matches.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] if a column is missing or has another type.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanBuffer, CollectionError> {
        let rows = batch.num_rows();
        match self {
            FilterPlan::Constant(true) => Ok(BooleanBuffer::new_set(rows)),
            FilterPlan::Constant(false) => Ok(BooleanBuffer::new_unset(rows)),
            FilterPlan::Single(column, matcher, unordered) => {
                let array = column.array_in(batch)?;
                Ok(with_nulls(array, matcher.matches(array, unordered.nan)?, unordered.null))
            }
            FilterPlan::List(column, test) if column.key.is_some() => {
                let path = column.key.as_deref().unwrap_or_default();
                Ok(keys_that_pass(column.array_in(batch)?, path, test))
            }
            FilterPlan::List(column, test) => {
                let array = column.array_in(batch)?;
                let lists = array.as_list::<i32>();
                let found = match test {
                    ListPlan::Null => return Ok(with_nulls(array, BooleanBuffer::new_unset(rows), true)),
                    ListPlan::NotNull => BooleanBuffer::new_set(rows),
                    ListPlan::Has(matcher) => lists_with_match(lists, matcher)?,
                    ListPlan::Lacks(matcher) => !&lists_with_match(lists, matcher)?,
                };
                Ok(with_nulls(array, found, false))
            }
            FilterPlan::All(parts) => {
                let mut all = BooleanBuffer::new_set(rows);
                for part in parts {
                    all &= &part.evaluate(batch)?;
                    if !all.has_true() {
                        break;
                    }
                }
                Ok(all)
            }
            FilterPlan::Any(parts) => {
                let mut any = BooleanBuffer::new_unset(rows);
                for part in parts {
                    any |= &part.evaluate(batch)?;
                    if !any.has_false() {
                        break;
                    }
                }
                Ok(any)
            }
        }
    }
}

impl Column {
    fn new(source: Source, schema: &Schema) -> Column {
        match source {
            Source::Ids => Column::of(ID_COLUMN, schema.id_kind.data_type(), None),
            Source::Column(number) | Source::Key(number, _) => {
                let column = &schema.columns[number];
                let key = if let Source::Key(_, path) = source { Some(path) } else { None };
                Column::of(&column.name, column.kind.data_type().clone(), key)
            }
        }
    }

    fn of(name: &str, data_type: DataType, key: Option<String>) -> Column {
        Column { name: name.into(), data_type, key }
    }

    /// Returns the array of this column in a batch.
    fn array_in<'a>(&self, batch: &'a RecordBatch) -> Result<&'a ArrayRef, CollectionError> {
        let name = &self.name;
        let array = batch.column_by_name(name).ok_or_else(|| {
            CollectionError::Parameter(format!(
                "the filter needs the column {name:?}, but the batch does not have it"
            ))
        })?;
        // Writers give different names to the elements of lists.
        let same = match (array.data_type(), &self.data_type) {
            (DataType::List(one), DataType::List(two)) => one.data_type() == two.data_type(),
            (one, two) => one == two,
        };
        if !same {
            return Err(CollectionError::Parameter(format!(
                "the filter needs the column {name:?} as {}, but it is {} in the batch",
                self.data_type,
                array.data_type()
            )));
        }
        Ok(array)
    }
}

/// Sets the bits of null rows to `null`, and keeps those of other rows.
fn with_nulls(array: &dyn Array, matches: BooleanBuffer, null: bool) -> BooleanBuffer {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => matches,
        Some(nulls) if null => &matches | &!nulls.inner(),
        Some(nulls) => &matches & nulls.inner(),
    }
}

/// Returns one bit for each text of JSON: true if its value at `path` passes the test.
fn keys_that_pass(array: &dyn Array, path: &str, test: &ListPlan) -> BooleanBuffer {
    let texts = array.as_string::<i64>();
    let passes = |value: Option<Value>| match (test, value) {
        (ListPlan::Null, value) => value.is_none(),
        (_, None) => false,
        (ListPlan::NotNull, Some(_)) => true,
        (ListPlan::Has(matcher), Some(value)) => matcher.has_any_of(&value),
        (ListPlan::Lacks(matcher), Some(value)) => !matcher.has_any_of(&value),
    };
    BooleanBuffer::collect_bool(texts.len(), |row| {
        passes(if texts.is_null(row) { None } else { value_at(texts.value(row), path) })
    })
}

/// Returns one bit for each list: true if one of its elements matches.
fn lists_with_match(lists: &ListArray, matcher: &Matcher) -> Result<BooleanBuffer, CollectionError> {
    let mut matching = BooleanBufferBuilder::new(lists.len());
    matching.append_n(lists.len(), false);
    let offsets = lists.value_offsets();
    let (Some(first), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(matching.finish()) };
    let elements = lists.values().slice(*first as usize, (end - first) as usize);
    let found = with_nulls(&elements, matcher.matches(&elements, false)?, false);
    let mut list = 0;
    for element in found.set_indices() {
        // Elements and lists are in the same order.
        while (offsets[list + 1] - first) as usize <= element {
            list += 1;
        }
        matching.set_bit(list, true);
    }
    Ok(matching.finish())
}

impl Matcher {
    fn new(values: Values) -> Matcher {
        let cuts = match values {
            Values::Numbers(cuts) => return Matcher::Numbers(cuts),
            Values::Key(values) => return Matcher::Key(*values),
            Values::Text(cuts) => cuts,
        };
        if let Some(strings) = strings(&cuts) {
            return Matcher::Strings { strings, within: true };
        }
        match strings(&cuts.clone().complement()) {
            Some(strings) => Matcher::Strings { strings, within: false },
            None => Matcher::Text(cuts),
        }
    }

    /// Returns true if a value of a key is in the set.
    fn has_any_of(&self, value: &Value) -> bool {
        match self {
            Matcher::Key(values) => values.has_any_of(value),
            Matcher::Numbers(_) | Matcher::Text(_) | Matcher::Strings { .. } => false,
        }
    }

    /// Returns one bit for each value of an array: true if it is in the set. The bits of nulls are undefined.
    fn matches(&self, array: &dyn Array, nan: bool) -> Result<BooleanBuffer, CollectionError> {
        match self {
            Matcher::Numbers(cuts) => numbers(array, cuts, nan),
            Matcher::Text(cuts) => Ok(text(array.as_string::<i32>(), cuts)?),
            Matcher::Key(_) => {
                Err(CollectionError::Internal("a condition on a key of a column without keys".into()))
            }
            Matcher::Strings { strings, within } => {
                let array = array.as_string::<i32>();
                Ok(BooleanBuffer::collect_bool(array.len(), |row| {
                    strings.contains(array.value(row)) == *within
                }))
            }
        }
    }
}

/// Returns the strings of a set that consists of several single strings, without ranges.
fn strings(cuts: &Cuts<String>) -> Option<HashSet<String>> {
    if cuts.ranges().len() < 2 {
        return None;
    }
    let single_string = |(begin, end): (&String, Option<&String>)| {
        end.filter(|end| end.strip_suffix('\0') == Some(begin)).map(|_| begin.clone())
    };
    cuts.ranges().map(single_string).collect()
}

/// Returns one bit for each value of an array: true if it is in `cuts`.
fn numbers(array: &dyn Array, cuts: &Cuts<u64>, nan: bool) -> Result<BooleanBuffer, CollectionError> {
    let data_type = array.data_type();
    let unknown = || CollectionError::Internal(format!("a filter over values of type {data_type}"));
    let domain = Domain::from_type(data_type).ok_or_else(unknown)?;
    let found = match data_type {
        DataType::Boolean => Ok(booleans(array.as_boolean(), cuts)),
        DataType::Int8 => whole::<Int8Type>(array, &domain, cuts),
        DataType::Int16 => whole::<Int16Type>(array, &domain, cuts),
        DataType::Int32 => whole::<Int32Type>(array, &domain, cuts),
        DataType::Int64 => whole::<Int64Type>(array, &domain, cuts),
        DataType::UInt8 => whole::<UInt8Type>(array, &domain, cuts),
        DataType::UInt16 => whole::<UInt16Type>(array, &domain, cuts),
        DataType::UInt32 => whole::<UInt32Type>(array, &domain, cuts),
        DataType::UInt64 => whole::<UInt64Type>(array, &domain, cuts),
        DataType::Date32 => whole::<Date32Type>(array, &domain, cuts),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            whole::<TimestampMicrosecondType>(array, &domain, cuts)
        }
        DataType::Float32 => {
            Ok(floats(array.as_primitive::<Float32Type>().values(), &domain, cuts, nan, rank32, float32))
        }
        DataType::Float64 => {
            Ok(floats(array.as_primitive::<Float64Type>().values(), &domain, cuts, nan, rank64, float64))
        }
        _ => return Err(unknown()),
    };
    Ok(found?)
}

fn booleans(array: &BooleanArray, cuts: &Cuts<u64>) -> BooleanBuffer {
    let contains = |value: u64| cuts.contains_by(|cut| *cut <= value);
    match (contains(0), contains(1)) {
        (true, true) => BooleanBuffer::new_set(array.len()),
        (false, true) => array.values().clone(),
        (true, false) => !array.values(),
        (false, false) => BooleanBuffer::new_unset(array.len()),
    }
}

/// Tests whole numbers: one range, or all but one range, by comparisons; other sets by binary search in the
/// cuts.
fn whole<T>(array: &dyn Array, domain: &Domain, cuts: &Cuts<u64>) -> Result<BooleanBuffer, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128> + Into<i128>,
{
    let array = array.as_primitive::<T>();
    // A cut is the number of a value, which fits the type.
    let scalar = |number: u64| {
        let value = T::Native::try_from(domain.value(number)).unwrap_or_default();
        PrimitiveArray::<T>::new_scalar(value)
    };
    let range = |begin: u64, end: Option<u64>| {
        if end.is_some_and(|end| end - begin == 1) {
            return Ok(bits(cmp::eq(array, &scalar(begin))?));
        }
        let mut found = BooleanBuffer::new_set(array.len());
        if begin > 0 {
            found = bits(cmp::gt_eq(array, &scalar(begin))?);
        }
        if let Some(end) = end {
            found &= &bits(cmp::lt(array, &scalar(end))?);
        }
        Ok(found)
    };
    if let Some((begin, end)) = cuts.only_range() {
        return range(*begin, end.copied());
    }
    if let Some((begin, end)) = cuts.only_gap() {
        return Ok(!&range(*begin, Some(*end))?);
    }
    let values = array.values();
    Ok(BooleanBuffer::collect_bool(values.len(), |row| {
        let number = domain.number(values[row].into());
        cuts.contains_by(|cut| *cut <= number)
    }))
}

/// Tests floats. `rank` converts a float to its position, and `float` a position to its float. The library's
/// comparisons order NaN, and order -0.0 before 0.0, so they cannot be used.
fn floats<T: Copy + PartialOrd>(
    values: &[T],
    domain: &Domain,
    cuts: &Cuts<u64>,
    nan: bool,
    rank: impl Fn(T) -> i128,
    float: impl Fn(i128) -> T,
) -> BooleanBuffer {
    // Only NaN is not comparable with itself.
    let is_nan = |value: T| value.partial_cmp(&value).is_none();
    let float = |number: u64| float(domain.value(number));
    if let Some((begin, end)) = cuts.only_range() {
        let (smallest, largest) = (float(*begin), float(end.map_or(domain.last(), |end| end - 1)));
        return bits_of(values, |value| (smallest <= value && value <= largest) || (nan && is_nan(value)));
    }
    if let Some((begin, end)) = cuts.only_gap() {
        let (smallest, largest) = (float(*begin), float(end - 1));
        return bits_of(values, |value| value < smallest || largest < value || (nan && is_nan(value)));
    }
    bits_of(values, |value| {
        if is_nan(value) {
            return nan;
        }
        let number = domain.number(rank(value));
        cuts.contains_by(|cut| *cut <= number)
    })
}

fn bits_of<T: Copy>(values: &[T], matches: impl Fn(T) -> bool) -> BooleanBuffer {
    BooleanBuffer::collect_bool(values.len(), |row| matches(values[row]))
}

/// Tests strings: one range, or all but one range, by comparisons; other sets by binary search in the cuts.
fn text(array: &StringArray, cuts: &Cuts<String>) -> Result<BooleanBuffer, ArrowError> {
    let scalar = |text: &str| Scalar::new(StringArray::from(vec![text]));
    let range = |begin: &String, end: Option<&String>| {
        if end.is_some_and(|end| end.strip_suffix('\0') == Some(begin)) {
            return Ok(bits(cmp::eq(array, &scalar(begin))?));
        }
        if after_prefix(begin).as_ref() == end {
            return Ok(bits(like::starts_with(array, &scalar(begin))?));
        }
        let mut found = BooleanBuffer::new_set(array.len());
        if !begin.is_empty() {
            found = bits(cmp::gt_eq(array, &scalar(begin))?);
        }
        if let Some(end) = end {
            found &= &bits(cmp::lt(array, &scalar(end))?);
        }
        Ok(found)
    };
    if let Some((begin, end)) = cuts.only_range() {
        return range(begin, end);
    }
    if let Some((begin, end)) = cuts.only_gap() {
        return Ok(!&range(begin, Some(end))?);
    }
    Ok(BooleanBuffer::collect_bool(array.len(), |row| {
        let value = array.value(row);
        cuts.contains_by(|cut| cut.as_str() <= value)
    }))
}

/// Returns the bits of booleans. The bits of nulls are undefined; the caller sets them.
fn bits(booleans: BooleanArray) -> BooleanBuffer {
    booleans.into_parts().0
}
