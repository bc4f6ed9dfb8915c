//! The other half of the report: requirements, speeds on devices, growth, sizes.

use std::fmt::Write as _;

use bathyal_console::{Failure, byte_size};
use bathyal_index::cost::storage::QueryWork;

use super::fit::Growth;
use super::points::Point;
use super::report::Report;
use crate::document::Document;
use crate::draw::{Axes, Curve, Pen};
use crate::numbers::percent;

/// The share of a query's time in memory that it waits for the larger part of its memory, as the paper measures (equation 16).
const STALLED: f64 = 0.1;

impl Report<'_> {
    /// Everything that is about time.
    pub(super) fn speeds(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        self.devices(&mut document.text);
        self.threads(&mut document.text);
        self.synchronous(&mut document.text);
        self.growth(document)?;
        self.family_table(&mut document.text);
        self.sizes(&mut document.text);
        Ok(())
    }

    /// Figures 2 and 4 to 8: what a device has to do, from the counters and the time in memory.
    pub(super) fn requirements(&self, text: &mut String) {
        let srs = self.lab.arguments.srs_us;
        *text += "\n## Requirements (figures 4 to 8, equations 12 to 16)\n\n\
                  Random reads a second that a device has to do so that a query takes no longer than SRS, and than the same search in\n\
                  memory; requests a second that a core has to post for the latter.\n\n\
                  | k | S | ratio | reads | us in memory | for SRS' speed | in memory's speed | requests for that |\n\
                  |---:|---:|---:|---:|---:|---:|---:|---:|\n";
        let hashes = self.chosen.built.plan.ladder.hashes;
        for point in self.points.iter().filter(|p| p.experiment == "accuracy" && p.hashes == hashes) {
            let time = point.query_ns();
            let work = QueryWork { compute_ns: time, reads: point.reads };
            let small =
                srs.filter(|_| point.k == self.k()).map(|us| work.requirement(us * 1e3).reads_per_second);
            let _ = writeln!(
                text,
                "| {} | {} | {:.3} | {:.1} | {:.0} | {} | {} | {} |",
                point.k,
                point.candidates,
                point.ratio,
                point.reads,
                time / 1e3,
                small.map_or("-".to_owned(), rate),
                rate(work.requirement(time).reads_per_second),
                rate(work.requests_per_second_as_in_memory(time, STALLED)),
            );
        }
        if let Some((us, point)) = srs.zip(self.at_ratio(self.k())) {
            let times = us * 1e3 / point.query_ns();
            let _ = writeln!(
                text,
                "\nSRS takes {us:.0} us at this ratio; the same search in memory is {times:.1} times as fast (figure 2)."
            );
        }
    }

    fn devices(&self, text: &mut String) {
        let srs = self.lab.arguments.srs_us;
        *text += "\n## Devices (figures 11 to 13 and 15)\n\n\
                  Equation 7 is given the time in memory, the reads, and the device's numbers; its error is what it says too much.\n\n\
                  | k | device | | queries/s | reads/s | us of a query | of memory's speed | times SRS | equation 7 | error |\n\
                  |---:|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
        for k in &self.lab.arguments.k {
            let k = *k as usize;
            let memory = self.of("devices", k).find(|point| point.variant == "memory");
            for point in self.of("devices", k) {
                let times = srs.filter(|_| k == self.k()).map(|us| us * point.qps / 1e6);
                let _ = writeln!(
                    text,
                    "| {k} | {} | {} | {:.0} | {} | {:.0} | {} | {} | {} | {} |",
                    point.variant,
                    emulated(point),
                    point.qps,
                    rate(point.qps * point.reads),
                    point.latency_ns / 1e3,
                    percent(memory.map(|memory| point.qps / memory.qps)),
                    times.map_or("-".to_owned(), |times| format!("{times:.1}")),
                    point.predicted_ns.map_or("-".to_owned(), |ns| format!("{:.0}", 1e9 / ns)),
                    percent(point.error),
                );
            }
        }
    }

    fn threads(&self, text: &mut String) {
        *text += "\n## Threads (figure 16)\n\n\
                  | device | | threads | queries/s | times one thread |\n|---|---|---:|---:|---:|\n";
        let points: Vec<&Point> = self.of("threads", self.k()).collect();
        for point in &points {
            let alone = points.iter().find(|one| one.variant == point.variant && one.threads == 1);
            let times = alone.map_or(1.0, |one| point.qps / one.qps);
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.0} | {times:.2} |",
                point.variant,
                emulated(point),
                point.threads,
                point.qps
            );
        }
    }

    /// Synchronous reads beside interleaved ones: for each the point, and how many times as fast the interleaved are.
    pub(super) fn synchronous_pairs(&self) -> Vec<(&Point, f64)> {
        let of: Vec<&Point> = self.of("synchronous", self.k()).collect();
        let device = |point: &Point| {
            point.variant.rsplit_once(", ").map_or(String::new(), |(device, _)| device.to_owned())
        };
        let times = |point: &&Point| {
            let same = of.iter().find(|one| one.in_flight > 1 && device(one) == device(point));
            same.map_or(1.0, |interleaved| interleaved.qps / point.qps.max(1e-9))
        };
        of.iter().map(|point| (*point, times(point))).collect()
    }

    fn synchronous(&self, text: &mut String) {
        let queries = self.lab.arguments.synchronous_queries.min(self.lab.work.all.queries.count() as u32);
        let _ = write!(
            text,
            "\n## Synchronous reads (section 6.5)\n\n\
             The first {queries} queries. The mapped file begins with nothing in the page cache in every round, and the pages that it has\n\
             brought by the end are the most that it can find there; the paper caps the cache and finds 93% missing.\n\n\
             | | | queries/s | us of a query | reads | page faults that waited | in the cache at the end | interleaved is faster by |\n\
             |---|---|---:|---:|---:|---:|---:|---:|\n"
        );
        for (point, times) in self.synchronous_pairs() {
            let faults = point.faults.map_or("-".to_owned(), |faults| format!("{faults:.1}"));
            let held =
                point.faults.map(|faults| faults * f64::from(queries) * 4096.0 / point.index_bytes as f64);
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.1} | {faults} | {} | {times:.1} |",
                point.variant,
                emulated(point),
                point.qps,
                point.latency_ns / 1e3,
                point.reads,
                percent(held),
            );
        }
        if let Some((file, (mapped, _))) =
            self.family_at("file", self.k()).zip(self.synchronous_pairs().first())
        {
            let times = file.qps / mapped.qps.max(1e-9);
            let _ = writeln!(
                text,
                "\n`lsh` from the file is {times:.1} times as fast as the paper's tables mapped."
            );
        }
    }

    /// Exponents of n: the family from its file, the paper's tables in memory, the scan; for the first k.
    pub(super) fn growths(&self) -> [Option<Growth>; 3] {
        let of = |device: &'static str| {
            let k = self.k();
            self.family.iter().filter(move |point| point.device == device && point.k == k)
        };
        let family: Vec<_> = of("file").map(|point| (point.vectors as f64, 1e9 / point.qps)).collect();
        let scan: Vec<_> = of("file").map(|point| (point.vectors as f64, point.scan_ms * 1e6)).collect();
        let paper = self.of("growth", self.k()).map(|point| (point.vectors as f64, point.query_ns()));
        [Growth::of(&family), Growth::of(&paper.collect::<Vec<_>>()), Growth::of(&scan)]
    }

    fn growth(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let k = self.k();
        let _ = write!(
            document.text,
            "\n## Time over n (figure 14)\n\n\
             Microseconds of a query of top-{k} at the ratio, one thread; exponents with 95% confidence are in the summary.\n\n\
             | n | `lsh`, file | ratio | reads | `lsh`, memory | the paper's tables, memory | ratio | reads | exact scan |\n\
             |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        );
        let at = |device: &'static str| {
            self.family.iter().filter(move |point| point.device == device && point.k == k)
        };
        let mut drawn: [Vec<(f64, f64)>; 4] = Default::default();
        for (file, memory) in at("file").zip(at("memory")) {
            let paper = self.of("growth", k).find(|point| point.vectors == file.vectors);
            let cell = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                document.text,
                "| {} | {:.0} | {:.3} | {:.1} | {:.0} | {} | {} | {} | {:.0} |",
                file.vectors,
                1e6 / file.qps,
                file.ratio,
                file.reads,
                1e6 / memory.qps,
                cell(paper.map(|point| point.query_ns() / 1e3), 0),
                cell(paper.map(|point| point.ratio), 3),
                cell(paper.map(|point| point.reads), 1),
                file.scan_ms * 1e3,
            );
            let x = (file.vectors as f64).log10();
            let times = [
                1e6 / file.qps,
                1e6 / memory.qps,
                paper.map_or(f64::NAN, |p| p.query_ns() / 1e3),
                file.scan_ms * 1e3,
            ];
            drawn.iter_mut().zip(times).for_each(|(points, us)| points.push((x, us.log10())));
        }
        let names = ["lsh, file", "lsh, memory", "the paper's tables, memory", "exact scan"];
        let curves: Vec<Curve> = names
            .iter()
            .zip(drawn)
            .map(|(name, points)| Curve { name: (*name).to_owned(), points, pen: Pen::Marks })
            .collect();
        let axes = Axes { title: "Time of a query over n", x: "log10 of n", y: "log10 of microseconds" };
        document.plot("figure-14.svg", &axes, &curves)
    }

    fn family_table(&self, text: &mut String) {
        *text += "\n## The family `lsh` at the ratio\n\n\
                  | k | from | ratio | p99 | recall | blocks of each table | candidates | reads | queries/s | us of a query \
                  | times an exact scan |\n\
                  |---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        let all = self.lab.work.base.count();
        for point in self.family.iter().filter(|point| point.vectors == all) {
            let _ = writeln!(
                text,
                "| {} | {} | {:.3} | {:.3} | {:.3} | {} | {} | {:.1} | {:.0} | {:.0} | {:.1} |",
                point.k,
                point.device,
                point.ratio,
                point.ratio_p99,
                point.recall,
                point.probes,
                point.search_list,
                point.reads,
                point.qps,
                point.latency_ns / 1e3,
                point.qps * point.scan_ms / 1e3,
            );
        }
    }

    /// Table 6.
    fn sizes(&self, text: &mut String) {
        let built = &self.chosen.built;
        let data = self.lab.work.base.data_bytes();
        let _ = write!(
            text,
            "\n## Sizes (table 6)\n\n\
             | | on the device | in memory | of that beside the vectors |\n|---|---:|---:|---:|\n\
             | vectors | {} | | |\n\
             | the paper's tables | {} | {} | {} |\n",
            byte_size::format(data),
            byte_size::format(built.index_bytes),
            byte_size::format(data + built.hashes.bytes()),
            byte_size::format(built.hashes.bytes()),
        );
        if let Some(point) = self.family_at("file", self.k()) {
            let memory = byte_size::format(point.memory_bytes);
            let _ = writeln!(
                text,
                "| `lsh`, vectors within | {} | {memory} | {memory} |",
                byte_size::format(point.index_bytes)
            );
        }
        if let Some(seconds) = built.seconds {
            let _ = writeln!(text, "\nThe paper's tables were built in {seconds:.0} s.");
        }
    }
}

fn emulated(point: &Point) -> &'static str {
    if point.emulated { "emulated" } else { "" }
}

/// So many a second.
fn rate(value: f64) -> String {
    match value {
        value if !value.is_finite() => "none is enough".to_owned(),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}
