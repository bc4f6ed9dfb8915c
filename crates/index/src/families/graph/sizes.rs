//! What the build of a graph makes.

use super::options::{GraphLayoutChoice, GraphOptions};
use super::parts;
use super::plan::Plan;
use super::section::{CODEC_NAME, CODES_NAME, GRAPH_NAME, OFFSETS_NAME};
use super::whole::{Layout, local_layout};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::csr::{CsrLayout, LINE_BYTES};

/// The files, and what stands for options that were left open.
pub(super) fn plan(
    data: &Source<'_>,
    own: &GraphOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let (count, rows) = (data.count() as u64, Plan::new(data, own, options).rows);
    let mut files = match own.layout {
        GraphLayoutChoice::Padded => {
            vec![PlannedFile::exactly(GRAPH_NAME, Layout::padded(data, own)?.file_bytes(count))]
        }
        GraphLayoutChoice::PageLocal => {
            vec![PlannedFile::exactly(GRAPH_NAME, local_layout(data, own)?.file_bytes())]
        }
        GraphLayoutChoice::Csr => packed(data, own)?,
    };
    let codes = PlannedCodes::lone(own.codes(), data.dim());
    files.push(PlannedFile::within(CODES_NAME, codes.file_bytes(count..=count)));
    files.push(PlannedFile::within(CODEC_NAME, codes.codec_bytes()));
    let mut parameters = Details::from(codes.parameters());
    parameters.extend([
        ("layout", own.layout.name().into()),
        ("max_degree", own.max_degree.into()),
        ("search_list", own.search_list.into()),
        // As it was typed: 1.2 as a double has many more digits.
        ("alpha", own.alpha.to_string().parse::<f64>().unwrap_or_else(|_| own.alpha.into()).into()),
    ]);
    Ok(FamilyPlan { parameters, rows, stages: stages(data, own, rows), files })
}

/// Records as long as their links are, and where they begin.
fn packed(data: &Source<'_>, own: &GraphOptions) -> Result<Vec<PlannedFile>, IndexError> {
    let (count, dim) = (data.count() as u64, data.dim() as u32);
    let layout = CsrLayout::new(data.element(), dim, count as u32, own.max_degree, LINE_BYTES);
    let bytes = layout.map_err(IndexError::Parameter)?.file_bytes(count);
    // A bit for each record and its end; low bits of what records are longer than the shortest, and less than two bits more.
    let longer = (bytes.end() - bytes.start()).div_ceil(count.max(1)).max(1);
    let (entries, low) = (count + 1, u64::from(longer.ilog2()));
    let words = |bits: u64| 8 * bits.div_ceil(64);
    let offsets = 8 + words(entries)..=8 + words(entries * low) + words(entries + 2 * count + 2);
    Ok(vec![PlannedFile::within(GRAPH_NAME, bytes), PlannedFile::within(OFFSETS_NAME, offsets)])
}

/// The stages. How long those of a graph that grows as a whole take was not measured by themselves.
fn stages(data: &Source<'_>, own: &GraphOptions, rows: usize) -> Vec<(&'static str, Option<f64>)> {
    if rows < data.count() {
        let stages = parts::stages(data, true, 1.0);
        return stages.into_iter().map(|(name, seconds)| (name, Some(seconds))).collect();
    }
    let placing: &[&str] = match own.layout {
        GraphLayoutChoice::Padded => &[],
        GraphLayoutChoice::PageLocal => &["placing vectors", "linking pages"],
        GraphLayoutChoice::Csr => &["placing vectors"],
    };
    let growing = ["loading vectors", "first pass", "second pass", "trimming"];
    let rest = [
        "writing graph",
        "training codes",
        "encoding",
        "exact neighbours",
        "calibrating",
        "inserting held-out vectors",
        "writing graph",
    ];
    growing.iter().chain(placing).chain(&rest).map(|name| (*name, None)).collect()
}
