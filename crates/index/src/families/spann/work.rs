//! The common input of all stages of a build.

use super::options::SpannOptions;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::postings::{MOST_LIST_BYTES, PostingLayout};
use crate::partition;
use bathyal_kernels::Element;

/// The common input of all stages of a build.
pub(crate) type Work<'a> = partition::Work<'a, ListShape, SpannOptions>;

/// The shape of the lists that follows from the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListShape {
    /// Vectors of a leaf, and so vectors for each centroid.
    pub(crate) leaf: usize,
    /// The most vectors that a list admits. Vectors of its leaf that no list admits are added to these.
    pub(crate) list_limit: usize,
    pub(crate) postings: PostingLayout,
    /// The element of stored vectors.
    pub(crate) element: Element,
}

impl ListShape {
    pub(super) fn of(family_options: &SpannOptions, data: &SourceVectors<'_>) -> ListShape {
        let leaf = ((1.0 / f64::from(family_options.centroid_share)).round() as usize).max(1);
        let list_limit = family_options
            .list_limit
            .map_or(leaf * family_options.list_replicas() as usize, |limit| limit as usize);
        let element = data.element();
        ListShape { leaf, list_limit: list_limit.max(1), postings: family_options.layout, element }
    }

    /// Checks that the longest list fits one read.
    pub(crate) fn check(
        &self,
        data: &SourceVectors<'_>,
        family_options: &SpannOptions,
    ) -> Result<(), IndexError> {
        let longest = ((self.leaf + self.list_limit) as u64).min(data.count() as u64);
        let row_bytes = match family_options.code_kind {
            Some(_) => family_options.codes().of_groups(data.dim()).1,
            None => data.row_bytes(),
        };
        let bytes = longest * (row_bytes as u64 + 4);
        if bytes <= MOST_LIST_BYTES {
            return Ok(());
        }
        Err(IndexError::Parameter(format!(
            "lists of up to {longest} vectors may take {bytes} bytes, and one read can fetch \
             {MOST_LIST_BYTES} at most; raise centroid_share or lower list_limit"
        )))
    }
}
