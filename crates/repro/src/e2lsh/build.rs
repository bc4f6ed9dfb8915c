//! Builds the paper's hash tables (section 5.3): puts every vector into a bucket of each table of each
//! radius.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_kernels::distance::to_f32;
use bathyal_kernels::lsh::{Ladder, RadiusHashes};
use bathyal_tier::backend::file::write_all_at;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};

use super::filter::{Filter, LEAST_BITS};
use super::layout::BlockLayout;

/// File of the tables of addresses and the blocks.
const INDEX_NAME: &str = "index.bin";
/// File of the filter of empty buckets.
const FILTER_NAME: &str = "filter.bin";
/// File of the parameters and the data; it is written last.
const MANIFEST_NAME: &str = "about.json";
/// Vectors that are projected at once.
const ROWS: usize = 256;

/// Parameters of a build.
#[derive(Clone, Copy, Debug)]
pub(super) struct TablePlan {
    pub ladder: Ladder,
    pub layout: BlockLayout,
    /// Bits of a value that index the filter of a table.
    pub filter_bits: u32,
    pub seed: u64,
}

/// Parameters and data of the tables in a folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TablesManifest {
    layout: BlockLayout,
    hashes: usize,
    first: f64,
    ratio: f64,
    width: f64,
    filter_bits: u32,
    seed: u64,
    vectors: usize,
    dim: usize,
    element: String,
    /// Checksum of the first and the last row, to recognize the data.
    data: u32,
}

impl TablesManifest {
    fn of(plan: &TablePlan, base: &VectorFile) -> TablesManifest {
        let (ladder, last) = (&plan.ladder, base.count().saturating_sub(1));
        TablesManifest {
            layout: plan.layout,
            hashes: ladder.hashes,
            first: ladder.first,
            ratio: ladder.ratio,
            width: ladder.width,
            filter_bits: plan.filter_bits,
            seed: plan.seed,
            vectors: base.count(),
            dim: base.dim(),
            element: base.element().name().to_owned(),
            data: crc32c::crc32c_append(crc32c::crc32c(base.row(0)), base.row(last)),
        }
    }
}

/// Tables on disk, with the hash functions and the filter in memory.
pub(super) struct BuiltTables {
    pub plan: TablePlan,
    pub hashes: RadiusHashes,
    pub filter: Filter,
    pub path: PathBuf,
    pub index_bytes: u64,
    /// Seconds of the build; `None` if the tables existed already.
    pub seconds: Option<f64>,
}

impl BuiltTables {
    /// Finds the tables in `folder`, or builds them there.
    ///
    /// # Errors
    /// A file that cannot be read or written; a folder with other tables; a cancellation.
    pub(super) fn find_or_build(
        base: &VectorFile,
        plan: TablePlan,
        folder: &Path,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<BuiltTables, Failure> {
        plan.layout.check().map_err(Failure::usage)?;
        let hashes = RadiusHashes::draw(base.dim(), plan.ladder, plan.seed);
        let (manifest, path) = (TablesManifest::of(&plan, base), folder.join(INDEX_NAME));
        let manifest_path = folder.join(MANIFEST_NAME);
        let seconds = match std::fs::read(&manifest_path).ok() {
            Some(bytes)
                if serde_json::from_slice(&bytes).is_ok_and(|found: TablesManifest| found == manifest) =>
            {
                None
            }
            Some(_) => {
                let folder = folder.display();
                return Err(Failure::new(format!(
                    "{folder}: holds hash tables of other vectors or parameters; remove it or name another \
                     work folder"
                )));
            }
            None => Some(write(base, &plan, &hashes, folder, threads, progress)?),
        };
        if seconds.is_some() {
            let json = serde_json::to_vec_pretty(&manifest).map_err(|e| Failure::new(e.to_string()))?;
            std::fs::write(&manifest_path, json).map_err(|e| failed(&manifest_path, e))?;
        }
        let filter_path = folder.join(FILTER_NAME);
        let bytes = std::fs::read(&filter_path).map_err(|e| failed(&filter_path, e))?;
        let tables = (plan.layout.radii * plan.layout.tables) as usize;
        let filter = Filter::from_bytes(&bytes, tables, plan.filter_bits)
            .ok_or_else(|| Failure::new(format!("{}: has an unexpected length", filter_path.display())))?;
        let index_bytes = std::fs::metadata(&path).map_err(|e| failed(&path, e))?.len();
        Ok(BuiltTables { plan, hashes, filter, path, index_bytes, seconds })
    }
}

pub(super) fn failed(path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display()))
}

/// Writes both files and returns the seconds that this took.
fn write(
    base: &VectorFile,
    plan: &TablePlan,
    hashes: &RadiusHashes,
    folder: &Path,
    threads: usize,
    progress: &dyn Progress,
) -> Result<f64, Failure> {
    let (began, layout) = (Instant::now(), &plan.layout);
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let path = folder.join(INDEX_NAME);
    let file = File::create(&path).map_err(|e| failed(&path, e))?;
    let tables = (layout.radii * layout.tables) as usize;
    let mut filter = Filter::new(tables, plan.filter_bits);
    let mut blocks = layout.first_blocks();
    progress.stage("building hash tables", tables as u64);
    let mut projections = Vec::new();
    for table in 0..layout.tables as usize {
        project(base, hashes, table, threads, &mut projections);
        let radii: Vec<usize> = (0..layout.radii as usize).collect();
        for some in radii.chunks(threads.max(1)) {
            if progress.cancelled() {
                return Err(Failure::cancelled());
            }
            let bits = plan.filter_bits;
            let buckets = map_in_threads(some, |radius| {
                TableBuckets::sort(hashes, layout, (*radius, table), bits, &projections)
            });
            let mut placed = Vec::with_capacity(buckets.len());
            for buckets in buckets {
                let words = filter.table(buckets.place);
                words.iter_mut().zip(&buckets.filter).for_each(|(word, more)| *word |= more);
                let appended = buckets.appended(layout);
                placed.push((buckets, blocks));
                blocks += appended;
            }
            let encoded = map_in_threads(&placed, |(buckets, first)| buckets.encode(layout, *first));
            for ((buckets, first), (head, rest)) in placed.iter().zip(encoded) {
                let head_at = match layout.direct {
                    true => layout.block_span(layout.first_block(buckets.place, 0)).offset,
                    false => layout.slot_span(buckets.place, 0).offset,
                };
                write_all_at(&file, &head, head_at).map_err(|e| failed(&path, e))?;
                let rest_at = layout.block_span(*first).offset;
                write_all_at(&file, &rest, rest_at).map_err(|e| failed(&path, e))?;
            }
            progress.advance((table * layout.radii as usize + some.len()) as u64);
        }
    }
    // Extend the file to its last block, even if the last table wrote none.
    let bytes = layout.block_span(blocks).offset;
    file.set_len(bytes).and_then(|()| file.sync_all()).map_err(|e| failed(&path, e))?;
    let filter_path = folder.join(FILTER_NAME);
    std::fs::write(&filter_path, filter.to_bytes()).map_err(|e| failed(&filter_path, e))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Applies `work` to each item, in one thread per item.
fn map_in_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(move || work(item))).collect();
        let joined = |thread: std::thread::ScopedJoinHandle<'_, R>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(joined).collect()
    })
}

/// Computes the projections of all vectors for a table into `out`: `count x m`, row-major.
fn project(base: &VectorFile, hashes: &RadiusHashes, table: usize, threads: usize, out: &mut Vec<f32>) {
    let (count, dim, values) = (base.count(), base.dim(), hashes.ladder().hashes);
    out.resize(count * values, 0.0);
    let rows = count.div_ceil(threads.max(1)).next_multiple_of(ROWS);
    std::thread::scope(|scope| {
        for (part, out) in out.chunks_mut(rows * values).enumerate() {
            scope.spawn(move || {
                let (mut points, mut projected) = (vec![0.0; ROWS * dim], Vec::new());
                for (some, out) in out.chunks_mut(ROWS * values).enumerate() {
                    let first = part * rows + some * ROWS;
                    let points = &mut points[..out.len() / values * dim];
                    for (row, point) in (first..).zip(points.chunks_exact_mut(dim)) {
                        to_f32(base.element(), base.row(row), point);
                    }
                    hashes.project(table, points, &mut projected);
                    out.copy_from_slice(&projected);
                }
            });
        }
    });
}

/// The buckets of one table of one radius.
struct TableBuckets {
    place: u64,
    /// Offset of each slot's first entry, and the end of the last slot's entries.
    starts: Vec<u32>,
    /// Ids and hash values, by slot and then by id.
    entries: Vec<(u32, u32)>,
    filter: Vec<u64>,
}

impl TableBuckets {
    fn sort(
        hashes: &RadiusHashes,
        layout: &BlockLayout,
        (radius, table): (usize, usize),
        filter_bits: u32,
        projections: &[f32],
    ) -> TableBuckets {
        let rows = projections.chunks_exact(hashes.ladder().hashes.max(1));
        let values: Vec<u32> = rows.map(|row| hashes.value(radius, table, row)).collect();
        let mut starts = vec![0_u32; layout.slots() + 1];
        let mut filter = vec![0_u64; 1 << (filter_bits - LEAST_BITS)];
        for value in &values {
            starts[layout.slot(*value) as usize + 1] += 1;
            Filter::add(&mut filter, filter_bits, *value);
        }
        (0..layout.slots()).for_each(|slot| starts[slot + 1] += starts[slot]);
        let mut next = starts.clone();
        let mut entries = vec![(0, 0); values.len()];
        for (id, value) in (0..).zip(&values) {
            let at = &mut next[layout.slot(*value) as usize];
            entries[*at as usize] = (id, *value);
            *at += 1;
        }
        TableBuckets { place: layout.place(radius, table), starts, entries, filter }
    }

    /// Returns the entries of each slot.
    fn slots(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        self.starts.windows(2).map(|ends| &self.entries[ends[0] as usize..ends[1] as usize])
    }

    /// Returns the number of blocks that are appended, that is, those without a fixed place.
    fn appended(&self, layout: &BlockLayout) -> u64 {
        let fixed = usize::from(layout.direct);
        let appended =
            |entries: &[(u32, u32)]| entries.len().div_ceil(layout.block_entries()).saturating_sub(fixed);
        self.slots().map(|entries| appended(entries) as u64).sum()
    }

    /// Returns the bytes with a fixed place (slots, or first blocks), and the appended blocks, numbered from
    /// `first`.
    fn encode(&self, layout: &BlockLayout, first: u64) -> (Vec<u8>, Vec<u8>) {
        let (block_entries, bytes) = (layout.block_entries(), layout.block_bytes as usize);
        let (mut head, mut rest, mut next) = (Vec::new(), Vec::new(), first);
        for (slot, entries) in (0..).zip(self.slots()) {
            let mut chunks = entries.chunks(block_entries);
            if layout.direct {
                let first_chunk = chunks.next().unwrap_or_default();
                let more = (chunks.len() > 0).then_some(next);
                let at = head.len();
                head.resize(at + bytes, 0);
                layout.encode_block(&mut head[at..], layout.first_block(self.place, slot), more, first_chunk);
            } else {
                head.extend(layout.encode_slot(self.place, slot, (!entries.is_empty()).then_some(next)));
            }
            while let Some(chunk) = chunks.next() {
                let more = (chunks.len() > 0).then_some(next + 1);
                let at = rest.len();
                rest.resize(at + bytes, 0);
                layout.encode_block(&mut rest[at..], next, more, chunk);
                next += 1;
            }
        }
        (head, rest)
    }
}
