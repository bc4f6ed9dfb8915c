//! The client of a bucket: limits the requests in flight, retries failed ones, and hedges late ones.
//!
//! All readers of a bucket with the same options share one client, and with it the limits, response times and
//! connections.

mod conditional;
mod fault;
mod hedging;
mod limit;
mod observed;
mod version;

pub(crate) use conditional::Created;
pub(crate) use fault::{Cause, RequestFault};
pub(crate) use observed::ObservingConnector;
pub(crate) use version::Version;

use crate::shaper::Shaper;
use bathyal_store::Traffic;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hedging::Hedging;
use limit::RequestLimit;
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

/// The most attempts of a request.
const MAX_ATTEMPTS: u32 = 8;
/// The time after which a request is not retried any more.
const MAX_RETRY_TIME: Duration = Duration::from_secs(30);
/// The mean wait before the second attempt; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest mean wait.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// The number of objects that are deleted concurrently.
const CONCURRENT_DELETES: usize = 16;

/// A store, with its interface for multipart uploads.
pub(crate) struct ConnectedStore {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) multipart: Arc<dyn MultipartStore>,
    /// Identifies the store among all stores.
    pub(crate) identity: String,
}

/// Options for sending requests.
#[derive(Debug, Clone)]
pub(crate) struct SendOptions {
    /// The most requests in flight.
    pub(crate) max_requests: usize,
    /// True if late requests are hedged.
    pub(crate) hedge: bool,
    /// Delays requests, to emulate a slower store.
    pub(crate) shaper: Option<Arc<Shaper>>,
}

/// A client of a bucket; see the module's description.
pub struct Client {
    connected: ConnectedStore,
    provider: &'static str,
    shaper: Option<Arc<Shaper>>,
    limit: Arc<RequestLimit>,
    hedging: Hedging,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(connected: ConnectedStore, provider: &'static str, sending: SendOptions) -> Client {
        let limit = Arc::new(RequestLimit::new(sending.max_requests));
        let hedging = Hedging::new(sending.hedge);
        Client { connected, provider, shaper: sending.shaper, limit, hedging }
    }

    /// Returns the name of the provider.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns the text that identifies its store among all stores.
    pub(crate) fn identity(&self) -> &str {
        &self.connected.identity
    }

    /// Returns the shaper, if its store is emulated as a slower one.
    pub fn shaper(&self) -> Option<&Arc<Shaper>> {
        self.shaper.as_ref()
    }

    /// Returns the most requests in flight.
    pub fn max_requests(&self) -> usize {
        self.limit.max()
    }

    /// Returns the median time to the first byte of recent responses; `None` before the first one.
    pub fn first_byte(&self) -> Option<Duration> {
        self.hedging.median()
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        self.connected.store.as_ref()
    }

    pub(crate) fn multipart(&self) -> &dyn MultipartStore {
        self.connected.multipart.as_ref()
    }

    /// Reads the bytes of `range`, which must lie within the object, of the given version.
    pub(crate) async fn range(
        &self,
        key: &Key,
        range: Range<u64>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, RequestFault> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let request =
            || self.with_retries(traffic, || self.fetch_hedged(key, range.clone(), version, traffic));
        match request().await {
            Err(fault)
                if fault.cause == Cause::Changed && self.accept_version(key, version, traffic).await? =>
            {
                request().await
            }
            response => response,
        }
    }

    /// Requests the current version if a version is recorded and none was read yet, and accepts it if it has
    /// the recorded length: tools that copy a bucket change entity tags. Returns true if the range is worth
    /// requesting again.
    async fn accept_version(
        &self,
        key: &Key,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<bool, RequestFault> {
        if let Some(reads_other) = version.reads_other_version() {
            return Ok(reads_other);
        }
        let current = self.head(key, traffic).await?;
        Ok(version.accept_current(&current))
    }

    /// Sends a request, and a second one if the first is late, or at once if that is allowed. Returns the
    /// first successful response.
    async fn fetch_hedged(
        &self,
        key: &Key,
        range: Range<u64>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, RequestFault> {
        let fetch = || self.fetch(key, Some(range.clone()), version, traffic);
        let mut first = pin!(fetch());
        let at_once = self.hedging.may_send_twice(range.end - range.start);
        if !at_once {
            let Some(delay) = self.hedging.hedge_delay() else { return first.await };
            tokio::select! {
                response = &mut first => return response,
                () = tokio::time::sleep(delay) => {}
            }
        }
        let may_hedge = at_once || self.hedging.may_hedge();
        let Some(_permit) = may_hedge.then(|| self.limit.try_acquire()).flatten() else {
            return first.await;
        };
        traffic.count_hedge();
        let mut second = pin!(fetch());
        tokio::select! {
            response = &mut first => match response {
                Ok(bytes) => Ok(bytes),
                Err(_) => second.await,
            },
            response = &mut second => match response {
                Ok(bytes) => {
                    traffic.count_hedge_won();
                    Ok(bytes)
                }
                Err(_) => first.await,
            },
        }
    }

    /// Sends one request for a range, or for the whole object.
    async fn fetch(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
        version: &Version,
        traffic: &Traffic,
    ) -> Result<Bytes, RequestFault> {
        traffic.count_request();
        let began = Instant::now();
        self.wait_for_first_byte().await?;
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            if_match: version.etag().map(str::to_owned),
            ..GetOptions::default()
        };
        let (response, error_response) = observe(self.store().get_opts(key, options)).await;
        let response = response.map_err(|error| RequestFault::from_error(&error, error_response))?;
        version.check(&response.meta)?;
        self.hedging.record(began.elapsed());
        let wanted = range.map_or(response.meta.size, |range| range.end - range.start);
        let (body, error_response) = observe(collect(response.into_stream(), wanted, traffic)).await;
        let bytes = body.map_err(|error| RequestFault::from_error(&error, error_response))?;
        if bytes.len() as u64 != wanted {
            return Err(RequestFault::short(bytes.len() as u64, wanted));
        }
        if let Some(shaper) = &self.shaper {
            shaper.transfer(wanted).await;
        }
        Ok(bytes)
    }

    async fn wait_for_first_byte(&self) -> Result<(), RequestFault> {
        match &self.shaper {
            Some(shaper) => shaper.first_byte().await.map_err(|_| RequestFault::throttled_by_emulation()),
            None => Ok(()),
        }
    }

    /// Reads a whole object.
    pub(crate) async fn get(&self, key: &Key, traffic: &Traffic) -> Result<Bytes, RequestFault> {
        let version = Version::default();
        self.with_retries(traffic, || self.fetch(key, None, &version, traffic)).await
    }

    /// Reads a whole object without retries; for an object that is optional.
    pub(crate) async fn get_once(&self, key: &Key, traffic: &Traffic) -> Result<Bytes, RequestFault> {
        let _permit = self.limit.acquire().await;
        self.fetch(key, None, &Version::default(), traffic).await
    }

    /// Writes `bytes` to the object `key`, replacing any old one. Returns the entity tag.
    pub(crate) async fn put(
        &self,
        key: &Key,
        bytes: Bytes,
        traffic: &Traffic,
    ) -> Result<Option<String>, RequestFault> {
        self.with_retries(traffic, || self.put_once(key, bytes.clone(), PutMode::Overwrite, traffic)).await
    }

    async fn put_once(
        &self,
        key: &Key,
        bytes: Bytes,
        mode: PutMode,
        traffic: &Traffic,
    ) -> Result<Option<String>, RequestFault> {
        let put = self.store().put_opts(key, bytes.into(), PutOptions::from(mode));
        self.send_once(traffic, put).await.map(|done| done.e_tag)
    }

    /// Sends one request of any kind, without retries.
    pub(crate) async fn send_once<T>(
        &self,
        traffic: &Traffic,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, RequestFault> {
        traffic.count_request();
        self.wait_for_first_byte().await?;
        let (response, error_response) = observe(request).await;
        response.map_err(|error| RequestFault::from_error(&error, error_response))
    }

    /// Reads the metadata of an object.
    pub(crate) async fn head(&self, key: &Key, traffic: &Traffic) -> Result<ObjectMeta, RequestFault> {
        self.with_retries(traffic, || self.send_once(traffic, self.store().head(key))).await
    }

    /// Lists all objects below the folder `prefix`, sorted.
    pub(crate) async fn list(
        &self,
        prefix: &Key,
        traffic: &Traffic,
    ) -> Result<Vec<ObjectMeta>, RequestFault> {
        let mut found: Vec<ObjectMeta> = self
            .with_retries(traffic, || self.send_once(traffic, self.store().list(Some(prefix)).try_collect()))
            .await?;
        found.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }

    /// Lists the folders and objects directly below the folder `prefix`.
    pub(crate) async fn children(&self, prefix: &Key, traffic: &Traffic) -> Result<ListResult, RequestFault> {
        self.with_retries(traffic, || self.send_once(traffic, self.store().list_with_delimiter(Some(prefix))))
            .await
    }

    /// Removes objects; missing ones are no error.
    pub(crate) async fn delete(&self, keys: Vec<Key>, traffic: &Traffic) -> Result<(), RequestFault> {
        let delete_one = |key: Key| async move {
            match self.with_retries(traffic, || self.send_once(traffic, self.store().delete(&key))).await {
                Err(fault) if fault.cause == Cause::Gone => Ok(()),
                other => other,
            }
        };
        futures_util::stream::iter(keys)
            .map(delete_one)
            .buffer_unordered(CONCURRENT_DELETES)
            .try_collect()
            .await
    }

    /// Sends a request until it succeeds, fails permanently, or has failed too often.
    pub(crate) async fn with_retries<T, F: Future<Output = Result<T, RequestFault>>>(
        &self,
        traffic: &Traffic,
        mut request: impl FnMut() -> F,
    ) -> Result<T, RequestFault> {
        let began = Instant::now();
        let mut attempts = 1;
        loop {
            let permit = self.limit.acquire().await;
            let fault = match request().await {
                Ok(response) => {
                    permit.record_response();
                    return Ok(response);
                }
                Err(fault) => fault,
            };
            if fault.cause == Cause::Throttled {
                traffic.count_refusal();
                permit.record_refusal();
            }
            drop(permit);
            if !fault.may_pass() || attempts >= MAX_ATTEMPTS || began.elapsed() > MAX_RETRY_TIME {
                return Err(fault.after(attempts));
            }
            tokio::time::sleep(wait_before(attempts)).await;
            traffic.count_retry();
            attempts += 1;
        }
    }
}

/// Returns a random wait before the next attempt, up to twice its mean, so that requests that failed together
/// are not retried together.
fn wait_before(attempts: u32) -> Duration {
    let mean = FIRST_WAIT.saturating_mul(1 << (attempts - 1).min(10)).min(MAX_WAIT);
    mean.mul_f64(rand::rng().random_range(0.0..2.0))
}

/// Collects the bytes of a body, and stops once there are more than `wanted`.
async fn collect(
    mut body: futures_util::stream::BoxStream<'static, object_store::Result<Bytes>>,
    wanted: u64,
    traffic: &Traffic,
) -> object_store::Result<Bytes> {
    let mut all = Vec::new();
    while let Some(part) = body.try_next().await? {
        traffic.count_received(part.len() as u64);
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
