//! Search in several collections at once: one list of answers, merged by distance.

use crate::collection::Collection;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::search::{Found, Question};
use crate::together::{callers, together};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use bathyal_index::StoredVectors;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;

/// What was found in several collections.
#[derive(Debug, Clone)]
pub struct FoundInMany {
    /// Neighbours of each query: what was asked for, or all rows that match where these are fewer.
    pub k: usize,
    /// `queries x k`: the number, in the order of the call, of the collection that each neighbour is in.
    pub collections: Vec<u32>,
    /// `queries x k` ids, the nearest first; of equal distances the first collection comes first.
    pub ids: Ids,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// `queries x k` rows of the columns that were asked for.
    pub columns: RecordBatch,
    /// `queries x k` vectors, where they were asked for.
    pub vectors: Option<StoredVectors>,
    /// Rows that are there and match, in all of them.
    pub matches: u64,
    /// What the user should know, with the collection that it is about.
    pub notes: Vec<String>,
}

/// Answers all `queries` from all of `collections`, whose ids are of one kind and whose field and columns that are asked for agree.
///
/// # Errors
/// [`CollectionError::Parameter`] without a collection, or where they do not agree; as [`Collection::search`].
pub fn search_many(
    collections: &[&Collection],
    queries: &VectorFile,
    question: &Question,
    control: Control<'_>,
) -> Result<FoundInMany, CollectionError> {
    check(collections, question)?;
    let far = collections.iter().any(|collection| collection.is_far());
    let all = together(collections.len(), callers(far, question.threads), |number| {
        collections[number].search(queries, question, control)
    })?;
    let mut notes = Vec::new();
    for (collection, found) in collections.iter().zip(&all) {
        let name = collection.path().display();
        // That there are fewer rows in one of them is none of the user's business.
        let about = found.notes.iter().filter(|_| found.k == question.k);
        notes.extend(about.map(|note| format!("{name}: {note}")));
    }
    let matches: u64 = all.iter().map(|found| found.matches).sum();
    let k = all.iter().map(|found| found.k).sum::<usize>().min(question.k);
    if k < question.k {
        notes.push(format!("asked for {} neighbours, only {matches} rows are there and match", question.k));
    }
    let (places, distances) = merged(&all, queries.count(), k);
    let ids: Vec<&dyn Array> = all.iter().map(|found| found.ids.as_array()).collect();
    let ids = Ids::of_array(all[0].ids.kind(), &arrow_select::interleave::interleave(&ids, &places)?)?;
    let batches: Vec<&RecordBatch> = all.iter().map(|found| &found.columns).collect();
    let columns = match question.columns.is_empty() {
        true => {
            let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
            RecordBatch::try_new_with_options(batches[0].schema(), Vec::new(), &options)?
        }
        false => arrow_select::interleave::interleave_record_batch(&batches, &places)?,
    };
    Ok(FoundInMany {
        k,
        collections: places.iter().map(|(number, _)| *number as u32).collect(),
        ids,
        distances,
        columns,
        vectors: vectors(&all, &places),
        matches,
        notes,
    })
}

/// Where each of the `k` nearest of each query is (the number of the collection, and the place in what was found there), and how far.
fn merged(all: &[Found], queries: usize, k: usize) -> (Vec<(usize, usize)>, Vec<f32>) {
    let (mut places, mut distances) = (Vec::with_capacity(queries * k), Vec::with_capacity(queries * k));
    for query in 0..queries {
        let mut list: Vec<(f32, usize, usize)> = all
            .iter()
            .enumerate()
            .flat_map(|(number, found)| {
                let own = query * found.k..(query + 1) * found.k;
                own.map(move |at| (found.distances[at], number, at))
            })
            .collect();
        list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        places.extend(list.iter().take(k).map(|(_, number, at)| (*number, *at)));
        distances.extend(list.iter().take(k).map(|(distance, _, _)| *distance));
    }
    (places, distances)
}

fn vectors(all: &[Found], places: &[(usize, usize)]) -> Option<StoredVectors> {
    let first = all.first()?.vectors.as_ref()?;
    let (element, dim) = (first.element, first.dim);
    let size = element.row_bytes(dim);
    let mut bytes = Vec::with_capacity(places.len() * size);
    for (number, at) in places {
        bytes.extend_from_slice(all[*number].vectors.as_ref()?.bytes.get(at * size..(at + 1) * size)?);
    }
    Some(StoredVectors { element, dim, bytes })
}

/// Whether what is found in the collections may be compared and put into one list.
fn check(collections: &[&Collection], question: &Question) -> Result<(), CollectionError> {
    let Some((first, others)) = collections.split_first() else {
        return Err(CollectionError::Parameter("no collection to search; give at least one".into()));
    };
    let ours = first.schema();
    let field = &ours.vectors[ours.field(question.field.as_deref())?];
    for other in others {
        let theirs = other.schema();
        let refuse = |what: &str, ours: String, theirs: String| {
            Err(CollectionError::Parameter(format!(
                "{}: its {what} is {theirs}, that of {} is {ours}; collections that are searched together must agree",
                other.path().display(),
                first.path().display()
            )))
        };
        let own = &theirs.vectors[theirs.field(question.field.as_deref())?];
        if own.dim != field.dim {
            return refuse("dim", field.dim.to_string(), own.dim.to_string());
        }
        if own.metric != field.metric {
            return refuse("metric", field.metric.to_string(), own.metric.to_string());
        }
        if own.element != field.element {
            return refuse("element", field.element.to_string(), own.element.to_string());
        }
        if theirs.id_kind != ours.id_kind {
            let name = |kind: crate::ids::IdKind| kind.data_type().to_string();
            return refuse("kind of ids", name(ours.id_kind), name(theirs.id_kind));
        }
        for column in &question.columns {
            let (one, two) = (&ours.columns[ours.column(column)?], &theirs.columns[theirs.column(column)?]);
            if one.kind != two.kind {
                return refuse(&format!("column {column:?}"), one.kind.to_string(), two.kind.to_string());
            }
        }
    }
    Ok(())
}
