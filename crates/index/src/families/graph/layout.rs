//! The layouts of a graph's file, behind one type.

use super::section::GraphEntry;
use crate::format::csr::CsrLayout;
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::pages::PageLayout;
use bathyal_kernels::Element;

/// The layout of a graph's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphLayout {
    /// One record for each vector, in the order of the ids.
    Padded(PageLayout),
    /// Near vectors share a page and the links of the page.
    Local(LocalLayout),
    /// One record for each vector, without padding, with near vectors beside each other.
    Csr(CsrLayout),
}

/// The name of the padded layout in a manifest.
pub const PADDED: &str = "padded";
/// The name of the page-local layout in a manifest.
pub const PAGE_LOCAL: &str = "page_local";
/// The name of the packed layout in a manifest: compressed sparse rows.
pub const CSR: &str = "csr";

impl GraphLayout {
    /// Returns the layout that the entry of a manifest describes.
    ///
    /// # Errors
    /// A sentence if the layout is unknown or a number is out of range.
    pub fn of(entry: &GraphEntry, element: Element, dim: u32, vectors: u64) -> Result<GraphLayout, String> {
        let vectors = u32::try_from(vectors).map_err(|_| format!("{vectors} vectors are too many"))?;
        match entry.layout.as_str() {
            PADDED | CSR if entry.page_vectors != 0 => {
                Err("only the layout page_local has page_vectors".into())
            }
            PADDED | PAGE_LOCAL if entry.offsets.is_some() => Err("only the layout csr has offsets".into()),
            PADDED => {
                PageLayout::new(element, dim, entry.max_degree, entry.page_bytes).map(GraphLayout::Padded)
            }
            PAGE_LOCAL => LocalLayout::new(element, dim, vectors, entry.page_bytes, entry.page_vectors)
                .map(GraphLayout::Local),
            CSR if entry.offsets.is_none() => {
                Err("the manifest does not list the offsets of the records".into())
            }
            CSR => CsrLayout::new(element, dim, vectors, entry.max_degree, entry.page_bytes)
                .map(GraphLayout::Csr),
            other => {
                Err(format!("unknown layout {other:?}; a graph can have {PADDED}, {PAGE_LOCAL} or {CSR}"))
            }
        }
    }

    /// Returns the layout with the identity of an index. The checksums of the file begin with it.
    pub fn identified(self, identity: Identity) -> GraphLayout {
        match self {
            GraphLayout::Padded(layout) => GraphLayout::Padded(layout.identified(identity)),
            GraphLayout::Local(layout) => GraphLayout::Local(layout.identified(identity)),
            GraphLayout::Csr(layout) => GraphLayout::Csr(layout.identified(identity)),
        }
    }

    /// Returns the layout of pages, if vectors share pages and links; `None` if each vector has a record.
    #[inline]
    pub(super) fn page_local(&self) -> Option<&LocalLayout> {
        match self {
            GraphLayout::Local(layout) => Some(layout),
            GraphLayout::Padded(_) | GraphLayout::Csr(_) => None,
        }
    }

    /// Returns the node of the vector at `place`. A node has links, and a search reads it as a whole: it is a
    /// page of the page-local layout, and otherwise a record.
    #[inline]
    pub(super) fn node_of(&self, place: u32) -> u32 {
        self.page_local().map_or(place, |layout| layout.page_of(place))
    }

    /// Returns the number of nodes of a graph of `vectors` vectors.
    pub(super) fn nodes(&self, vectors: u64) -> u64 {
        self.page_local().map_or(vectors, |layout| layout.pages().into())
    }

    /// Returns the bytes of a buffer for one read, with room for the alignment of any device.
    pub fn buffer_bytes(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.buffer_bytes(),
            GraphLayout::Local(layout) => layout.buffer_bytes(),
            GraphLayout::Csr(layout) => layout.read_bytes(),
        }
    }

    /// Returns the bytes of one read. For packed records: the bytes of a buffer for the longest record.
    pub fn read_bytes(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.read_bytes(),
            GraphLayout::Local(layout) => layout.page_bytes(),
            GraphLayout::Csr(layout) => layout.read_bytes(),
        }
    }

    /// Returns true if the file of `vectors` vectors can have `bytes` bytes.
    pub fn fits(&self, vectors: u64, bytes: u64) -> bool {
        match self {
            GraphLayout::Padded(layout) => layout.file_bytes(vectors) == bytes,
            GraphLayout::Local(layout) => layout.file_bytes() == bytes,
            GraphLayout::Csr(layout) => layout.file_bytes(vectors).contains(&bytes),
        }
    }

    /// Returns the number of vectors in one page. It is 0 if a vector takes several pages, or if there are no
    /// pages.
    pub fn records_per_page(&self) -> usize {
        match self {
            GraphLayout::Padded(layout) => layout.records_per_page(),
            GraphLayout::Local(layout) => layout.records(),
            GraphLayout::Csr(_) => 0,
        }
    }
}
