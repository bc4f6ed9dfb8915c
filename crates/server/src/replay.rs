//! Answers to writes by their idempotency keys: a write that is sent again is not done again.

use crate::failure::Refusal;
use crate::work::unfinished;
use axum::http::{HeaderMap, StatusCode};
use bathyal_console::Kind;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;

/// The header with the key.
const HEADER: &str = "idempotency-key";
/// The longest key in bytes.
const MAX_KEY_BYTES: usize = 255;
/// The most answers that are kept.
const MAX_ANSWERS: usize = 10_000;

/// Answers that are kept, by the key of the client and its idempotency key. They are in memory: after a
/// restart of the server, a write that is sent again is done again.
#[derive(Debug, Default)]
pub(crate) struct Replays(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<ReplayKey, KeptAnswer>,
    /// The keys in the order of their arrival.
    order: VecDeque<ReplayKey>,
}

/// The key of a client, and the idempotency key that it sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReplayKey {
    owner: String,
    key: String,
}

#[derive(Debug, Clone)]
struct KeptAnswer {
    /// The hash of the operation, the collection and the body.
    request: [u8; 32],
    answer: Arc<OnceCell<String>>,
}

/// A write that may be sent again.
pub(crate) struct WriteIdentity<'a> {
    /// The name of the client's key.
    pub(crate) owner: &'a str,
    /// The address of the operation.
    pub(crate) address: &'a str,
    pub(crate) body: &'a [u8],
}

impl Replays {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `write`, or returns the answer to the same write with the same idempotency key. A write that is
    /// being done is waited for. A write that fails is not kept. A write with a key is done even if its
    /// client leaves: the client may send it again.
    pub(crate) async fn once(
        &self,
        headers: &HeaderMap,
        identity: WriteIdentity<'_>,
        write: impl Future<Output = Result<String, Refusal>> + Send + 'static,
    ) -> Result<String, Refusal> {
        let Some(key) = key_of(headers)? else { return write.await };
        let request = {
            let mut hash = Sha256::new();
            hash.update(identity.address);
            hash.update([0]);
            hash.update(identity.body);
            hash.finalize().into()
        };
        let kept = self.keep(ReplayKey { owner: identity.owner.into(), key }, request);
        if kept.request != request {
            return Err(Refusal::with_status(
                StatusCode::UNPROCESSABLE_ENTITY,
                Kind::InvalidArgument,
                "this Idempotency-Key was sent with another request; use a new key for each write",
            ));
        }
        let done = tokio::spawn(async move { kept.answer.get_or_try_init(|| write).await.cloned() });
        done.await.unwrap_or_else(|error| Err(unfinished(&error)))
    }

    /// Returns the answer of a key, or a new one without content.
    fn keep(&self, key: ReplayKey, request: [u8; 32]) -> KeptAnswer {
        let mut kept = self.kept();
        if let Some(found) = kept.answers.get(&key) {
            return found.clone();
        }
        if kept.order.len() >= MAX_ANSWERS
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.answers.remove(&oldest);
        }
        let new = KeptAnswer { request, answer: Arc::default() };
        kept.order.push_back(key.clone());
        kept.answers.insert(key, new.clone());
        new
    }
}

/// Returns true if a request has an idempotency key.
pub(crate) fn has_key(headers: &HeaderMap) -> bool {
    headers.contains_key(HEADER)
}

/// Returns the idempotency key of a request.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Refusal::invalid(format!(
            "the header Idempotency-Key has to have 1 to {MAX_KEY_BYTES} printable characters"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_write_is_done_once_and_a_failed_one_again() {
        let (replays, done) = (Replays::default(), Arc::new(AtomicU32::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let send = |key: &str, body: &str, fails: bool| {
            let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), key.parse().unwrap())]);
            let identity = WriteIdentity { owner: "a", address: "/x", body: body.as_bytes() };
            let done = done.clone();
            runtime.block_on(replays.once(&headers, identity, async move {
                if fails {
                    return Err(Refusal::invalid("no"));
                }
                Ok(done.fetch_add(1, Ordering::Relaxed).to_string())
            }))
        };
        assert!(send("one", "rows", true).is_err());
        assert_eq!(send("one", "rows", false).unwrap(), "0");
        assert_eq!(send("one", "rows", false).unwrap(), "0");
        assert_eq!(send("two", "rows", false).unwrap(), "1");
        assert_eq!(send("one", "other", false).unwrap_err().status, StatusCode::UNPROCESSABLE_ENTITY);
        // A client that leaves does not end its write.
        let headers = HeaderMap::from_iter([(HEADER.parse().unwrap(), "left".parse().unwrap())]);
        let identity = || WriteIdentity { owner: "a", address: "/x", body: b"rows" };
        let before = done.load(Ordering::Relaxed);
        runtime.block_on(async {
            let counted = done.clone();
            let slow = async move {
                tokio::task::yield_now().await;
                Ok(counted.fetch_add(1, Ordering::Relaxed).to_string())
            };
            let left = replays.once(&headers, identity(), slow);
            tokio::select! {
                biased;
                _ = left => panic!("the write ended before its client left"),
                () = std::future::ready(()) => {}
            }
            let again = replays.once(&headers, identity(), async { Ok("done again".to_owned()) }).await;
            assert_eq!(again.unwrap(), before.to_string());
        });
        for bad in ["", &"x".repeat(256)] {
            assert!(send(bad, "rows", false).is_err(), "{bad}");
        }
        for number in 0..MAX_ANSWERS {
            send(&format!("n{number}"), "rows", false).unwrap();
        }
        // The oldest answers are gone.
        assert_eq!(replays.kept().answers.len(), MAX_ANSWERS);
        assert_ne!(send("one", "rows", false).unwrap(), "0");
    }
}
