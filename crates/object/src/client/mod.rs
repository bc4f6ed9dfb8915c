//! What sends requests: no more at once than the store takes, again when they fail, twice when they are late.
//!
//! One client for all who read from a bucket in the same way: limits, times and connections are theirs together.

mod conditional;
mod fault;
mod late;
mod limit;
mod observed;
mod version;

pub(crate) use conditional::Created;
pub(crate) use fault::{Fault, Why};
pub(crate) use observed::Observing;
pub(crate) use version::Version;

use crate::shaper::Shaper;
use bathyal_store::Traffic;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use late::Late;
use limit::Limit;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
};
use observed::observe;
use rand::Rng;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times that a request is sent at most.
const MOST_TRIES: u32 = 8;
/// No request is sent again after this time.
const MOST_TIME: Duration = Duration::from_secs(30);
/// Mean wait before the second try; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest mean wait.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Objects that are deleted at once.
const DELETED_AT_ONCE: usize = 16;

/// A store, and the half of its interface that large objects are written through.
pub(crate) struct Connected {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) multipart: Arc<dyn MultipartStore>,
    /// Names the store among all others.
    pub(crate) identity: String,
}

/// How requests are sent.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    /// Requests in flight at most.
    pub(crate) most_requests: usize,
    /// Whether one that is late is sent a second time.
    pub(crate) hedge: bool,
    /// What makes the store slower.
    pub(crate) shaper: Option<Arc<Shaper>>,
}

/// See the module's description.
pub struct Client {
    connected: Connected,
    provider: &'static str,
    shaper: Option<Arc<Shaper>>,
    limit: Arc<Limit>,
    late: Late,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(connected: Connected, provider: &'static str, sending: Sending) -> Client {
        let limit = Arc::new(Limit::new(sending.most_requests));
        let late = Late::new(sending.hedge);
        Client { connected, provider, shaper: sending.shaper, limit, late }
    }

    /// Whose interface it speaks.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// What names its store among all others.
    pub(crate) fn identity(&self) -> &str {
        &self.connected.identity
    }

    /// Whether its store is made slower than it is.
    pub fn shaper(&self) -> Option<&Arc<Shaper>> {
        self.shaper.as_ref()
    }

    /// Requests in flight at most.
    pub fn most_requests(&self) -> usize {
        self.limit.most()
    }

    /// Median time to the first byte of the latest answers; `None` before there are some.
    pub fn first_byte(&self) -> Option<Duration> {
        self.late.median()
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.connected.store.as_ref()
    }

    pub(crate) fn multipart(&self) -> &dyn MultipartStore {
        self.connected.multipart.as_ref()
    }

    /// The bytes of `range`, which lies within the object, of the version that was seen first.
    pub(crate) async fn range(
        &self,
        key: &Key,
        range: Range<u64>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, Fault> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let request = || self.again(traffic, || self.hedged(key, range.clone(), version, traffic));
        match request().await {
            Err(fault) if fault.why == Why::Changed && self.adopt(key, version, traffic).await? => {
                request().await
            }
            answer => answer,
        }
    }

    /// Asks which version is there, where it is not the one that was recorded and none was read yet: tools that copy a bucket
    /// change what versions are called. Whether it is worth asking for the range again.
    async fn adopt(&self, key: &Key, version: &Version, traffic: &Traffic) -> Result<bool, Fault> {
        if let Some(known) = version.is_adopted() {
            return Ok(known);
        }
        let there = self.head(key, traffic).await?;
        Ok(version.adopt(&there))
    }

    /// Sends a request, and a second one if the first is late, or at once where that is allowed; the first answer counts.
    async fn hedged(
        &self,
        key: &Key,
        range: Range<u64>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, Fault> {
        let fetch = || self.fetch(key, Some(range.clone()), version, traffic);
        let mut first = pin!(fetch());
        let at_once = self.late.may_send_twice(range.end - range.start);
        if !at_once {
            let Some(patience) = self.late.patience() else { return first.await };
            tokio::select! {
                answer = &mut first => return answer,
                () = tokio::time::sleep(patience) => {}
            }
        }
        let may = at_once || self.late.may_hedge();
        let Some(_permit) = may.then(|| self.limit.try_acquire()).flatten() else {
            return first.await;
        };
        traffic.hedged();
        let mut second = pin!(fetch());
        tokio::select! {
            answer = &mut first => match answer {
                Ok(bytes) => Ok(bytes),
                Err(_) => second.await,
            },
            answer = &mut second => match answer {
                Ok(bytes) => {
                    traffic.hedge_won();
                    Ok(bytes)
                }
                Err(_) => first.await,
            },
        }
    }

    /// One request for a range, or for the whole object.
    async fn fetch(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, Fault> {
        traffic.sent();
        let began = Instant::now();
        self.wait_for_first_byte().await?;
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            if_match: version.etag().map(str::to_owned),
            ..GetOptions::default()
        };
        let (answer, seen) = observe(self.store().get_opts(key, options)).await;
        let answer = answer.map_err(|error| Fault::of(&error, seen))?;
        version.check(&answer.meta)?;
        self.late.took(began.elapsed());
        let wanted = range.map_or(answer.meta.size, |range| range.end - range.start);
        let (body, seen) = observe(collect(answer.into_stream(), wanted, traffic)).await;
        let bytes = body.map_err(|error| Fault::of(&error, seen))?;
        if bytes.len() as u64 != wanted {
            return Err(Fault::short(bytes.len() as u64, wanted));
        }
        if let Some(shaper) = &self.shaper {
            shaper.transfer(wanted).await;
        }
        Ok(bytes)
    }

    async fn wait_for_first_byte(&self) -> Result<(), Fault> {
        match &self.shaper {
            Some(shaper) => shaper.first_byte().await.map_err(|_| Fault::throttled_by_emulation()),
            None => Ok(()),
        }
    }

    /// A whole object.
    pub(crate) async fn get(&self, key: &Key, traffic: &Traffic) -> Result<Bytes, Fault> {
        let version = Version::default();
        self.again(traffic, || self.fetch(key, None, &version, traffic)).await
    }

    /// The same, asked for once: of one that can be done without.
    pub(crate) async fn get_once(&self, key: &Key, traffic: &Traffic) -> Result<Bytes, Fault> {
        let _permit = self.limit.acquire().await;
        self.fetch(key, None, &Version::default(), traffic).await
    }

    /// Puts `bytes` under `key`, in the place of whatever is there. Returns the store's name of the version.
    pub(crate) async fn put(
        &self,
        key: &Key,
        bytes: Bytes,
        traffic: &Traffic,
    ) -> Result<Option<String>, Fault> {
        self.again(traffic, || self.put_once(key, bytes.clone(), PutMode::Overwrite, traffic)).await
    }

    async fn put_once(
        &self,
        key: &Key,
        bytes: Bytes,
        mode: PutMode,
        traffic: &Traffic,
    ) -> Result<Option<String>, Fault> {
        let put = self.store().put_opts(key, bytes.into(), PutOptions::from(mode));
        self.once(traffic, put).await.map(|done| done.e_tag)
    }

    /// Any one request.
    pub(crate) async fn once<T>(
        &self,
        traffic: &Traffic,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Fault> {
        traffic.sent();
        self.wait_for_first_byte().await?;
        let (answer, seen) = observe(request).await;
        answer.map_err(|error| Fault::of(&error, seen))
    }

    /// What the store says of an object.
    pub(crate) async fn head(&self, key: &Key, traffic: &Traffic) -> Result<ObjectMeta, Fault> {
        self.again(traffic, || self.once(traffic, self.store().head(key))).await
    }

    /// All objects whose keys begin with the folder `prefix`, in order.
    pub(crate) async fn list(&self, prefix: &Key, traffic: &Traffic) -> Result<Vec<ObjectMeta>, Fault> {
        let mut found: Vec<ObjectMeta> =
            self.again(traffic, || self.once(traffic, self.store().list(Some(prefix)).try_collect())).await?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }

    /// The folders and objects directly below the folder `prefix`.
    pub(crate) async fn children(&self, prefix: &Key, traffic: &Traffic) -> Result<ListResult, Fault> {
        self.again(traffic, || self.once(traffic, self.store().list_with_delimiter(Some(prefix)))).await
    }

    /// Removes objects; those that are not there are no error.
    pub(crate) async fn delete(&self, keys: Vec<Key>, traffic: &Traffic) -> Result<(), Fault> {
        let each = |key: Key| async move {
            match self.again(traffic, || self.once(traffic, self.store().delete(&key))).await {
                Err(fault) if fault.why == Why::Gone => Ok(()),
                other => other,
            }
        };
        futures_util::stream::iter(keys).map(each).buffer_unordered(DELETED_AT_ONCE).try_collect().await
    }

    /// Sends a request until it succeeds, fails for good, or has failed too often.
    pub(crate) async fn again<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        traffic: &Traffic,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let mut tries = 1;
        loop {
            let permit = self.limit.acquire().await;
            let fault = match request().await {
                Ok(answer) => {
                    permit.answered();
                    return Ok(answer);
                }
                Err(fault) => fault,
            };
            if fault.why == Why::Throttled {
                traffic.throttled();
                permit.throttled();
            }
            drop(permit);
            if !fault.may_pass() || tries >= MOST_TRIES || began.elapsed() > MOST_TIME {
                return Err(fault.after(tries));
            }
            tokio::time::sleep(wait_before(tries)).await;
            traffic.retried();
            tries += 1;
        }
    }
}

/// A wait before the next try, anywhere up to twice its mean, so that those who failed together do not come back together.
fn wait_before(tries: u32) -> Duration {
    let mean = FIRST_WAIT.saturating_mul(1 << (tries - 1).min(10)).min(LONGEST_WAIT);
    mean.mul_f64(rand::rng().random_range(0.0..2.0))
}

/// The bytes of a body; no more of them than were wanted, and one.
async fn collect(
    mut body: futures_util::stream::BoxStream<'static, object_store::Result<Bytes>>,
    wanted: u64,
    traffic: &Traffic,
) -> object_store::Result<Bytes> {
    let mut all = Vec::new();
    while let Some(part) = body.try_next().await? {
        traffic.received(part.len() as u64);
        if all.is_empty() && part.len() as u64 == wanted {
            return Ok(part);
        }
        if all.is_empty() {
            all.reserve_exact(usize::try_from(wanted).unwrap_or(0));
        }
        all.extend_from_slice(&part);
        if all.len() as u64 > wanted {
            break;
        }
    }
    Ok(all.into())
}
