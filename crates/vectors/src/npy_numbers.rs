//! `.npy` files of numbers of other types than vectors have, or in another order: read into memory,
//! converted.

use std::path::Path;

use bathyal_kernels::Element;

use super::error::VectorError;
use super::file::{VectorFile, map_file};
use super::ids::NO_ID;
use super::npy::{AnyHeader, parse_any};

/// The type of the numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number {
    kind: NumberKind,
    bytes: usize,
    big_endian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberKind {
    Float,
    Signed,
    Unsigned,
}

impl Number {
    /// Parses NumPy's name of a type; `None` if it is not one of plain numbers.
    fn parse(descr: &str) -> Option<Number> {
        let (order, rest) = match descr.as_bytes().first()? {
            b'<' | b'|' | b'=' => (false, &descr[1..]),
            b'>' => (true, &descr[1..]),
            _ => (false, descr),
        };
        let (kind, bytes) = (rest.get(..1)?, rest.get(1..)?.parse().ok()?);
        let kind = match (kind, bytes) {
            ("f", 2 | 4 | 8) => NumberKind::Float,
            ("i", 1 | 2 | 4 | 8) => NumberKind::Signed,
            ("u", 1 | 2 | 4 | 8) => NumberKind::Unsigned,
            _ => return None,
        };
        Some(Number { kind, bytes, big_endian: order })
    }

    /// Returns the name as numpy prints it.
    fn name(self) -> String {
        let kind = match self.kind {
            NumberKind::Float => "float",
            NumberKind::Signed => "int",
            NumberKind::Unsigned => "uint",
        };
        format!("{kind}{}", 8 * self.bytes)
    }

    /// Returns the element of vectors that has these numbers.
    fn element(self) -> Option<Element> {
        match (self.kind, self.bytes) {
            (NumberKind::Float, 4) => Some(Element::F32),
            (NumberKind::Float, 2) => Some(Element::F16),
            (NumberKind::Signed, 1) => Some(Element::I8),
            (NumberKind::Unsigned, 1) => Some(Element::U8),
            _ => None,
        }
    }

    /// Returns the bytes of a number in little-endian order; those beyond its length are zeros.
    fn little_endian(self, bytes: &[u8]) -> [u8; 8] {
        let mut number = [0; 8];
        number[..self.bytes].copy_from_slice(bytes);
        if self.big_endian {
            number[..self.bytes].reverse();
        }
        number
    }

    /// Returns a whole number.
    fn whole(self, bytes: &[u8]) -> i128 {
        let number = u64::from_le_bytes(self.little_endian(bytes));
        let unused = 64 - 8 * self.bytes as u32;
        match self.kind {
            NumberKind::Signed => i128::from((number << unused).cast_signed() >> unused),
            _ => i128::from(number),
        }
    }

    /// Returns a number of a type that is no element, as an f64 and as an f32.
    fn value(self, bytes: &[u8]) -> (f64, f32) {
        let value = match self.kind {
            NumberKind::Float => f64::from_le_bytes(self.little_endian(bytes)),
            NumberKind::Signed | NumberKind::Unsigned => {
                let whole = self.whole(bytes);
                // Rounded once, not first to an f64.
                return (whole as f64, whole as f32);
            }
        };
        (value, value as f32)
    }
}

/// A two-dimensional array of numbers.
struct Array<'a> {
    number: Number,
    rows: usize,
    columns: usize,
    fortran_order: bool,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Reads the header. `None` for an array that is not two-dimensional or not of plain numbers, and for one
    /// of another length than its header says.
    fn parse(bytes: &'a [u8], path: &Path) -> Result<Option<Array<'a>>, VectorError> {
        let AnyHeader { fields, start } = parse_any(bytes, path)?;
        let (Some(number), &[rows, columns]) = (Number::parse(fields.descr), &fields.shape[..]) else {
            return Ok(None);
        };
        let length = rows.checked_mul(columns).and_then(|count| count.checked_mul(number.bytes as u64));
        let bytes = &bytes[start..];
        let fits = length == Some(bytes.len() as u64) && !bytes.is_empty();
        let (rows, columns, fortran_order) = (rows as usize, columns as usize, fields.fortran_order);
        Ok(fits.then_some(Array { number, rows, columns, fortran_order, bytes }))
    }

    /// Returns the bytes of each number, row by row.
    fn numbers(&self) -> impl Iterator<Item = &'a [u8]> {
        let Array { number, rows, columns, fortran_order, bytes } = *self;
        (0..rows * columns).map(move |at| {
            let at = if fortran_order { at % columns * rows + at / columns } else { at };
            &bytes[at * number.bytes..(at + 1) * number.bytes]
        })
    }
}

/// Opens a `.npy` file whose array is not mapped as it is: of float64 or of whole numbers, which become f32,
/// in big-endian or in Fortran order. Returns the vectors, in memory, and a note if that changes what they
/// are. Returns `None` if the file is no such array.
///
/// # Errors
/// [`VectorError::NotRepresentable`] for a number that is beyond f32; as [`VectorFile::from_rows`].
pub(crate) fn open(path: &Path) -> Result<Option<(VectorFile, Option<String>)>, VectorError> {
    let (map, _file) = map_file(path, "vectors")?;
    let Some(array) = Array::parse(&map, path)? else { return Ok(None) };
    let (number, mut out) = (array.number, Vec::new());
    let width = number.element().map_or(4, |_| number.bytes);
    if out.try_reserve_exact(array.rows * array.columns * width).is_err() {
        let error = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        return Err(VectorError::io(path, "convert the vectors of")(error));
    }
    if let Some(element) = number.element() {
        array.numbers().for_each(|one| out.extend_from_slice(&number.little_endian(one)[..number.bytes]));
        let vectors = VectorFile::from_converted(path, element, array.columns, out)?;
        return Ok(Some((vectors, None)));
    }
    let mut rounded = false;
    for (at, one) in array.numbers().enumerate() {
        let (value, narrow) = number.value(one);
        if narrow.is_infinite() && value.is_finite() {
            return Err(VectorError::Argument {
                path: path.to_path_buf(),
                reason: format!(
                    "row {}, dimension {} is {value}, which f32 cannot hold: scale the values first",
                    at / array.columns,
                    at % array.columns
                ),
            });
        }
        rounded |= f64::from(narrow) != value && !value.is_nan();
        out.extend_from_slice(&narrow.to_le_bytes());
    }
    let (name, path_name) = (number.name(), path.display());
    let note = match number.kind {
        NumberKind::Float if !rounded => None,
        NumberKind::Float => Some(format!("{path_name} holds {name}, which is rounded to f32 in memory")),
        NumberKind::Signed | NumberKind::Unsigned => Some(format!(
            "{path_name} holds {name}, which is stored as f32; u8 or i8 take one byte per component"
        )),
    };
    Ok(Some((VectorFile::from_converted(path, Element::F32, array.columns, out)?, note)))
}

/// Reads the ids of neighbours from a `.npy` file of whole numbers. -1 is a missing id. Returns `k` and the
/// ids.
///
/// # Errors
/// [`VectorError::Argument`] for another array, and for numbers that are no ids; as [`map_file`].
pub(crate) fn read_ids(path: &Path) -> Result<(usize, Vec<u32>), VectorError> {
    let refuse = |reason: String| VectorError::Argument { path: path.to_path_buf(), reason };
    let (map, _file) = map_file(path, "ids")?;
    let array = Array::parse(&map, path)?.filter(|array| array.number.kind != NumberKind::Float);
    let Some(array) = array else {
        return Err(refuse("expected a two-dimensional array of whole numbers: queries x k ids".into()));
    };
    let mut ids = Vec::with_capacity(array.rows * array.columns);
    for (at, one) in array.numbers().enumerate() {
        let whole = array.number.whole(one);
        let id = if whole == -1 { Ok(NO_ID) } else { u32::try_from(whole) };
        ids.push(id.map_err(|_| {
            let (query, rank) = (at / array.columns, at % array.columns);
            refuse(format!("id {rank} of query {query} is {whole}, which is no row number"))
        })?);
    }
    Ok((array.columns, ids))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Writes a file as NumPy does.
    fn write(folder: &Path, name: &str, (descr, fortran, shape): (&str, bool, &str), body: &[u8]) -> PathBuf {
        let order = if fortran { "True" } else { "False" };
        let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(body);
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn values(vectors: &VectorFile) -> Vec<Vec<f32>> {
        let mut row = vec![0.0; vectors.dim()];
        let mut of = |at| {
            bathyal_kernels::to_f32(vectors.element(), vectors.row(at), &mut row);
            row.clone()
        };
        (0..vectors.count()).map(&mut of).collect()
    }

    #[test]
    fn numbers_of_other_types_become_f32() {
        let folder = tempfile::tempdir().unwrap();
        let doubles: Vec<u8> = [0.5_f64, 0.1, -3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let path = write(folder.path(), "a.npy", ("<f8", false, "(2, 2)"), &doubles);
        let (vectors, note) = VectorFile::open_converted(&path).unwrap();
        assert_eq!(values(&vectors), [[0.5, 0.1], [-3.0, 4.0]]);
        assert!(note.unwrap().contains("holds float64, which is rounded to f32"));
        assert_eq!(vectors.path(), path);
        let path = write(folder.path(), "b.npy", ("<f8", true, "(2, 2)"), &doubles);
        assert_eq!(values(&VectorFile::open_converted(&path).unwrap().0), [[0.5, -3.0], [0.1, 4.0]]);
        let shorts: Vec<u8> = [1_i16, -2, 300].iter().flat_map(|x| x.to_be_bytes()).collect();
        let path = write(folder.path(), "c.npy", (">i2", false, "(1, 3)"), &shorts);
        let (vectors, note) = VectorFile::open_converted(&path).unwrap();
        assert_eq!(values(&vectors), [[1.0, -2.0, 300.0]]);
        assert!(note.unwrap().contains("holds int16, which is stored as f32"));
        let floats: Vec<u8> = [1.5_f32, 2.5].iter().flat_map(|x| x.to_be_bytes()).collect();
        let path = write(folder.path(), "d.npy", (">f4", false, "(1, 2)"), &floats);
        let (vectors, note) = VectorFile::open_converted(&path).unwrap();
        assert_eq!((values(&vectors), note), (vec![vec![1.5, 2.5]], None));
        // Columns of bytes, in Fortran order.
        let path = write(folder.path(), "e.npy", ("|u1", true, "(2, 3)"), &[1, 2, 3, 4, 5, 6]);
        let (vectors, _) = VectorFile::open_converted(&path).unwrap();
        assert_eq!((vectors.element(), vectors.row(1)), (Element::U8, &[2, 4, 6][..]));
    }

    #[test]
    fn what_cannot_be_converted_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name: &str, header: (&str, bool, &str), body: &[u8]| {
            let path = write(folder.path(), name, header, body);
            VectorFile::open_converted(&path).unwrap_err().to_string()
        };
        let large: Vec<u8> = [1.0_f64, 1e300].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert!(refused("a.npy", ("<f8", false, "(2, 1)"), &large).contains("row 1, dimension 0 is 1"));
        assert!(refused("b.npy", ("<f8", false, "(2,)"), &large).contains("<f8"));
        assert!(refused("c.npy", ("<f8", false, "(3, 1)"), &large).contains("<f8"));
        assert!(refused("d.npy", ("<c8", false, "(2, 1)"), &large).contains("<c8"));
        assert!(refused("e.npy", ("|b1", false, "(16, 1)"), &large).contains("|b1"));
        assert!(refused("f.npy", ("<f8", false, "(0, 1)"), &[]).contains("<f8"));
    }

    #[test]
    fn ids_of_any_width_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let longs: Vec<u8> = [3_i64, -1, 7, 4_294_967_295].iter().flat_map(|x| x.to_le_bytes()).collect();
        let path = write(folder.path(), "a.npy", ("<i8", false, "(2, 2)"), &longs);
        let found = super::super::ids::IdFile::open(&path).unwrap();
        assert_eq!((found.k(), found.all_ids()), (2, &[3, NO_ID, 7, u32::MAX][..]));
        for (at, id) in [(1, -2_i64), (0, 1 << 32)] {
            let mut ids = [0; 2];
            ids[at] = id;
            let body: Vec<u8> = ids.iter().flat_map(|x| x.to_le_bytes()).collect();
            let path = write(folder.path(), "b.npy", ("<i8", false, "(1, 2)"), &body);
            let error = read_ids(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("id {at} of query 0 is {id}, which is no row number")),
                "{error}"
            );
        }
        let path = write(folder.path(), "c.npy", ("<f4", false, "(1, 1)"), &[0; 4]);
        assert!(read_ids(&path).unwrap_err().to_string().contains("whole numbers"));
    }
}
