//! Search: what every part of a collection finds, merged.

mod explain;
mod segments;

pub use explain::PartPlan;

use crate::error::CollectionError;
use crate::filter::{BoundFilter, Filter};
use crate::ids::Ids;
use crate::memory::{Memory, MemoryQuery};
use crate::schema::VectorField;
use crate::state::{Located, State};
use crate::together::thread_count;
use arrow_array::RecordBatch;
use bathyal_index::{Effort, MAX_SEARCH_LIST, RowSet, SearchOptions, SearchTotals, StoredVectors};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use segments::{InSegments, OfSegments};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// The family whose searches can be asked for a ratio.
const RATIO_FAMILY: &str = "lsh";

/// What is searched for.
#[derive(Debug, Clone)]
pub struct Question {
    /// The field of vectors; `None` means the only one.
    pub field: Option<String>,
    /// Neighbours of each query; at least 1.
    pub k: usize,
    /// How hard to search. A recall is that of all parts together, under the filter. A search list is that of each segment that has
    /// one; rows in memory and small segments are compared one by one.
    pub effort: Effort,
    /// Which rows may be found; `None` means all.
    pub filter: Option<Filter>,
    /// The columns that are wanted of what is found, by name.
    pub columns: Vec<String>,
    /// Whether its vectors are wanted.
    pub vectors: bool,
    /// Threads; 0 means all cores.
    pub threads: usize,
}

impl Default for Question {
    fn default() -> Question {
        let SearchOptions { k, effort, threads, .. } = SearchOptions::default();
        Question { field: None, k, effort, filter: None, columns: Vec::new(), vectors: false, threads }
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// Neighbours of each query: what was asked for, or all rows that match where these are fewer.
    pub k: usize,
    /// `queries x k` ids, the nearest first.
    pub ids: Ids,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// `queries x k` rows of the columns that were asked for.
    pub columns: RecordBatch,
    /// `queries x k` vectors, where they were asked for.
    pub vectors: Option<StoredVectors>,
    /// Rows that are there and match.
    pub matches: u64,
    /// How each part was searched.
    pub plans: Vec<PartPlan>,
    /// What the searches of all segments cost together.
    pub totals: SearchTotals,
    /// Seconds from the start to the end.
    pub seconds: f64,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A neighbour, and where it is.
type Near = (f32, Located);

/// A question that was checked.
struct Asked<'a> {
    field: usize,
    queries: Cow<'a, VectorFile>,
    filter: Option<BoundFilter>,
    columns: Vec<usize>,
    options: SearchOptions,
}

impl<'a> Asked<'a> {
    fn new(
        state: &State,
        queries: &'a VectorFile,
        question: &Question,
    ) -> Result<Asked<'a>, CollectionError> {
        let schema = state.schema();
        let field = schema.field(question.field.as_deref())?;
        let shape = &schema.vectors[field];
        let refuse = |reason: String| Err(CollectionError::Parameter(reason));
        if question.k == 0 {
            return refuse("k is 0; ask for at least one neighbour".into());
        }
        check_effort(question, shape)?;
        let bits = if shape.element == Element::B1 { queries.as_bits() } else { None };
        let queries = bits.map_or(Cow::Borrowed(queries), Cow::Owned);
        if queries.dim() != shape.dim || queries.element() != shape.element {
            return refuse(format!(
                "the queries are {} of {} dimensions, the vectors of {:?} are {} of {}",
                queries.element(),
                queries.dim(),
                shape.name,
                shape.element,
                shape.dim
            ));
        }
        bathyal_index::check_vectors(&queries, shape.metric)?;
        let filter = question.filter.as_ref().map(|filter| filter.bind(schema)).transpose()?;
        let columns = question.columns.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?;
        let options = SearchOptions {
            k: question.k,
            effort: question.effort,
            threads: question.threads,
            ..SearchOptions::default()
        };
        Ok(Asked { field, queries, filter, columns, options })
    }
}

/// Refuses an effort that no part of the collection could use, now or later: what its rows are in does not matter.
fn check_effort(question: &Question, field: &VectorField) -> Result<(), CollectionError> {
    let k = question.k;
    let reason = match question.effort {
        Effort::Recall(recall) if !(recall > 0.0 && recall <= 1.0) => {
            format!("recall is {recall}; it must be above 0 and at most 1")
        }
        Effort::SearchList(list) if (list as usize) < k => {
            format!("search_list is {list}, which must be at least k = {k}")
        }
        Effort::SearchList(list) if list > MAX_SEARCH_LIST => {
            format!("search_list is {list}; it must be at most {MAX_SEARCH_LIST}")
        }
        Effort::Ratio(_) if field.family != RATIO_FAMILY => format!(
            "a search of {:?}, of the family {}, knows no ratio; ask for a recall",
            field.name, field.family
        ),
        Effort::Ratio(_) if field.metric == Metric::InnerProduct => {
            "there is no ratio under ip, since an inner product is no distance; ask for a recall".into()
        }
        Effort::Ratio(ratio) if !(ratio >= 1.0 && ratio.is_finite()) => {
            format!("ratio is {ratio}; it must be at least 1")
        }
        Effort::Recall(_) | Effort::SearchList(_) | Effort::Ratio(_) => return Ok(()),
    };
    Err(CollectionError::Parameter(reason))
}

impl State {
    /// Answers all `queries`.
    pub(crate) fn search(
        &self,
        queries: &VectorFile,
        question: &Question,
        control: Control<'_>,
    ) -> Result<Found, CollectionError> {
        let started = Instant::now();
        let asked = Asked::new(self, queries, question)?;
        let sets = self.matching(asked.filter.as_ref(), &control)?;
        let matches: u64 = sets.iter().map(|set| u64::from(set.count())).sum();
        let k = usize::try_from(matches).map_or(question.k, |matches| question.k.min(matches));
        let mut notes = Vec::new();
        if k < question.k {
            let what = if question.filter.is_some() { "rows match the filter" } else { "rows are there" };
            notes.push(format!("asked for {} neighbours, only {matches} {what}", question.k));
        }
        let mut lists: Vec<Vec<Near>> = vec![Vec::new(); asked.queries.count()];
        let (mut in_segments, mut in_memory) = (Vec::new(), Vec::new());
        for (part, set) in (0_u32..).zip(sets).filter(|(_, set)| set.count() > 0) {
            match self.memory_of(part) {
                Some(memory) => in_memory.push((part, memory, set)),
                None => in_segments.push((part, set)),
            }
        }
        let mut of_memory = Vec::with_capacity(in_memory.len());
        for (part, memory, set) in in_memory {
            of_memory.push(self.search_memory((part, memory), &asked, k, &set, control, &mut lists)?);
        }
        let segments = InSegments { state: self, asked: &asked, control, parts: in_segments };
        let OfSegments { mut plans, totals, notes: of_segments } = segments.search(k, &mut lists)?;
        plans.extend(of_memory);
        notes.extend(of_segments);
        let (rows, distances) = merged(lists, k);
        let fields: &[usize] = if question.vectors { &[asked.field] } else { &[] };
        let mut fetched = self.fetch(&rows, &asked.columns, fields, control)?;
        notes.dedup();
        Ok(Found {
            k,
            ids: fetched.ids,
            distances,
            columns: fetched.columns,
            vectors: fetched.vectors.pop(),
            matches,
            plans,
            totals,
            seconds: started.elapsed().as_secs_f64(),
            notes,
        })
    }

    fn search_memory(
        &self,
        (part, memory): (u32, &Memory),
        asked: &Asked<'_>,
        k: usize,
        set: &Arc<RowSet>,
        control: Control<'_>,
        lists: &mut [Vec<Near>],
    ) -> Result<PartPlan, CollectionError> {
        let (threads, k) = (thread_count(asked.options.threads), k.min(set.count() as usize));
        let shape = &self.schema().vectors[asked.field];
        let queries = &*asked.queries;
        let query = MemoryQuery { field: asked.field, shape, queries, k, threads, control };
        for (list, found) in lists.iter_mut().zip(memory.search(&query, set)?) {
            list.extend(found.into_iter().map(|near| (near.distance, Located { part, row: near.id })));
        }
        Ok(PartPlan::of_memory(memory, set))
    }
}

/// The `k` nearest of each list; of equal distances the earlier part comes first, then the smaller row.
fn merged(lists: Vec<Vec<Near>>, k: usize) -> (Vec<Located>, Vec<f32>) {
    let (mut rows, mut distances) =
        (Vec::with_capacity(lists.len() * k), Vec::with_capacity(lists.len() * k));
    for mut list in lists {
        list.sort_unstable_by(|(one, a), (other, b)| one.total_cmp(other).then(a.cmp(b)));
        rows.extend(list.iter().take(k).map(|(_, at)| *at));
        distances.extend(list.iter().take(k).map(|(distance, _)| *distance));
    }
    (rows, distances)
}
