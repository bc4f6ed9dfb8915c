//! Streaming conversion between file formats and between elements.

use std::ops::Range;
use std::path::Path;

use bathyal_kernels::{Element, first_non_finite, from_f32, to_f32};
use half::{bf16, f16};

use super::error::VectorError;
use super::file::{Access, VectorFile};
use super::format::FileFormat;
use super::ids::{IdFile, IdFormat, is_npy};
use super::writer::{VectorWriter, write_ids};
use crate::progress::Progress;

/// Bytes of the input that are converted between two checks for cancellation. They take a few milliseconds,
/// far below the 100 within which a cancellation has to be noticed.
const BLOCK_BYTES: usize = 1 << 20;

/// Shape and element of the output of [`convert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionSummary {
    /// Rows: vectors, or the queries of a file of ids.
    pub count: u64,
    /// Elements (or ids) in each row.
    pub dim: usize,
    /// Element of the output; `None` for files of ids.
    pub element: Option<Element>,
}

/// Copies `input` to `output`, each in the format of its extension.
///
/// `element` is the element of the output. `None` takes the element that the format of `output` fixes, or,
/// for `.npy`, the element of the input. `range` selects rows; `None` takes all. Both files hold vectors, or
/// both hold ids (`.ivecs` keeps no distances). The output replaces an existing file in one step at the end;
/// after an error or a cancellation that file is unchanged. Vectors take the memory of a few blocks; ids are
/// held in memory whole.
///
/// If the element stays the same, the rows are copied bit by bit. f16 and bf16 are rounded to the nearest
/// value. For u8, i8 and b1 every value has to be whole and in range, since silent rounding would change
/// which neighbours are nearest.
///
/// # Errors
/// [`VectorError::NotRepresentable`] and [`VectorError::NotFinite`] name the first value that the new
/// element cannot hold; [`VectorError::WrongElement`] if the format of `output` fixes another element;
/// [`VectorError::Range`]; [`VectorError::Cancelled`]; and all errors of reading and writing.
pub fn convert(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    element: Option<Element>,
    range: Option<Range<u64>>,
    progress: &dyn Progress,
) -> Result<ConversionSummary, VectorError> {
    let (input, output) = (input.as_ref(), output.as_ref());
    if IdFormat::from_path(input).is_ok() || is_npy(input) && IdFormat::from_path(output).is_ok() {
        return convert_ids(input, output, element, range, progress);
    }
    let format = FileFormat::from_path(output)?;
    let (source, _) = VectorFile::open_converted(input)?;
    let rows = checked_range(range, source.count(), input)?;
    let element = element.or(format.element()).unwrap_or(source.element());
    let mut writer = VectorWriter::create(output, element, source.dim())?;
    source.advise(Access::Sequential);
    progress.stage("convert", rows.len() as u64);
    let block = (BLOCK_BYTES / source.stride()).max(1);
    let mut encoder = Encoder::new(&source, element);
    for start in rows.clone().step_by(block) {
        if progress.cancelled() {
            return Err(VectorError::Cancelled);
        }
        source.check_length()?;
        let end = (start + block).min(rows.end);
        writer.push_rows(encoder.encode(start..end)?)?;
        progress.advance((end - rows.start) as u64);
    }
    writer.finish()?;
    Ok(ConversionSummary { count: rows.len() as u64, dim: source.dim(), element: Some(element) })
}

fn convert_ids(
    input: &Path,
    output: &Path,
    element: Option<Element>,
    range: Option<Range<u64>>,
    progress: &dyn Progress,
) -> Result<ConversionSummary, VectorError> {
    IdFormat::from_path(output)?;
    if let Some(element) = element {
        let reason = format!("holds ids, which cannot become {element} vectors");
        return Err(VectorError::Argument { path: input.to_path_buf(), reason });
    }
    let source = IdFile::open(input)?;
    let rows = checked_range(range, source.queries(), input)?;
    progress.stage("convert", rows.len() as u64);
    if progress.cancelled() {
        return Err(VectorError::Cancelled);
    }
    write_ids(output, &source.slice(rows.clone())?)?;
    progress.advance(rows.len() as u64);
    Ok(ConversionSummary { count: rows.len() as u64, dim: source.k(), element: None })
}

/// Returns the rows of `range`, or all `count` rows; refuses an empty range and rows that do not exist.
fn checked_range(range: Option<Range<u64>>, count: usize, path: &Path) -> Result<Range<usize>, VectorError> {
    let Some(Range { start, end }) = range else { return Ok(0..count) };
    if start >= end || end > count as u64 {
        return Err(VectorError::Range { path: path.to_path_buf(), start, end, count: count as u64 });
    }
    // Both are at most `count`.
    Ok(start as usize..end as usize)
}

/// Converter of rows to another element. It reuses its buffers from block to block.
struct Encoder<'a> {
    source: &'a VectorFile,
    element: Element,
    values: Vec<f32>,
    out: Vec<u8>,
}

impl<'a> Encoder<'a> {
    fn new(source: &'a VectorFile, element: Element) -> Encoder<'a> {
        Encoder { source, element, values: vec![0.0; source.dim()], out: Vec::new() }
    }

    /// Returns `rows` in the new element, without gaps.
    fn encode(&mut self, rows: Range<usize>) -> Result<&[u8], VectorError> {
        let block = self.source.block(rows.clone());
        block.check_prefixes(rows.clone())?;
        self.out.clear();
        let same = self.source.element() == self.element;
        if same && let Some(bytes) = block.dense() {
            return Ok(bytes);
        }
        for row in rows {
            let bytes = block.row(row);
            if same {
                self.out.extend_from_slice(bytes);
                continue;
            }
            if first_non_finite(self.source.element(), bytes).is_some() {
                return Err(block.not_finite(row));
            }
            to_f32(self.source.element(), bytes, &mut self.values);
            if let Err((dimension, advice)) = encode_row(self.element, &self.values, &mut self.out) {
                return Err(VectorError::NotRepresentable {
                    path: self.source.path().to_path_buf(),
                    row: row as u64,
                    dimension,
                    value: self.values[dimension],
                    element: self.element,
                    advice,
                });
            }
        }
        Ok(&self.out)
    }
}

/// Appends finite `values` to `out` as `element`, by the rules of [`convert`].
///
/// # Errors
/// The first dimension whose value `element` cannot hold, and advice.
pub fn encode_row(element: Element, values: &[f32], out: &mut Vec<u8>) -> Result<(), (usize, &'static str)> {
    const WHOLE: &str =
        "8-bit elements hold only whole numbers in their range: scale and round the data first";
    const HALF: &str = "the largest f16 is 65504: scale the data first or keep it in f32";
    const BRAIN: &str = "the largest bf16 is 3.39e38: scale the data first or keep it in f32";
    const BITS: &str = "bits are 0 or 1: compare the data with a threshold first";
    let first_unfit =
        |low: f32, high: f32| values.iter().position(|v| v.fract() != 0.0 || *v < low || *v > high);
    let (unfit, advice) = match element {
        Element::U8 => (first_unfit(0.0, 255.0), WHOLE),
        Element::I8 => (first_unfit(-128.0, 127.0), WHOLE),
        Element::B1 => (first_unfit(0.0, 1.0), BITS),
        Element::F16 => (values.iter().position(|value| f16::from_f32(*value).is_infinite()), HALF),
        Element::Bf16 => (values.iter().position(|value| bf16::from_f32(*value).is_infinite()), BRAIN),
        Element::F32 => (None, ""),
    };
    if let Some(dimension) = unfit {
        return Err((dimension, advice));
    }
    let start = out.len();
    out.resize(start + element.row_bytes(values.len()), 0);
    from_f32(element, values, &mut out[start..]);
    Ok(())
}
