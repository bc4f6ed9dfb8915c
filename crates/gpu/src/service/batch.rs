//! The copies and the launch for many queries, whatever the kernel does for them.

use crate::card::{CardMemory, CardQueue, Kernel, Launch};
use crate::error::GpuError;

/// What a kernel is given for many queries, and what it answers.
#[derive(Debug)]
pub(crate) struct Batch {
    kernel: Kernel,
    queue: Box<dyn CardQueue>,
    /// Where [`Batch::packed`] is copied.
    given: [Box<dyn CardMemory>; 3],
    returned: Box<dyn CardMemory>,
    /// What only the kernel reads and writes.
    #[expect(dead_code, reason = "held for as long as kernels run")]
    kept: Vec<Box<dyn CardMemory>>,
    /// What is copied to the card.
    pub(crate) packed: [Vec<u8>; 3],
    answers: Vec<u8>,
    /// Queries that there are.
    pub(crate) count: usize,
}

/// How a kernel is launched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks<'a> {
    /// Threads of a block; there is a block for each query.
    pub(crate) threads: u32,
    /// Bytes that they share.
    pub(crate) shared_bytes: u64,
    /// The kernel's parameter.
    pub(crate) argument: &'a [u8],
    /// Bytes that each answers.
    pub(crate) answer_bytes: usize,
}

impl Batch {
    /// Of copies to `given` and back from `returned`; `kept` is held as long.
    pub(crate) fn new(
        kernel: Kernel,
        queue: Box<dyn CardQueue>,
        given: [Box<dyn CardMemory>; 3],
        returned: Box<dyn CardMemory>,
        kept: Vec<Box<dyn CardMemory>>,
    ) -> Batch {
        Batch {
            kernel,
            queue,
            given,
            returned,
            kept,
            packed: Default::default(),
            answers: Vec::new(),
            count: 0,
        }
    }

    /// Forgets the last queries.
    pub(crate) fn clear(&mut self) {
        self.packed.iter_mut().for_each(Vec::clear);
        self.count = 0;
    }

    /// Has the kernel answer the queries, and returns how many bytes were copied to the card.
    pub(crate) fn launch(&mut self, blocks: Blocks<'_>) -> Result<u64, GpuError> {
        let mut copied = 0;
        for (memory, bytes) in self.given.iter().zip(&self.packed).filter(|(_, bytes)| !bytes.is_empty()) {
            self.queue.write(&**memory, 0, bytes)?;
            copied += bytes.len() as u64;
        }
        self.queue.launch(&Launch {
            kernel: self.kernel,
            blocks: self.count as u32,
            threads: blocks.threads,
            shared_bytes: blocks.shared_bytes as u32,
            argument: blocks.argument,
        })?;
        self.answers.resize(blocks.answer_bytes * self.count, 0);
        self.queue.read(&*self.returned, 0, &mut self.answers)?;
        Ok(copied)
    }

    /// What query number `at` was answered, in whole `N` bytes.
    pub(crate) fn answer<const N: usize>(&self, at: usize) -> &[[u8; N]] {
        let bytes = self.answers.len() / self.count.max(1);
        self.answers[bytes * at..][..bytes].as_chunks().0
    }

    /// Refuses an answer that names what is not there: whoever gets it reads what lies there.
    pub(crate) fn check(
        &self,
        what: &str,
        named: impl Iterator<Item = u32>,
        there: u64,
    ) -> Result<(), GpuError> {
        match { named }.find(|number| u64::from(*number) >= there) {
            Some(number) => Err(GpuError::Kernel {
                kernel: self.kernel.name(),
                reason: format!("it names {what} {number} of {there}"),
            }),
            None => Ok(()),
        }
    }
}
