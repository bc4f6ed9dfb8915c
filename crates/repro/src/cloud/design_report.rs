//! The part of the report that changes one thing at a time: sets, sizes, centroids, replicas, degrees, beams.

use std::fmt::Write as _;

use bathyal_console::{Failure, byte_size};

use super::curves::{self, Counter, Values, at, bottom, counters, ratio, speeds, top};
use super::effort::{BEAM, BEAMS};
use super::findings::measured_concurrencies;
use super::plan::ENDS;
use super::points::Point;
use super::report::{Report, counted, marks, speed, times};
use super::subjects::{DENSE, FEWER_REPLICAS, FINE_SHARE, GRAPH, REPLICAS, SHARE, SPANN, Subject};
use crate::document::Document;
use crate::draw::Axes;

const COUNTERS: &str = "| index | effort | recall | rounds | waits | requests | reads | KB | us of the processor |\n\
                        |---|---|---:|---:|---:|---:|---:|---:|---:|\n";
const SPEEDS: &str = "| index | effort | recall | queries/s | ms | p99 | MB/s | GET/s | bound, by the equations |\n\
                      |---|---|---:|---:|---:|---:|---:|---:|---|\n";
/// Recalls at which one index is shown in times of another, besides the lowest and the highest of both.
const RECALLS: [f64; 3] = [0.8, 0.9, 0.95];

impl Report<'_> {
    /// Figures 10 to 19 and table 4.
    pub(super) fn design(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        self.other_sets(&mut document.text);
        self.growth(document)?;
        self.sizes(&mut document.text);
        self.centroids(document)?;
        self.replicas(document)?;
        self.degrees(document)?;
        self.beams(document)
    }

    fn ends(&self) -> Vec<usize> {
        measured_concurrencies(&self.measured.points, &ENDS)
    }

    /// Figures 10 to 12.
    fn other_sets(&self, text: &mut String) {
        *text += "\n## Dimensions and elements (figures 10 to 12)\n\n";
        for set in self.sets {
            let _ = write!(text, "\n### {}\n\n{COUNTERS}", set.described());
            let of = |subject: Subject| {
                let beam = matches!(subject, Subject::Graph { .. }).then_some(BEAM);
                curves::of(&self.measured.points, &set.name, subject, beam)
            };
            let all: Vec<&Point> = [GRAPH, SPANN, Subject::Cluster].into_iter().flat_map(of).collect();
            all.iter().for_each(|point| counted(text, point));
            if set.name == self.first() {
                continue;
            }
            for concurrency in self.ends() {
                let _ = write!(text, "\n{concurrency} at once:\n{}{SPEEDS}", self.label());
                all.iter().for_each(|point| speed(text, point, concurrency));
            }
        }
        *text += "\nThe paper, SPANN from GIST1M (960 floats) to DEEP10M (96): nprobe 2048 to 512 for 0.995, lists of 166 to 15 KB, up to 28.4\n\
                  times less data and 7.61 times the queries/s; DiskANN: L 640 to 160, 43 to 15 roundtrips, up to 2.86 times the queries/s.\n\
                  From floats to bytes SPANN reads 2.69 times less and is up to 2.13 times as fast; DiskANN reads whole blocks of 4 KB and\n\
                  gains nothing.\n";
    }

    /// Figure 13.
    fn growth(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.text += "\n## Number of vectors (figure 13)\n\nOne effort each. Exact.\n\n\
                          | index | effort | vectors | recall | rounds | requests | KB |\n|---|---|---:|---:|---:|---:|---:|\n";
        let findings = self.findings();
        let (mut rounds, mut requests) = (Vec::new(), Vec::new());
        for subject in [GRAPH, SPANN, Subject::Cluster] {
            let points = findings.growth(subject);
            for point in &points {
                let _ = writeln!(
                    document.text,
                    "| {} | {} | {} | {:.3} | {:.2} | {:.1} | {:.0} |",
                    point.index,
                    point.effort.words(),
                    point.vectors,
                    point.recall,
                    point.rounds,
                    point.requests,
                    point.bytes / 1e3,
                );
            }
            let by_size = |of: Counter| {
                points.iter().map(|point| ((point.vectors as f64).log10(), of(point))).collect()
            };
            rounds.push(marks(subject.name(), by_size(|point| point.rounds)));
            requests.push(marks(subject.name(), by_size(|point| point.requests)));
        }
        for (name, what, drawn) in
            [("figure-13-rounds.svg", "rounds", rounds), ("figure-13-requests.svg", "requests", requests)]
        {
            let title = format!("{what} of a query by number of vectors");
            document.plot(name, &Axes { title: &title, x: "log10 of vectors", y: what }, &drawn)?;
        }
        document.text += "\nThe paper: DiskANN's roundtrips and requests grow as the logarithm of n.\n";
        Ok(())
    }

    /// Table 4, and what opening takes.
    fn sizes(&self, text: &mut String) {
        *text += "\n## Sizes (table 4), and opening\n\nOpening waits until everything is there that is kept in memory.\n";
        *text += &self.label();
        *text += "| index | index | of which ranges are read | lists | mean list | in memory | requests to open | bytes to open | seconds |\n\
                  |---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for size in self.measured.sizes.iter().filter(|size| size.set == self.first()) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {:.2} |",
                size.index,
                byte_size::format(size.index_bytes),
                byte_size::format(size.paged_bytes),
                size.lists.map_or("-".to_owned(), |lists| lists.to_string()),
                size.list_bytes.map_or("-".to_owned(), |bytes| format!("{:.1} KB", bytes / 1e3)),
                byte_size::format(size.memory_bytes),
                size.opening_requests,
                byte_size::format(size.opening_bytes),
                size.opening_s,
            );
        }
        *text += "\nThe paper, GIST1M: 13.0 GB in 159K lists of 166 KB (16%, 8 replicas), 10.5 GB and 138 KB (4), 7.5 GB and 99 KB (2); 14.0 GB\n\
                  in 271K lists of 119 KB (32%, 8).\n";
    }

    /// One index in times of another at several recalls.
    fn beside_each_other(&self, text: &mut String, what: &str, (a, b): (&Values, &Values)) {
        let (Some(low), Some(high)) = (bottom(a, b), top(a, b)) else { return };
        let between = RECALLS.into_iter().filter(|recall| (low..high).contains(recall));
        for recall in [low].into_iter().chain(between).chain([high]) {
            let (of_a, of_b) = (at(a, recall), at(b, recall));
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            let _ = writeln!(
                text,
                "| {what} | {recall:.3} | {} | {} | {} |",
                number(of_a),
                number(of_b),
                times(ratio(a, b, recall))
            );
        }
    }

    /// Queries a second and counters of `changed` beside those of `usual`.
    fn change(&self, text: &mut String, changed: (&str, &[&Point]), usual: (&str, &[&Point])) {
        *text += &self.label();
        let _ =
            writeln!(text, "| | recall | {} | {} | times |\n|---|---:|---:|---:|---:|", changed.0, usual.0);
        for concurrency in self.ends() {
            let both = (&speeds(changed.1, concurrency), &speeds(usual.1, concurrency));
            self.beside_each_other(text, &format!("queries/s, {concurrency} at once"), both);
        }
        let of: [(&str, Counter); 3] = [
            ("rounds", |point| point.rounds),
            ("requests", |point| point.requests),
            ("KB", |point| point.bytes / 1e3),
        ];
        for (what, of) in of {
            self.beside_each_other(text, what, (&counters(changed.1, of), &counters(usual.1, of)));
        }
    }

    /// Figures 14 and 15.
    fn centroids(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let fine = Subject::Spann { centroid_share: FINE_SHARE, replicas: REPLICAS };
        let (changed, usual) = (self.of(fine), self.of(SPANN));
        document.text += "\n## Twice the centroids (figures 14 and 15)\n";
        self.change(&mut document.text, ("0.32", &changed), ("0.16", &usual));
        document.text += "\nThe paper: up to 3.14 times the queries/s at high recall or with many at once and 1.47 times less data at 0.995;\n\
                          slower where neither is so.\n";
        let curves = [marks("0.16".into(), megabytes(&usual)), marks("0.32".into(), megabytes(&changed))];
        let axes = Axes { title: "MB of a query by centroid share", x: "recall", y: "MB" };
        document.plot("figure-15.svg", &axes, &curves)
    }

    /// Figure 16.
    fn replicas(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let usual = self.of(SPANN);
        document.text += "\n## Replicas (figure 16)\n";
        let mut curves = vec![marks("8 replicas".into(), megabytes(&usual))];
        for replicas in FEWER_REPLICAS {
            let changed = self.of(Subject::Spann { centroid_share: SHARE, replicas });
            let name = format!("{replicas} replicas");
            self.change(&mut document.text, (&name, &changed), ("8 replicas", &usual));
            curves.push(marks(name, megabytes(&changed)));
        }
        document.text += "\nThe paper: 2 replicas need 3 to 4 times the nprobe of 8 for a recall, read 2.00 times as much at 0.97 and are 1.92 times\n\
                          slower.\n";
        let axes = Axes { title: "MB of a query by replicas", x: "recall", y: "MB" };
        document.plot("figure-16.svg", &axes, &curves)
    }

    /// Figures 17 and 18.
    fn degrees(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let (changed, usual) = (self.of(Subject::Graph { max_degree: DENSE }), self.of(GRAPH));
        document.text += "\n## A denser graph (figures 17 and 18)\n";
        self.change(&mut document.text, ("R 256", &changed), ("R 64", &usual));
        document.text += "\nThe paper: up to 1.85 times the queries/s, at all recalls and concurrencies.\n";
        let rounds = |points: &[&Point]| counters(points, |point| point.rounds);
        let curves = [marks("R 64".into(), rounds(&usual)), marks("R 256".into(), rounds(&changed))];
        let axes = Axes { title: "Rounds of a query by degree", x: "recall", y: "rounds" };
        document.plot("figure-18.svg", &axes, &curves)
    }

    /// Figure 19.
    fn beams(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        let mut beams: Vec<u32> = BEAMS.into_iter().chain([BEAM]).collect();
        beams.sort_unstable();
        let of = |beam: u32| curves::of(&self.measured.points, self.first(), GRAPH, Some(beam));
        let _ = write!(document.text, "\n## Width of the beam (figure 19)\n\n{COUNTERS}");
        let all: Vec<(u32, Vec<&Point>)> = beams.iter().map(|beam| (*beam, of(*beam))).collect();
        for point in all.iter().flat_map(|(_, points)| points) {
            counted(&mut document.text, point);
        }
        for concurrency in self.ends() {
            let _ = write!(document.text, "\n{concurrency} at once:\n{}{SPEEDS}", self.label());
            for point in all.iter().flat_map(|(_, points)| points) {
                speed(&mut document.text, point, concurrency);
            }
        }
        document.text += "\nThe paper, W from 16 to 64: 43 to 14 roundtrips and 1.85 times the queries/s at 0.995 with 4 at once; at 0.8 roundtrips stay 7,\n\
                          requests rise 1.71 times and queries/s fall 1.83 times; with 64 at once W = 32 is 1.10 times as fast as 64.\n";
        let curve = |what: Counter| {
            let each =
                |(beam, points): &(u32, Vec<&Point>)| marks(format!("W {beam}"), counters(points, what));
            all.iter().map(each).collect::<Vec<_>>()
        };
        let axes = Axes { title: "Rounds of a query by width of the beam", x: "recall", y: "rounds" };
        document.plot("figure-19-rounds.svg", &axes, &curve(|point| point.rounds))?;
        let axes = Axes { title: "Requests of a query by width of the beam", x: "recall", y: "requests" };
        document.plot("figure-19-requests.svg", &axes, &curve(|point| point.requests))
    }
}

fn megabytes(points: &[&Point]) -> Values {
    counters(points, |point| point.bytes / 1e6)
}
