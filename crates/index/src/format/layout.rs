//! The layouts that a graph's file can have, as one.

use super::local::LocalLayout;
use super::manifest::GraphEntry;
use super::pages::PageLayout;
use bathyal_kernels::Element;

/// How the file of a graph is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphLayout {
    /// A record a vector, at the place of its id.
    Padded(PageLayout),
    /// Near vectors share a page and its links.
    Local(LocalLayout),
}

/// The name of the padded layout in a manifest.
pub const PADDED: &str = "padded";
/// The name of the page-local layout in a manifest.
pub const PAGE_LOCAL: &str = "page_local";

impl GraphLayout {
    /// The layout that a manifest's entry describes.
    ///
    /// # Errors
    /// A sentence when the layout is unknown or a number is out of range.
    pub fn of(entry: &GraphEntry, element: Element, dim: u32, vectors: u64) -> Result<GraphLayout, String> {
        let vectors = u32::try_from(vectors).map_err(|_| format!("{vectors} vectors are too many"))?;
        match entry.layout.as_str() {
            PADDED if entry.page_vectors != 0 => Err("page_vectors belongs to the page-local layout".into()),
            PADDED => {
                PageLayout::new(element, dim, entry.max_degree, entry.page_bytes).map(GraphLayout::Padded)
            }
            PAGE_LOCAL => LocalLayout::new(element, dim, vectors, entry.page_bytes, entry.page_vectors)
                .map(GraphLayout::Local),
            other => Err(format!("the layout {other:?} is not known; known are {PADDED} and {PAGE_LOCAL}")),
        }
    }

    /// Bytes of one read.
    pub fn read_bytes(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.read_bytes(),
            GraphLayout::Local(layout) => layout.page_bytes(),
        }
    }

    /// Bytes of the file for `vectors` vectors.
    pub fn file_bytes(&self, vectors: u64) -> u64 {
        match self {
            GraphLayout::Padded(layout) => layout.file_bytes(vectors),
            GraphLayout::Local(layout) => layout.file_bytes(),
        }
    }

    /// Vectors in one page; 0 when a vector takes several.
    pub fn records_per_page(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.records_per_page(),
            GraphLayout::Local(layout) => layout.records(),
        }
    }
}
