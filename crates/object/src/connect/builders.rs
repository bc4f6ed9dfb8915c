//! The stores of each provider, told what the environment, profiles and options say, and shared by all who mean the same one.

use super::aws_profile;
use super::options::StoreOptions;
use super::url::{ObjectUrl, Provider};
use crate::client::{Client, Connected, Observing};
use bathyal_store::StoreError;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Time for a connection: one that takes longer is tried again.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Time without any byte of an answer.
const READ_TIME: Duration = Duration::from_secs(10);
/// Time for a whole answer: a large range over a slow link.
const WHOLE_TIME: Duration = Duration::from_secs(60);
/// Connections are kept for reuse as long as most servers keep them.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// The store of `memory://`: one for the process.
static MEMORY: LazyLock<Arc<InMemory>> = LazyLock::new(Arc::default);
/// Clients that somebody has, by what they were made from.
static CLIENTS: LazyLock<Mutex<BTreeMap<u64, Weak<Client>>>> = LazyLock::new(Mutex::default);

/// The client for the bucket of `url`.
pub(crate) fn connect(url: &ObjectUrl, options: &StoreOptions) -> Result<Arc<Client>, StoreError> {
    let key = fingerprint(url, options);
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|_, client| client.strong_count() > 0);
    if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
        return Ok(client);
    }
    // Whoever installed one before has a reason.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Its timers and connections belong to the runtime that it is made in.
    let runtime = crate::runtime::runtime()?;
    let _inside = runtime.enter();
    let connected = match url.provider {
        Provider::S3 => s3(url, options)?,
        Provider::Gcs => gcs(url, options)?,
        Provider::Azure => azure(url, options)?,
        Provider::Memory => {
            refuse_all(options)?;
            both(MEMORY.clone(), url, [])
        }
    };
    let client = Arc::new(Client::new(connected, url.provider.name(), options.sending()));
    clients.insert(key, Arc::downgrade(&client));
    Ok(client)
}

/// A store of which `more` names the place beside its address.
fn both<S: ObjectStore + MultipartStore>(
    store: Arc<S>,
    url: &ObjectUrl,
    more: impl IntoIterator<Item = Option<String>>,
) -> Connected {
    let more: Vec<String> = more.into_iter().map(Option::unwrap_or_default).collect();
    let identity = format!("{} {more:?}", url.root);
    Connected { store: store.clone(), multipart: store, identity }
}

/// What tells one client from another: bucket, options, environment and process.
fn fingerprint(url: &ObjectUrl, options: &StoreOptions) -> u64 {
    let mut environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| ["AWS_", "GOOGLE_", "AZURE_", "HOME"].iter().any(|prefix| key.starts_with(prefix)))
        .collect();
    environment.sort();
    let values: Vec<_> = options.values().collect();
    let shaper = options.shaper.as_ref().map(|shaper| Arc::as_ptr(shaper) as usize);
    let (most, hedge) = (options.most_requests(), options.no_hedge);
    let all = format!(
        "{}\0{values:?}\0{environment:?}\0{:?}\0{shaper:?}\0{most}\0{hedge}\0{}",
        url.root,
        options.profile,
        std::process::id()
    );
    xxhash_rust::xxh3::xxh3_64(all.as_bytes())
}

fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_http1_only()
        .with_connect_timeout(CONNECT_TIME)
        .with_read_timeout(READ_TIME)
        .with_timeout(WHOLE_TIME)
        .with_pool_idle_timeout(IDLE_TIME)
        .with_pool_max_idle_per_host(usize::MAX)
        // A store that does not know what it holds may compress it, and unpacks megabytes for each range (SeaweedFS).
        .with_default_content_type("application/octet-stream")
}

/// No retries: the client makes them, and counts them.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The environment's variables of a provider, as keys and values.
fn environment(prefix: &'static str) -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(move |(key, value)| {
        let key = key.into_string().ok()?.to_ascii_lowercase();
        Some((key.starts_with(prefix).then_some(key)?, value.into_string().ok()?))
    })
}

/// Keys and values in the order in which they are said: what comes later counts. Of the environment those that are no
/// options are passed over; of the options they are refused.
fn settings<K: FromStr>(
    prefix: &'static str,
    before: impl IntoIterator<Item = (&'static str, String)>,
    options: &StoreOptions,
    provider: Provider,
) -> Result<Vec<(K, String)>, StoreError> {
    let before = before.into_iter().filter_map(|(key, value)| Some((key.parse().ok()?, value)));
    let of_environment = environment(prefix).filter_map(|(key, value)| Some((key.parse().ok()?, value)));
    let mut all: Vec<(K, String)> = before.chain(of_environment).collect();
    for (key, value) in options.values() {
        let known = key.parse().map_err(|_| unknown(key, provider))?;
        all.push((known, value.to_owned()));
    }
    Ok(all)
}

fn unknown(key: &str, provider: Provider) -> StoreError {
    StoreError::Address(format!(
        "store option {key}: a store of {}:// has no such option; it is named as in the environment (aws_region, \
         azure_storage_account_name, google_service_account, ...), or one of max_requests, hedge, scratch, profile, \
         price_reads, price_gigabyte, cache, cache_memory, cache_disk, cache_policy, emulate",
        provider.name()
    ))
}

fn refuse_all(options: &StoreOptions) -> Result<(), StoreError> {
    options.values().next().map_or(Ok(()), |(key, _)| Err(unknown(key, Provider::Memory)))
}

fn refused(url: &ObjectUrl, error: &object_store::Error) -> StoreError {
    StoreError::Address(format!("{}: cannot be reached as it is described: {error}", url.root))
}

/// Refuses an endpoint that no request can be sent to, without showing it: whoever puts a password into it is told not to.
fn check_endpoint(endpoint: &str) -> Result<(), StoreError> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]".contains(&byte);
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    // Of three slashes in a row other programs pass over one.
    let host = host.filter(|host| !host.starts_with('/') && endpoint.bytes().all(usual));
    let address = host.and_then(|_| url::Url::parse(endpoint).ok()).filter(|url| url.has_host());
    address.map(drop).ok_or_else(|| {
        StoreError::Address(
            "store option endpoint: is no address of a server; it is written http://HOST:PORT or https://HOST, without a name, a \
             password or a question mark. Credentials are options of their own"
                .into(),
        )
    })
}

fn s3(url: &ObjectUrl, options: &StoreOptions) -> Result<Connected, StoreError> {
    let profile = aws_profile::read(options.profile.as_deref())?;
    let settings: Vec<(AmazonS3ConfigKey, String)> = settings("aws_", profile, options, url.provider)?;
    let endpoint = settings.iter().rev().find(|(key, _)| *key == AmazonS3ConfigKey::Endpoint);
    endpoint.map_or(Ok(()), |(_, endpoint)| check_endpoint(endpoint))?;
    let plain = endpoint.is_some_and(|(_, endpoint)| endpoint.starts_with("http://"));
    let mut builder = AmazonS3Builder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(Observing)
        .with_url(&url.root);
    if plain {
        // Whoever writes http:// means it.
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let more = [builder.get_config_value(&AmazonS3ConfigKey::Endpoint)];
    Ok(both(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, more))
}

fn gcs(url: &ObjectUrl, options: &StoreOptions) -> Result<Connected, StoreError> {
    let settings: Vec<(GoogleConfigKey, String)> = settings("google_", [], options, url.provider)?;
    let builder = GoogleCloudStorageBuilder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(Observing)
        .with_url(&url.root);
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    Ok(both(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, []))
}

fn azure(url: &ObjectUrl, options: &StoreOptions) -> Result<Connected, StoreError> {
    let settings: Vec<(AzureConfigKey, String)> = settings("azure_", [], options, url.provider)?;
    let endpoint = settings.iter().rev().find(|(key, _)| *key == AzureConfigKey::Endpoint);
    endpoint.map_or(Ok(()), |(_, endpoint)| check_endpoint(endpoint))?;
    let builder = MicrosoftAzureBuilder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(Observing)
        .with_url(&url.root);
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let more = [
        builder.get_config_value(&AzureConfigKey::AccountName),
        builder.get_config_value(&AzureConfigKey::Endpoint),
    ];
    Ok(both(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_of_servers() {
        for endpoint in [
            "http://127.0.0.1:9000",
            "https://[::1]:9000/",
            "https://s3.eu-central-1.amazonaws.com",
            "http://minio_1.local:80/base",
            "http://LOCALHOST",
        ] {
            check_endpoint(endpoint).unwrap();
        }
        for endpoint in [
            "",
            "HIDDEN",
            "localhost:9000",
            "ftp://HIDDEN",
            "http://",
            "http:///HIDDEN",
            "http://HIDDEN:99999",
            "http://HIDDEN@127.0.0.1:1:1",
            "http://user:HIDDEN@127.0.0.1:9000",
            "http://127.0.0.1:9000?token=HIDDEN",
            "http://127.0.0.1:9000/#HIDDEN",
            "http://HIDDEN{}/",
            "http://h\u{f6}st",
            "http://a b",
            "http://127.0.0.1:9000\n",
        ] {
            let error = check_endpoint(endpoint).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, StoreError::Address(_)) && !text.contains("HIDDEN"),
                "{endpoint}: {text}"
            );
            assert!(text.contains("http://HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn a_store_with_such_an_endpoint_is_refused_before_anything_is_sent() {
        for (address, key) in [("s3://bucket/x", "endpoint"), ("s3://bucket/x", "aws_endpoint_url")] {
            let url = ObjectUrl::parse(std::path::Path::new(address)).unwrap();
            let options = StoreOptions::new([(key, "http://HIDDEN@127.0.0.1:1:1")]).unwrap();
            let error = connect(&url, &options).map(drop).unwrap_err().to_string();
            assert!(error.contains("endpoint") && !error.contains("HIDDEN"), "{error}");
        }
    }
}
