//! Sends every vector to the part that it is placed in, in one pass over the data, for sets that are larger
//! than memory.

use super::intake::Intake;
use super::pieces::SpilledPart;
use super::{CHECK_BYTES, READ_BYTES, Work, sample_rows};
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack};
use crate::partition::placement::Points;
use crate::partition::placement::planes::Planes;
use bathyal_kernels::{Metric, squared_norm};
use bathyal_store::Draft;
use bathyal_vectors::RowReader;
use rand::SeedableRng;

/// Bytes of vectors that are converted at once.
const CONVERTED_BYTES: usize = 4 << 20;
/// Bytes of the buffers of all parts together.
const SPILL_BYTES: usize = 12 << 20;
/// Bytes of a vector's id in a spilled row.
pub(super) const ID_BYTES: usize = 4;
/// Most rows without a direction that an error names.
pub(super) const ZEROS_NAMED: usize = 10;

/// The number of parts that a vector is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Its own part.
    One,
    /// Its own part and the nearest other one, so that parts overlap.
    Two,
}

/// Returns the name of the spill file of a part.
pub(crate) fn spill_name(part: usize) -> String {
    format!("part-{part}.spill")
}

/// The vectors of a sample, as points.
pub(crate) struct SampledPoints {
    rows: Vec<f32>,
    /// The ids of the vectors, ascending.
    ids: Vec<usize>,
    dim: usize,
}

impl Points for SampledPoints {
    fn dim(&self) -> usize {
        self.dim
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.rows[id as usize * self.dim..][..self.dim]);
    }
}

/// Returns the largest squared length of a vector, to which points under the inner product are extended;
/// `None` under other metrics.
pub(crate) fn longest<L, O>(work: &Work<'_, L, O>) -> Result<Option<f32>, IndexError> {
    if work.options.metric != Metric::InnerProduct {
        return Ok(None);
    }
    let interval = (CHECK_BYTES / work.data.given_row_bytes()).max(1);
    let (intake, mut stored) = (work.intake(), vec![0; work.data.row_bytes()]);
    let mut rows = RowReader::new(work.data.given(), READ_BYTES);
    let mut longest = 0.0_f32;
    for row in 0..work.data.count() {
        if row % interval == 0 {
            work.check_cancelled()?;
        }
        intake.take(rows.row(row)?, &mut stored);
        longest = longest.max(squared_norm(intake.element, &stored));
    }
    Ok(Some(longest))
}

impl SampledPoints {
    /// Reads a random sample of the data.
    pub(crate) fn read<L, O>(work: &Work<'_, L, O>, intake: &Intake) -> Result<SampledPoints, IndexError> {
        let (count, dim) = (work.data.count(), intake.point_dim());
        let rows = sample_rows(count, work.data.dim());
        let mut random = rand::rngs::StdRng::seed_from_u64(work.options.seed);
        let mut ids = rand::seq::index::sample(&mut random, count, rows).into_vec();
        ids.sort_unstable();
        let mut sample = SampledPoints { rows: vec![0.0; rows * dim], ids, dim };
        let mut stored = vec![0; work.data.row_bytes()];
        let mut data = RowReader::new(work.data.given(), 0);
        for (id, row) in sample.ids.iter().zip(sample.rows.chunks_exact_mut(dim)) {
            intake.take(data.row(*id)?, &mut stored);
            intake.point(&stored, row);
        }
        Ok(sample)
    }

    /// Returns the id of the vector of the sample that is nearest to its mean.
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

/// Returns the planes that divide the data into parts of about the planned size.
fn planes<L, O>(work: &Work<'_, L, O>, intake: &Intake, copies: Copies) -> Result<Planes, IndexError> {
    let sample = SampledPoints::read(work, intake)?;
    let (rows, count, seed) = (sample.ids.len(), work.data.count(), work.options.seed);
    Ok(match copies {
        Copies::One => Planes::new(&sample, rows, count, work.rows, seed),
        Copies::Two => Planes::overlapping(&sample, rows, count, work.rows, seed),
    })
}

/// The spill files of the parts, with the rows that are not written yet.
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

    /// Writes the remaining rows and returns the parts, whose files are on the device.
    fn finish(mut self) -> Result<Vec<SpilledPart>, IndexError> {
        let mut parts = Vec::with_capacity(self.files.len());
        for ((file, buffer), rows) in self.files.iter_mut().zip(&self.buffers).zip(&self.rows) {
            file.append(buffer)?;
            parts.push(SpilledPart { rows: *rows, written: file.sync()? });
        }
        Ok(parts)
    }
}

/// Spills every vector to its part or parts, in each part in the order of the ids.
pub(crate) fn spread<L, O>(
    work: &Work<'_, L, O>,
    intake: &Intake,
    copies: Copies,
) -> Result<Vec<SpilledPart>, IndexError> {
    let (data, row_bytes) = (work.data, work.data.row_bytes());
    work.progress.stage("spreading", data.count() as u64);
    let planes = planes(work, intake, copies)?;
    let mut spills = Spills::create(work.directory, planes.parts())?;
    let at_once = (CONVERTED_BYTES / data.given_row_bytes()).max(1);
    let thread_rows = at_once.div_ceil(work.threads).max(1);
    let mut stored = vec![0_u8; at_once * row_bytes];
    // The parts of each row; `None` for a vector without a direction.
    let mut parts: Vec<[Option<u16>; 2]> = vec![[None; 2]; at_once];
    let mut reader = RowReader::new(data.given(), 0);
    let (mut zeros, mut zero_rows) = (0, Vec::new());
    for first in (0..data.count()).step_by(at_once) {
        work.check_cancelled()?;
        let rows = at_once.min(data.count() - first);
        let block = reader.block(first..first + rows)?;
        std::thread::scope(|scope| {
            let stored = stored[..rows * row_bytes].chunks_mut(thread_rows * row_bytes);
            for (number, (stored, parts)) in stored.zip(parts.chunks_mut(thread_rows)).enumerate() {
                let planes = &planes;
                scope.spawn(move || {
                    let mut point = vec![0.0; intake.point_dim()];
                    let first = first + number * thread_rows;
                    for (i, (out, part)) in stored.chunks_exact_mut(row_bytes).zip(parts).enumerate() {
                        let sound = intake.take(block.row(first + i), out);
                        intake.point(out, &mut point);
                        *part = match (sound, copies) {
                            (false, _) => [None; 2],
                            (true, Copies::One) => [Some(planes.part(&point) as u16), None],
                            (true, Copies::Two) => {
                                let (nearest, second) = planes.two_parts(&point);
                                [Some(nearest as u16), second.map(|second| second as u16)]
                            }
                        };
                    }
                });
            }
        });
        for (i, row) in stored.chunks_exact(row_bytes).take(rows).enumerate() {
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
        part: SpilledPart,
    ) -> Result<Spilled, IndexError> {
        let file = ReadBack::open(work.directory, &spill_name(number), part.written)?;
        Ok(Spilled { file, row: vec![0; ID_BYTES + work.data.row_bytes()] })
    }

    /// Returns the next row: its id and its bytes. Checks the file's checksum after the last row.
    pub(crate) fn next(&mut self) -> Result<(u32, &[u8]), IndexError> {
        self.file.fill(&mut self.row)?;
        let (id, row) = self
            .row
            .split_first_chunk::<ID_BYTES>()
            .ok_or_else(|| IndexError::Internal("a spilled row without an id".into()))?;
        Ok((u32::from_le_bytes(*id), row))
    }
}
