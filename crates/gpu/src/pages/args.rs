//! The kernel's argument, with its layout in memory: `PageArgs` and `PageWork` in `kernels/pages.cu`.

use crate::hops;

/// `PageArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// The fields that hops have, too.
    pub(super) hop: hops::Args,
    /// Address of the work.
    pub(super) work: u64,
    /// Number of vectors of a page.
    pub(super) records: u32,
    pub(super) vectors: u32,
    /// Words of a query's output in this launch.
    pub(super) output_words: u32,
}

impl Args {
    /// Returns the bytes of the kernel's parameter.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.hop.bytes();
        bytes.extend(self.work.to_le_bytes());
        for number in [self.records, self.vectors, self.output_words, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }
}

/// `PageWork`.
pub(super) struct Work {
    pub(super) slot: u32,
    pub(super) first: u32,
    pub(super) pages: u32,
    pub(super) continues: u32,
    /// Offset in bytes of the query among those that begin; [`NONE`](crate::graph::NONE) if it has begun
    /// before.
    pub(super) query: u32,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) slack: f32,
}

impl Work {
    pub(super) const BYTES: usize = 40;

    /// Appends its bytes.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let Work { slot, first, pages, continues, query, list, width, starts, slack } = *self;
        for number in [slot, first, pages, continues, query, list, width, starts, slack.to_bits(), 0] {
            out.extend(number.to_le_bytes());
        }
    }
}
