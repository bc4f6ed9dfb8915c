//! The part of the report about where searches begin: figures 12 and 13, and over the number of pivots.

use std::fmt::Write as _;

use bathyal_console::Failure;

use super::pivots::{Began, Begin};
use super::report::Report;
use crate::document::Document;
use crate::draw::{Axes, Curve, Pen};

const BEGINS: [Begin; 3] = [Begin::EntryPoint, Begin::Nearest, Begin::Pivots];

impl Report<'_> {
    /// Figures 12 and 13.
    pub(super) fn beginnings(&self, document: &mut Document<'_>, set: &str) -> Result<(), Failure> {
        let all: Vec<&Began> = self.measured.begun.iter().filter(|began| began.set == set).collect();
        let figure_12: Vec<&Began> = all.iter().copied().filter(|began| began.is_figure_12).collect();
        throughput(&mut document.text, set, &figure_12);
        let curve = |begin: Begin, pen: Pen| {
            let of = figure_12.iter().filter(|began| began.begin == begin);
            let qps = |began: &Began| match pen {
                Pen::Marks => began.prediction.qps,
                Pen::Thin => began.predicted_in_step_qps,
            };
            let points = of.map(|began| (began.recall, qps(began) / 1e6)).collect();
            let told = if pen == Pen::Thin { ", in step" } else { "" };
            Curve { name: format!("{}{told}", begin.name()), points, pen }
        };
        let drawn: Vec<Curve> = [Pen::Marks, Pen::Thin]
            .into_iter()
            .flat_map(|pen| BEGINS.map(|begin| curve(begin, pen)))
            .collect();
        let title = format!("{set}, beginnings, predicted, {} disks", self.arguments.ssds);
        let axes = Axes { title: &title, x: "recall", y: "million queries/s, predicted" };
        document.plot(&format!("figure-12-{set}.svg"), &axes, &drawn)?;
        loads(&mut document.text, (set, self.arguments.ssds), &figure_12);
        self.numbers(document, set, &all)
    }

    /// Over the number of pivots.
    fn numbers(&self, document: &mut Document<'_>, set: &str, all: &[&Began]) -> Result<(), Failure> {
        let Some(list) = all.iter().find(|began| !began.is_figure_12).map(|began| began.list) else {
            return Ok(());
        };
        let of = |began: &&&Began| began.list == list && began.begin != Begin::Nearest;
        let mut all: Vec<&Began> = all.iter().filter(of).copied().collect();
        all.sort_by_key(|began| began.pivots);
        let vectors = self.sets.iter().find(|other| other.name == set).map_or(1, |other| other.base.count());
        let text = &mut document.text;
        let _ = write!(
            text,
            "\n## `{set}`: how many pivots, {list} candidates\n\nAll pivots are scored before the first read, and a search begins at the \
             nearest eight and the entry point. *Scored* are codes of a query, pivots and links; *on the card* is what pivots take of its \
             memory beside the codes.\n\n\
             | pivots | of the vectors | on the card, bytes | recall | pages | scored | **predicted** queries/s | bound by |\n\
             |---:|---:|---:|---:|---:|---:|---:|---|\n"
        );
        for began in &all {
            let _ = writeln!(
                text,
                "| {} | {:.3}% | {} | {:.3} | {:.1} | {:.0} | {:.0} | {} |",
                began.pivots,
                100.0 * began.pivots as f64 / vectors as f64,
                began.pivot_bytes,
                began.recall,
                began.pages,
                began.scored,
                began.prediction.qps,
                began.prediction.bound
            );
        }
        let points = all.iter().map(|began| ((1.0 + began.pivots as f64).log10(), began.pages)).collect();
        let drawn = [Curve { name: "pages".to_owned(), points, pen: Pen::Marks }];
        let title = format!("{set}, {list} candidates");
        let axes = Axes { title: &title, x: "decimal logarithm of 1 + pivots", y: "pages a query" };
        document.plot(&format!("pivots-{set}.svg"), &axes, &drawn)
    }
}

/// Figure 12.
fn throughput(text: &mut String, set: &str, rows: &[&Began]) {
    let _ = write!(
        text,
        "\n## `{set}`: where searches begin (figure 12)\n\nWalks a record at a time over the records of `graph-beam-1`, so that a page is a round \
         and a hop. *The nearest of a thousandth* is the paper's: one of so many vectors, the nearest by its code, found without a graph of them \
         and at no cost (section 4.4.2). *In step*, all queries of a mini-batch of 1,120 wait in every round for the disk that has most to \
         read; otherwise none waits for another, as Bathyal's do not.\n\n\
         | beginning | list | recall | pages | **predicted** queries/s | of the disks' reads, in step | **predicted** queries/s, in step |\n\
         |---|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} | {:.3} | {:.1} | {:.0} | {:.2} | {:.0} |",
            row.begin.name(),
            row.list,
            row.recall,
            row.pages,
            row.prediction.qps,
            row.in_step,
            row.predicted_in_step_qps
        );
    }
    *text += "\nThe paper, SIFT1B: up to 1.50 times the queries/s and 1.23 times the disks' bytes/s with pivots, most where lists are short.\n";
}

/// Figure 13.
fn loads(text: &mut String, (set, disks): (&str, u32), rows: &[&Began]) {
    let _ = write!(
        text,
        "\n## `{set}`: what disks have to read at the same time (figure 13)\n\nThe paper shows latencies of reads; here the loads that they \
         come of are counted, of the list that recall 0.9 takes. Pages lie on {disks} disks in turn. *Fullest* is the disk with most reads \
         of a mini-batch of 1,120 queries, in parts of the mean disk; chance alone makes that 1.09 for six disks.\n\n\
         | beginning | round | reads | pages | of the most read | of the middle page | fullest |\n|---|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        for round in &row.rounds {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {:.2} |",
                row.begin.name(),
                round.round,
                round.reads,
                round.pages,
                round.most,
                round.median,
                round.fullest
            );
        }
    }
    *text += "\nThe paper, a billion vectors and 10,000 queries from one entry: 103 vectors in the first round, the one read most 657 times and the\n\
              middle one 48; 99 of 100 reads take 2.17 times as long on the slowest disk as on the fastest (section 4.4.1, figure 3).\n";
}
