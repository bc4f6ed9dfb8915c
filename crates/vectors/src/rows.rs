//! Rows of a file in a buffer, for whoever goes through more of them than may be held.
//!
//! A mapped file takes as much memory as was touched of it, and how much one byte touches is the system's choice: 4 KiB,
//! the 64 KiB around, or the 2 MiB of a large page of its cache (ext4 and XFS on Linux 6). So work with a limit reads.

use std::ops::Range;

use bathyal_kernels::{Element, first_non_finite, to_f32};
use xxhash_rust::xxh3::Xxh3;

use super::error::VectorError;
use super::file::{Largest, VectorFile};
use super::format::check_prefix;

/// Some rows of a [`VectorFile`], one after the other.
#[derive(Clone, Copy, Debug)]
pub struct RowBlock<'a> {
    vectors: &'a VectorFile,
    /// The rows, each after its prefix where the format has one.
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

/// Reads rows of a [`VectorFile`] into a buffer that it reuses, so that they take the memory of one block. Vectors that are
/// in memory already are lent out as they are.
#[derive(Debug)]
pub struct RowReader<'a> {
    vectors: &'a VectorFile,
    buffer: Vec<u8>,
    /// The rows in the buffer.
    held: Range<usize>,
    /// Rows that are read at once by [`RowReader::row`].
    ahead: usize,
}

impl<'a> RowReader<'a> {
    /// A reader whose [`RowReader::row`] reads `ahead_bytes` at once, at least a row: much for rows from front to back, 0
    /// for rows here and there.
    pub fn new(vectors: &'a VectorFile, ahead_bytes: usize) -> RowReader<'a> {
        let ahead = (ahead_bytes / vectors.stride()).max(1);
        RowReader { vectors, buffer: Vec::new(), held: 0..0, ahead }
    }

    /// Row `row`: little-endian elements, at any alignment.
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
        if !self.held.contains(&row) {
            self.read(row..self.vectors.count().min(row + self.ahead))?;
        }
        let start = (row - self.held.start) * self.vectors.stride() + self.vectors.prefix_bytes();
        Ok(&self.buffer[start..start + self.vectors.row_bytes()])
    }

    /// The rows `rows`.
    ///
    /// # Errors
    /// [`VectorError::Changed`] if the file was cut, [`VectorError::Io`] if it cannot be read.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn block(&mut self, rows: Range<usize>) -> Result<RowBlock<'_>, VectorError> {
        if self.vectors.is_in_memory() {
            return Ok(self.vectors.block(rows));
        }
        if self.held != rows {
            self.read(rows.clone())?;
        }
        Ok(RowBlock { vectors: self.vectors, bytes: &self.buffer, first: rows.start, count: rows.len() })
    }

    fn read(&mut self, rows: Range<usize>) -> Result<(), VectorError> {
        // Nothing is held if this fails.
        self.held = 0..0;
        self.buffer.resize(self.vectors.range_bytes(&rows).len(), 0);
        self.vectors.read_rows(&rows, &mut self.buffer)?;
        self.held = rows;
        Ok(())
    }
}

impl<'a> RowBlock<'a> {
    pub(crate) fn new(vectors: &'a VectorFile, bytes: &'a [u8], rows: &Range<usize>) -> RowBlock<'a> {
        RowBlock { vectors, bytes, first: rows.start, count: rows.len() }
    }

    /// The numbers of the rows.
    pub fn rows(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Row `row` of the file: little-endian elements, at any alignment.
    ///
    /// # Panics
    /// If the block does not hold it.
    #[inline]
    pub fn row(&self, row: usize) -> &'a [u8] {
        let start = (row - self.first) * self.vectors.stride() + self.vectors.prefix_bytes();
        &self.bytes[start..start + self.vectors.row_bytes()]
    }

    /// The rows `rows` of it, by their numbers in the file, as a block.
    ///
    /// # Panics
    /// If the block does not hold them.
    pub(crate) fn part(&self, rows: Range<usize>) -> RowBlock<'a> {
        let stride = self.vectors.stride();
        let bytes = &self.bytes[(rows.start - self.first) * stride..(rows.end - self.first) * stride];
        RowBlock { vectors: self.vectors, bytes, first: rows.start, count: rows.len() }
    }

    /// All rows without gaps; `None` if the format has gaps between rows.
    pub fn dense(&self) -> Option<&'a [u8]> {
        (self.vectors.prefix_bytes() == 0).then_some(self.bytes)
    }

    /// Refuses NaN, infinity, and (`.fvecs`, `.bvecs`) a row of another length.
    ///
    /// # Errors
    /// [`VectorError::NotFinite`] or [`VectorError::RowLength`] for the first bad row.
    pub fn check(&self) -> Result<(), VectorError> {
        // Over the gaps too, so that a block is one pass: a right prefix, read as an f32, is finite, and a
        // wrong one is found row by row below.
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

    /// Checks that each of `rows` begins with the dim, where the format has rows that do.
    pub(crate) fn check_prefixes(&self, mut rows: Range<usize>) -> Result<(), VectorError> {
        let (stride, vectors) = (self.vectors.stride(), self.vectors);
        if vectors.prefix_bytes() == 0 {
            return Ok(());
        }
        // Bits are read from bytes, which the prefix counts.
        let dim = if vectors.element() == Element::B1 { vectors.row_bytes() } else { vectors.dim() };
        rows.try_for_each(|row| {
            let prefix = &self.bytes[(row - self.first) * stride..];
            check_prefix(prefix, row, dim, vectors.path())
        })
    }

    /// The error that names the first value of `row` that is not finite.
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

    /// The largest value of f32 or bf16 rows, by its magnitude; `None` for other elements, whose squares all fit f32, and
    /// for no rows.
    pub fn largest(&self) -> Option<Largest> {
        let halves = match self.vectors.element() {
            Element::F32 => false,
            Element::Bf16 => true,
            Element::F16 | Element::U8 | Element::I8 | Element::B1 => return None,
        };
        // Magnitudes are ordered like their bits.
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
        largest.map(|(bits, row)| Largest { row, value: f32::from_bits(bits) })
    }

    /// Adds the elements to a hash, the same in every format.
    pub(crate) fn hash(&self, hash: &mut Xxh3) {
        match self.dense() {
            Some(bytes) => hash.update(bytes),
            None => self.rows().for_each(|row| hash.update(self.row(row))),
        }
    }
}

/// True if no element of `bytes` is NaN or infinite. Unlike [`first_non_finite`] it never leaves early,
/// which lets the compiler use vector registers: several times faster where all is well.
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
