//! Full vectors in the memory of a card, for exact distances without reads from a disk: `kernels/exact.h`.

use crate::card::{Card, CardMemory, CardQueue};
use crate::error::GpuError;
use bathyal_kernels::{Element, Metric};

/// Maximum number of dimensions: a sum of this many squares of bytes fits 32 bits.
const MOST_DIM: u32 = 1 << 16;
/// Bytes of vectors in one copy.
const COPY_BYTES: usize = 1 << 20;
/// Number of words of the kernel's `Exact`.
pub(crate) const EXACT_WORDS: usize = 8;

/// Parameters of exact distances: a distance is `shift + scale * metric`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exact {
    /// The metric.
    pub metric: Metric,
    /// Element of stored vectors.
    pub row: Element,
    /// Element of queries: the same, or f32.
    pub query: Element,
    /// Number of dimensions.
    pub dim: u32,
    /// Factor of the metric.
    pub scale: f32,
    /// Summand.
    pub shift: f32,
}

impl Exact {
    /// Returns the bytes of a stored vector on the card, a multiple of 4.
    pub(crate) fn row_bytes(&self) -> u32 {
        (self.row.row_bytes(self.dim as usize) as u32).next_multiple_of(4)
    }

    /// Returns the bytes of a query on the card.
    pub(crate) fn query_bytes(&self) -> usize {
        self.query.row_bytes(self.dim as usize).next_multiple_of(4)
    }

    /// Returns the words of the kernel's `Exact`.
    pub(crate) fn words(&self) -> [u32; EXACT_WORDS] {
        let component = match self.row {
            Element::F32 => 0,
            Element::F16 => 1,
            Element::U8 => 2,
            Element::I8 => 3,
            Element::Bf16 => 4,
            Element::B1 => 5,
        };
        let metric = match self.metric {
            Metric::L2 => 0,
            Metric::InnerProduct => 1,
            Metric::Cosine => 2,
        };
        let has_f32_query = u32::from(self.query == Element::F32);
        let (scale, shift) = (self.scale.to_bits(), self.shift.to_bits());
        [self.dim, self.row_bytes(), component, has_f32_query, metric, scale, shift, 0]
    }
}

/// Upload of vectors and ids to a card, in the order of their places.
#[derive(Debug)]
pub struct VectorUpload {
    queue: Box<dyn CardQueue>,
    vectors: Box<dyn CardMemory>,
    ids: Box<dyn CardMemory>,
    exact: Exact,
    places: u64,
    /// Rows to copy next.
    rows: Vec<u8>,
    /// Ids to copy next.
    numbers: Vec<u8>,
    copied: u64,
}

impl VectorUpload {
    /// Allocates memory of `card` for `places` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where they do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &dyn Card, exact: Exact, places: u64) -> Result<VectorUpload, GpuError> {
        if exact.dim > MOST_DIM {
            let text = format!("a graphics card cannot compare vectors of {} dimensions", exact.dim);
            return Err(GpuError::Unsuited(text));
        }
        let what = "the vectors of the index (--tier gpu)";
        Ok(VectorUpload {
            queue: card.queue()?,
            vectors: card.allocate(what, places * u64::from(exact.row_bytes()))?,
            ids: card.allocate(what, places * 4)?,
            exact,
            places,
            rows: Vec::new(),
            numbers: Vec::new(),
            copied: 0,
        })
    }

    /// Appends the vector of the next place and its id. A place without a vector takes any bytes.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn append(&mut self, row: &[u8], id: u32) -> Result<(), GpuError> {
        let end = self.rows.len() + self.exact.row_bytes() as usize;
        self.rows.extend_from_slice(row);
        self.rows.resize(end, 0);
        self.numbers.extend(id.to_le_bytes());
        if self.rows.len() >= COPY_BYTES { self.copy() } else { Ok(()) }
    }

    fn copy(&mut self) -> Result<(), GpuError> {
        self.queue.write(&*self.vectors, self.copied * u64::from(self.exact.row_bytes()), &self.rows)?;
        self.queue.write(&*self.ids, self.copied * 4, &self.numbers)?;
        self.copied += self.numbers.len() as u64 / 4;
        self.rows.clear();
        self.numbers.clear();
        Ok(())
    }

    /// Finishes the upload.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also if there were fewer vectors than places.
    pub fn finish(mut self) -> Result<Vectors, GpuError> {
        self.copy()?;
        if self.copied != self.places {
            let reason = format!("{} of {} vectors were appended", self.copied, self.places);
            return Err(GpuError::Driver { operation: "upload the vectors", reason });
        }
        self.queue.finish()?;
        Ok(Vectors { vectors: self.vectors, ids: self.ids, exact: self.exact, places: self.places })
    }
}

/// Vectors on a card.
#[derive(Debug)]
pub struct Vectors {
    vectors: Box<dyn CardMemory>,
    ids: Box<dyn CardMemory>,
    pub(crate) exact: Exact,
    pub(crate) places: u64,
}

impl Vectors {
    /// Returns the addresses of its memory, and how the vectors are compared.
    pub(crate) fn addresses(&self) -> VectorAddresses {
        VectorAddresses { exact: self.exact, vectors: self.vectors.address(), ids: self.ids.address() }
    }

    /// Returns its memory.
    pub(crate) fn into_memory(self) -> [Box<dyn CardMemory>; 2] {
        [self.vectors, self.ids]
    }
}

/// Addresses of vectors on a card, and how they are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VectorAddresses {
    /// How they are compared.
    pub(crate) exact: Exact,
    /// Address of the vectors.
    pub(crate) vectors: u64,
    /// Address of their ids.
    pub(crate) ids: u64,
}

/// Splits a key of a card into the distance of a vector and its number.
pub(crate) fn split_key(key: u64) -> (f32, u32) {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered ^ 1 << 31 } else { !ordered };
    (f32::from_bits(bits), key as u32)
}
