//! Asynchronous searches: one thread awaits hundreds of queries at a time, with a common deadline.
//!
//!     cargo run --release -p bathyal --example awaited
//!
//! Any executor works; this one polls until all searches have ended.

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
        // The query is copied. The search begins when the future is polled for the first time.
        searches.push(index.search_async(&query, &SearchOptions::default(), deadline));
    }
    let mut found_themselves = 0;
    for (row, found) in await_all(searches).into_iter().enumerate() {
        found_themselves += u32::from(found?.ids.contains(&(row as u32)));
    }
    println!("one thread awaited 200 searches; {found_themselves} of the vectors found themselves");
    Ok(())
}

/// Waker that unparks a thread.
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for all searches at once.
fn await_all(mut searches: Vec<Searching>) -> Vec<Result<SearchResult, Error>> {
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
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
fn all_searches_are_answered() {
    main().unwrap();
}
