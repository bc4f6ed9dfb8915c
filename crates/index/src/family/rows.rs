//! The vectors of an open index as whoever wants them back finds them: unit by unit of the file that searches read.

use super::EachVector;
use crate::error::IndexError;
use crate::format::groups::GroupLayout;
use crate::query::set::VectorSet;
use bathyal_tier::Span;

/// Where the vectors of an index lie. A unit is what one read brings: a page, a record, a list, a partition.
pub(crate) trait Rows {
    /// The vectors, and the file that they are in.
    fn set(&self) -> &VectorSet;

    /// Number of units.
    fn units(&self) -> u32;

    /// The unit of the vector that was built at `place`, where arithmetic says it. A family knows it of all places or of none.
    fn unit_of(&self, _place: u32) -> Option<u32> {
        None
    }

    /// The place of the first vector that a unit tells of, where vectors are told in the order of their places and these are not
    /// their ids; `None` of other families.
    fn first_place(&self, _unit: u32) -> Option<u32> {
        None
    }

    /// What is read of a unit.
    fn span(&self, unit: u32) -> Span;

    /// Tells `each` of the vectors (id, as it is stored) of a unit that has arrived. One that is in several units is told of more
    /// than once.
    ///
    /// # Errors
    /// Damage, and what `each` returns.
    fn read(&self, unit: u32, bytes: &[u8], each: &mut EachVector<'_>) -> Result<(), IndexError>;

    /// Reads a unit that others may change or move meanwhile; `None` of families whose units stay as they are.
    fn moving(&self, _unit: u32) -> Option<Box<dyn Moving + '_>> {
        None
    }
}

/// A unit that others may move while it is read.
pub(crate) trait Moving {
    /// What to read next.
    fn span(&self) -> Span;

    /// Takes what was read; tells `each` of the vectors and returns true when it is all there.
    ///
    /// # Errors
    /// As [`Rows::read`].
    fn arrived(&mut self, bytes: &[u8], each: &mut EachVector<'_>) -> Result<bool, IndexError>;
}

impl<R: Rows + ?Sized> Rows for &R {
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

/// Pages of vectors, of the families that have such.
pub(crate) struct PageRows<'a> {
    pub(crate) layout: &'a GroupLayout,
    pub(crate) set: &'a VectorSet,
    pub(crate) pages: u32,
    /// Whether places follow the order of the data.
    pub(crate) ordered: bool,
}

impl Rows for PageRows<'_> {
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

/// The same without an open index.
pub(crate) struct PagesAlone {
    pub(crate) layout: GroupLayout,
    pub(crate) set: VectorSet,
    pub(crate) pages: u32,
}

impl PagesAlone {
    fn rows(&self) -> PageRows<'_> {
        PageRows { layout: &self.layout, set: &self.set, pages: self.pages, ordered: false }
    }
}

impl Rows for PagesAlone {
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
