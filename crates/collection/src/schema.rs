//! The schema of a collection: the type of ids, the vector fields, and the columns of metadata.

use crate::error::CollectionError;
use crate::ids::IdKind;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};
use bathyal_index::{FamilyOptions, StoreAs, families};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::MAX_DIM;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

/// Name of the ids, in filters and in files.
pub const ID_COLUMN: &str = "id";
/// The longest name of a field or column, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// The most vector fields. Every segment has an index for each.
const MAX_VECTOR_FIELDS: usize = 16;
/// The most columns.
const MAX_COLUMNS: usize = 1024;
/// Names that results use for something else.
const RESERVED: [&str; 3] = [ID_COLUMN, "distance", "score"];

/// A vector field: every row has one vector of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorField {
    /// Its name.
    pub name: String,
    /// Components of each vector.
    pub dim: usize,
    /// Type of the components.
    #[serde(with = "named")]
    pub element: Element,
    /// The metric.
    #[serde(with = "named")]
    pub metric: Metric,
    /// Family of the indexes of large segments; small segments are `flat`.
    #[serde(default = "default_family")]
    pub family: String,
    /// Options of that family, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Value>,
    /// Form in which indexes store f32 vectors, if not as they are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_as: Option<StoreAs>,
}

fn default_family() -> String {
    "cluster".into()
}

/// Reads and writes elements and metrics by name.
mod named {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'a, T: FromStr<Err: Display>, D: Deserializer<'a>>(
        from: D,
    ) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A column of metadata. Every value of it may be null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: ColumnKind,
}

/// Type of the values of a column. It is named as the Arrow type, in lower case: `int64`, `string`,
/// `list<string>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ColumnKind(DataType);

/// The types of single values, by name. `timestamp` counts microseconds since 1970 in UTC; `json` is any
/// value of JSON.
const SCALARS: [(&str, DataType); 15] = [
    ("bool", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
    ("string", DataType::Utf8),
    ("date", DataType::Date32),
    ("timestamp", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ("json", JSON),
];

/// The Arrow type of columns of JSON, whose values are texts. Columns of strings have another one.
pub(crate) const JSON: DataType = DataType::LargeUtf8;

impl ColumnKind {
    /// Returns the Arrow type of arrays of this kind.
    pub fn data_type(&self) -> &DataType {
        &self.0
    }

    /// Returns the kind that stores values of an Arrow type. Similar types share a kind: `large_string` is
    /// stored as `string`.
    ///
    /// # Errors
    /// A sentence if no column can store this type.
    pub fn from_arrow(data_type: &DataType) -> Result<ColumnKind, String> {
        let scalar = |data_type: &DataType| match data_type {
            DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::Utf8),
            DataType::Float16 => Some(DataType::Float32),
            DataType::Date64 => Some(DataType::Date32),
            DataType::Timestamp(_, _) => Some(DataType::Timestamp(TimeUnit::Microsecond, None)),
            DataType::Dictionary(_, values) if values.is_string() => Some(DataType::Utf8),
            other => SCALARS.iter().find(|(_, known)| known == other).map(|(_, known)| known.clone()),
        };
        let kind = match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                scalar(item.data_type()).map(list_of)
            }
            single => scalar(single),
        };
        kind.map(ColumnKind).ok_or_else(|| {
            format!(
                "values of the Arrow type {data_type} cannot be stored; the types are {}, and lists of them",
                SCALARS.map(|(name, _)| name).join(", ")
            )
        })
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

impl std::fmt::Display for ColumnKind {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |data_type: &DataType| {
            SCALARS.iter().find(|(_, known)| known == data_type).map_or("none", |(name, _)| name)
        };
        match &self.0 {
            DataType::List(item) => write!(to, "list<{}>", name(item.data_type())),
            single => to.write_str(name(single)),
        }
    }
}

impl FromStr for ColumnKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ColumnKind, String> {
        let lower = text.trim().to_ascii_lowercase();
        let (inner, list) = match lower.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
            Some(inner) => (inner.trim(), true),
            None => (lower.as_str(), false),
        };
        // Names in Python, SQL and JSON.
        let known = match inner {
            "str" | "text" | "utf8" | "varchar" => "string",
            "int" | "integer" | "long" => "int64",
            "float" | "double" => "float64",
            "boolean" => "bool",
            "datetime" => "timestamp",
            "date32" => "date",
            other => other,
        };
        let found = SCALARS.iter().find(|(name, _)| *name == known).map(|(_, kind)| kind.clone());
        match found {
            Some(JSON) if list => Err("a value of JSON may be a list itself; use the type json".into()),
            Some(item) if list => Ok(ColumnKind(list_of(item))),
            Some(single) => Ok(ColumnKind(single)),
            None => Err(format!(
                "there is no type {text:?}; the types are {}, and lists of them, such as list<string>",
                SCALARS.map(|(name, _)| name).join(", ")
            )),
        }
    }
}

impl Serialize for ColumnKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'a> Deserialize<'a> for ColumnKind {
    fn deserialize<D: serde::Deserializer<'a>>(from: D) -> Result<ColumnKind, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The ids, vector fields and columns that every row of a collection has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// Type of the ids.
    #[serde(rename = "id")]
    pub id_kind: IdKind,
    /// The vector fields, at least one.
    pub vectors: Vec<VectorField>,
    /// The columns of metadata.
    #[serde(default)]
    pub columns: Vec<Column>,
}

impl VectorField {
    /// Refuses queries of another element or dimension, and those that have no distance to the vectors.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`]; as [`bathyal_index::check_vectors`].
    pub(crate) fn check_queries(&self, queries: &VectorFile) -> Result<(), CollectionError> {
        if queries.dim() != self.dim || queries.element() != self.element {
            return Err(CollectionError::Parameter(format!(
                "the queries are {} of {} dimensions, the vectors of {:?} are {} of {}",
                queries.element(),
                queries.dim(),
                self.name,
                self.element,
                self.dim
            )));
        }
        Ok(bathyal_index::check_vectors(queries, self.metric)?)
    }

    /// Returns a field of this shape, with the default family.
    pub fn new(name: impl Into<String>, dim: usize, element: Element, metric: Metric) -> VectorField {
        let (name, family) = (name.into(), default_family());
        VectorField { name, dim, element, metric, family, options: BTreeMap::new(), store_as: None }
    }

    /// Returns the bytes of one vector.
    pub fn row_bytes(&self) -> usize {
        self.element.row_bytes(self.dim)
    }

    /// Returns the options for building indexes of large segments.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown family or option.
    pub fn family_options(&self) -> Result<FamilyOptions, CollectionError> {
        let refuse = |reason: String| CollectionError::Parameter(format!("field {:?}: {reason}", self.name));
        families::options(&self.family, &self.options).map_err(|error| refuse(error.to_string()))
    }
}

impl Schema {
    /// Checks names, counts and dimensions.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`].
    pub fn check(&self) -> Result<(), CollectionError> {
        let refuse = |reason: String| Err(CollectionError::Parameter(format!("the schema: {reason}")));
        if self.vectors.is_empty() || self.vectors.len() > MAX_VECTOR_FIELDS {
            return refuse(format!(
                "it has {} fields of vectors; 1 to {MAX_VECTOR_FIELDS} are allowed",
                self.vectors.len()
            ));
        }
        if self.columns.len() > MAX_COLUMNS {
            return refuse(format!(
                "it has {} columns; at most {MAX_COLUMNS} are allowed",
                self.columns.len()
            ));
        }
        let mut names = BTreeSet::new();
        let fields = self.vectors.iter().map(|field| &field.name);
        for name in fields.chain(self.columns.iter().map(|column| &column.name)) {
            let printable = !name.is_empty() && !name.chars().any(char::is_control);
            if !printable || name.len() > MAX_NAME_BYTES {
                return refuse(format!(
                    "{name:?} is not a valid name; a name has 1 to {MAX_NAME_BYTES} bytes of printable text"
                ));
            }
            if RESERVED.contains(&name.as_str()) {
                return refuse(format!("the name {name:?} is reserved for results; choose another"));
            }
            if !names.insert(name) {
                return refuse(format!("the name {name:?} is there twice"));
            }
        }
        for field in &self.vectors {
            let whole = field.element.components_in(field.row_bytes()) == field.dim;
            if !(1..=MAX_DIM).contains(&field.dim) || !whole {
                return refuse(format!(
                    "the field {:?} has {} dimensions; 1 to {MAX_DIM} are allowed, and for bits a multiple \
                     of 8",
                    field.name, field.dim
                ));
            }
            field.family_options()?;
        }
        Ok(())
    }

    /// Returns the number of the vector field `name`; without a name, that of the only field.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown name, and if there are several fields and no name.
    pub fn field(&self, name: Option<&str>) -> Result<usize, CollectionError> {
        let all = || self.vectors.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
        match name {
            None if self.vectors.len() == 1 => Ok(0),
            None => Err(CollectionError::Parameter(format!(
                "the collection has several fields of vectors; name one of them: {}",
                all()
            ))),
            Some(name) => self.vectors.iter().position(|field| field.name == name).ok_or_else(|| {
                CollectionError::Parameter(format!(
                    "there is no field of vectors {name:?}; there is {}",
                    all()
                ))
            }),
        }
    }

    /// Returns the number of the column `name`.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown name.
    pub fn column(&self, name: &str) -> Result<usize, CollectionError> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            let all: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let all = if all.is_empty() { "none".into() } else { all.join(", ") };
            CollectionError::Parameter(format!("there is no column {name:?}; there is {all}"))
        })
    }

    /// Returns the column of JSON and the path of the key that `name` means: `meta.year` is the key `year` of
    /// the column `meta`, and `meta` the whole value. `None` if it means no column of JSON.
    pub(crate) fn json_key<'a>(&self, name: &'a str) -> Option<(usize, &'a str)> {
        let json = |column: &&str| {
            self.columns.iter().position(|known| known.name == **column && *known.kind.data_type() == JSON)
        };
        if self.column(name).is_ok() {
            return json(&name).map(|number| (number, ""));
        }
        let mut dots = name.match_indices('.').map(|(at, _)| at);
        dots.find_map(|at| Some((json(&&name[..at])?, &name[at + 1..])))
    }

    /// Returns the Arrow schema of the metadata, without ids and vectors.
    pub fn metadata(&self) -> SchemaRef {
        let field = |column: &Column| Field::new(&column.name, column.kind.data_type().clone(), true);
        Arc::new(ArrowSchema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Returns the Arrow schema of the ids followed by the metadata, as in the rows file of a segment.
    pub fn with_ids(&self) -> SchemaRef {
        let id = Field::new(ID_COLUMN, self.id_kind.data_type(), false);
        let columns = self.metadata();
        let fields = std::iter::once(Arc::new(id)).chain(columns.fields().iter().cloned());
        Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
    }
}
