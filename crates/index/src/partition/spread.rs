//! Sending every vector to the part that it is placed in, for sets that are larger than memory: one pass over the data.

use super::intake::Intake;
use super::pieces::Part;
use super::{CHECK_BYTES, READ_BYTES, Work, sample_rows};
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack};
use crate::partition::placement::Points;
use crate::partition::placement::planes::Planes;
use bathyal_kernels::{Metric, squared_norm};
use bathyal_store::Draft;
use bathyal_vectors::RowReader;
use rand::SeedableRng;

/// Bytes of vectors that are taken at once.
const TAKEN_BYTES: usize = 4 << 20;
/// Bytes of the buffers of all parts together.
const SPILL_BYTES: usize = 12 << 20;
/// Bytes of a vector's id in a spilled row.
pub(super) const ID_BYTES: usize = 4;
/// Rows without a direction that an error names.
pub(super) const ZEROS_NAMED: usize = 10;

/// How many parts a vector is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Its own.
    One,
    /// Its own and the nearest beside it, so that parts overlap.
    Two,
}

/// The file that the vectors of a part are spilled to.
pub(crate) fn spill_name(part: usize) -> String {
    format!("part-{part}.spill")
}

/// Vectors of a sample as points.
pub(crate) struct Sample {
    rows: Vec<f32>,
    /// Their ids, rising.
    ids: Vec<usize>,
    dim: usize,
}

impl Points for Sample {
    fn dim(&self) -> usize {
        self.dim
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.rows[id as usize * self.dim..][..self.dim]);
    }
}

/// The longest squared length, which points under the inner product reach up to.
pub(crate) fn longest<L, O>(work: &Work<'_, L, O>) -> Result<Option<f32>, IndexError> {
    if work.options.metric != Metric::InnerProduct {
        return Ok(None);
    }
    let often = (CHECK_BYTES / work.data.given_row_bytes()).max(1);
    let (intake, mut taken) = (work.intake(), vec![0; work.data.row_bytes()]);
    let mut rows = RowReader::new(work.data.given(), READ_BYTES);
    let mut longest = 0.0_f32;
    for row in 0..work.data.count() {
        if row % often == 0 {
            work.check_cancelled()?;
        }
        intake.take(rows.row(row)?, &mut taken);
        longest = longest.max(squared_norm(intake.element, &taken));
    }
    Ok(Some(longest))
}

impl Sample {
    /// Reads as many vectors as a sample has.
    pub(crate) fn read<L, O>(work: &Work<'_, L, O>, intake: &Intake) -> Result<Sample, IndexError> {
        let (count, dim) = (work.data.count(), intake.point_dim());
        let rows = sample_rows(count, work.data.dim());
        let mut random = rand::rngs::StdRng::seed_from_u64(work.options.seed);
        let mut ids = rand::seq::index::sample(&mut random, count, rows).into_vec();
        ids.sort_unstable();
        let mut sample = Sample { rows: vec![0.0; rows * dim], ids, dim };
        let mut taken = vec![0; work.data.row_bytes()];
        let mut data = RowReader::new(work.data.given(), 0);
        for (id, row) in sample.ids.iter().zip(sample.rows.chunks_exact_mut(dim)) {
            intake.take(data.row(*id)?, &mut taken);
            intake.point(&taken, row);
        }
        Ok(sample)
    }

    /// The id of the vector that is nearest to the mean of all.
    pub(crate) fn medoid(&self) -> u32 {
        let mut mean = vec![0.0_f64; self.dim];
        for row in self.rows.chunks_exact(self.dim) {
            mean.iter_mut().zip(row).for_each(|(mean, value)| *mean += f64::from(*value));
        }
        let rows = self.ids.len() as f64;
        let distance = |row: &[f32]| {
            let differences = row.iter().zip(&mean).map(|(value, mean)| f64::from(*value) - mean / rows);
            differences.map(|difference| difference * difference).sum::<f64>()
        };
        let rows = self.rows.chunks_exact(self.dim).map(distance).zip(&self.ids);
        rows.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, id)| *id as u32)
    }
}

/// The planes that divide the data into parts of about the plan's size.
fn planes<L, O>(work: &Work<'_, L, O>, intake: &Intake, copies: Copies) -> Result<Planes, IndexError> {
    let sample = Sample::read(work, intake)?;
    let (rows, count, seed) = (sample.ids.len(), work.data.count(), work.options.seed);
    Ok(match copies {
        Copies::One => Planes::new(&sample, rows, count, work.rows, seed),
        Copies::Two => Planes::overlapping(&sample, rows, count, work.rows, seed),
    })
}

/// Files of the parts with what waits to be written to them.
struct Spills {
    files: Vec<Appender>,
    buffers: Vec<Vec<u8>>,
    rows: Vec<usize>,
    buffer_bytes: usize,
}

impl Spills {
    fn create(directory: &dyn Draft, parts: usize) -> Result<Spills, IndexError> {
        let files = (0..parts).map(|part| Appender::create(directory, &spill_name(part)));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let buffer_bytes = SPILL_BYTES / parts;
        Ok(Spills { files, buffers: vec![Vec::new(); parts], rows: vec![0; parts], buffer_bytes })
    }

    fn push(&mut self, part: usize, id: u32, row: &[u8]) -> Result<(), IndexError> {
        let buffer = &mut self.buffers[part];
        if buffer.len() + ID_BYTES + row.len() > self.buffer_bytes {
            self.files[part].append(buffer)?;
            buffer.clear();
        }
        if buffer.capacity() == 0 {
            buffer.reserve_exact(self.buffer_bytes);
        }
        buffer.extend_from_slice(&id.to_le_bytes());
        buffer.extend_from_slice(row);
        self.rows[part] += 1;
        Ok(())
    }

    /// The parts, whose files are on the device.
    fn finish(mut self) -> Result<Vec<Part>, IndexError> {
        let mut parts = Vec::with_capacity(self.files.len());
        for ((file, buffer), rows) in self.files.iter_mut().zip(&self.buffers).zip(&self.rows) {
            file.append(buffer)?;
            parts.push(Part { rows: *rows, written: file.sync()? });
        }
        Ok(parts)
    }
}

/// Spills every vector to its part, or to its parts; the ids of a part rise.
pub(crate) fn spread<L, O>(
    work: &Work<'_, L, O>,
    intake: &Intake,
    copies: Copies,
) -> Result<Vec<Part>, IndexError> {
    let (data, row_bytes) = (work.data, work.data.row_bytes());
    work.progress.stage("spreading", data.count() as u64);
    let planes = planes(work, intake, copies)?;
    let mut spills = Spills::create(work.directory, planes.parts())?;
    let at_once = (TAKEN_BYTES / data.given_row_bytes()).max(1);
    let a_thread = at_once.div_ceil(work.threads).max(1);
    let mut taken = vec![0_u8; at_once * row_bytes];
    // The parts of each row; none for a vector without a direction.
    let mut parts: Vec<[Option<u16>; 2]> = vec![[None; 2]; at_once];
    let mut reader = RowReader::new(data.given(), 0);
    let (mut zeros, mut zero_rows) = (0, Vec::new());
    for first in (0..data.count()).step_by(at_once) {
        work.check_cancelled()?;
        let rows = at_once.min(data.count() - first);
        let block = reader.block(first..first + rows)?;
        std::thread::scope(|scope| {
            let taken = taken[..rows * row_bytes].chunks_mut(a_thread * row_bytes);
            for (number, (taken, parts)) in taken.zip(parts.chunks_mut(a_thread)).enumerate() {
                let planes = &planes;
                scope.spawn(move || {
                    let mut point = vec![0.0; intake.point_dim()];
                    let first = first + number * a_thread;
                    for (i, (out, part)) in taken.chunks_exact_mut(row_bytes).zip(parts).enumerate() {
                        let sound = intake.take(block.row(first + i), out);
                        intake.point(out, &mut point);
                        *part = match (sound, copies) {
                            (false, _) => [None; 2],
                            (true, Copies::One) => [Some(planes.part(&point) as u16), None],
                            (true, Copies::Two) => {
                                let (nearest, second) = planes.two(&point);
                                [Some(nearest as u16), second.map(|second| second as u16)]
                            }
                        };
                    }
                });
            }
        });
        for (i, row) in taken.chunks_exact(row_bytes).take(rows).enumerate() {
            if parts[i][0].is_none() {
                zeros += 1;
                if zero_rows.len() < ZEROS_NAMED {
                    zero_rows.push((first + i) as u64);
                }
            }
            for part in parts[i].into_iter().flatten() {
                spills.push(usize::from(part), (first + i) as u32, row)?;
            }
        }
        work.progress.advance((first + rows) as u64);
    }
    if zeros > 0 {
        return Err(IndexError::ZeroVectors { count: zeros, rows: zero_rows });
    }
    spills.finish()
}

/// Reads the spilled rows of one part from front to back.
pub(crate) struct Spilled {
    file: ReadBack,
    row: Vec<u8>,
}

impl Spilled {
    pub(crate) fn open<L, O>(
        work: &Work<'_, L, O>,
        number: usize,
        part: Part,
    ) -> Result<Spilled, IndexError> {
        let file = ReadBack::open(work.directory, &spill_name(number), part.written)?;
        Ok(Spilled { file, row: vec![0; ID_BYTES + work.data.row_bytes()] })
    }

    /// The next row: its id and its bytes. After the last one the file's checksum is looked at.
    pub(crate) fn next(&mut self) -> Result<(u32, &[u8]), IndexError> {
        self.file.fill(&mut self.row)?;
        let (id, row) = self
            .row
            .split_first_chunk::<ID_BYTES>()
            .ok_or_else(|| IndexError::Internal("a spilled row without an id".into()))?;
        Ok((u32::from_le_bytes(*id), row))
    }
}
