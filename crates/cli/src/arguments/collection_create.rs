//! `bathyal collection create`.

use std::path::PathBuf;
use std::str::FromStr;

use bathyal_collection::{Column, ColumnKind, IdKind, VectorField};
use bathyal_index::StoreAs;
use bathyal_kernels::{Element, Metric, MetricName};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::family::FamilyArguments;
use super::metric::MetricArgument;
use super::store::StoreArguments;

/// A vector field on the command line: NAME:DIM, NAME:DIM:ELEMENT or NAME:DIM:ELEMENT:METRIC.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldArgument {
    name: String,
    dim: usize,
    element: Element,
    metric: Option<Metric>,
}

impl FieldArgument {
    /// Returns the field, with `metric` if the text names no metric.
    pub fn field(&self, metric: Metric) -> VectorField {
        VectorField::new(&self.name, self.dim, self.element, self.metric.unwrap_or(metric))
    }
}

impl FromStr for FieldArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldArgument, String> {
        const FORM: &str = "write a field as NAME:DIM, NAME:DIM:ELEMENT or NAME:DIM:ELEMENT:METRIC, such as \
                            embedding:768:f32:cosine";
        let mut parts = text.split(':');
        let (name, dim) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (element, metric, more) = (parts.next(), parts.next(), parts.next());
        if name.is_empty() || more.is_some() {
            return Err(FORM.into());
        }
        let dim = dim.parse().map_err(|_| format!("{dim:?} is not a number of dimensions; {FORM}"))?;
        let element = element.map(|element| element.parse::<Element>().map_err(|error| error.to_string()));
        let mut element = element.transpose()?.unwrap_or(Element::F32);
        let metric =
            match metric.map(str::parse::<MetricName>).transpose().map_err(|error| error.to_string())? {
                None => None,
                Some(MetricName::Metric(metric)) => Some(metric),
                // For bits, l2 counts the bits that differ.
                Some(MetricName::Hamming) => {
                    element = Element::B1;
                    Some(Metric::L2)
                }
            };
        Ok(FieldArgument { name: name.into(), dim, element, metric })
    }
}

/// Parses a column: NAME:TYPE.
fn parse_column(text: &str) -> Result<Column, String> {
    let form = "write a column as NAME:TYPE, such as year:int64 or tags:list<string>";
    let (name, kind) = text.rsplit_once(':').ok_or(form)?;
    Ok(Column { name: name.into(), kind: kind.parse::<ColumnKind>()? })
}

fn parse_id_kind(name: &str) -> IdKind {
    if name == "u64" { IdKind::Number } else { IdKind::Text }
}

/// `bathyal collection create`.
#[derive(Debug, Args)]
#[command(after_help = "\
The types of columns are bool, int8 to int64, uint8 to uint64, float32, float64, string, date, timestamp, \
lists of these, and json (any value; filters take its keys as COLUMN.KEY). Every value may be missing. A \
search scans small segments without an index; --family and its options are for the indexes of larger \
segments.

Examples:
  bathyal collection create my.collection --id string \\
      --vector embedding:768:f32:cosine \\
      --column year:int64 --column 'tags:list<string>'
  bathyal collection create my.collection --like rows.parquet --metric cosine
  bathyal collection create s3://bucket/my.collection --schema schema.json")]
pub struct CreateArguments {
    /// The collection: a folder that this command creates, or an address in an object store
    /// (s3://BUCKET/NAME)
    pub collection: PathBuf,
    /// Kind of ids: string, or u64 [default: string]
    #[arg(long, value_name = "KIND",
          value_parser = PossibleValuesParser::new(["string", "u64"]).map(|name| parse_id_kind(&name)))]
    pub id: Option<IdKind>,
    /// Vector field (may be repeated). Without ELEMENT its elements are f32, and without METRIC --metric
    /// applies
    #[arg(long = "vector", value_name = "NAME:DIM[:ELEMENT[:METRIC]]",
          required_unless_present_any = ["like", "schema"])]
    pub vectors: Vec<FieldArgument>,
    /// Column of metadata (may be repeated)
    #[arg(long = "column", value_name = "NAME:TYPE", value_parser = parse_column)]
    pub columns: Vec<Column>,
    /// Metric of the fields that name none: l2, ip or cosine. Names that other systems use are understood
    /// [default: l2]
    #[arg(long)]
    pub metric: Option<MetricArgument>,
    /// Take fields and columns from a file of rows: Parquet, Arrow IPC, or a file of vectors
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "vectors", "columns", "schema"])]
    pub like: Option<PathBuf>,
    /// The column of that file with the ids [default: id]
    #[arg(long, value_name = "COLUMN", requires = "like")]
    pub id_column: Option<String>,
    /// The columns of that file to take [default: all]
    #[arg(long = "columns", value_name = "COLUMN,COLUMN,...", value_delimiter = ',', requires = "like")]
    pub taken: Option<Vec<String>>,
    /// Take the schema from a JSON file, as `inspect --json` prints it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "vectors", "columns", "metric"])]
    pub schema: Option<PathBuf>,
    /// Store f32 vectors smaller, as f16 or as i8 with a scale [default: as given]
    #[arg(long, value_name = "FORM")]
    pub store_as: Option<StoreAs>,
    /// The family of the index of large segments, and its options
    #[command(flatten)]
    pub family: FamilyArguments,
    /// How the store is reached
    #[command(flatten)]
    pub store: StoreArguments,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_columns_are_parsed() {
        let field = |text: &str| text.parse::<FieldArgument>().map(|field| field.field(Metric::L2));
        assert_eq!(field("a:3").unwrap(), VectorField::new("a", 3, Element::F32, Metric::L2));
        assert_eq!(field("a:3:u8:dot").unwrap(), VectorField::new("a", 3, Element::U8, Metric::InnerProduct));
        assert_eq!(field("a:64:u8:hamming").unwrap(), VectorField::new("a", 64, Element::B1, Metric::L2));
        for (text, part) in [
            ("a", "NAME:DIM"),
            (":3", "NAME:DIM"),
            ("a:x", "\"x\" is not a number"),
            ("a:3:f99", "f99"),
            ("a:1:f32:l2:x", "NAME"),
        ] {
            assert!(field(text).unwrap_err().contains(part), "{text}: {:?}", field(text));
        }
        assert_eq!(parse_column("a:b:list<int>").unwrap().kind.to_string(), "list<int64>");
        assert!(parse_column("a").unwrap_err().contains("NAME:TYPE"));
        assert!(parse_column("a:blob").unwrap_err().contains("there is no type"));
    }
}
