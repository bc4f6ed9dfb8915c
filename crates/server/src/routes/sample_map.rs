//! Maps: a sample of vectors in two dimensions.

use super::wire::{ErrorAnswer, GivenFilter, filter_of};
use crate::access::Readable;
use crate::answer::{AnswerRows, json};
use crate::body::JsonBody;
use crate::failure::Refusal;
use crate::projection::{Projected, project};
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use bathyal_collection::exchange::JsonRow;
use bathyal_collection::{Projection, SampledRows};
use bathyal_index::{Index, StoredVectors};
use bathyal_kernels::to_f32;
use bathyal_tier::Control;
use rand::SeedableRng;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Vectors of a map, if the client does not say how many it wants.
const MAP_ROWS: usize = 2000;
/// The most vectors of a map: more points than that hide one another.
const MAX_MAP_ROWS: usize = 10_000;
/// The most components of all vectors of a map. It has fewer vectors if they are long: 16 MiB of floats take
/// about a second.
const MAX_MAP_COMPONENTS: usize = 4 << 20;

/// The rows of a map.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenMap {
    /// The vector field; it may be left out if there is only one.
    field: Option<String>,
    /// The most rows, up to 10,000; 2,000 if it is left out. There are fewer if the vectors are long.
    rows: Option<usize>,
    filter: Option<GivenFilter>,
    /// Names of the columns to return with the points; none if it is left out.
    #[serde(default)]
    columns: Vec<String>,
    /// The same number draws the same rows; 0 if it is left out.
    #[serde(default)]
    seed: u64,
}

/// A sample of rows in two dimensions.
#[derive(Serialize, ToSchema)]
pub(super) struct MapAnswer<'a> {
    /// The two coordinates of each row.
    points: Vec<[f32; 2]>,
    /// The rows, in the order of the points.
    #[schema(value_type = Vec<serde_json::Value>)]
    rows: Vec<JsonRow<'a>>,
    /// Rows from which these were drawn.
    of: u64,
    /// Share of the variance of the sample along each of the two directions.
    shares: [f64; 2],
}

/// Returns the most vectors of a map.
fn map_rows(wanted: Option<usize>, dim: usize) -> usize {
    wanted.unwrap_or(MAP_ROWS).min(MAX_MAP_ROWS).min(MAX_MAP_COMPONENTS / dim.max(1)).max(1)
}

/// Projects stored vectors.
fn projected(vectors: &StoredVectors, control: Control<'_>) -> Result<Projected, Refusal> {
    let (element, dim) = (vectors.element, vectors.dim);
    let row_bytes = element.row_bytes(dim).max(1);
    let mut rows = vec![0.0; vectors.bytes.len() / row_bytes * dim];
    for (stored, row) in vectors.bytes.chunks_exact(row_bytes).zip(rows.chunks_exact_mut(dim)) {
        to_f32(element, stored, row);
    }
    project(&mut rows, dim, control)
}

/// Draws rows at random, and projects their vectors on the two directions in which they differ most.
#[utoipa::path(
    post, path = "/v1/collections/{name}/map",
    operation_id = "map_rows", tag = "rows", request_body = GivenMap, params(("name" = String, Path)),
    responses((status = 200, body = MapAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn map(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenMap>,
) -> Result<Response, Refusal> {
    let GivenMap { field, rows, filter, columns, seed } = body.content;
    let entries = shared.entries.clone();
    let work = shared.work.run(move |control| {
        let collection = entries.collection(&name)?;
        let schema = collection.schema();
        let field = &schema.vectors[schema.field(field.as_deref())?];
        let what = Projection { columns: Some(columns), vectors: vec![field.name.clone()] };
        let parsed = filter_of(filter.as_ref())?;
        let drawn = (map_rows(rows, field.dim), seed);
        let sampled = collection.sample(parsed.as_ref(), &what, drawn, control);
        let SampledRows { rows, of } =
            sampled.map_err(|error| GivenFilter::place(filter.as_ref(), &schema, error.into()))?;
        let vectors = rows.vectors.first().map(|vectors| projected(vectors, control)).transpose()?;
        let Projected { points, shares } =
            vectors.unwrap_or(Projected { points: Vec::new(), shares: [0.0; 2] });
        let rows =
            AnswerRows { ids: rows.ids, columns: rows.columns, vectors: Vec::new() }.into_json_rows()?;
        json(&MapAnswer { points, rows: rows.iter().collect(), of, shares })
    });
    work.await
}

/// The vectors of a map.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenIndexMap {
    /// The most vectors, up to 10,000; 2,000 if it is left out. There are fewer if they are long.
    rows: Option<usize>,
    /// The same number draws the same vectors; 0 if it is left out.
    #[serde(default)]
    seed: u64,
}

/// A sample of vectors in two dimensions.
#[derive(Serialize, ToSchema)]
pub(super) struct IndexMapAnswer {
    /// The two coordinates of each vector.
    points: Vec<[f32; 2]>,
    /// Their ids, in the order of the points.
    ids: Vec<u32>,
    /// Vectors from which these were drawn.
    of: u64,
    /// Share of the variance of the sample along each of the two directions.
    shares: [f64; 2],
}

/// Draws `count` ids of an index at random, or all; the second number is that of all ids.
pub(super) fn drawn_ids(
    index: &Index,
    count: usize,
    seed: u64,
    control: Control<'_>,
) -> Result<(Vec<u32>, usize), Refusal> {
    let ranges = index.ids(control)?;
    let of: usize = ranges.iter().map(|range| range.len()).sum();
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let count = count.min(of);
    let mut chosen = rand::seq::index::sample(&mut random, of, count).into_vec();
    chosen.sort_unstable();
    let (mut ids, mut first, mut chosen) = (Vec::with_capacity(count), 0, chosen.as_slice());
    for range in ranges {
        let (here, others) = chosen.split_at(chosen.partition_point(|at| *at < first + range.len()));
        ids.extend(here.iter().map(|at| range.start + (at - first) as u32));
        (first, chosen) = (first + range.len(), others);
    }
    Ok((ids, of))
}

fn map_of_index(index: &Index, given: &GivenIndexMap, control: Control<'_>) -> Result<Response, Refusal> {
    let (ids, of) = drawn_ids(index, map_rows(given.rows, index.dim()), given.seed, control)?;
    let Projected { points, shares } = projected(&index.vectors(&ids, control)?, control)?;
    json(&IndexMapAnswer { points, ids, of: of as u64, shares })
}

/// Draws vectors at random, and projects them on the two directions in which they differ most.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/map",
    operation_id = "map_index", tag = "indexes", request_body = GivenIndexMap,
    params(("name" = String, Path)),
    responses((status = 200, body = IndexMapAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn map_index(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenIndexMap>,
) -> Result<Response, Refusal> {
    let index = super::indexes::opened(&shared, &name).await?;
    shared.work.run(move |control| map_of_index(&index, &body.content, control)).await
}
