//! The header of a NumPy `.npy` file (NumPy enhancement proposal 1, versions 1.0, 2.0 and 3.0).
//!
//! The crate `npyz` reads such headers too, but it allocates whatever length a file claims, and it brings a
//! parser generator and 20 more crates.

use std::path::Path;

use bathyal_kernels::Element;

use super::error::VectorError;

/// First bytes of every `.npy` file.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Most bytes of a header text. NumPy itself refuses more than 10,000 by default; the header of a
/// two-dimensional array of plain numbers takes some 120.
const MAX_HEADER_TEXT: usize = 10_000;

/// Bytes of the headers that are written. The size is fixed, so that the count can be filled in at the end.
pub(crate) const WRITTEN_HEADER_BYTES: usize = 128;

/// Contents of a header: `count x dim` elements from byte `start` on.
pub(crate) struct NpyHeader {
    pub element: Element,
    pub count: u64,
    pub dim: u64,
    pub start: usize,
}

/// A header of any array: its fields, and the byte at which the elements begin.
pub(crate) struct AnyHeader<'a> {
    pub fields: Fields<'a>,
    pub start: usize,
}

/// Reads the header of an array of any type at the start of `bytes`; `path` is for messages.
pub(crate) fn parse_any<'a>(bytes: &'a [u8], path: &Path) -> Result<AnyHeader<'a>, VectorError> {
    let refuse = |reason: String| VectorError::Npy { path: path.to_path_buf(), reason };
    if !bytes.starts_with(MAGIC) {
        return Err(refuse("does not begin with the mark of a .npy file".to_string()));
    }
    let short = |expected: usize| VectorError::ShortHeader {
        path: path.to_path_buf(),
        found: bytes.len() as u64,
        expected: expected as u64,
    };
    let version = (*bytes.get(6).ok_or_else(|| short(10))?, *bytes.get(7).ok_or_else(|| short(10))?);
    let (text_len, text_start) = match version {
        (1, 0) => {
            let field = bytes.get(8..10).ok_or_else(|| short(10))?;
            (usize::from(u16::from_le_bytes([field[0], field[1]])), 10)
        }
        (2 | 3, 0) => {
            let field = bytes.get(8..12).ok_or_else(|| short(12))?;
            (u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize, 12)
        }
        (major, minor) => {
            return Err(refuse(format!(
                "is of .npy version {major}.{minor}; versions 1.0, 2.0 and 3.0 are read"
            )));
        }
    };
    if text_len > MAX_HEADER_TEXT {
        return Err(refuse(format!("has a header of {text_len} bytes; at most {MAX_HEADER_TEXT} are read")));
    }
    let start = text_start + text_len;
    let text = bytes.get(text_start..start).ok_or_else(|| short(start))?;
    let text = std::str::from_utf8(text).map_err(|_| refuse("has a header that is not text".to_string()))?;
    let fields = parse_dict(text).ok_or_else(|| {
        refuse("has a header that is not a dictionary of 'descr', 'fortran_order' and 'shape'".to_string())
    })?;
    Ok(AnyHeader { fields, start })
}

/// Reads the header of an array that is mapped as it is; `path` is for messages.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<NpyHeader, VectorError> {
    let refuse = |reason: String| VectorError::Npy { path: path.to_path_buf(), reason };
    let AnyHeader { fields, start } = parse_any(bytes, path)?;
    if fields.fortran_order {
        return Err(refuse("is in Fortran (column-major) order".to_string()));
    }
    let element = match fields.descr {
        "<f4" => Element::F32,
        "<f2" => Element::F16,
        "|u1" | "<u1" | "u1" => Element::U8,
        "|i1" | "<i1" | "i1" => Element::I8,
        ">f4" | ">f2" => return Err(refuse(format!("has big-endian elements ('{}')", fields.descr))),
        // NumPy writes this for the bfloat16 of ml_dtypes, and for any structure of two bytes.
        "<V2" | "|V2" | "V2" => {
            return Err(refuse(format!(
                "has elements of type '{}', which may or may not be bfloat16",
                fields.descr
            )));
        }
        other => return Err(refuse(format!("has elements of type '{other}'"))),
    };
    match fields.shape[..] {
        [count, dim] => Ok(NpyHeader { element, count, dim, start }),
        _ => Err(refuse(format!("has {} dimensions", fields.shape.len()))),
    }
}

/// Returns the header of a file of `count x dim` elements, [`WRITTEN_HEADER_BYTES`] long.
pub(crate) fn header(element: Element, count: u64, dim: usize) -> Vec<u8> {
    let descr = descr_of(element).unwrap_or_default();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count}, {dim}), }}");
    let mut out = Vec::with_capacity(WRITTEN_HEADER_BYTES);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&((WRITTEN_HEADER_BYTES - 10) as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    // The longest text (20 digits of count, 20 of dim) takes 98 bytes, so 128 always suffice.
    out.resize(WRITTEN_HEADER_BYTES - 1, b' ');
    out.push(b'\n');
    out
}

/// Returns NumPy's name of `element`; `None` if NumPy has no such type.
fn descr_of(element: Element) -> Option<&'static str> {
    match element {
        Element::F32 => Some("<f4"),
        Element::F16 => Some("<f2"),
        Element::U8 => Some("|u1"),
        Element::I8 => Some("|i1"),
        Element::Bf16 | Element::B1 => None,
    }
}

/// Refuses an element for which NumPy has no type.
pub(crate) fn check_element(element: Element, path: &Path) -> Result<(), VectorError> {
    if descr_of(element).is_some() {
        return Ok(());
    }
    let reason = format!("cannot hold {element}, as numpy has no such type: write a .{element}bin file");
    Err(VectorError::Argument { path: path.to_path_buf(), reason })
}

/// The fields of a header.
pub(crate) struct Fields<'a> {
    /// NumPy's name of the type of the elements.
    pub descr: &'a str,
    /// True if columns are contiguous, not rows.
    pub fortran_order: bool,
    pub shape: Vec<u64>,
}

/// Parses the one Python literal that NumPy writes: a dictionary with three keys, in any order.
fn parse_dict(text: &str) -> Option<Fields<'_>> {
    let mut rest = text.trim().strip_prefix('{')?;
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix('}') {
            return match end.trim() {
                "" => Some(Fields { descr: descr?, fortran_order: fortran_order?, shape: shape? }),
                _ => None,
            };
        }
        let (key, after) = parse_string(rest)?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        rest = match key {
            "descr" => {
                let (found, after) = parse_string(value).or_else(|| parse_list(value))?;
                descr = Some(found);
                after
            }
            "fortran_order" => match value.strip_prefix("False") {
                Some(after) => {
                    fortran_order = Some(false);
                    after
                }
                None => {
                    fortran_order = Some(true);
                    value.strip_prefix("True")?
                }
            },
            "shape" => {
                let (found, after) = parse_tuple(value)?;
                shape = Some(found);
                after
            }
            _ => return None,
        };
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// Splits `text` into a quoted string without escapes, and the rest.
fn parse_string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    text[1..].split_once(quote)
}

/// Splits `text` into a list (the `descr` of a structured array), and the rest. The list is kept as text, so
/// that the error can quote it.
fn parse_list(text: &str) -> Option<(&str, &str)> {
    let end = text.starts_with('[').then(|| text.rfind(']'))??;
    Some((&text[..=end], &text[end + 1..]))
}

/// Splits `text` into a tuple of whole numbers (a trailing comma and Python 2's `L` are allowed), and the
/// rest.
fn parse_tuple(text: &str) -> Option<(Vec<u64>, &str)> {
    let (inside, after) = text.strip_prefix('(')?.split_once(')')?;
    let mut numbers = Vec::new();
    let mut parts = inside.split(',').map(str::trim).peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_none() {
            break;
        }
        let digits = part.strip_suffix('L').unwrap_or(part);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        numbers.push(digits.parse().ok()?);
    }
    Some((numbers, after))
}
