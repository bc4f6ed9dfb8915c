//! Random columns, and random expressions over them.

use super::super::expression::{Comparison, Contains, Expression, Literal};
use super::KINDS;
use super::interpreter::{Cell, TIMES};
use crate::ids::IdKind;
use crate::schema::Schema;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    StringArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use std::sync::Arc;

const WHOLE: [i128; 18] = [
    0,
    1,
    -1,
    2,
    3,
    5,
    127,
    128,
    -128,
    -129,
    255,
    256,
    65_536,
    1 << 31,
    (1 << 53) + 1,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
];
const FRACTIONS: [f64; 14] = [
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    -0.5,
    0.1,
    -128.5,
    1e300,
    -1e300,
    1.8446744073709552e19,
    9.223372036854776e18,
    16777217.0,
    3.4028235677973366e38,
];
const TEXTS: [&str; 13] = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "a\0",
    "a\0\0",
    "\u{e9}",
    "a%",
    "\u{10ffff}",
    "\u{d7ff}x",
    "\u{e000}",
    "it's",
];

/// Rows, as a batch and as cells.
pub(super) struct RandomRows {
    pub(super) batch: RecordBatch,
    /// The cells of each column of the batch.
    cells: Vec<Vec<Cell>>,
}

impl RandomRows {
    pub(super) fn cell(&self, name: &str, row: usize) -> Cell {
        self.cells[self.batch.schema().index_of(name).unwrap()][row].clone()
    }
}

/// Returns a value of a type, perhaps null.
fn cell(kind: &str, random: &mut SmallRng, nulls: bool) -> Cell {
    if nulls && random.random_bool(0.2) {
        return Cell::Null;
    }
    let whole = |random: &mut SmallRng, least: i128, greatest: i128| {
        let fits: Vec<i128> = WHOLE
            .into_iter()
            .chain([least, greatest])
            .filter(|value| (least..=greatest).contains(value))
            .collect();
        Cell::Whole(*fits.choose(random).unwrap())
    };
    match kind {
        "bool" => Cell::Bool(random.random()),
        "int8" => whole(random, i8::MIN.into(), i8::MAX.into()),
        "int16" => whole(random, i16::MIN.into(), i16::MAX.into()),
        "int32" => whole(random, i32::MIN.into(), i32::MAX.into()),
        "int64" => whole(random, i64::MIN.into(), i64::MAX.into()),
        "uint8" => whole(random, 0, u8::MAX.into()),
        "uint16" => whole(random, 0, u16::MAX.into()),
        "uint32" => whole(random, 0, u32::MAX.into()),
        "uint64" => whole(random, 0, u64::MAX.into()),
        "float32" | "float64" => {
            let value = match random.random_range(0..5) {
                0 => *[f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY].choose(random).unwrap(),
                1 => *WHOLE.choose(random).unwrap() as f64,
                _ => *FRACTIONS.choose(random).unwrap(),
            };
            if kind == "float32" { Cell::Float32(value as f32) } else { Cell::Float64(value) }
        }
        "string" => Cell::Text(TEXTS.choose(random).unwrap().to_string()),
        "date" => Cell::Date(*[0, -1, 1, 19_782, 19_783, i32::MIN, i32::MAX].choose(random).unwrap()),
        "timestamp" => {
            let at = TIMES.choose(random).unwrap().1.div_euclid(1000) as i64;
            Cell::Timestamp(*[at, at + 1, i64::MIN, i64::MAX].choose(random).unwrap())
        }
        other => panic!("{other}"),
    }
}

/// Returns the Arrow array of cells.
fn array(kind: &str, cells: &[Cell]) -> ArrayRef {
    fn whole<T: ArrowPrimitiveType>(cells: &[Cell]) -> ArrayRef
    where
        T::Native: TryFrom<i128, Error: std::fmt::Debug>,
    {
        let value = |cell: &Cell| match cell {
            Cell::Whole(value) => Some(T::Native::try_from(*value).unwrap()),
            Cell::Date(value) => Some(T::Native::try_from((*value).into()).unwrap()),
            Cell::Timestamp(value) => Some(T::Native::try_from((*value).into()).unwrap()),
            _ => None,
        };
        Arc::new(cells.iter().map(value).collect::<PrimitiveArray<T>>())
    }
    match kind {
        "bool" => {
            let value = |cell: &Cell| if let Cell::Bool(value) = cell { Some(*value) } else { None };
            Arc::new(cells.iter().map(value).collect::<BooleanArray>())
        }
        "int8" => whole::<Int8Type>(cells),
        "int16" => whole::<Int16Type>(cells),
        "int32" => whole::<Int32Type>(cells),
        "int64" => whole::<Int64Type>(cells),
        "uint8" => whole::<UInt8Type>(cells),
        "uint16" => whole::<UInt16Type>(cells),
        "uint32" => whole::<UInt32Type>(cells),
        "uint64" => whole::<UInt64Type>(cells),
        "date" => whole::<Date32Type>(cells),
        "timestamp" => whole::<TimestampMicrosecondType>(cells),
        "float32" => {
            let value = |cell: &Cell| if let Cell::Float32(value) = cell { Some(*value) } else { None };
            Arc::new(cells.iter().map(value).collect::<PrimitiveArray<Float32Type>>())
        }
        "float64" => {
            let value = |cell: &Cell| if let Cell::Float64(value) = cell { Some(*value) } else { None };
            Arc::new(cells.iter().map(value).collect::<PrimitiveArray<Float64Type>>())
        }
        _ => {
            let value = |cell: &Cell| if let Cell::Text(text) = cell { Some(text.clone()) } else { None };
            Arc::new(cells.iter().map(value).collect::<StringArray>())
        }
    }
}

/// Returns the Arrow array of lists. Null lists have elements behind them, too.
fn lists(kind: &str, data_type: &DataType, cells: &[Cell], random: &mut SmallRng) -> ArrayRef {
    let DataType::List(item) = data_type else { panic!("{data_type}") };
    let (mut elements, mut lengths) = (Vec::new(), Vec::new());
    for list in cells {
        let hidden = vec![cell(kind, random, false)];
        let these = if let Cell::List(elements) = list { elements.clone() } else { hidden };
        lengths.push(these.len());
        elements.extend(these);
    }
    let nulls: NullBuffer = cells.iter().map(|cell| *cell != Cell::Null).collect();
    let offsets = OffsetBuffer::from_lengths(lengths);
    Arc::new(ListArray::new(item.clone(), offsets, array(kind, &elements), Some(nulls)))
}

/// Returns random rows of a schema.
pub(super) fn rows(schema: &Schema, count: usize, random: &mut SmallRng) -> RandomRows {
    let (mut arrays, mut all) = (Vec::new(), Vec::new());
    let id = match schema.id_kind {
        IdKind::Number => "uint64",
        IdKind::Text => "string",
    };
    let ids: Vec<Cell> = (0..count).map(|_| cell(id, random, false)).collect();
    arrays.push(array(id, &ids));
    all.push(ids);
    for column in &schema.columns {
        let data_type = column.kind.data_type();
        if let DataType::List(_) = data_type {
            let kind = column.name.trim_end_matches('s');
            let mut list = || {
                if random.random_bool(0.2) {
                    return Cell::Null;
                }
                let count = random.random_range(0..4);
                Cell::List((0..count).map(|_| cell(kind, random, true)).collect())
            };
            let cells: Vec<Cell> = (0..count).map(|_| list()).collect();
            arrays.push(lists(kind, data_type, &cells, random));
            all.push(cells);
        } else {
            let cells: Vec<Cell> = (0..count).map(|_| cell(&column.name, random, true)).collect();
            arrays.push(array(&column.name, &cells));
            all.push(cells);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RandomRows {
        batch: RecordBatch::try_new_with_options(schema.with_ids(), arrays, &options).unwrap(),
        cells: all,
    }
}

fn literal(kind: &str, random: &mut SmallRng) -> Literal {
    match kind {
        "bool" => Literal::Bool(random.random()),
        "string" => Literal::Text(TEXTS.choose(random).unwrap().to_string()),
        "date" | "timestamp" => Literal::Text(TIMES.choose(random).unwrap().0.into()),
        _ if random.random() => Literal::Whole(*WHOLE.choose(random).unwrap()),
        _ => Literal::Fraction(*FRACTIONS.choose(random).unwrap()),
    }
}

fn literals(kind: &str, random: &mut SmallRng) -> Vec<Literal> {
    let count = random.random_range(0..5);
    (0..count).map(|_| literal(kind, random)).collect()
}

/// Returns a random condition on a column of `kind`, or on the ids.
fn condition(kind: &str, id_kind: IdKind, random: &mut SmallRng) -> Expression {
    let id = if id_kind == IdKind::Number { "uint64" } else { "string" };
    let (name, kind) =
        if random.random_bool(0.1) { ("id".to_string(), id) } else { (kind.to_string(), kind) };
    let comparisons = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ];
    let comparison = *comparisons.choose(random).unwrap();
    if name != "id" && random.random_bool(0.3) {
        let name = format!("{kind}s");
        return match random.random_range(0..6) {
            0 => Expression::IsNull(name),
            1 => Expression::Compare(name, comparisons[random.random_range(0..2)], literal(kind, random)),
            2 => Expression::In(name, literals(kind, random)),
            3 => Expression::Contains(name, Contains::Any, vec![literal(kind, random)]),
            4 => Expression::Contains(name, Contains::Any, literals(kind, random)),
            _ => Expression::Contains(name, Contains::All, literals(kind, random)),
        };
    }
    match random.random_range(0..7) {
        0 => Expression::IsNull(name),
        1 => Expression::In(name, literals(kind, random)),
        2 => Expression::Between(name, literal(kind, random), literal(kind, random)),
        3 if kind == "string" => Expression::StartsWith(name, TEXTS.choose(random).unwrap().to_string()),
        3 if kind == "bool" => Expression::Flag(name),
        _ => Expression::Compare(name, comparison, literal(kind, random)),
    }
}

/// Returns a random expression over one or two types of columns, so that several conditions are on the same
/// column.
pub(super) fn expression(id_kind: IdKind, random: &mut SmallRng) -> Expression {
    let kinds = [*KINDS.choose(random).unwrap(), *KINDS.choose(random).unwrap()];
    nested(&kinds, id_kind, 3, random)
}

fn nested(kinds: &[&str], id_kind: IdKind, depth: usize, random: &mut SmallRng) -> Expression {
    let parts = |random: &mut SmallRng| {
        let count = random.random_range(2..4);
        (0..count).map(|_| nested(kinds, id_kind, depth - 1, random)).collect()
    };
    match random.random_range(0..8) {
        0 | 1 if depth > 0 => Expression::And(parts(random)),
        2 | 3 if depth > 0 => Expression::Or(parts(random)),
        4 if depth > 0 => Expression::not(nested(kinds, id_kind, depth - 1, random)),
        5 if random.random_bool(0.1) => Expression::Constant(random.random()),
        _ => condition(kinds.choose(random).unwrap(), id_kind, random),
    }
}
