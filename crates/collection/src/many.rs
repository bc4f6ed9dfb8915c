//! Search in several collections at once. The results are merged by distance.

use crate::collection::Collection;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::parallel::{part_threads, run_parallel};
use crate::search::{FoundRows, SearchRequest};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use bathyal_index::{Calibrated, MergedAnswers, StoredVectors};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;

/// Result of a search in several collections.
#[derive(Debug, Clone)]
pub struct FoundInMany {
    /// Neighbours of each query: the requested k, or the number of matching rows if that is smaller.
    pub k: usize,
    /// `queries x k`: for each neighbour, the position of its collection in the call.
    pub collections: Vec<u32>,
    /// `queries x k` ids, nearest first; equal distances are in the order of the collections.
    pub ids: Ids,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// `queries x k` rows of the requested columns.
    pub columns: RecordBatch,
    /// `queries x k` vectors, if requested.
    pub vectors: Option<StoredVectors>,
    /// Matching rows of all collections.
    pub matches: u64,
    /// Notes for the user, each with the path of its collection.
    pub notes: Vec<String>,
}

/// Answers all `queries` from all `collections`. They must agree in the kind of ids, the searched field, and
/// the requested columns.
///
/// # Errors
/// [`CollectionError::Parameter`] for an empty list of collections, or if they do not agree; as
/// [`Collection::search`].
pub fn search_many(
    collections: &[&Collection],
    queries: &VectorFile,
    request: &SearchRequest,
    control: Control<'_>,
) -> Result<FoundInMany, CollectionError> {
    check(collections, request)?;
    let remote = collections.iter().any(|collection| collection.is_remote());
    let results = run_parallel(collections.len(), part_threads(remote, request.threads), |number| {
        collections[number].search(queries, request, control)
    })?;
    let mut notes = Vec::new();
    for (collection, found) in collections.iter().zip(&results) {
        let name = collection.path().display();
        // A user of several collections does not care that one of them has fewer rows than k.
        let own = found.notes.len() - usize::from(found.judgement.unlike);
        let about = found.notes[..own].iter().filter(|_| found.k == request.k);
        notes.extend(about.map(|note| format!("{name}: {note}")));
    }
    let matches: u64 = results.iter().map(|found| found.matches).sum();
    let k = results.iter().map(|found| found.k).sum::<usize>().min(request.k);
    if k < request.k {
        notes.push(format!("asked for {} neighbours, only {matches} rows match", request.k));
    }
    let (positions, distances) = merged(&results, queries.count(), k);
    let lengths = &results[0].judgement.lengths;
    let answers = MergedAnswers { k, distances: &distances, lengths, effort: request.effort };
    let farthest = |query: usize| &results[positions[query * k + k - 1].0];
    notes.extend(
        answers.unlike_note(Calibrated::Segments, |query| farthest(query).judgement.reach[query].as_slice()),
    );
    let ids: Vec<&dyn Array> = results.iter().map(|found| found.ids.as_array()).collect();
    let ids =
        Ids::from_array(results[0].ids.kind(), &arrow_select::interleave::interleave(&ids, &positions)?)?;
    let batches: Vec<&RecordBatch> = results.iter().map(|found| &found.columns).collect();
    let columns = match request.columns.is_empty() {
        true => {
            let options = RecordBatchOptions::new().with_row_count(Some(positions.len()));
            RecordBatch::try_new_with_options(batches[0].schema(), Vec::new(), &options)?
        }
        false => arrow_select::interleave::interleave_record_batch(&batches, &positions)?,
    };
    Ok(FoundInMany {
        k,
        collections: positions.iter().map(|(number, _)| *number as u32).collect(),
        ids,
        distances,
        columns,
        vectors: vectors(&results, &positions),
        matches,
        notes,
    })
}

/// Returns the `k` nearest rows of each query: the number of the collection with the position in its results,
/// and the distance.
fn merged(results: &[FoundRows], queries: usize, k: usize) -> (Vec<(usize, usize)>, Vec<f32>) {
    let (mut positions, mut distances) = (Vec::with_capacity(queries * k), Vec::with_capacity(queries * k));
    for query in 0..queries {
        let mut list: Vec<(f32, usize, usize)> = results
            .iter()
            .enumerate()
            .flat_map(|(number, found)| {
                let range = query * found.k..(query + 1) * found.k;
                range.map(move |at| (found.distances[at], number, at))
            })
            .collect();
        list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        positions.extend(list.iter().take(k).map(|(_, number, at)| (*number, *at)));
        distances.extend(list.iter().take(k).map(|(distance, _, _)| *distance));
    }
    (positions, distances)
}

fn vectors(results: &[FoundRows], positions: &[(usize, usize)]) -> Option<StoredVectors> {
    let first = results.first()?.vectors.as_ref()?;
    let (element, dim) = (first.element, first.dim);
    let size = element.row_bytes(dim);
    let mut bytes = Vec::with_capacity(positions.len() * size);
    for (number, at) in positions {
        bytes.extend_from_slice(results[*number].vectors.as_ref()?.bytes.get(at * size..(at + 1) * size)?);
    }
    Some(StoredVectors { element, dim, bytes })
}

/// Checks that results of the collections can be compared and merged.
fn check(collections: &[&Collection], request: &SearchRequest) -> Result<(), CollectionError> {
    let Some((first, others)) = collections.split_first() else {
        return Err(CollectionError::Parameter("no collection to search; give at least one".into()));
    };
    let ours = first.schema();
    let field = &ours.vectors[ours.field(request.field.as_deref())?];
    for other in others {
        let theirs = other.schema();
        let refuse = |what: &str, ours: String, theirs: String| {
            Err(CollectionError::Parameter(format!(
                "{}: its {what} is {theirs}, but the {what} of {} is {ours}; they must agree to be searched \
                 together",
                other.path().display(),
                first.path().display()
            )))
        };
        let their_field = &theirs.vectors[theirs.field(request.field.as_deref())?];
        if their_field.dim != field.dim {
            return refuse("dim", field.dim.to_string(), their_field.dim.to_string());
        }
        if their_field.metric != field.metric {
            return refuse("metric", field.metric.to_string(), their_field.metric.to_string());
        }
        if their_field.element != field.element {
            return refuse("element", field.element.to_string(), their_field.element.to_string());
        }
        if theirs.id_kind != ours.id_kind {
            let name = |kind: crate::ids::IdKind| kind.data_type().to_string();
            return refuse("kind of ids", name(ours.id_kind), name(theirs.id_kind));
        }
        for column in &request.columns {
            let (one, two) = (&ours.columns[ours.column(column)?], &theirs.columns[theirs.column(column)?]);
            if one.kind != two.kind {
                return refuse(&format!("column {column:?}"), one.kind.to_string(), two.kind.to_string());
            }
        }
    }
    Ok(())
}
