//! The formats of vector files, and the positions of rows in them.

use std::path::Path;

use bathyal_kernels::Element;

use super::error::VectorError;
use super::npy;

/// Most dimensions of a vector. Real embeddings stay below 10,000. A larger dim in a header nearly always
/// means that the file has another layout, so it is refused.
pub const MAX_DIM: usize = 65_536;

/// Bytes of the count and dim that begin a `.?bin` file.
pub(crate) const BIN_HEADER_BYTES: usize = 8;

/// Bytes of the length that begins every row of a `.?vecs` file.
pub(crate) const ROW_PREFIX_BYTES: usize = 4;

/// Rows whose length prefix is checked at opening; all of them are checked by
/// [`check_finite`](super::VectorFile::check_finite), which reads the whole file anyway.
const PREFIXES_CHECKED_AT_OPEN: usize = 256;

/// The format of a file of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// `.fbin`, `.f16bin`, `.bf16bin`, `.u8bin`, `.i8bin`, `.b1bin`: one header, then the rows.
    Bin(Element),
    /// `.fvecs`, `.bvecs`: every row begins with its length.
    Vecs(Element),
    /// `.npy`: the header names the element.
    Npy,
}

impl FileFormat {
    /// Returns the format that the extension of `path` stands for, in upper or lower case.
    ///
    /// # Errors
    /// [`VectorError::UnknownExtension`].
    pub fn from_path(path: &Path) -> Result<FileFormat, VectorError> {
        let found = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        Ok(match found.as_str() {
            "fbin" => FileFormat::Bin(Element::F32),
            "f16bin" => FileFormat::Bin(Element::F16),
            "u8bin" => FileFormat::Bin(Element::U8),
            "i8bin" => FileFormat::Bin(Element::I8),
            "bf16bin" => FileFormat::Bin(Element::Bf16),
            "b1bin" => FileFormat::Bin(Element::B1),
            "fvecs" => FileFormat::Vecs(Element::F32),
            "bvecs" => FileFormat::Vecs(Element::U8),
            "npy" => FileFormat::Npy,
            other => {
                let advice = match other {
                    "ibin" | "ivecs" => "this one holds ids (ground truth), not vectors",
                    "hdf5" | "h5" | "h5ad" | "parquet" | "pq" | "arrow" | "feather" => {
                        "convert it with the Python package: bathyal.convert(FILE, \"vectors.fbin\", \
                         key=DATASET)"
                    }
                    _ => "rename the file to the extension of its format, or convert it",
                };
                return Err(VectorError::UnknownExtension {
                    path: path.to_path_buf(),
                    found,
                    expected: ".fbin .f16bin .bf16bin .u8bin .i8bin .b1bin .fvecs .bvecs .npy",
                    advice,
                });
            }
        })
    }

    /// Returns the element of every file of this format; `None` for `.npy`, whose header names it.
    pub fn element(self) -> Option<Element> {
        match self {
            FileFormat::Bin(element) | FileFormat::Vecs(element) => Some(element),
            FileFormat::Npy => None,
        }
    }
}

/// The positions of the rows in a file: row `i` is the `row_bytes()` bytes from `start + i * stride` on.
///
/// [`RowLayout::parse`] and [`RowLayout::dense`] check that all rows are within the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    pub element: Element,
    pub count: usize,
    pub dim: usize,
    pub start: usize,
    pub stride: usize,
}

impl RowLayout {
    pub(crate) fn row_bytes(&self) -> usize {
        self.element.row_bytes(self.dim)
    }

    /// Reads the layout of `bytes`, a whole file of `format`. `path` is for messages only.
    pub(crate) fn parse(format: FileFormat, bytes: &[u8], path: &Path) -> Result<RowLayout, VectorError> {
        if bytes.is_empty() {
            return Err(VectorError::Empty { path: path.to_path_buf(), what: "vectors" });
        }
        match format {
            FileFormat::Bin(element) => {
                let (count, dim) = bin_header(bytes, path)?;
                check_counts(count, dim, "vectors", path)?;
                RowLayout::headed(element, count, dim, BIN_HEADER_BYTES, bytes.len(), path)
            }
            FileFormat::Vecs(element) => {
                let row = prefixed_rows(bytes, element.bits() / 8, "vectors", path)?;
                Ok(RowLayout {
                    element,
                    count: row.count,
                    dim: row.dim,
                    start: ROW_PREFIX_BYTES,
                    stride: row.stride,
                })
            }
            FileFormat::Npy => {
                let header = npy::parse(bytes, path)?;
                check_counts(header.count, header.dim, "vectors", path)?;
                RowLayout::headed(header.element, header.count, header.dim, header.start, bytes.len(), path)
            }
        }
    }

    /// Returns the layout of `len` bytes that hold rows without a header.
    pub(crate) fn dense(
        element: Element,
        dim: usize,
        len: usize,
        path: &Path,
    ) -> Result<RowLayout, VectorError> {
        check_dim(dim as u64, path)?;
        check_whole_bytes(element, dim as u64, path)?;
        let stride = element.row_bytes(dim);
        if len == 0 {
            return Err(VectorError::Empty { path: path.to_path_buf(), what: "vectors" });
        }
        if !len.is_multiple_of(stride) {
            return Err(VectorError::PartialRow {
                path: path.to_path_buf(),
                found: len as u64,
                row_bytes: stride as u64,
            });
        }
        check_counts((len / stride) as u64, dim as u64, "vectors", path)?;
        Ok(RowLayout { element, count: len / stride, dim, start: 0, stride })
    }

    /// Returns the layout of `count` rows without gaps.
    pub(crate) fn of_shape(
        element: Element,
        dim: usize,
        count: u64,
        path: &Path,
    ) -> Result<RowLayout, VectorError> {
        check_counts(count, dim as u64, "vectors", path)?;
        check_whole_bytes(element, dim as u64, path)?;
        let stride = element.row_bytes(dim);
        Ok(RowLayout { element, count: count as usize, dim, start: 0, stride })
    }

    /// Returns the layout of rows after one header of `start` bytes. The caller has checked the ranges of
    /// `count` and `dim`.
    fn headed(
        element: Element,
        count: u64,
        dim: u64,
        start: usize,
        len: usize,
        path: &Path,
    ) -> Result<RowLayout, VectorError> {
        check_whole_bytes(element, dim, path)?;
        check_length(count, dim, element, start, len, path)?;
        // The product was just found equal to the length, so both factors fit usize.
        let (count, dim) = (count as usize, dim as usize);
        Ok(RowLayout { element, count, dim, start, stride: element.row_bytes(dim) })
    }
}

/// Reads the count and the dim at the beginning of a `.?bin` file.
pub(crate) fn bin_header(bytes: &[u8], path: &Path) -> Result<(u64, u64), VectorError> {
    match (read_u32(bytes, 0), read_u32(bytes, 4)) {
        (Some(count), Some(dim)) => Ok((u64::from(count), u64::from(dim))),
        _ => Err(VectorError::ShortHeader {
            path: path.to_path_buf(),
            found: bytes.len() as u64,
            expected: BIN_HEADER_BYTES as u64,
        }),
    }
}

/// Refuses a dim of zero or above [`MAX_DIM`].
pub(crate) fn check_dim(dim: u64, path: &Path) -> Result<(), VectorError> {
    if dim == 0 || dim > MAX_DIM as u64 {
        return Err(VectorError::Header {
            path: path.to_path_buf(),
            field: "dim",
            found: dim,
            expected: format!("1 to {MAX_DIM}"),
        });
    }
    Ok(())
}

/// Refuses vectors of bits whose dim is not a multiple of 8.
pub(crate) fn check_whole_bytes(element: Element, dim: u64, path: &Path) -> Result<(), VectorError> {
    if element != Element::B1 || dim.is_multiple_of(8) {
        return Ok(());
    }
    Err(VectorError::Header {
        path: path.to_path_buf(),
        field: "dim",
        found: dim,
        expected:
            "a multiple of 8, as a byte holds eight bits; zeros appended to each vector change no distance"
                .to_owned(),
    })
}

/// Refuses a count of zero, a count above what a u32 id can name, and a bad dim.
pub(crate) fn check_counts(count: u64, dim: u64, what: &'static str, path: &Path) -> Result<(), VectorError> {
    if count == 0 {
        return Err(VectorError::Empty { path: path.to_path_buf(), what });
    }
    if count > u64::from(u32::MAX) {
        return Err(VectorError::Header {
            path: path.to_path_buf(),
            field: "count",
            found: count,
            expected: format!("1 to {}, what a 32-bit id can name", u32::MAX),
        });
    }
    check_dim(dim, path)
}

/// Refuses a file of `len` bytes whose header implies another length.
fn check_length(
    count: u64,
    dim: u64,
    element: Element,
    start: usize,
    len: usize,
    path: &Path,
) -> Result<(), VectorError> {
    // `check_dim` has bounded the dim, so the cast loses nothing.
    let row_bytes = element.row_bytes(dim as usize) as u64;
    let body = count.checked_mul(row_bytes).filter(|b| isize::try_from(*b).is_ok());
    let Some(expected) = body.and_then(|b| b.checked_add(start as u64)) else {
        return Err(VectorError::Overflow { path: path.to_path_buf(), count, row_bytes });
    };
    let found = len as u64;
    if found == expected {
        return Ok(());
    }
    let body = found - (start as u64).min(found);
    let advice = length_advice(count, dim, element, body, found < expected);
    let path = path.to_path_buf();
    Err(if found < expected {
        VectorError::Truncated { path, found, expected, advice }
    } else {
        VectorError::OverLong { path, found, expected, advice }
    })
}

/// Returns advice about a body of `body` bytes. If the length fits another element, it points at the
/// extension.
fn length_advice(count: u64, dim: u64, element: Element, body: u64, short: bool) -> String {
    let values = count.saturating_mul(dim);
    let widths = [
        (8, "8-bit (.u8bin, .i8bin)"),
        (16, "16-bit (.f16bin, .bf16bin)"),
        (32, "32-bit (.fbin)"),
        (1, "1-bit (.b1bin)"),
    ];
    for (bits, name) in widths {
        if bits != element.bits() as u64 && values.checked_mul(bits) == body.checked_mul(8) {
            return format!("the length fits {name} elements, so the extension may be wrong");
        }
    }
    let advice = if short {
        "copy it again, unless the header is damaged"
    } else {
        "it has extra bytes at the end, a damaged header, or the wrong extension"
    };
    advice.to_string()
}

/// Shape of a file whose rows begin with their length.
pub(crate) struct PrefixedRows {
    pub count: usize,
    pub dim: usize,
    pub stride: usize,
}

/// Reads the shape of a `.?vecs` file of elements of `size` bytes. Checks the length prefixes of a sample of
/// the rows, with the first and the last among them.
pub(crate) fn prefixed_rows(
    bytes: &[u8],
    size: usize,
    what: &'static str,
    path: &Path,
) -> Result<PrefixedRows, VectorError> {
    let found = bytes.len() as u64;
    let Some(dim) = read_u32(bytes, 0) else {
        let expected = ROW_PREFIX_BYTES as u64;
        return Err(VectorError::ShortHeader { path: path.to_path_buf(), found, expected });
    };
    check_dim(u64::from(dim), path)?;
    let dim = dim as usize;
    let stride = ROW_PREFIX_BYTES + dim * size;
    if !bytes.len().is_multiple_of(stride) {
        return Err(VectorError::Truncated {
            path: path.to_path_buf(),
            found,
            expected: found.next_multiple_of(stride as u64),
            advice: format!(
                "row 0 has {dim} elements, so a row takes {stride} bytes, and the last row is incomplete: \
                 copy the file again, or the extension is wrong"
            ),
        });
    }
    let count = bytes.len() / stride;
    check_counts(count as u64, dim as u64, what, path)?;
    let step = count.div_ceil(PREFIXES_CHECKED_AT_OPEN);
    for row in (0..count).step_by(step).chain([count - 1]) {
        check_prefix(&bytes[row * stride..], row, dim, path)?;
    }
    Ok(PrefixedRows { count, dim, stride })
}

/// Refuses row `row` of a `.?vecs` file if its prefix, the first four of `bytes`, is not `dim`.
pub(crate) fn check_prefix(bytes: &[u8], row: usize, dim: usize, path: &Path) -> Result<(), VectorError> {
    let found = read_u32(bytes, 0).map_or(0, u64::from);
    if found == dim as u64 {
        return Ok(());
    }
    Err(VectorError::RowLength { path: path.to_path_buf(), row: row as u64, found, expected: dim as u64 })
}

/// Reads the little-endian u32 at byte `at`; `None` if `bytes` ends before it does.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
}
