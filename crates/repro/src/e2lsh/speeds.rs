//! Speeds on devices: this disk, the paper's devices emulated, synchronous reads, threads (figures 11 to 13, 15 and 16, section 6.5).

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

use super::accuracy::Chosen;
use super::build::failed;
use super::lab::Lab;
use super::mapped::{MmapTier, waited_faults};
use super::points::Point;
use super::run::Width;
use super::search::Ask;
use crate::workload::Questions;

/// Bytes that lie on one part before the next has its turn.
const STRIPE_BYTES: usize = 64 << 10;
/// Parts that the index is striped over on this disk.
const PARTS: [usize; 2] = [2, 4];

/// A device of table 2: nanoseconds of one read alone, and reads a second when many are in flight.
struct Drive {
    name: &'static str,
    latency_ns: u64,
    reads_per_second: f64,
}

const CSSD: Drive = Drive { name: "cSSD", latency_ns: 138_900, reads_per_second: 273e3 };
const ESSD: Drive = Drive { name: "eSSD", latency_ns: 36_200, reads_per_second: 1.4e6 };
const XLFDD: Drive = Drive { name: "XLFDD", latency_ns: 7_560, reads_per_second: 3.86e6 };

/// An interface of table 3: its name and processor nanoseconds a read.
type Interface = (&'static str, u64);

const IO_URING: Interface = ("io_uring", 1000);
const SPDK: Interface = ("SPDK", 350);
const LIGHT: Interface = ("XLFDD", 50);

/// What figure 11 compares (table 5).
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

/// The emulated devices that threads are measured on, by their place among all.
const WITH_THREADS: [usize; 2] = [4, 8];

/// What section 6.5 measures synchronous reads on, by its place among the configurations.
const SYNCHRONOUS: usize = 3;

/// What is read from, and what the model knows of it.
struct Device {
    name: String,
    tier: Arc<dyn Tier>,
    emulated: bool,
    cost: Option<ReadCost>,
}

/// A search on a device that takes turns with others.
struct Cell<'d> {
    experiment: &'static str,
    device: &'d Device,
    ask: Ask,
    width: Width,
}

/// Measures all cells in turn, and asks the model of each.
pub(super) fn measure(lab: &Lab<'_>, chosen: &Chosen) -> Result<Vec<Point>, Failure> {
    let (devices, parts) = devices(lab, chosen)?;
    let mut cells = Vec::new();
    for ask in &chosen.asks {
        let of = |device| Cell { experiment: "devices", device, ask: *ask, width: lab.width() };
        cells.extend(devices.iter().map(of));
    }
    let own = devices.iter().filter(|device| !device.emulated).take(2);
    let emulated = devices.iter().filter(|device| device.emulated).enumerate();
    let emulated = emulated.filter(|(at, _)| WITH_THREADS.contains(at)).map(|(_, device)| device);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    for device in own.chain(emulated) {
        for threads in std::iter::successors(Some(1), |threads| Some(threads * 2)).take_while(|n| *n <= cores)
        {
            let width = Width { threads, ..lab.width() };
            cells.push(Cell { experiment: "threads", device, ask: chosen.asks[0], width });
        }
    }
    let points = in_turn(lab, chosen, &cells)?;
    drop(devices);
    for part in parts {
        std::fs::remove_file(&part).map_err(|e| failed(&part, e))?;
    }
    Ok(points)
}

fn in_turn(lab: &Lab<'_>, chosen: &Chosen, cells: &[Cell<'_>]) -> Result<Vec<Point>, Failure> {
    let (base, asked) = (&lab.work.base, &lab.work.all);
    let mut outcomes: Vec<Vec<_>> = cells.iter().map(|_| Vec::new()).collect();
    let progress = lab.console.progress();
    let all = u64::from(lab.arguments.repeats) * cells.len() as u64;
    bathyal_vectors::progress::Progress::stage(&progress, "measuring devices", all);
    let mut done = 0;
    for _ in 0..lab.arguments.repeats {
        for (cell, outcomes) in cells.iter().zip(&mut outcomes) {
            let of = (base, &chosen.built);
            outcomes.push(lab.once(of, None, &cell.device.tier, (asked, cell.ask, cell.width))?);
            done += 1;
            bathyal_vectors::progress::Progress::advance(&progress, done);
        }
    }
    let point = |cell: &Cell<'_>, outcomes: &[_]| {
        let how = (cell.ask, cell.width.threads, cell.width.in_flight);
        let labels = (cell.experiment, cell.device.name.clone());
        let point = Point::new(labels, &chosen.built, base.count(), how, outcomes);
        Point { emulated: cell.device.emulated, ..point }
    };
    let points: Vec<Point> = cells.iter().zip(&outcomes).map(|(cell, of)| point(cell, of)).collect();
    let computing = |of: &Point| {
        let same = |point: &&Point| {
            (point.experiment, point.k, point.variant.as_str()) == ("devices", of.k, "memory")
        };
        points.iter().find(same).map(|point| point.query_ns())
    };
    let told = |(cell, point): (&Cell<'_>, &Point)| match (cell.device.cost, computing(point)) {
        (Some(cost), Some(compute_ns)) => {
            // As many processors compute and post reads at once as there are threads; the device is one.
            let threads = cell.width.threads as f64;
            let work = QueryWork { compute_ns: compute_ns / threads, reads: point.reads };
            let cost = ReadCost { request_ns: cost.request_ns / threads, ..cost };
            point.clone().predicted(work.asynchronous_ns(cost))
        }
        _ => point.clone(),
    };
    Ok(cells.iter().zip(&points).map(told).collect())
}

/// Memory, the file, its stripes, and the paper's devices on top of memory; and the files of the stripes.
fn devices(lab: &Lab<'_>, chosen: &Chosen) -> Result<(Vec<Device>, Vec<PathBuf>), Failure> {
    let own = |name: &str, tier, cost| Device { name: name.to_owned(), tier, emulated: false, cost };
    let profile = lab.arguments.file_profile.as_ref().filter(|profile| profile.iops > 0.0);
    let cost =
        profile.map(|profile| ReadCost { request_ns: profile.issue_ns as f64, read_ns: 1e9 / profile.iops });
    let file = |path: &PathBuf| {
        FileTier::open(path, FileOptions::default()).map(|tier| Arc::new(tier) as Arc<dyn Tier>)
    };
    let mut devices =
        vec![own("memory", chosen.in_memory.clone(), None), own("file", file(&chosen.built.path)?, cost)];
    let mut parts = Vec::new();
    for count in PARTS {
        let of = striped(lab, chosen, count)?;
        let members = of.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        let tier = Arc::new(StripeTier::new(members, STRIPE_BYTES as u32)?);
        devices.push(own(&format!("{count} files, one disk"), tier, cost));
        parts.extend(of);
    }
    for (drive, count, (interface, issue_ns)) in CONFIGURATIONS {
        let (name, delay) = emulation(drive, count, (interface, issue_ns));
        let read_ns = 1e9 / (drive.reads_per_second * f64::from(count));
        let tier = Arc::new(DelayTier::new(chosen.in_memory.clone(), delay));
        let cost = Some(ReadCost { request_ns: issue_ns as f64, read_ns });
        devices.push(Device { name, tier, emulated: true, cost });
    }
    Ok((devices, parts))
}

/// Some drives behind an interface, as they are emulated: reads a second are a bandwidth of blocks of 512 bytes.
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

/// Copies the index into stripes over `count` files.
fn striped(lab: &Lab<'_>, chosen: &Chosen, count: usize) -> Result<Vec<PathBuf>, Failure> {
    let from = &chosen.built.path;
    let mut source = File::open(from).map_err(|e| failed(from, e))?;
    let paths: Vec<PathBuf> =
        (0..count).map(|part| lab.folder(&format!("stripe-{part}-of-{count}"))).collect();
    let create = |path: &PathBuf| File::create(path).map_err(|e| failed(path, e));
    let mut files = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
    let (mut bytes, mut turn) = (vec![0; STRIPE_BYTES], 0);
    loop {
        lab.go_on()?;
        let mut held = 0;
        while held < STRIPE_BYTES {
            match source.read(&mut bytes[held..]).map_err(|e| failed(from, e))? {
                0 => break,
                more => held += more,
            }
        }
        if held == 0 {
            break;
        }
        files[turn].write_all(&bytes[..held]).map_err(|e| failed(&paths[turn], e))?;
        turn = (turn + 1) % count;
    }
    for (file, path) in files.iter().zip(&paths) {
        file.sync_all().map_err(|e| failed(path, e))?;
    }
    Ok(paths)
}

/// Synchronous reads: the mapped file, a query after the other, beginning with nothing in the page cache; reads one by one of the file
/// and of an emulated device; and asynchronous ones of as many queries of both, all in turn.
pub(super) fn synchronous(lab: &Lab<'_>, chosen: &Chosen) -> Result<Vec<Point>, Failure> {
    let count = lab.work.all.queries.count().min(lab.arguments.synchronous_queries as usize);
    let all = &lab.work.all;
    let rows = (0..count).flat_map(|row| all.queries.row(row).iter().copied()).collect();
    let queries = VectorFile::from_rows(all.queries.element(), all.queries.dim(), rows)?;
    let asked = Questions { queries, exact: all.exact.slice(0..count)? };
    let (base, ask, path) = (&lab.work.base, chosen.asks[0], &chosen.built.path);
    let file: Arc<dyn Tier> = Arc::new(FileTier::open(path, FileOptions::default())?);
    let (drive, parts, interface) = CONFIGURATIONS[SYNCHRONOUS];
    let (name, delay) = emulation(drive, parts, interface);
    let device: Arc<dyn Tier> = Arc::new(DelayTier::new(chosen.in_memory.clone(), delay));
    let (alone, many) = (Width { in_flight: 1, depth: 1, ..lab.width() }, lab.width());
    let mut faults = 0;
    let mut outcomes = [const { Vec::new() }; 5];
    for _ in 0..lab.arguments.repeats {
        let cold: Arc<dyn Tier> = Arc::new(MmapTier::cold(path)?);
        let before = waited_faults();
        let once = |tier, width| lab.once((base, &chosen.built), None, tier, (&asked, ask, width));
        outcomes[0].push(once(&cold, alone)?);
        faults += waited_faults() - before;
        for (at, (tier, width)) in
            [(&file, alone), (&file, many), (&device, alone), (&device, many)].iter().enumerate()
        {
            outcomes[at + 1].push(once(tier, *width)?);
        }
    }
    let point = |at: usize, variant: String, width: Width| {
        let how = (ask, 1, width.in_flight);
        Point::new(("synchronous", variant), &chosen.built, base.count(), how, &outcomes[at])
    };
    let runs = count as f64 * f64::from(lab.arguments.repeats);
    let emulated = |point| Point { emulated: true, ..point };
    Ok(vec![
        Point { faults: Some(faults as f64 / runs), ..point(0, "file, mapped".into(), alone) },
        point(1, "file, a read at a time".into(), alone),
        point(2, "file, interleaved".into(), many),
        emulated(point(3, format!("{name}, a read at a time"), alone)),
        emulated(point(4, format!("{name}, interleaved"), many)),
    ])
}
