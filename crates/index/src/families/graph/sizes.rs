//! The planned files of a graph build, and the planned stages.

use super::options::{GraphLayoutChoice, GraphOptions};
use super::parts;
use super::plan::GraphPlan;
use super::section::{CODEC_NAME, CODES_NAME, GRAPH_NAME, OFFSETS_NAME};
use super::whole::{PlacedLayout, local_layout};
use crate::build::options::{BuildOptions, Details};
use crate::build::plan::{FamilyPlan, PlannedCodes, PlannedFile};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::csr::{CsrLayout, LINE_BYTES};

/// Plans the files and the stages, and fills in the options without a value.
pub(super) fn plan(
    data: &SourceVectors<'_>,
    graph_options: &GraphOptions,
    options: &BuildOptions,
) -> Result<FamilyPlan, IndexError> {
    let (count, rows) = (data.count() as u64, GraphPlan::new(data, graph_options, options).rows);
    let mut files = match graph_options.layout {
        GraphLayoutChoice::Padded => {
            vec![PlannedFile::exactly(
                GRAPH_NAME,
                PlacedLayout::padded(data, graph_options)?.file_bytes(count),
            )]
        }
        GraphLayoutChoice::PageLocal => {
            vec![PlannedFile::exactly(GRAPH_NAME, local_layout(data, graph_options)?.file_bytes())]
        }
        GraphLayoutChoice::Csr => packed(data, graph_options)?,
    };
    let codes = PlannedCodes::lone(graph_options.codes(), data.dim());
    files.push(PlannedFile::within(CODES_NAME, codes.file_bytes(count..=count)));
    files.push(PlannedFile::within(CODEC_NAME, codes.codec_bytes()));
    let mut parameters = Details::from(codes.parameters());
    parameters.extend([
        ("layout", graph_options.layout.name().into()),
        ("max_degree", graph_options.max_degree.into()),
        ("search_list", graph_options.search_list.into()),
        // The decimal text of the f32, because 1.2 converted to f64 has many more digits.
        (
            "alpha",
            graph_options
                .alpha
                .to_string()
                .parse::<f64>()
                .unwrap_or_else(|_| graph_options.alpha.into())
                .into(),
        ),
    ]);
    Ok(FamilyPlan { parameters, rows, stages: stages(data, graph_options, rows), files })
}

/// Plans the files of packed records and of their offsets.
fn packed(data: &SourceVectors<'_>, graph_options: &GraphOptions) -> Result<Vec<PlannedFile>, IndexError> {
    let (count, dim) = (data.count() as u64, data.dim() as u32);
    let layout = CsrLayout::new(data.element(), dim, count as u32, graph_options.max_degree, LINE_BYTES);
    let bytes = layout.map_err(IndexError::Parameter)?.file_bytes(count);
    // A bit for each record and one for the end. Then, for each record, the low bits of its length above the
    // shortest, and less than two more bits.
    let longer = (bytes.end() - bytes.start()).div_ceil(count.max(1)).max(1);
    let (entries, low) = (count + 1, u64::from(longer.ilog2()));
    let words = |bits: u64| 8 * bits.div_ceil(64);
    let offsets = 8 + words(entries)..=8 + words(entries * low) + words(entries + 2 * count + 2);
    Ok(vec![PlannedFile::within(GRAPH_NAME, bytes), PlannedFile::within(OFFSETS_NAME, offsets)])
}

/// Returns the stages with their seconds. The stages of a graph that is grown at once have no measured
/// seconds.
fn stages(
    data: &SourceVectors<'_>,
    graph_options: &GraphOptions,
    rows: usize,
) -> Vec<(&'static str, Option<f64>)> {
    if rows < data.count() {
        let stages = parts::stages(data, true, 1.0);
        return stages.into_iter().map(|(name, seconds)| (name, Some(seconds))).collect();
    }
    let placing: &[&str] = match graph_options.layout {
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
