//! Filters over columns: which rows match.

use super::cuts::Cuts;
use super::domain::{Domain, Values, behind_prefix, float32, float64, rank32, rank64};
use super::normal::{ListTest, Normal, Set, Source};
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
use std::collections::HashSet;

/// A filter, ready to be evaluated.
#[derive(Debug)]
pub(super) enum Plan {
    Constant(bool),
    Single(Column, Matcher, Taken),
    List(Column, ListPlan),
    All(Vec<Plan>),
    Any(Vec<Plan>),
}

/// A column of a batch.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    data_type: DataType,
}

/// Whether values that are in no order match.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
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

/// Tells which values are in a set.
#[derive(Debug)]
pub(super) enum Matcher {
    Numbers(Cuts<u64>),
    /// A range, or a few ranges.
    Text(Cuts<String>),
    /// These strings, or all but these.
    Strings {
        strings: HashSet<String>,
        within: bool,
    },
}

impl Plan {
    /// The plan of a normal form over the columns of `schema`.
    pub(super) fn new(normal: Normal, schema: &Schema) -> Plan {
        let plans = |parts: Vec<Normal>| parts.into_iter().map(|part| Plan::new(part, schema)).collect();
        match normal {
            Normal::Constant(value) => Plan::Constant(value),
            Normal::All(parts) => Plan::All(plans(parts)),
            Normal::Any(parts) => Plan::Any(plans(parts)),
            Normal::Single(source, Set { values, nan, null }) => {
                let taken = Taken { nan: nan == Some(true), null: null == Some(true) };
                Plan::Single(Column::new(source, schema), Matcher::new(values), taken)
            }
            Normal::List(source, test) => {
                let test = match test {
                    ListTest::Null => ListPlan::Null,
                    ListTest::NotNull => ListPlan::NotNull,
                    ListTest::Has(values) => ListPlan::Has(Matcher::new(values)),
                    ListTest::Lacks(values) => ListPlan::Lacks(Matcher::new(values)),
                };
                Plan::List(Column::new(source, schema), test)
            }
        }
    }

    /// One bit for each row of `batch`: whether it matches.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] if a column is not there or of another type.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanBuffer, CollectionError> {
        let rows = batch.num_rows();
        match self {
            Plan::Constant(true) => Ok(BooleanBuffer::new_set(rows)),
            Plan::Constant(false) => Ok(BooleanBuffer::new_unset(rows)),
            Plan::Single(column, matcher, taken) => {
                let array = column.of(batch)?;
                Ok(with_nulls(array, matcher.matches(array, taken.nan)?, taken.null))
            }
            Plan::List(column, test) => {
                let array = column.of(batch)?;
                let lists = array.as_list::<i32>();
                let found = match test {
                    ListPlan::Null => return Ok(with_nulls(array, BooleanBuffer::new_unset(rows), true)),
                    ListPlan::NotNull => BooleanBuffer::new_set(rows),
                    ListPlan::Has(matcher) => lists_with(lists, matcher)?,
                    ListPlan::Lacks(matcher) => !&lists_with(lists, matcher)?,
                };
                Ok(with_nulls(array, found, false))
            }
            Plan::All(parts) => {
                let mut all = BooleanBuffer::new_set(rows);
                for part in parts {
                    all &= &part.evaluate(batch)?;
                    if !all.has_true() {
                        break;
                    }
                }
                Ok(all)
            }
            Plan::Any(parts) => {
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
            None => Column { name: ID_COLUMN.into(), data_type: schema.id_kind.data_type() },
            Some(number) => {
                let column = &schema.columns[number];
                Column { name: column.name.clone(), data_type: column.kind.data_type().clone() }
            }
        }
    }

    /// The array of a batch with its values.
    fn of<'a>(&self, batch: &'a RecordBatch) -> Result<&'a ArrayRef, CollectionError> {
        let name = &self.name;
        let array = batch.column_by_name(name).ok_or_else(|| {
            CollectionError::Parameter(format!(
                "the filter needs the column {name:?}, which the batch has not"
            ))
        })?;
        // The names of the elements of lists differ between writers.
        let same = match (array.data_type(), &self.data_type) {
            (DataType::List(one), DataType::List(two)) => one.data_type() == two.data_type(),
            (one, two) => one == two,
        };
        if !same {
            return Err(CollectionError::Parameter(format!(
                "the filter needs the column {name:?} as {}, in the batch it is {}",
                self.data_type,
                array.data_type()
            )));
        }
        Ok(array)
    }
}

/// `matches` of the rows that are not null, and `null` of the others.
fn with_nulls(array: &dyn Array, matches: BooleanBuffer, null: bool) -> BooleanBuffer {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => matches,
        Some(nulls) if null => &matches | &!nulls.inner(),
        Some(nulls) => &matches & nulls.inner(),
    }
}

/// The lists with an element that matches.
fn lists_with(lists: &ListArray, matcher: &Matcher) -> Result<BooleanBuffer, CollectionError> {
    let mut with = BooleanBufferBuilder::new(lists.len());
    with.append_n(lists.len(), false);
    let offsets = lists.value_offsets();
    let (Some(first), Some(end)) = (offsets.first(), offsets.last()) else { return Ok(with.finish()) };
    let elements = lists.values().slice(*first as usize, (end - first) as usize);
    let found = with_nulls(&elements, matcher.matches(&elements, false)?, false);
    let mut list = 0;
    for element in found.set_indices() {
        // Elements and lists rise together.
        while (offsets[list + 1] - first) as usize <= element {
            list += 1;
        }
        with.set_bit(list, true);
    }
    Ok(with.finish())
}

impl Matcher {
    fn new(values: Values) -> Matcher {
        let cuts = match values {
            Values::Numbers(cuts) => return Matcher::Numbers(cuts),
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

    /// Whether each value of an array is in the set; anything for those that are null.
    fn matches(&self, array: &dyn Array, nan: bool) -> Result<BooleanBuffer, CollectionError> {
        match self {
            Matcher::Numbers(cuts) => numbers(array, cuts, nan),
            Matcher::Text(cuts) => Ok(text(array.as_string::<i32>(), cuts)?),
            Matcher::Strings { strings, within } => {
                let array = array.as_string::<i32>();
                Ok(BooleanBuffer::collect_bool(array.len(), |row| {
                    strings.contains(array.value(row)) == *within
                }))
            }
        }
    }
}

/// The strings of a set that holds no ranges of them, but more than one.
fn strings(cuts: &Cuts<String>) -> Option<HashSet<String>> {
    if cuts.ranges().len() < 2 {
        return None;
    }
    let alone = |(begin, end): (&String, Option<&String>)| {
        end.filter(|end| end.strip_suffix('\0') == Some(begin)).map(|_| begin.clone())
    };
    cuts.ranges().map(alone).collect()
}

/// Which values of an array are between `cuts`.
fn numbers(array: &dyn Array, cuts: &Cuts<u64>, nan: bool) -> Result<BooleanBuffer, CollectionError> {
    let data_type = array.data_type();
    let unknown = || CollectionError::Internal(format!("a filter over values of type {data_type}"));
    let domain = Domain::of(data_type).ok_or_else(unknown)?;
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
    let takes = |value: u64| cuts.contains_by(|cut| *cut <= value);
    match (takes(0), takes(1)) {
        (true, true) => BooleanBuffer::new_set(array.len()),
        (false, true) => array.values().clone(),
        (true, false) => !array.values(),
        (false, false) => BooleanBuffer::new_unset(array.len()),
    }
}

/// Whole numbers: a range (or all but a range) by comparisons, anything else by a search in the cuts.
fn whole<T>(array: &dyn Array, domain: &Domain, cuts: &Cuts<u64>) -> Result<BooleanBuffer, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128> + Into<i128>,
{
    let array = array.as_primitive::<T>();
    // A cut is the number of a value, which its type can hold.
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

/// Floats, of which `rank` and `float` tell the place and what is there. The library's comparisons would do for neither NaN, which
/// they put into the order, nor -0.0, which they put before 0.0.
fn floats<T: Copy + PartialOrd>(
    values: &[T],
    domain: &Domain,
    cuts: &Cuts<u64>,
    nan: bool,
    rank: impl Fn(T) -> i128,
    float: impl Fn(i128) -> T,
) -> BooleanBuffer {
    // Nothing else is not comparable with itself.
    let is_nan = |value: T| value.partial_cmp(&value).is_none();
    let float = |number: u64| float(domain.value(number));
    if let Some((begin, end)) = cuts.only_range() {
        let (least, greatest) = (float(*begin), float(end.map_or(domain.last(), |end| end - 1)));
        return bits_of(values, |value| (least <= value && value <= greatest) || (nan && is_nan(value)));
    }
    if let Some((begin, end)) = cuts.only_gap() {
        let (least, greatest) = (float(*begin), float(end - 1));
        return bits_of(values, |value| value < least || greatest < value || (nan && is_nan(value)));
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

/// Strings: a range (or all but a range) by comparisons, anything else by a search in the cuts.
fn text(array: &StringArray, cuts: &Cuts<String>) -> Result<BooleanBuffer, ArrowError> {
    let scalar = |text: &str| Scalar::new(StringArray::from(vec![text]));
    let range = |begin: &String, end: Option<&String>| {
        if end.is_some_and(|end| end.strip_suffix('\0') == Some(begin)) {
            return Ok(bits(cmp::eq(array, &scalar(begin))?));
        }
        if behind_prefix(begin).as_ref() == end {
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

/// The values of booleans, of which those that are null are looked at later.
fn bits(booleans: BooleanArray) -> BooleanBuffer {
    booleans.into_parts().0
}
