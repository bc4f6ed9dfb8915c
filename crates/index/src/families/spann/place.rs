//! The division of the vectors into leaves: small sets of near vectors, whose means are the centroids of the
//! lists.
//!
//! Leaves result from the same halving as the groups of the cluster family (`crate::partition::placement`),
//! balanced to one size. The vectors are written again in the order of the leaves, so that later stages read
//! them close together for sets of any size. The position of a vector in that order is its *slot*.

use super::centroids::centroid_element;
use super::steps::Journal;
use super::work::Work;
use crate::allocate::try_with_capacity;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written};
use crate::partition::intake::Intake;
use crate::partition::journal::{MEANS_NAME, ORDER_NAME};
use crate::partition::pieces::{Ordered, Piece, pieces};
use crate::partition::space::Space;
use crate::query::codes::plain_metric;
use bathyal_kernels::{Element, Metric, from_f32};
use bathyal_store::{Backing, Object, ObjectExt};
use bathyal_vectors::{FileFormat, VectorFile, bin_header_bytes};
use half::{bf16, f16};
use std::sync::Arc;

/// Bytes of the header of the file of rows.
pub(crate) const HEADER_BYTES: u64 = 8;
/// Bytes written at once.
const WRITE_BYTES: usize = 4 << 20;

/// The vectors in the order of their leaves.
pub(crate) struct Leaves {
    /// The rows by slot, in their stored form.
    pub(crate) rows: VectorFile,
    /// The first slot of each leaf, and the end of the last.
    pub(crate) first: Vec<u32>,
    order: Arc<dyn Object>,
    written: Written,
}

impl Leaves {
    /// Returns the number of leaves, which is the number of lists.
    pub(crate) fn count(&self) -> usize {
        self.first.len() - 1
    }

    /// Returns the slots of a leaf.
    pub(crate) fn slots(&self, leaf: u32) -> std::ops::Range<u32> {
        self.first[leaf as usize]..self.first[leaf as usize + 1]
    }

    /// Calls `take` with each id, in the order of slots.
    pub(crate) fn each_id(&self, mut take: impl FnMut(u32)) -> Result<(), IndexError> {
        let mut file = ReadBack::new(self.order.clone(), self.written);
        let mut id = [0; 4];
        for _ in 0..self.rows.count() {
            file.fill(&mut id)?;
            take(u32::from_le_bytes(id));
        }
        Ok(())
    }

    /// Returns the ids by slot.
    pub(crate) fn ids(&self) -> Result<Vec<u32>, IndexError> {
        let mut ids = try_with_capacity("the ids of vectors", self.rows.count())?;
        self.each_id(|id| ids.push(id))?;
        Ok(ids)
    }
}

/// Returns the name of the file of rows by slot.
pub(crate) fn rows_name(element: Element) -> &'static str {
    match element {
        Element::F32 => "rows.fbin",
        Element::F16 => "rows.f16bin",
        Element::U8 => "rows.u8bin",
        Element::I8 => "rows.i8bin",
        Element::Bf16 => "rows.bf16bin",
        Element::B1 => "rows.b1bin",
    }
}

/// Returns the first slot of each leaf of `leaf` vectors. A leaf never spans two pieces.
pub(crate) fn firsts(pieces: &[Piece], leaf: usize) -> Vec<u32> {
    let mut before = 0;
    let mut firsts = Vec::new();
    for piece in pieces {
        firsts.extend((0..piece.rows).step_by(leaf).map(|row| (before + row) as u32));
        before += piece.rows;
    }
    firsts
}

/// Loads the leaves of all placed vectors, and their means, the centroids of the lists.
pub(crate) fn leaves(
    work: &Work<'_>,
    intake: &Intake,
    journal: &Journal,
) -> Result<(Leaves, Space), IndexError> {
    let mut first = firsts(&pieces(&journal.parts, work.rows), work.layout.leaf);
    let centroids = centroids(work, intake, journal.means, first.len())?;
    first.push(work.data.count() as u32);
    let rows = rows(work.directory.get(rows_name(intake.element))?.as_ref())?;
    let order = work.directory.get(ORDER_NAME)?;
    Ok((Leaves { rows, first, order, written: journal.order }, centroids))
}

/// Opens the rows by slot; maps them if they are in a file.
fn rows(object: &dyn Object) -> Result<VectorFile, IndexError> {
    match object.backing()? {
        Backing::File(file) => Ok(VectorFile::from_file(file, object.address())?),
        Backing::Memory(_) | Backing::Parts(_) | Backing::Elsewhere => {
            let format = FileFormat::from_path(object.address())?;
            Ok(VectorFile::from_file_bytes(format, object.read_all()?)?)
        }
    }
}

/// Appends the rows and the ids of a piece in its order.
pub(crate) fn write(
    work: &Work<'_>,
    ordered: &Ordered,
    rows: &mut Appender,
    order: &mut Appender,
) -> Result<(), IndexError> {
    if rows.written().bytes == 0 {
        rows.append(&bin_header_bytes(work.data.count() as u32, work.data.dim() as u32))?;
    }
    let mut bytes = Vec::with_capacity(WRITE_BYTES);
    let at_once = (WRITE_BYTES / work.data.row_bytes()).max(1);
    for placed in ordered.order.chunks(at_once) {
        work.check_cancelled()?;
        bytes.clear();
        placed.iter().for_each(|row| bytes.extend_from_slice(ordered.space.row(*row)));
        rows.append(&bytes)?;
        bytes.clear();
        placed.iter().for_each(|row| bytes.extend(ordered.id(*row).to_le_bytes()));
        order.append(&bytes)?;
    }
    Ok(())
}

/// Loads the centroids of `leaves` leaves from their written means.
fn centroids(work: &Work<'_>, intake: &Intake, means: Written, leaves: usize) -> Result<Space, IndexError> {
    let element = centroid_element(intake.element, intake.metric);
    let metric = plain_metric(intake.metric);
    let mut centroids = Space::blank(leaves, intake.dim, element, metric)?;
    let mut file = ReadBack::open(work.directory, MEANS_NAME, means)?;
    let (mut bytes, mut mean) = (vec![0_u8; 4 * intake.dim], vec![0.0_f32; intake.dim]);
    for leaf in 0..leaves {
        file.fill(&mut bytes)?;
        let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        mean.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
        write_row(element, &mean, centroids.row_mut(leaf as u32));
    }
    if let (Metric::InnerProduct, Some(longest)) = (metric, intake.longest) {
        centroids.lift(longest);
    }
    Ok(centroids)
}

/// Writes values as `element`, clamped to its range.
fn write_row(element: Element, values: &[f32], out: &mut [u8]) {
    // The sum of vectors near the largest number may overflow.
    let largest = match element {
        Element::F16 => f16::MAX.to_f32(),
        Element::Bf16 => bf16::MAX.to_f32(),
        _ => f32::MAX,
    };
    let value = |value: &f32| if value.is_nan() { 0.0 } else { value.clamp(-largest, largest) };
    let finite: Vec<f32> = values.iter().map(value).collect();
    from_f32(element, &finite, out);
}
