//! Grows the graph in rounds, so that any number of threads builds the same graph (ParlayANN, PPoPP'24).
//!
//! All vectors of a round are searched for in the graph of the previous round. Their lists are set after all
//! searches have ended. Each list that gains links takes all of them in one step, in the order of their ids.
//! Rounds double in size while the graph is small, and then stay a small share of it, so that few vectors of
//! a round would have found each other.

use super::grow::Growth;
use super::insert::Inserter;
use crate::error::{IndexError, NoMemory};

/// A round has at most one in `ROUND_SHARE` of the vectors: the share of ParlayANN.
const ROUND_SHARE: usize = 50;
/// Vectors between two checks for cancellation.
const CHECK_EVERY: usize = 32;

impl Growth<'_> {
    /// Runs the two passes of Vamana over all vectors, in rounds. Returns the order of insertion.
    pub(crate) fn rounds(&self) -> Result<Vec<u32>, IndexError> {
        let order = self.shuffled(&[]);
        let [draft, full] = self.search_lists();
        let most = (order.len() / ROUND_SHARE).max(1);
        self.progress.stage("first pass", order.len() as u64);
        let mut first = 0;
        while first < order.len() {
            let end = order.len().min(first + first.clamp(1, most));
            self.round(&order[first..end], 1.0, draft)?;
            self.progress.advance(end as u64);
            first = end;
        }
        self.progress.stage("second pass", order.len() as u64);
        for (number, round) in order.chunks(most).enumerate() {
            self.round(round, self.options.alpha, full)?;
            self.progress.advance((number * most + round.len()) as u64);
        }
        Ok(order)
    }

    /// Inserts the vectors of one round, or connects them again.
    fn round(&self, ids: &[u32], alpha: f32, search_list: u32) -> Result<(), IndexError> {
        let mut chosen: Vec<Vec<u32>> = vec![Vec::new(); ids.len()];
        self.run_parallel(&mut chosen, search_list, |first, chosen, inserter| {
            for (id, chosen) in ids[first..].iter().zip(chosen) {
                chosen.extend(inserter.choose(*id, alpha).iter().map(|neighbor| neighbor.id));
            }
        })?;
        let mut links: Vec<(u32, u32)> = Vec::new();
        for (id, chosen) in ids.iter().zip(&chosen) {
            self.graph.lock(*id).set(chosen.iter().copied());
            links.extend(chosen.iter().map(|neighbor| (*neighbor, *id)));
        }
        links.sort_unstable();
        let mut links_by_list: Vec<&[(u32, u32)]> = links.chunk_by(|a, b| a.0 == b.0).collect();
        self.run_parallel(&mut links_by_list, search_list, |_, links_by_list, inserter| {
            let mut newcomers = Vec::new();
            for links in links_by_list {
                newcomers.clear();
                newcomers.extend(links.iter().map(|link| link.1));
                inserter.link(links[0].0, &newcomers, alpha);
            }
        })
    }

    /// Splits `items` into one run for each thread. `work` gets a few items of a run at a time, and the
    /// number of the first of them.
    fn run_parallel<T: Send>(
        &self,
        items: &mut [T],
        search_list: u32,
        work: impl Fn(usize, &mut [T], &mut Inserter<'_>) + Sync,
    ) -> Result<(), IndexError> {
        let part = items.len().div_ceil(self.threads).max(1);
        let parts = items.chunks_mut(part).map(|items| Ok((items, self.inserter(search_list)?)));
        let parts = parts.collect::<Result<Vec<_>, NoMemory>>()?;
        std::thread::scope(|scope| {
            for (number, (items, mut inserter)) in parts.into_iter().enumerate() {
                let work = &work;
                scope.spawn(move || {
                    for (step, items) in items.chunks_mut(CHECK_EVERY).enumerate() {
                        if self.progress.cancelled() {
                            return;
                        }
                        work(number * part + step * CHECK_EVERY, items, &mut inserter);
                    }
                });
            }
        });
        if self.progress.cancelled() { Err(IndexError::Cancelled) } else { Ok(()) }
    }
}
