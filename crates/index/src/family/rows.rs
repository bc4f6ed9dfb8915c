//! Reads the vectors of an index back, unit by unit of the searched file.

use super::EachVector;
use crate::error::IndexError;
use crate::format::groups::GroupLayout;
use crate::format::manifest::{FileEntry, Manifest};
use crate::query::set::VectorSet;
use bathyal_store::Generation;
use bathyal_tier::Span;

/// The positions of the vectors of an index. A unit is read by one read: a page, a record, a list, a
/// partition.
pub(crate) trait StoredRows {
    /// Returns the set of vectors with its file.
    fn set(&self) -> &VectorSet;

    /// Returns the number of units.
    fn units(&self) -> u32;

    /// Computes the unit of the vector at `place`; `None` for all places if the family cannot compute it.
    fn unit_of(&self, _place: u32) -> Option<u32> {
        None
    }

    /// Returns the place of the first vector of a unit, if units yield vectors in the order of their places
    /// and places are not ids; `None` for other families.
    fn first_place(&self, _unit: u32) -> Option<u32> {
        None
    }

    /// Returns the span of a unit.
    fn span(&self, unit: u32) -> Span;

    /// Calls `each` with the vectors (id, stored bytes) of a unit that has been read. A vector in several
    /// units is passed more than once.
    ///
    /// # Errors
    /// Damage, and the error of `each`.
    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError>;

    /// Starts the read of a unit that others may change or move; `None` for families whose units do not
    /// change.
    fn moving(&self, _unit: u32) -> Option<Box<dyn Moving + '_>> {
        None
    }
}

/// A unit that others may move while it is read.
pub(crate) trait Moving {
    /// Returns the next span to read.
    fn span(&self) -> Span;

    /// Takes the bytes of the last span. Once the unit is complete, calls `each` with its vectors and returns
    /// true.
    ///
    /// # Errors
    /// As [`StoredRows::read`].
    fn arrived(&mut self, bytes: &[u8], each: &mut EachVector<'_>) -> Result<bool, IndexError>;
}

impl<R: StoredRows + ?Sized> StoredRows for &R {
    fn set(&self) -> &VectorSet {
        (**self).set()
    }

    fn units(&self) -> u32 {
        (**self).units()
    }

    fn unit_of(&self, place: u32) -> Option<u32> {
        (**self).unit_of(place)
    }

    fn first_place(&self, unit: u32) -> Option<u32> {
        (**self).first_place(unit)
    }

    fn span(&self, unit: u32) -> Span {
        (**self).span(unit)
    }

    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError> {
        (**self).read(unit, bytes, each)
    }

    fn moving(&self, unit: u32) -> Option<Box<dyn Moving + '_>> {
        (**self).moving(unit)
    }
}

/// Pages of vectors of an open index.
pub(crate) struct PageRows<'a> {
    pub(crate) layout: &'a GroupLayout,
    pub(crate) set: &'a VectorSet,
    pub(crate) pages: u32,
    /// True if places follow the order of the data.
    pub(crate) ordered: bool,
}

impl StoredRows for PageRows<'_> {
    fn set(&self) -> &VectorSet {
        self.set
    }

    fn units(&self) -> u32 {
        self.pages
    }

    fn unit_of(&self, place: u32) -> Option<u32> {
        self.ordered.then(|| self.layout.page_of(place))
    }

    fn first_place(&self, unit: u32) -> Option<u32> {
        (!self.ordered).then(|| unit * self.layout.page_vectors() as u32)
    }

    fn span(&self, unit: u32) -> Span {
        self.layout.span(unit, 1)
    }

    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError> {
        let layout = self.layout;
        let damaged = |reason| self.set.damaged(format!("page {unit}"), reason);
        layout.check(unit, bytes).map_err(damaged)?;
        for (slot, row) in layout.vectors(bytes).chunks_exact(layout.vector_bytes()).enumerate() {
            let Some(id) = layout.id(bytes, slot) else { break };
            each(id, row)?;
        }
        Ok(())
    }
}

/// Pages of vectors without an open index.
pub(crate) struct PagesAlone {
    layout: GroupLayout,
    set: VectorSet,
    pages: u32,
}

impl PagesAlone {
    /// Returns the `pages` pages of `file`.
    ///
    /// # Errors
    /// As [`VectorSet::of`].
    pub(crate) fn open(
        directory: &dyn Generation,
        manifest: &Manifest,
        file: &FileEntry,
        layout: GroupLayout,
        pages: u32,
    ) -> Result<Box<dyn StoredRows>, IndexError> {
        let set = VectorSet::of(directory, manifest, file)?;
        Ok(Box::new(PagesAlone { layout, set, pages }))
    }

    fn rows(&self) -> PageRows<'_> {
        PageRows { layout: &self.layout, set: &self.set, pages: self.pages, ordered: false }
    }
}

impl StoredRows for PagesAlone {
    fn set(&self) -> &VectorSet {
        &self.set
    }

    fn units(&self) -> u32 {
        self.pages
    }

    fn span(&self, unit: u32) -> Span {
        self.rows().span(unit)
    }

    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError> {
        self.rows().read(unit, bytes, each)
    }
}
