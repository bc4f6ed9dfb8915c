//! Divides the answers to a batch among the callers whose queries are in it.

use super::{FoundRows, Judgement};
use bathyal_index::{Calibrated, Effort, MergedAnswers, StoredVectors};
use std::ops::Range;

impl FoundRows {
    /// Returns the answers to some of the queries, with notes about these alone. Plans, counters and seconds
    /// are those of the whole batch. `effort` is that of the search.
    ///
    /// # Panics
    /// If `queries` is beyond the batch.
    pub fn of_queries(&self, queries: Range<usize>, effort: Effort) -> FoundRows {
        let (first, count) = (queries.start * self.k, queries.len() * self.k);
        let distances = self.distances[first..first + count].to_vec();
        let reach = self.judgement.reach.get(queries.clone()).unwrap_or_default().to_vec();
        let lengths = self.judgement.lengths.of_queries(queries);
        let mut notes = self.notes.clone();
        if self.judgement.unlike {
            notes.pop();
        }
        let answers = MergedAnswers { k: self.k, distances: &distances, lengths: &lengths, effort };
        let note = answers.unlike_note(Calibrated::Segments, |query| {
            reach.get(query).map_or(&[][..], |reach| reach.as_slice())
        });
        let judgement = Judgement { unlike: note.is_some(), reach, lengths };
        notes.extend(note);
        let vectors = self.vectors.as_ref().map(|vectors| {
            let row_bytes = vectors.element.row_bytes(vectors.dim);
            let bytes = vectors.bytes[first * row_bytes..(first + count) * row_bytes].to_vec();
            StoredVectors { bytes, ..*vectors }
        });
        FoundRows {
            k: self.k,
            ids: self.ids.slice(first, count),
            distances,
            columns: self.columns.slice(first, count),
            vectors,
            matches: self.matches,
            plans: self.plans.clone(),
            totals: self.totals.clone(),
            seconds: self.seconds,
            notes,
            judgement,
        }
    }
}
