//! The layouts that a graph's file can have, as one.

use super::section::GraphEntry;
use crate::format::csr::CsrLayout;
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::pages::PageLayout;
use bathyal_kernels::Element;

/// How the file of a graph is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphLayout {
    /// A record a vector, at the place of its id.
    Padded(PageLayout),
    /// Near vectors share a page and its links.
    Local(LocalLayout),
    /// A record a vector, back to back, near ones beside each other.
    Csr(CsrLayout),
}

/// The name of the padded layout in a manifest.
pub const PADDED: &str = "padded";
/// The name of the page-local layout in a manifest.
pub const PAGE_LOCAL: &str = "page_local";
/// The name of the packed layout in a manifest: compressed sparse rows.
pub const CSR: &str = "csr";

impl GraphLayout {
    /// The layout that a manifest's entry describes.
    ///
    /// # Errors
    /// A sentence when the layout is unknown or a number is out of range.
    pub fn of(entry: &GraphEntry, element: Element, dim: u32, vectors: u64) -> Result<GraphLayout, String> {
        let vectors = u32::try_from(vectors).map_err(|_| format!("{vectors} vectors are too many"))?;
        match entry.layout.as_str() {
            PADDED | CSR if entry.page_vectors != 0 => {
                Err("page_vectors belongs to the page-local layout".into())
            }
            PADDED | PAGE_LOCAL if entry.offsets.is_some() => {
                Err("offsets belong to the layout of packed records".into())
            }
            PADDED => {
                PageLayout::new(element, dim, entry.max_degree, entry.page_bytes).map(GraphLayout::Padded)
            }
            PAGE_LOCAL => LocalLayout::new(element, dim, vectors, entry.page_bytes, entry.page_vectors)
                .map(GraphLayout::Local),
            CSR if entry.offsets.is_none() => Err("the offsets of the records are not named".into()),
            CSR => CsrLayout::new(element, dim, vectors, entry.max_degree, entry.page_bytes)
                .map(GraphLayout::Csr),
            other => {
                Err(format!("the layout {other:?} is not known; known are {PADDED}, {PAGE_LOCAL} and {CSR}"))
            }
        }
    }

    /// The same of the index that has this identity, with which its checksums begin.
    pub fn identified(self, identity: Identity) -> GraphLayout {
        match self {
            GraphLayout::Padded(layout) => GraphLayout::Padded(layout.identified(identity)),
            GraphLayout::Local(layout) => GraphLayout::Local(layout.identified(identity)),
            GraphLayout::Csr(layout) => GraphLayout::Csr(layout.identified(identity)),
        }
    }

    /// Bytes of a buffer for one read, whatever a device aligns it to.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.buffer_bytes(),
            GraphLayout::Local(layout) => layout.buffer_bytes(),
            GraphLayout::Csr(layout) => layout.read_bytes(),
        }
    }

    /// Bytes of one read; of packed records, of a buffer for the longest.
    pub fn read_bytes(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.read_bytes(),
            GraphLayout::Local(layout) => layout.page_bytes(),
            GraphLayout::Csr(layout) => layout.read_bytes(),
        }
    }

    /// Whether a file of `bytes` can hold `vectors` vectors.
    pub fn fits(&self, vectors: u64, bytes: u64) -> bool {
        match self {
            GraphLayout::Padded(layout) => layout.file_bytes(vectors) == bytes,
            GraphLayout::Local(layout) => layout.file_bytes() == bytes,
            GraphLayout::Csr(layout) => layout.file_bytes(vectors).contains(&bytes),
        }
    }

    /// Vectors in one page; 0 when a vector takes several, or when there are no pages.
    pub fn records_per_page(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.records_per_page(),
            GraphLayout::Local(layout) => layout.records(),
            GraphLayout::Csr(_) => 0,
        }
    }
}
