//! Data that hops and walks share: the codes of all vectors, and the pivots, in the memory of a card.

use crate::card::{Card, CardMemory, CardProfile, CardQueue};
use crate::error::GpuError;
use crate::fields::append_fields;
use crate::service::THREADS;

/// Marks the absence of a vector or query.
pub(crate) const NONE: u32 = u32::MAX;
/// Bytes after the last code that the kernel may load with it.
const SPARE_BYTES: usize = 8;
/// Bytes of the four numbers before a query's components.
const HEAD_BYTES: usize = 16;
/// Vectors have numbers of 31 bits, because a key uses one bit to mark expanded vectors.
const MOST_VECTORS: u64 = 1 << 31;
/// Bits of a group's number in [`Codes::planes`].
const GROUP_BITS: u32 = 13;

/// Layout of the codes, and the vectors at which queries begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codes {
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Bytes of the two factors of a code: 4 or 8.
    pub factor_bytes: u32,
    /// For each byte after the factors, its plane (0 to 7) and its group of 8 dimensions, encoded by
    /// [`Codes::plane`].
    pub planes: Vec<u16>,
    /// Number of groups of 8 dimensions.
    pub groups: u32,
    /// True if queries have 16 bits for each dimension instead of 8.
    pub fine: bool,
    /// Pivots: a query starts at the nearest of them (GustANN, section 4.4).
    pub pivots: Vec<u32>,
    /// Entry point, at which every query starts, too.
    pub entry: u32,
}

impl Codes {
    /// Encodes a byte's plane and group of dimensions. Returns `None` for numbers that the kernels do not
    /// support.
    pub fn plane(plane: u8, group: usize) -> Option<u16> {
        let fits = plane < 8 && group < 1 << GROUP_BITS;
        fits.then_some(u16::from(plane) << GROUP_BITS | group as u16)
    }

    /// Returns the bytes of a query on the card.
    pub fn query_bytes(&self) -> usize {
        HEAD_BYTES + 8 * self.groups as usize * if self.fine { 2 } else { 1 }
    }

    /// Returns the bytes of shared memory of a block, for candidate lists of length `list`.
    pub(crate) fn shared_bytes(&self, list: u32) -> u64 {
        let keys = 2 * u64::from(list) + 2 * u64::from(THREADS);
        8 * keys + self.query_bytes() as u64 + 4 * u64::from(THREADS / 32 + 1) + 2 * self.planes.len() as u64
    }
}

/// Checks that a card has enough shared memory for candidate lists of length `list`.
pub(crate) fn check_shared(profile: &CardProfile, list: u32, shared: u64) -> Result<(), GpuError> {
    if shared <= u64::from(profile.shared_bytes) {
        return Ok(());
    }
    Err(GpuError::Unsuited(format!(
        "a list of {list} candidates needs {shared} bytes of shared memory for each block, and {} has {}: \
         use a shorter one, or leave --device gpu out",
        profile.name, profile.shared_bytes
    )))
}

/// Upload of codes to a card, piece by piece, so that they need not all be in memory.
#[derive(Debug)]
pub struct GraphUpload<'a> {
    card: &'a dyn Card,
    shape: Codes,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    codes_bytes: u64,
    written: u64,
}

impl<'a> GraphUpload<'a> {
    /// Allocates memory of `card` for the codes of `vectors` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Codes, vectors: u64) -> Result<GraphUpload<'a>, GpuError> {
        if vectors > MOST_VECTORS {
            let text =
                format!("a graphics card can search {MOST_VECTORS} vectors, and the index has {vectors}");
            return Err(GpuError::Unsuited(text));
        }
        let queue = card.queue()?;
        let codes_bytes = vectors * u64::from(shape.code_bytes);
        let codes = card.allocate("the codes of the index", codes_bytes + SPARE_BYTES as u64)?;
        Ok(GraphUpload { card, shape, queue, codes, codes_bytes, written: 0 })
    }

    /// Copies the next codes.
    ///
    /// # Errors
    /// [`GpuError::Driver`], also for more bytes than the codes have.
    pub fn append(&mut self, codes: &[u8]) -> Result<(), GpuError> {
        self.queue.write(&*self.codes, self.written, codes)?;
        self.written += codes.len() as u64;
        Ok(())
    }

    /// Finishes the upload.
    ///
    /// # Errors
    /// [`GpuError::Memory`]; [`GpuError::Driver`], also if codes are missing or a pivot is not one of the
    /// vectors.
    pub fn finish(self) -> Result<Navigation, GpuError> {
        let GraphUpload { card, shape, mut queue, codes, codes_bytes, written } = self;
        let vectors = codes_bytes / u64::from(shape.code_bytes.max(1));
        let starts: Vec<u32> = shape.pivots.iter().chain([&shape.entry]).copied().collect();
        if written != codes_bytes || starts.iter().any(|pivot| u64::from(*pivot) >= vectors) {
            let reason = format!(
                "{written} of {codes_bytes} bytes of codes were appended, or a pivot is not one of the \
                 vectors"
            );
            return Err(GpuError::Driver { operation: "upload the codes", reason });
        }
        queue.write(&*codes, codes_bytes, &[0; SPARE_BYTES])?;
        let planes = card.allocate("the layout of the codes", 2 * shape.planes.len() as u64)?;
        let layout: Vec<u8> = shape.planes.iter().flat_map(|plane| plane.to_le_bytes()).collect();
        queue.write(&*planes, 0, &layout)?;
        let ids: Vec<u8> = starts.into_iter().flat_map(u32::to_le_bytes).collect();
        let pivots = card.allocate("the pivots of the index", ids.len() as u64)?;
        queue.write(&*pivots, 0, &ids)?;
        queue.finish()?;
        Ok(Navigation { codes: shape, vectors, memory: [codes, planes, pivots] })
    }
}

/// Codes, their layout and pivots on a card.
#[derive(Debug)]
pub struct Navigation {
    pub(crate) codes: Codes,
    pub(crate) vectors: u64,
    pub(crate) memory: [Box<dyn CardMemory>; 3],
}

impl Navigation {
    /// Returns the layout of the codes.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// Returns the addresses of its memory.
    pub(crate) fn addresses(&self) -> NavigationAddresses {
        NavigationAddresses(self.memory.each_ref().map(|memory| memory.address()))
    }
}

/// Addresses of the codes, their layout and the pivots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NavigationAddresses([u64; 3]);

impl NavigationAddresses {
    /// Appends the kernels' `Navigation` (`kernels/graph.h`) for a launch with candidate lists of up to
    /// `list_room` candidates.
    pub(crate) fn append_fields(self, codes: &Codes, list_room: u32, out: &mut Vec<u8>) {
        let Codes { code_bytes, factor_bytes, planes, groups, fine, pivots, .. } = codes;
        let numbers = [
            *code_bytes,
            *factor_bytes,
            planes.len() as u32,
            codes.query_bytes() as u32,
            *groups,
            u32::from(*fine),
            pivots.len() as u32,
            list_room,
        ];
        append_fields(&self.0, &numbers, out);
    }
}

/// Writes a query to `out` in the kernels' layout: the four numbers that convert a sum to a distance, then
/// the low bytes of all dimensions, then the high bytes, if any.
pub fn write_query(head: [f32; 4], low: &[i8], high: &[i8], out: &mut Vec<u8>) {
    out.clear();
    head.iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend(low.iter().chain(high).map(|byte| *byte as u8));
}
