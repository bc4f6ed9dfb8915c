//! A sample of the rows of a file: nested sets for the pilots, and queries that are not among them.

use crate::request::{AdviceRequest, LEAST_VECTORS};
use bathyal_index::IndexError;
use bathyal_vectors::progress::Progress;
use bathyal_vectors::{RowReader, VectorFile};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// The most queries with which pilots are measured. The recall of so many has a standard error of about 0.3
/// percentage points.
const MOST_QUERIES: usize = 500;
/// Rows that are held out as queries, as a share (one in so many) of the sample.
const QUERY_SHARE: usize = 20;
/// Rows between two checks whether the work is to end.
const ROWS_A_CHECK: usize = 256;

/// Rows of a file, and queries.
#[derive(Debug)]
pub struct DataSample {
    /// The rows, in random order, so that each prefix is a sample, too.
    pub rows: VectorFile,
    /// The queries: given ones, or rows of the file that are not in `rows`.
    pub queries: VectorFile,
    /// True if the queries were given.
    pub queries_given: bool,
    /// Sizes of the pilots in ascending order; the last is the number of `rows`.
    pub sizes: Vec<usize>,
}

impl DataSample {
    /// Reads a sample of `data`: one row at random out of each of equally long stretches of the file. Only
    /// these rows are read.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for too few vectors, or for queries of another shape; errors of the file;
    /// [`IndexError::Cancelled`].
    pub fn take(
        data: &VectorFile,
        queries: Option<&VectorFile>,
        request: &AdviceRequest,
        progress: &dyn Progress,
    ) -> Result<DataSample, IndexError> {
        if data.count() < LEAST_VECTORS {
            return Err(IndexError::Parameter(format!(
                "{}: has {} vectors; a prediction needs {LEAST_VECTORS} at least. An index of so few \
                 vectors takes little of anything: build one",
                data.path().display(),
                data.count()
            )));
        }
        if let Some(queries) = queries {
            check_queries(data, queries)?;
        }
        let mut random = StdRng::seed_from_u64(request.options().seed);
        let wanted = request.options().pace.rows().min(data.count());
        let mut chosen: Vec<usize> =
            stretches(data.count(), wanted).map(|stretch| random.random_range(stretch)).collect();
        chosen.shuffle(&mut random);
        let held_out = match queries {
            Some(_) => 0,
            None => (wanted / QUERY_SHARE).min(MOST_QUERIES),
        };
        let (held, kept) = chosen.split_at(held_out);
        progress.stage("reading a sample", chosen.len() as u64);
        let rows = read(data, kept, progress)?;
        let queries_file = match queries {
            Some(given) => {
                let most = given.count().min(MOST_QUERIES);
                let spread: Vec<usize> =
                    stretches(given.count(), most).map(|stretch| stretch.start).collect();
                read(given, &spread, progress)?
            }
            None => read(data, held, progress)?,
        };
        let sizes = request.options().pace.pilot_sizes(kept.len());
        Ok(DataSample { rows, queries: queries_file, queries_given: queries.is_some(), sizes })
    }

    /// Returns the first `count` rows.
    ///
    /// # Errors
    /// Those of [`VectorFile::from_rows`].
    pub fn first(&self, count: usize) -> Result<VectorFile, IndexError> {
        let bytes = self.rows.rows(0..count.min(self.rows.count())).unwrap_or_default().to_vec();
        Ok(VectorFile::from_rows(self.rows.element(), self.rows.dim(), bytes)?)
    }
}

/// Refuses queries that are not of the shape of the data.
fn check_queries(data: &VectorFile, queries: &VectorFile) -> Result<(), IndexError> {
    let shape = |file: &VectorFile| (file.element(), file.dim());
    if shape(data) != shape(queries) || queries.count() == 0 {
        return Err(IndexError::Parameter(format!(
            "{}: has {} queries of {} {}; the vectors have {} {}",
            queries.path().display(),
            queries.count(),
            queries.dim(),
            queries.element(),
            data.dim(),
            data.element()
        )));
    }
    Ok(())
}

/// Divides `0..count` into `wanted` stretches of about the same length, none of which is empty.
fn stretches(count: usize, wanted: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let bound = move |at: usize| (at as u128 * count as u128 / wanted.max(1) as u128) as usize;
    (0..wanted.min(count)).map(move |at| bound(at)..bound(at + 1))
}

/// Reads rows of a file in ascending order, and returns them in the given one.
fn read(data: &VectorFile, rows: &[usize], progress: &dyn Progress) -> Result<VectorFile, IndexError> {
    let row_bytes = data.row_bytes();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| rows.get(*at));
    let mut bytes = vec![0; rows.len() * row_bytes];
    let mut reader = RowReader::new(data, 0);
    for (done, at) in order.into_iter().enumerate() {
        if done % ROWS_A_CHECK == 0 {
            progress.advance(done as u64);
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
        }
        let (Some(row), Some(place)) = (rows.get(at), bytes.get_mut(at * row_bytes..(at + 1) * row_bytes))
        else {
            continue;
        };
        data.check_rows(*row..*row + 1)?;
        place.copy_from_slice(reader.row(*row)?);
    }
    Ok(VectorFile::from_rows(data.element(), data.dim(), bytes)?)
}
