//! The passes of a job whose queries share what is read.

use crate::query::pass::SharedPass;

/// The passes of a job. Each answers some of its queries, and has a part for each thread.
pub(in crate::open) struct Passes {
    parts: usize,
    all: Vec<SharedPass>,
}

impl Passes {
    /// Divides `count` queries into passes of up to `queries`, each with `parts` parts.
    pub(in crate::open) fn new(count: usize, queries: usize, parts: usize) -> Passes {
        let firsts = (0..count).step_by(queries.max(1));
        let pass = |first: usize| SharedPass::new(first..count.min(first + queries), parts);
        Passes { parts, all: firsts.map(pass).collect() }
    }

    /// Returns the number of parts of all passes, which are numbered pass by pass.
    pub(super) fn parts(&self) -> usize {
        self.all.len() * self.parts
    }

    /// Returns the pass of a part.
    pub(super) fn of_part(&self, part: usize) -> &SharedPass {
        &self.all[part / self.parts]
    }

    /// Returns the share of the work that is done, as a number of queries.
    pub(super) fn progress(&self) -> u64 {
        self.all.iter().map(SharedPass::progress).sum()
    }
}
