//! Rows of a file in a buffer, for work that must not hold all rows in memory.
//!
//! A mapped file takes the memory of the pages that were touched. The operating system chooses how much one
//! touch loads: 4 KiB, the 64 KiB around, or the 2 MiB of a large page of its cache (ext4 and XFS on Linux
//! 6). So work with a memory limit uses read calls in place of a map.

use std::ops::Range;

use bathyal_kernels::{Element, first_non_finite, to_f32};
use xxhash_rust::xxh3::Xxh3;

use super::error::VectorError;
use super::file::{LargestValue, VectorFile};
use super::format::check_prefix;

/// Consecutive rows of a [`VectorFile`].
#[derive(Clone, Copy, Debug)]
pub struct RowBlock<'a> {
    vectors: &'a VectorFile,
    /// The rows, each after its prefix if the format has one.
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

/// A reader of rows of a [`VectorFile`]. It reuses one buffer, so it takes the memory of one block. Vectors
/// that are in memory already are returned without a copy.
#[derive(Debug)]
pub struct RowReader<'a> {
    vectors: &'a VectorFile,
    buffer: Vec<u8>,
    /// The rows in the buffer.
    buffered: Range<usize>,
    /// Rows that [`RowReader::row`] reads at once.
    read_ahead: usize,
}

impl<'a> RowReader<'a> {
    /// Creates a reader whose [`RowReader::row`] reads `ahead_bytes` at once, at least one row. Use a large
    /// value for rows in order, 0 for rows in random order.
    pub fn new(vectors: &'a VectorFile, ahead_bytes: usize) -> RowReader<'a> {
        let read_ahead = (ahead_bytes / vectors.stride()).max(1);
        RowReader { vectors, buffer: Vec::new(), buffered: 0..0, read_ahead }
    }

    /// Returns row `row`: little-endian elements, at any alignment.
    ///
    /// # Errors
    /// As [`RowReader::block`].
    ///
    /// # Panics
    /// If `row` is not below [`VectorFile::count`], as indexing a slice does.
    #[inline]
    pub fn row(&mut self, row: usize) -> Result<&[u8], VectorError> {
        if self.vectors.is_in_memory() {
            return Ok(self.vectors.row(row));
        }
        if !self.buffered.contains(&row) {
            self.read(row..self.vectors.count().min(row + self.read_ahead))?;
        }
        let start = (row - self.buffered.start) * self.vectors.stride() + self.vectors.prefix_bytes();
        Ok(&self.buffer[start..start + self.vectors.row_bytes()])
    }

    /// Returns the rows `rows`.
    ///
    /// # Errors
    /// [`VectorError::Changed`] if the file was truncated, [`VectorError::Io`] if it cannot be read.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn block(&mut self, rows: Range<usize>) -> Result<RowBlock<'_>, VectorError> {
        if self.vectors.is_in_memory() {
            return Ok(self.vectors.block(rows));
        }
        if self.buffered != rows {
            self.read(rows.clone())?;
        }
        Ok(RowBlock { vectors: self.vectors, bytes: &self.buffer, first: rows.start, count: rows.len() })
    }

    fn read(&mut self, rows: Range<usize>) -> Result<(), VectorError> {
        // The buffer counts as empty if the read fails.
        self.buffered = 0..0;
        self.buffer.resize(self.vectors.range_bytes(&rows).len(), 0);
        self.vectors.read_rows(&rows, &mut self.buffer)?;
        self.buffered = rows;
        Ok(())
    }
}

impl<'a> RowBlock<'a> {
    pub(crate) fn new(vectors: &'a VectorFile, bytes: &'a [u8], rows: &Range<usize>) -> RowBlock<'a> {
        RowBlock { vectors, bytes, first: rows.start, count: rows.len() }
    }

    /// Returns the numbers of the rows in the file.
    pub fn rows(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Returns row `row` of the file: little-endian elements, at any alignment.
    ///
    /// # Panics
    /// If the block does not hold the row.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [u8] {
        let start = (row - self.first) * self.vectors.stride() + self.vectors.prefix_bytes();
        &self.bytes[start..start + self.vectors.row_bytes()]
    }

    /// Returns the part of the block that holds `rows`, by their numbers in the file.
    ///
    /// # Panics
    /// If the block does not hold them.
    pub(crate) fn part(&self, rows: Range<usize>) -> RowBlock<'a> {
        let stride = self.vectors.stride();
        let bytes = &self.bytes[(rows.start - self.first) * stride..(rows.end - self.first) * stride];
        RowBlock { vectors: self.vectors, bytes, first: rows.start, count: rows.len() }
    }

    /// Returns all rows without gaps; `None` if the format has gaps between rows.
    pub fn dense(&self) -> Option<&'a [u8]> {
        (self.vectors.prefix_bytes() == 0).then_some(self.bytes)
    }

    /// Refuses NaN, infinity, and (`.fvecs`, `.bvecs`) a row with another length.
    ///
    /// # Errors
    /// [`VectorError::NotFinite`] or [`VectorError::RowLength`] for the first bad row.
    pub fn check(&self) -> Result<(), VectorError> {
        // The pass reads the prefixes too, so that a block is one slice. A correct prefix, read as an f32, is
        // finite; a wrong one is found row by row below.
        let bytes = self.bytes.get(self.vectors.prefix_bytes()..).unwrap_or_default();
        if all_finite(self.vectors.element(), bytes) {
            return self.check_prefixes(self.rows());
        }
        for row in self.rows() {
            self.check_prefixes(row..row + 1)?;
            if first_non_finite(self.vectors.element(), self.row(row)).is_some() {
                return Err(self.not_finite(row));
            }
        }
        Ok(())
    }

    /// Checks that the prefix of each of `rows` is the dim, if the format has prefixes.
    pub(crate) fn check_prefixes(&self, mut rows: Range<usize>) -> Result<(), VectorError> {
        let (stride, vectors) = (self.vectors.stride(), self.vectors);
        if vectors.prefix_bytes() == 0 {
            return Ok(());
        }
        // The prefix counts the bytes of vectors that are taken as bits.
        let dim = if vectors.element() == Element::B1 { vectors.row_bytes() } else { vectors.dim() };
        rows.try_for_each(|row| {
            let prefix = &self.bytes[(row - self.first) * stride..];
            check_prefix(prefix, row, dim, vectors.path())
        })
    }

    /// Returns the error that names the first value of `row` that is not finite.
    pub(crate) fn not_finite(&self, row: usize) -> VectorError {
        let (bytes, element) = (self.row(row), self.vectors.element());
        let dimension = first_non_finite(element, bytes).unwrap_or_default();
        let mut value = [f32::NAN];
        to_f32(element, &bytes[element.row_bytes(dimension)..], &mut value);
        VectorError::NotFinite {
            path: self.vectors.path().to_path_buf(),
            row: row as u64,
            dimension,
            value: value[0],
        }
    }

    /// Returns the value of the largest magnitude in f32 or bf16 rows. `None` for other elements, whose
    /// squares all fit f32, and for a block without rows.
    pub fn largest(&self) -> Option<LargestValue> {
        let halves = match self.vectors.element() {
            Element::F32 => false,
            Element::Bf16 => true,
            Element::F16 | Element::U8 | Element::I8 | Element::B1 => return None,
        };
        // Magnitudes have the order of their bits.
        let largest_of = |row: usize| {
            let row = self.row(row);
            if halves {
                let bits = row.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b) & 0x7fff);
                return u32::from(bits.fold(0, u16::max)) << 16;
            }
            let bits = row.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b) & 0x7fff_ffff);
            bits.fold(0, u32::max)
        };
        let rows = self.rows().map(|row| (largest_of(row), row));
        let largest = rows.reduce(|a, b| if b.0 > a.0 { b } else { a });
        largest.map(|(bits, row)| LargestValue { row, value: f32::from_bits(bits) })
    }

    /// Adds the elements, without prefixes, to a hash.
    pub(crate) fn hash(&self, hash: &mut Xxh3) {
        match self.dense() {
            Some(bytes) => hash.update(bytes),
            None => self.rows().for_each(|row| hash.update(self.row(row))),
        }
    }
}

/// Returns true if no element of `bytes` is NaN or infinite. Unlike [`first_non_finite`] it never returns
/// early, so the compiler can use vector registers: several times faster if all elements are finite.
fn all_finite(element: Element, bytes: &[u8]) -> bool {
    match element {
        Element::F32 => !bytes
            .as_chunks::<4>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u32::from_le_bytes(*b) & 0x7f80_0000 == 0x7f80_0000)),
        Element::F16 => !bytes
            .as_chunks::<2>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u16::from_le_bytes(*b) & 0x7c00 == 0x7c00)),
        Element::Bf16 => !bytes
            .as_chunks::<2>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u16::from_le_bytes(*b) & 0x7f80 == 0x7f80)),
        Element::U8 | Element::I8 | Element::B1 => true,
    }
}
