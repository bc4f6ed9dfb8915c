//! Collections for random programs: their schemas, and random rows.

use bathyal_collection::{CollectionOptions, Column, Id, IdKind, Schema, VectorField};
use bathyal_kernels::{Element, Metric};
use rand::Rng;
use rand::rngs::StdRng;
use std::sync::Arc;

/// A value of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Whole(i64),
    Truth(bool),
    Real(f64),
    Text(String),
    Texts(Vec<String>),
    Wholes(Vec<Option<i64>>),
}

/// Content of a row besides its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The vector of each field, as bytes.
    pub vectors: Vec<Vec<u8>>,
    /// The value of each column.
    pub values: Vec<Value>,
}

/// A kind of collection that programs run on.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    pub schema: Schema,
    /// Number of ids that rows may have.
    pub ids: u64,
    /// Segments with fewer rows are flat.
    pub flat_below_rows: usize,
}

/// Number of centres of the vectors.
const CENTRES: u64 = 12;

fn column(name: &str, kind: &str) -> Column {
    Column { name: name.into(), kind: kind.parse().unwrap() }
}

fn schema(id_kind: IdKind, vectors: Vec<VectorField>, columns: &[(&str, &str)]) -> Schema {
    Schema { id_kind, vectors, columns: columns.iter().map(|(name, kind)| column(name, kind)).collect() }
}

impl Case {
    /// Numeric ids, and one field of floats.
    pub fn numbers() -> Case {
        let vectors = vec![VectorField::new("v", 8, Element::F32, Metric::L2)];
        let columns = [("year", "int64"), ("lang", "string"), ("archived", "bool")];
        Case {
            name: "numbers",
            schema: schema(IdKind::Number, vectors, &columns),
            ids: 900,
            flat_below_rows: 200,
        }
    }

    /// String ids, a cosine field, and lists.
    pub fn texts() -> Case {
        let vectors = vec![VectorField::new("v", 12, Element::F32, Metric::Cosine)];
        let columns =
            [("lang", "string"), ("tags", "list<string>"), ("rating", "float64"), ("parts", "list<int64>")];
        Case {
            name: "texts",
            schema: schema(IdKind::Text, vectors, &columns),
            ids: 600,
            flat_below_rows: 150,
        }
    }

    /// Two vector fields.
    pub fn two_fields() -> Case {
        let vectors = vec![
            VectorField::new("image", 16, Element::U8, Metric::L2),
            VectorField::new("text", 6, Element::F32, Metric::InnerProduct),
        ];
        let columns = [("year", "int64"), ("stamp", "timestamp")];
        Case {
            name: "two fields",
            schema: schema(IdKind::Number, vectors, &columns),
            ids: 500,
            flat_below_rows: 150,
        }
    }

    /// A field of bits, and no columns.
    pub fn bits() -> Case {
        let vectors = vec![VectorField::new("v", 64, Element::B1, Metric::L2)];
        Case { name: "bits", schema: schema(IdKind::Text, vectors, &[]), ids: 400, flat_below_rows: 60 }
    }

    /// Fewer rows, for tests that try every operation of the disk.
    pub fn small() -> Case {
        Case { name: "small", ids: 40, flat_below_rows: 1000, ..Case::numbers() }
    }

    /// Returns options that make everything happen often, and in a deterministic order.
    pub fn options(&self) -> CollectionOptions {
        CollectionOptions {
            write_memory_bytes: 1 << 20,
            threads: 1,
            background: false,
            flat_below_rows: self.flat_below_rows,
            ..CollectionOptions::default()
        }
    }

    /// Returns the id with a number below [`Case::ids`].
    pub fn id(&self, number: u64) -> Id {
        match self.schema.id_kind {
            IdKind::Number if number == 1 => Id::Number(u64::MAX),
            IdKind::Number if number.is_multiple_of(3) => Id::Number(number),
            IdKind::Number => Id::Number(number << 33 | number),
            IdKind::Text if number % 97 == 5 => Id::Text(format!("{number}{}", "x".repeat(1000))),
            IdKind::Text if number.is_multiple_of(2) => Id::Text(format!("row {number}")),
            IdKind::Text => Id::Text(format!("zeile \u{e4}{:x}", number * 7919)),
        }
    }

    /// Returns a random id.
    pub fn any_id(&self, random: &mut StdRng) -> Id {
        self.id(random.random_range(0..self.ids))
    }

    /// Returns a random vector of a field as bytes: near one of a few centres.
    pub fn vector(&self, field: usize, random: &mut StdRng) -> Vec<u8> {
        let field = &self.schema.vectors[field];
        let centre = random.random_range(0..CENTRES);
        let mut bytes = Vec::with_capacity(field.row_bytes());
        for at in 0..field.dim as u64 {
            let base = (centre + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at as u32 * 5) % 64;
            let value = base as i32 + random.random_range(-6..=6);
            match field.element {
                Element::F32 => bytes.extend_from_slice(&(value as f32 / 4.0 - 7.875).to_le_bytes()),
                Element::U8 => bytes.push((value + 100) as u8),
                Element::B1 if at % 8 == 0 => {
                    bytes.push((base as u8).wrapping_mul(5) ^ 1 << random.random_range(0..8))
                }
                Element::B1 => {}
                other => unreachable!("no case has {other}"),
            }
        }
        bytes
    }

    /// Returns a random value of a column.
    pub fn value(&self, column: usize, random: &mut StdRng) -> Value {
        if random.random_range(0..6) == 0 {
            return Value::Null;
        }
        let word =
            |random: &mut StdRng| ["de", "en", "fr", "de-AT", ""][random.random_range(0..5)].to_string();
        match self.schema.columns[column].kind.to_string().as_str() {
            "int64" => Value::Whole(random.random_range(1990..2030)),
            "timestamp" => Value::Whole(random.random_range(-5..5) * 86_400_000_000),
            "bool" => Value::Truth(random.random()),
            "float64" => Value::Real(f64::from(random.random_range(-8..8)) / 4.0),
            "string" => Value::Text(word(random)),
            "list<string>" => Value::Texts((0..random.random_range(0..4)).map(|_| word(random)).collect()),
            "list<int64>" => {
                let some = |random: &mut StdRng| random.random::<bool>().then(|| random.random_range(-3..3));
                Value::Wholes((0..random.random_range(0..3)).map(|_| some(random)).collect())
            }
            other => unreachable!("no case has {other}"),
        }
    }

    /// Returns a random row.
    pub fn row(&self, random: &mut StdRng) -> Arc<Row> {
        let vectors = (0..self.schema.vectors.len()).map(|field| self.vector(field, random)).collect();
        let values = (0..self.schema.columns.len()).map(|column| self.value(column, random)).collect();
        Arc::new(Row { vectors, values })
    }

    /// Returns random rows: `count`, or half of the possible ids if that is less. Their ids differ if
    /// `apart`.
    pub fn rows(&self, count: usize, apart: bool, random: &mut StdRng) -> Vec<(Id, Arc<Row>)> {
        let count = count.min(self.ids as usize / 2);
        let mut rows: Vec<(Id, Arc<Row>)> = Vec::with_capacity(count);
        while rows.len() < count {
            let id = self.any_id(random);
            if !apart || rows.iter().all(|(other, _)| *other != id) {
                rows.push((id, self.row(random)));
            }
        }
        rows
    }
}
