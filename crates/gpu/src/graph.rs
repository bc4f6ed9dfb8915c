//! What hops and walks have in common: the codes of all vectors, and where searches begin, in the memory of a card.

use crate::card::{Card, CardMemory, CardProfile, CardQueue};
use crate::error::GpuError;

/// Threads of a block; `THREADS` in `kernels/keys.h`.
pub(crate) const THREADS: u32 = 128;
/// No vector, no query.
pub(crate) const NONE: u32 = u32::MAX;
/// Bytes behind the last code that the kernel loads with it.
const SPARE_BYTES: usize = 8;
/// Bytes of the four numbers before a query's own bytes.
const HEAD_BYTES: usize = 16;
/// Vectors have numbers of 31 bits: a key has a bit for what was done.
const MOST_VECTORS: u64 = 1 << 31;
/// Bits of a group's number in [`Codes::planes`].
const GROUP_BITS: u32 = 13;

/// What codes are like, and where queries begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codes {
    /// Bytes of a code.
    pub code_bytes: u32,
    /// Bytes of its two factors: 4 or 8.
    pub factor_bytes: u32,
    /// Of each byte behind these the plane (0 to 7) and the group of 8 dimensions: what [`Codes::plane`] makes of them.
    pub planes: Vec<u16>,
    /// Groups of 8 dimensions.
    pub groups: u32,
    /// Whether queries have 16 bits a dimension, not 8.
    pub fine: bool,
    /// Where queries begin (GustANN, section 4.4): of these the nearest.
    pub pivots: Vec<u32>,
    /// And here, whatever is near.
    pub entry: u32,
}

impl Codes {
    /// A byte that holds plane `plane` of the dimensions of group `group`; `None` where there are more than a kernel knows.
    pub fn plane(plane: u8, group: usize) -> Option<u16> {
        let fits = plane < 8 && group < 1 << GROUP_BITS;
        fits.then_some(u16::from(plane) << GROUP_BITS | group as u16)
    }

    /// Bytes of a query on the card.
    pub fn query_bytes(&self) -> usize {
        HEAD_BYTES + 8 * self.groups as usize * if self.fine { 2 } else { 1 }
    }

    /// Bytes that the threads of a block share, with lists of so many candidates.
    pub(crate) fn shared_bytes(&self, list: u32) -> u64 {
        let keys = 2 * u64::from(list) + 2 * u64::from(THREADS);
        8 * keys + self.query_bytes() as u64 + 4 * u64::from(THREADS / 32 + 1) + 2 * self.planes.len() as u64
    }
}

/// Refuses lists with which threads of a block would share more than they can.
pub(crate) fn check_shared(profile: &CardProfile, list: u32, shared: u64) -> Result<(), GpuError> {
    if shared <= u64::from(profile.shared_bytes) {
        return Ok(());
    }
    Err(GpuError::Unsuited(format!(
        "a list of {list} candidates takes {shared} bytes of what the threads of a block share, which are {} on {}: ask for a \
         shorter one, or leave --device gpu out",
        profile.shared_bytes, profile.name
    )))
}

/// Codes that are being copied to a card, piece by piece: nobody needs to have them all in memory.
#[derive(Debug)]
pub struct Upload<'a> {
    card: &'a dyn Card,
    shape: Codes,
    queue: Box<dyn CardQueue>,
    codes: Box<dyn CardMemory>,
    codes_bytes: u64,
    written: u64,
}

impl<'a> Upload<'a> {
    /// Makes room on `card` for the codes of `vectors` vectors.
    ///
    /// # Errors
    /// [`GpuError::Memory`] where the codes do not fit, [`GpuError::Unsuited`], [`GpuError::Driver`].
    pub fn begin(card: &'a dyn Card, shape: Codes, vectors: u64) -> Result<Upload<'a>, GpuError> {
        if vectors > MOST_VECTORS {
            let text = format!("{vectors} vectors are more than a graphics card searches: {MOST_VECTORS}");
            return Err(GpuError::Unsuited(text));
        }
        let queue = card.queue()?;
        let codes_bytes = vectors * u64::from(shape.code_bytes);
        let codes = card.allocate("the codes of the index", codes_bytes + SPARE_BYTES as u64)?;
        Ok(Upload { card, shape, queue, codes, codes_bytes, written: 0 })
    }

    /// Copies the codes that come next.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; also of more bytes than there are codes.
    pub fn append(&mut self, codes: &[u8]) -> Result<(), GpuError> {
        self.queue.write(&*self.codes, self.written, codes)?;
        self.written += codes.len() as u64;
        Ok(())
    }

    /// Once all are there.
    ///
    /// # Errors
    /// [`GpuError::Memory`], [`GpuError::Driver`]; also of fewer codes than were to come.
    pub fn finish(self) -> Result<Navigation, GpuError> {
        let Upload { card, shape, mut queue, codes, codes_bytes, written } = self;
        let vectors = codes_bytes / u64::from(shape.code_bytes.max(1));
        let begins: Vec<u32> = shape.pivots.iter().chain([&shape.entry]).copied().collect();
        if written != codes_bytes || begins.iter().any(|pivot| u64::from(*pivot) >= vectors) {
            let reason =
                format!("{written} bytes of codes, {codes_bytes} were to come; or a pivot is none of them");
            return Err(GpuError::Driver { operation: "take the codes", reason });
        }
        queue.write(&*codes, codes_bytes, &[0; SPARE_BYTES])?;
        let planes = card.allocate("the layout of the codes", 2 * shape.planes.len() as u64)?;
        let layout: Vec<u8> = shape.planes.iter().flat_map(|plane| plane.to_le_bytes()).collect();
        queue.write(&*planes, 0, &layout)?;
        let ids: Vec<u8> = begins.into_iter().flat_map(u32::to_le_bytes).collect();
        let pivots = card.allocate("the pivots of the index", ids.len() as u64)?;
        queue.write(&*pivots, 0, &ids)?;
        queue.finish()?;
        Ok(Navigation { codes: shape, vectors, memory: [codes, planes, pivots] })
    }
}

/// Addresses and numbers of [`Navigation::words`].
pub(crate) type Words = ([u64; 3], [u32; Navigation::NUMBERS]);

/// Codes, their layout and pivots on a card.
#[derive(Debug)]
pub struct Navigation {
    pub(crate) codes: Codes,
    pub(crate) vectors: u64,
    pub(crate) memory: [Box<dyn CardMemory>; 3],
}

impl Navigation {
    /// Numbers of `Navigation` behind its three addresses.
    pub(crate) const NUMBERS: usize = 8;
    /// Which of them is of a launch.
    pub(crate) const LIST_ROOM: usize = 7;

    /// What codes are like.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }

    /// As the kernel knows it: addresses, then numbers.
    pub(crate) fn words(&self) -> Words {
        let Codes { code_bytes, factor_bytes, planes, groups, fine, pivots, .. } = &self.codes;
        let addresses = std::array::from_fn(|at| self.memory[at].address());
        let numbers = [
            *code_bytes,
            *factor_bytes,
            planes.len() as u32,
            self.codes.query_bytes() as u32,
            *groups,
            u32::from(*fine),
            pivots.len() as u32,
            0,
        ];
        (addresses, numbers)
    }
}

/// Writes a query as kernels read it: the numbers that make a distance of the sums, then the low bytes of all dimensions, then the
/// high ones, if any.
pub fn write_query(head: [f32; 4], low: &[i8], high: &[i8], out: &mut Vec<u8>) {
    out.clear();
    head.iter().for_each(|number| out.extend(number.to_le_bytes()));
    out.extend(low.iter().chain(high).map(|byte| *byte as u8));
}
