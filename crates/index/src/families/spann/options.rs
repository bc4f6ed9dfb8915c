//! The options of a build of posting lists.

use crate::build::codes::CodeChoice;
use crate::build::options::{FamilyOptions, GivenOptions, OptionDoc, from_text, some_from_text, typed};
use crate::error::IndexError;
use crate::format::postings::{COUPLED, MOST_REPLICAS, PostingLayout};
use crate::proximity::options::{DEFAULT_ALPHA, check_alpha};
use bathyal_kernels::quantize::CodeKind;
use serde::Deserialize;

/// The default number of posting lists for each vector. From 0.015 to 0.12, on SIFT, GloVe and MiniLM alike,
/// more lists compare and read less, but take more memory and more reads (table in `docs/posting-lists.md`).
/// Memory decides: this value takes some 10 bytes a vector of SIFT.
pub const DEFAULT_CENTROID_SHARE: f32 = 0.03;
/// The default number of coupled lists that may contain one vector: that of SPFresh and SPANN, and the
/// fastest one for all sets of second-tier-memory. With one copy more a query reads one list less, and a disk
/// is slow at reading lists.
pub const DEFAULT_COUPLED_REPLICAS: u32 = 8;
/// The default number of decoupled lists that may contain one vector. Each further list adds an address to
/// decode and to remove as a duplicate, and every vector is a separate read in any case.
pub const DEFAULT_DECOUPLED_REPLICAS: u32 = 1;
/// The default number of grouped lists that may contain one vector. Without addresses to follow, SIFT is
/// answered 1.6 to 2.6 times as fast from memory, and 6 times as fast from a disk, as with 8
/// (`docs/repro/second-tier-cluster.md`).
pub const DEFAULT_GROUPED_REPLICAS: u32 = 1;
/// The smallest share. With fewer lists, of 100,000 vectors each, a search would hardly be faster than a
/// scan.
const LEAST_CENTROID_SHARE: f32 = 1e-5;

/// The options of a build of posting lists.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpannOptions {
    /// The contents of lists.
    #[serde(deserialize_with = "from_text")]
    pub layout: PostingLayout,
    /// Posting lists for each vector: one list for about `1 / centroid_share` vectors. More lists are more
    /// precise and take more memory (second-tier-memory: 0.04 to 0.32).
    pub centroid_share: f32,
    /// The most posting lists that contain one vector: 1 to 8. More lists find it from more sides. `None`
    /// selects the default of the layout ([`DEFAULT_COUPLED_REPLICAS`], [`DEFAULT_DECOUPLED_REPLICAS`],
    /// [`DEFAULT_GROUPED_REPLICAS`]).
    pub replicas: Option<u32>,
    /// The most vectors that a posting list admits, the nearest of those that choose it. `None` selects
    /// `replicas / centroid_share`, which only lists exceed that are chosen far more often than others.
    pub list_limit: Option<u32>,
    /// The factor by which a detour must be longer than an edge of the graph over the centroids before the
    /// edge is pruned, at least 1.
    pub alpha: f32,
    /// Bytes of a code: of a centroid's code when memory is small, and of a vector's code in lists of codes.
    /// `None` selects a size that suits the dimension.
    pub code_bytes: Option<u32>,
    /// The kind of the codes that coupled lists hold in place of vectors; vectors are then read only to
    /// re-rank. It is `axes` or `rabitq1` to `rabitq8`; `None` means that lists hold vectors.
    #[serde(deserialize_with = "some_from_text")]
    pub code_kind: Option<CodeKind>,
}

impl Default for SpannOptions {
    fn default() -> Self {
        SpannOptions {
            // The smallest layout that is fast.
            layout: PostingLayout::Grouped,
            centroid_share: DEFAULT_CENTROID_SHARE,
            replicas: None,
            list_limit: None,
            alpha: DEFAULT_ALPHA,
            code_bytes: None,
            code_kind: None,
        }
    }
}

/// The documentation of the options for users.
pub(crate) const DOCS: &[OptionDoc] = &[
    OptionDoc {
        name: "layout",
        value: "LAYOUT",
        help: "contents of the lists: coupled (copies of vectors), decoupled (addresses) or grouped (each \
               vector once, in one of its lists, and addresses in the others) [default: grouped]",
    },
    OptionDoc {
        name: "centroid_share",
        value: "SHARE",
        help: "posting lists per vector: 0.04 makes one for every 25 vectors [default: 0.03]",
    },
    OptionDoc {
        name: "replicas",
        value: "LISTS",
        help: "most posting lists that contain one vector, 1 to 8 [default: 8 for coupled lists, 1 for \
               others]",
    },
    OptionDoc {
        name: "list_limit",
        value: "VECTORS",
        help: "most vectors that a posting list admits [default: replicas / centroid_share]",
    },
    OptionDoc {
        name: "alpha",
        value: "ALPHA",
        help: "factor by which a detour between centroids must be longer than an edge before the edge is \
               pruned, at least 1 [default: 1.2]",
    },
    OptionDoc {
        name: "code_bytes",
        value: "BYTES",
        help: "bytes of a code: of a centroid if memory is small, of a vector in lists of codes \
               [default: depends on the dim and the kind]",
    },
    OptionDoc {
        name: "code_kind",
        value: "KIND",
        help: "kind of code (axes, or rabitq1 to rabitq8) that coupled lists hold in place of vectors, which \
               are then read to re-rank only [default: lists hold vectors]",
    },
];

pub(crate) fn parse(given: &GivenOptions) -> Result<FamilyOptions, IndexError> {
    typed::<SpannOptions>(given).map(FamilyOptions::from)
}

impl SpannOptions {
    /// Returns the choice of codes for vectors in lists.
    pub(crate) fn codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: self.code_kind }
    }

    /// Returns the choice of codes for centroids. The kind option does not apply to them.
    pub(crate) fn centroid_codes(&self) -> CodeChoice {
        CodeChoice { bytes: self.code_bytes, kind: None }
    }

    /// Returns the most posting lists that contain one vector: the given number, or the default of the
    /// layout.
    pub(crate) fn list_replicas(&self) -> u32 {
        self.replicas.unwrap_or(match self.layout {
            PostingLayout::Coupled => DEFAULT_COUPLED_REPLICAS,
            PostingLayout::Decoupled => DEFAULT_DECOUPLED_REPLICAS,
            PostingLayout::Grouped => DEFAULT_GROUPED_REPLICAS,
        })
    }

    /// Checks the ranges of the options.
    pub(crate) fn check(&self) -> Result<(), IndexError> {
        let refuse = |reason: String| Err(IndexError::Parameter(reason));
        if !(LEAST_CENTROID_SHARE..=1.0).contains(&self.centroid_share) {
            return refuse(format!(
                "centroid_share is {}; it must be between {LEAST_CENTROID_SHARE} and 1: 0.04 makes a list \
                 for every 25 vectors",
                self.centroid_share
            ));
        }
        if !(1..=MOST_REPLICAS).contains(&self.list_replicas()) {
            return refuse(format!(
                "replicas is {}; it must be between 1 (each vector in one list) and {MOST_REPLICAS}",
                self.list_replicas()
            ));
        }
        if self.list_limit == Some(0) {
            return refuse("list_limit is 0; it must be at least 1, or be omitted".into());
        }
        check_alpha(self.alpha)?;
        self.codes().check()?;
        self.check_list_codes()
    }

    /// Checks that posting lists can hold the chosen codes.
    fn check_list_codes(&self) -> Result<(), IndexError> {
        let refuse = |reason: String| Err(IndexError::Parameter(reason));
        let Some(kind) = self.code_kind else { return Ok(()) };
        if self.layout != PostingLayout::Coupled {
            return refuse(format!(
                "posting lists of layout {} hold no codes; take the layout {COUPLED}, or omit code_kind \
                 ({kind}), so that lists hold vectors",
                self.layout.name()
            ));
        }
        if !matches!(kind, CodeKind::Axes | CodeKind::RaBitQ { .. }) {
            return refuse(format!(
                "code kind {kind} cannot be scanned in posting lists; take axes or rabitq1 to rabitq8"
            ));
        }
        Ok(())
    }
}
