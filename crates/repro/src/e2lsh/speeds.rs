//! Speeds on devices: this disk, emulations of the paper's devices, synchronous reads, and threads (figures
//! 11 to 13, 15 and 16, section 6.5).

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bathyal_console::Failure;
use bathyal_index::cost::storage::{QueryWork, ReadCost};
use bathyal_tier::Tier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_vectors::VectorFile;

use super::accuracy::ChosenTables;
use super::build::failed;
use super::experiment::E2lshExperiment;
use super::mapped::{MmapTier, waited_faults};
use super::points::PaperPoint;
use super::run::Parallelism;
use super::search::SearchParameters;
use crate::workload::QuerySet;

/// Bytes per stripe unit.
const STRIPE_BYTES: usize = 64 << 10;
/// Numbers of files that the index is striped over on this disk.
const PARTS: [usize; 2] = [2, 4];

/// A device of table 2: nanoseconds of a single read, and reads per second with many in flight.
struct Drive {
    name: &'static str,
    latency_ns: u64,
    reads_per_second: f64,
}

const CSSD: Drive = Drive { name: "cSSD", latency_ns: 138_900, reads_per_second: 273e3 };
const ESSD: Drive = Drive { name: "eSSD", latency_ns: 36_200, reads_per_second: 1.4e6 };
const XLFDD: Drive = Drive { name: "XLFDD", latency_ns: 7_560, reads_per_second: 3.86e6 };

/// An interface of table 3: its name and its processor nanoseconds per read.
type Interface = (&'static str, u64);

const IO_URING: Interface = ("io_uring", 1000);
const SPDK: Interface = ("SPDK", 350);
const LIGHT: Interface = ("XLFDD", 50);

/// The configurations of figure 11 (table 5).
const CONFIGURATIONS: [(&Drive, u32, Interface); 9] = [
    (&CSSD, 1, IO_URING),
    (&CSSD, 1, SPDK),
    (&CSSD, 2, SPDK),
    (&CSSD, 4, IO_URING),
    (&CSSD, 4, SPDK),
    (&ESSD, 1, IO_URING),
    (&ESSD, 1, SPDK),
    (&ESSD, 8, SPDK),
    (&XLFDD, 12, LIGHT),
];

/// Positions in `CONFIGURATIONS` of the devices for measurements with threads.
const WITH_THREADS: [usize; 2] = [4, 8];

/// Position in `CONFIGURATIONS` of the device for synchronous reads in section 6.5.
const SYNCHRONOUS: usize = 3;

/// A device, and its cost in the model.
struct ModelDevice {
    name: String,
    tier: Arc<dyn Tier>,
    emulated: bool,
    cost: Option<ReadCost>,
}

/// A search on a device; cells take turns.
struct Cell<'d> {
    experiment: &'static str,
    device: &'d ModelDevice,
    parameters: SearchParameters,
    parallelism: Parallelism,
}

/// Measures all cells in turns, and predicts the speed of each by the model.
pub(super) fn measure(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<Vec<PaperPoint>, Failure> {
    let (devices, parts) = devices(experiment, chosen)?;
    let mut cells = Vec::new();
    for parameters in &chosen.searches {
        let cell = |device| Cell {
            experiment: "devices",
            device,
            parameters: *parameters,
            parallelism: experiment.parallelism(),
        };
        cells.extend(devices.iter().map(cell));
    }
    let real = devices.iter().filter(|device| !device.emulated).take(2);
    let emulated = devices.iter().filter(|device| device.emulated).enumerate();
    let emulated = emulated.filter(|(at, _)| WITH_THREADS.contains(at)).map(|(_, device)| device);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    for device in real.chain(emulated) {
        for threads in std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|n| *n <= cores)
        {
            let parallelism = Parallelism { threads, ..experiment.parallelism() };
            cells.push(Cell { experiment: "threads", device, parameters: chosen.searches[0], parallelism });
        }
    }
    let points = measure_in_turns(experiment, chosen, &cells)?;
    drop(devices);
    for part in parts {
        std::fs::remove_file(&part).map_err(|e| failed(&part, e))?;
    }
    Ok(points)
}

fn measure_in_turns(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
    cells: &[Cell<'_>],
) -> Result<Vec<PaperPoint>, Failure> {
    let (base, query_set) = (&experiment.work.base, &experiment.work.all);
    let mut outcomes: Vec<Vec<_>> = cells.iter().map(|_| Vec::new()).collect();
    let progress = experiment.console.progress();
    let all = u64::from(experiment.arguments.repeats) * cells.len() as u64;
    bathyal_vectors::progress::Progress::stage(&progress, "measuring devices", all);
    let mut done = 0;
    for _ in 0..experiment.arguments.repeats {
        for (cell, outcomes) in cells.iter().zip(&mut outcomes) {
            let tables = (base, &chosen.built);
            outcomes.push(experiment.search_once(
                tables,
                None,
                &cell.device.tier,
                query_set,
                cell.parameters,
                cell.parallelism,
            )?);
            done += 1;
            bathyal_vectors::progress::Progress::advance(&progress, done);
        }
    }
    let point = |cell: &Cell<'_>, outcomes: &[_]| {
        let labels = (cell.experiment, cell.device.name.clone());
        let point =
            PaperPoint::new(labels, &chosen.built, base.count(), cell.parameters, cell.parallelism, outcomes);
        PaperPoint { emulated: cell.device.emulated, ..point }
    };
    let points: Vec<PaperPoint> =
        cells.iter().zip(&outcomes).map(|(cell, outcomes)| point(cell, outcomes)).collect();
    let compute_ns_of = |measured: &PaperPoint| {
        let same = |point: &&PaperPoint| {
            (point.experiment, point.k, point.variant.as_str()) == ("devices", measured.k, "memory")
        };
        points.iter().find(same).map(|point| point.query_ns())
    };
    let predict = |(cell, point): (&Cell<'_>, &PaperPoint)| match (cell.device.cost, compute_ns_of(point)) {
        (Some(cost), Some(compute_ns)) => {
            // Threads compute and submit reads in parallel, but share one device.
            let threads = cell.parallelism.threads as f64;
            let work = QueryWork { compute_ns: compute_ns / threads, reads: point.reads };
            let cost = ReadCost { request_ns: cost.request_ns / threads, ..cost };
            point.clone().with_prediction(work.asynchronous_ns(cost))
        }
        _ => point.clone(),
    };
    Ok(cells.iter().zip(&points).map(predict).collect())
}

/// Returns the devices (memory, the file, its stripes, and emulations on top of memory) and the files of the
/// stripes.
fn devices(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<(Vec<ModelDevice>, Vec<PathBuf>), Failure> {
    let real = |name: &str, tier, cost| ModelDevice { name: name.to_owned(), tier, emulated: false, cost };
    let profile = experiment.arguments.file_profile.as_ref().filter(|profile| profile.iops > 0.0);
    let cost =
        profile.map(|profile| ReadCost { request_ns: profile.issue_ns as f64, read_ns: 1e9 / profile.iops });
    let file = |path: &PathBuf| {
        FileTier::open(path, FileOptions::default()).map(|tier| Arc::new(tier) as Arc<dyn Tier>)
    };
    let mut devices =
        vec![real("memory", chosen.in_memory.clone(), None), real("file", file(&chosen.built.path)?, cost)];
    let mut parts = Vec::new();
    for count in PARTS {
        let paths = write_stripes(experiment, chosen, count)?;
        let members = paths.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        let tier = Arc::new(StripeTier::new(members, STRIPE_BYTES as u32)?);
        devices.push(real(&format!("{count} files, one disk"), tier, cost));
        parts.extend(paths);
    }
    for (drive, count, (interface, issue_ns)) in CONFIGURATIONS {
        let (name, delay) = emulation(drive, count, (interface, issue_ns));
        let read_ns = 1e9 / (drive.reads_per_second * f64::from(count));
        let tier = Arc::new(DelayTier::new(chosen.in_memory.clone(), delay));
        let cost = Some(ReadCost { request_ns: issue_ns as f64, read_ns });
        devices.push(ModelDevice { name, tier, emulated: true, cost });
    }
    Ok((devices, parts))
}

/// Returns name and emulation of drives behind an interface. Reads per second become a bandwidth of blocks of
/// 512 bytes.
fn emulation(drive: &Drive, count: u32, (interface, issue_ns): Interface) -> (String, DelayProfile) {
    let name = format!("{} x {count}, {interface}", drive.name);
    let delay = DelayProfile {
        name: name.clone(),
        latency_ns: drive.latency_ns,
        bandwidth_bytes_per_s: drive.reads_per_second * f64::from(count) * 512.0,
        granularity: 512,
        issue_ns,
    };
    (name, delay)
}

/// Stripes the index over `count` files and returns their paths.
fn write_stripes(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
    count: usize,
) -> Result<Vec<PathBuf>, Failure> {
    let from = &chosen.built.path;
    let mut source = File::open(from).map_err(|e| failed(from, e))?;
    let paths: Vec<PathBuf> =
        (0..count).map(|part| experiment.folder(&format!("stripe-{part}-of-{count}"))).collect();
    let create = |path: &PathBuf| File::create(path).map_err(|e| failed(path, e));
    let mut files = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
    let (mut bytes, mut turn) = (vec![0; STRIPE_BYTES], 0);
    loop {
        experiment.check_interrupt()?;
        let mut filled = 0;
        while filled < STRIPE_BYTES {
            match source.read(&mut bytes[filled..]).map_err(|e| failed(from, e))? {
                0 => break,
                more => filled += more,
            }
        }
        if filled == 0 {
            break;
        }
        files[turn].write_all(&bytes[..filled]).map_err(|e| failed(&paths[turn], e))?;
        turn = (turn + 1) % count;
    }
    for (file, path) in files.iter().zip(&paths) {
        file.sync_all().map_err(|e| failed(path, e))?;
    }
    Ok(paths)
}

/// Measures synchronous reads in turns with asynchronous ones: the mapped file with one query at a time and
/// an empty page cache; the file and an emulated device with one read at a time; and both with interleaved
/// queries.
pub(super) fn synchronous(
    experiment: &E2lshExperiment<'_>,
    chosen: &ChosenTables,
) -> Result<Vec<PaperPoint>, Failure> {
    let count = experiment.work.all.queries.count().min(experiment.arguments.synchronous_queries as usize);
    let all = &experiment.work.all;
    let rows = (0..count).flat_map(|row| all.queries.row(row).iter().copied()).collect();
    let queries = VectorFile::from_rows(all.queries.element(), all.queries.dim(), rows)?;
    let query_set = QuerySet { queries, exact: all.exact.slice(0..count)? };
    let (base, parameters, path) = (&experiment.work.base, chosen.searches[0], &chosen.built.path);
    let file: Arc<dyn Tier> = Arc::new(FileTier::open(path, FileOptions::default())?);
    let (drive, parts, interface) = CONFIGURATIONS[SYNCHRONOUS];
    let (name, delay) = emulation(drive, parts, interface);
    let device: Arc<dyn Tier> = Arc::new(DelayTier::new(chosen.in_memory.clone(), delay));
    let (alone, many) =
        (Parallelism { in_flight: 1, depth: 1, ..experiment.parallelism() }, experiment.parallelism());
    let mut faults = 0;
    let mut outcomes = [const { Vec::new() }; 5];
    for _ in 0..experiment.arguments.repeats {
        let cold: Arc<dyn Tier> = Arc::new(MmapTier::cold(path)?);
        let before = waited_faults();
        let search = |tier, parallelism| {
            experiment.search_once((base, &chosen.built), None, tier, &query_set, parameters, parallelism)
        };
        outcomes[0].push(search(&cold, alone)?);
        faults += waited_faults() - before;
        for (at, (tier, parallelism)) in
            [(&file, alone), (&file, many), (&device, alone), (&device, many)].iter().enumerate()
        {
            outcomes[at + 1].push(search(tier, *parallelism)?);
        }
    }
    let point = |at: usize, variant: String, parallelism: Parallelism| {
        let labels = ("synchronous", variant);
        let vectors = base.count();
        PaperPoint::new(labels, &chosen.built, vectors, parameters, parallelism, &outcomes[at])
    };
    let runs = count as f64 * f64::from(experiment.arguments.repeats);
    let emulated = |point| PaperPoint { emulated: true, ..point };
    Ok(vec![
        PaperPoint { faults: Some(faults as f64 / runs), ..point(0, "file, mapped".into(), alone) },
        point(1, "file, a read at a time".into(), alone),
        point(2, "file, interleaved".into(), many),
        emulated(point(3, format!("{name}, a read at a time"), alone)),
        emulated(point(4, format!("{name}, interleaved"), many)),
    ])
}
