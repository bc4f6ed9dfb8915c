//! Searches that are awaited: one thread waits for hundreds of queries at a time, with a deadline for each.
//!
//!     cargo run --release -p bathyal --example awaited
//!
//! Any executor will do; this one polls until all are done.

use bathyal::{
    BuildOptions, Element, Error, Index, OpenOptions, SearchOptions, SearchResult, Searching, Silent,
    VectorFile,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().map_err(|error| Error::Internal(error.to_string()))?;
    let values = (0..5000 * 16_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
    let data = VectorFile::from_rows(Element::U8, 16, values.collect())?;
    let path = folder.path().join("index");
    bathyal::build(&data, &path, &BuildOptions::default(), &Silent)?;
    let index = Index::open(&path, &OpenOptions::default())?;

    let deadline = Some(Instant::now() + Duration::from_secs(30));
    let mut searches = Vec::new();
    for row in 0..200 {
        let query = VectorFile::from_rows(Element::U8, 16, data.row(row).to_vec())?;
        // The query is copied, and nothing is done before the future is polled.
        searches.push(index.search_async(&query, &SearchOptions::default(), deadline));
    }
    let mut near_themselves = 0;
    for (row, found) in join(searches).into_iter().enumerate() {
        near_themselves += u32::from(found?.ids.contains(&(row as u32)));
    }
    println!("200 searches, awaited by one thread; {near_themselves} vectors are among their own nearest");
    Ok(())
}

/// Wakes a thread.
struct Woken(Thread);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for all searches at once.
fn join(mut searches: Vec<Searching>) -> Vec<Result<SearchResult, Error>> {
    let waker = Waker::from(Arc::new(Woken(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut found: Vec<Option<Result<SearchResult, Error>>> = searches.iter().map(|_| None).collect();
    loop {
        for (search, found) in searches.iter_mut().zip(&mut found).filter(|(_, found)| found.is_none()) {
            if let Poll::Ready(result) = Pin::new(search).poll(&mut context) {
                *found = Some(result);
            }
        }
        if found.iter().all(Option::is_some) {
            return found.into_iter().flatten().collect();
        }
        std::thread::park();
    }
}

#[test]
fn all_are_answered() {
    main().unwrap();
}
