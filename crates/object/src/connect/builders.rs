//! Makes the client of a store from its address, options, environment and profile. Equal clients are shared.

use super::aws_profile;
use super::options::StoreOptions;
use super::url::{ObjectUrl, Provider};
use crate::client::{Client, ConnectedStore, ObservingConnector};
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

/// The longest time to connect; a slower connection is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time without any byte of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for a whole response, such as a large range over a slow link.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which idle connections are kept; most servers keep them as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The store of `memory://`, one per process.
static MEMORY: LazyLock<Arc<InMemory>> = LazyLock::new(Arc::default);
/// The clients in use, by the fingerprint of their parameters.
static CLIENTS: LazyLock<Mutex<BTreeMap<u64, Weak<Client>>>> = LazyLock::new(Mutex::default);

/// Returns the client for the bucket of `url`, which is shared with all callers with the same parameters.
pub(crate) fn connect(url: &ObjectUrl, options: &StoreOptions) -> Result<Arc<Client>, StoreError> {
    let key = fingerprint(url, options);
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|_, client| client.strong_count() > 0);
    if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
        return Ok(client);
    }
    // A provider that was installed before is kept.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The client's timers and connections belong to the runtime that it is made in.
    let runtime = crate::runtime::runtime()?;
    let _inside = runtime.enter();
    let connected = match url.provider {
        Provider::S3 => s3(url, options)?,
        Provider::Gcs => gcs(url, options)?,
        Provider::Azure => azure(url, options)?,
        Provider::Memory => {
            refuse_all(options)?;
            connected_store(MEMORY.clone(), url, [])
        }
    };
    let client = Arc::new(Client::new(connected, url.provider.name(), options.send_options()));
    clients.insert(key, Arc::downgrade(&client));
    Ok(client)
}

/// Wraps a store. `more` are settings that, with the address, identify the store.
fn connected_store<S: ObjectStore + MultipartStore>(
    store: Arc<S>,
    url: &ObjectUrl,
    more: impl IntoIterator<Item = Option<String>>,
) -> ConnectedStore {
    let more: Vec<String> = more.into_iter().map(Option::unwrap_or_default).collect();
    let identity = format!("{} {more:?}", url.root);
    ConnectedStore { store: store.clone(), multipart: store, identity }
}

/// Hashes the parameters of a client: bucket, options, environment and process.
fn fingerprint(url: &ObjectUrl, options: &StoreOptions) -> u64 {
    let mut environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| ["AWS_", "GOOGLE_", "AZURE_", "HOME"].iter().any(|prefix| key.starts_with(prefix)))
        .collect();
    environment.sort();
    let values: Vec<_> = options.values().collect();
    let shaper = options.shaper.as_ref().map(|shaper| Arc::as_ptr(shaper) as usize);
    let (max_requests, hedge) = (options.max_requests(), options.hedge());
    let all = format!(
        "{}\0{values:?}\0{environment:?}\0{:?}\0{shaper:?}\0{max_requests}\0{hedge}\0{}",
        url.root,
        options.profile,
        std::process::id()
    );
    xxhash_rust::xxh3::xxh3_64(all.as_bytes())
}

fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_http1_only()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_timeout(RESPONSE_TIMEOUT)
        .with_pool_idle_timeout(IDLE_TIMEOUT)
        .with_pool_max_idle_per_host(usize::MAX)
        // A store may compress objects of unknown type, and then decompress megabytes for each range
        // (SeaweedFS).
        .with_default_content_type("application/octet-stream")
}

/// Disables the library's retries: the client retries and counts requests itself.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns the environment variables of a provider as keys and values.
fn environment(prefix: &'static str) -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(move |(key, value)| {
        let key = key.into_string().ok()?.to_ascii_lowercase();
        Some((key.starts_with(prefix).then_some(key)?, value.into_string().ok()?))
    })
}

/// Returns the settings in the order `before`, environment, options; later ones take precedence. Unknown keys
/// are skipped in the environment and refused in the options.
fn settings<K: FromStr>(
    prefix: &'static str,
    before: impl IntoIterator<Item = (&'static str, String)>,
    options: &StoreOptions,
    provider: Provider,
) -> Result<Vec<(K, String)>, StoreError> {
    let before = before.into_iter().filter_map(|(key, value)| Some((key.parse().ok()?, value)));
    let from_environment = environment(prefix).filter_map(|(key, value)| Some((key.parse().ok()?, value)));
    let mut all: Vec<(K, String)> = before.chain(from_environment).collect();
    for (key, value) in options.values() {
        let known = key.parse().map_err(|_| unknown(key, provider))?;
        all.push((known, value.to_owned()));
    }
    Ok(all)
}

fn unknown(key: &str, provider: Provider) -> StoreError {
    StoreError::Address(format!(
        "store option {key}: a store of {}:// has no such option; use the name of an environment variable \
         (aws_region, azure_storage_account_name, google_service_account, ...), or one of max_requests, \
         hedge, scratch, profile, price_reads, price_gigabyte, cache, cache_memory, cache_disk, \
         cache_policy, emulate",
        provider.name()
    ))
}

fn refuse_all(options: &StoreOptions) -> Result<(), StoreError> {
    options.values().next().map_or(Ok(()), |(key, _)| Err(unknown(key, Provider::Memory)))
}

fn refused(url: &ObjectUrl, error: &object_store::Error) -> StoreError {
    StoreError::Address(format!("{}: the store's settings are invalid: {error}", url.root))
}

/// Returns an error if no request can be sent to an endpoint. The error does not repeat the endpoint, which
/// may contain a password.
fn check_endpoint(endpoint: &str) -> Result<(), StoreError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]".contains(&byte);
    let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    // Other programs ignore one of three slashes in a row.
    let host = host.filter(|host| !host.starts_with('/') && endpoint.bytes().all(is_allowed));
    let address = host.and_then(|_| url::Url::parse(endpoint).ok()).filter(|url| url.has_host());
    address.map(drop).ok_or_else(|| {
        StoreError::Address(
            "store option endpoint: is not the address of a server; write http://HOST:PORT or https://HOST, \
             without a user name, a password or a question mark. Credentials have options of their own"
                .into(),
        )
    })
}

fn s3(url: &ObjectUrl, options: &StoreOptions) -> Result<ConnectedStore, StoreError> {
    let profile = aws_profile::read(options.profile.as_deref())?;
    let settings: Vec<(AmazonS3ConfigKey, String)> = settings("aws_", profile, options, url.provider)?;
    let endpoint = settings.iter().rev().find(|(key, _)| *key == AmazonS3ConfigKey::Endpoint);
    endpoint.map_or(Ok(()), |(_, endpoint)| check_endpoint(endpoint))?;
    let plain = endpoint.is_some_and(|(_, endpoint)| endpoint.starts_with("http://"));
    let mut builder = AmazonS3Builder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(ObservingConnector)
        .with_url(&url.root);
    if plain {
        // An endpoint with http:// asks for an unencrypted connection.
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let more = [builder.get_config_value(&AmazonS3ConfigKey::Endpoint)];
    Ok(connected_store(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, more))
}

fn gcs(url: &ObjectUrl, options: &StoreOptions) -> Result<ConnectedStore, StoreError> {
    let settings: Vec<(GoogleConfigKey, String)> = settings("google_", [], options, url.provider)?;
    let builder = GoogleCloudStorageBuilder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(ObservingConnector)
        .with_url(&url.root);
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    Ok(connected_store(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, []))
}

fn azure(url: &ObjectUrl, options: &StoreOptions) -> Result<ConnectedStore, StoreError> {
    let settings: Vec<(AzureConfigKey, String)> = settings("azure_", [], options, url.provider)?;
    let endpoint = settings.iter().rev().find(|(key, _)| *key == AzureConfigKey::Endpoint);
    endpoint.map_or(Ok(()), |(_, endpoint)| check_endpoint(endpoint))?;
    let builder = MicrosoftAzureBuilder::new()
        .with_client_options(client_options())
        .with_retry(retries())
        .with_http_connector(ObservingConnector)
        .with_url(&url.root);
    let builder = settings.into_iter().fold(builder, |builder, (key, value)| builder.with_config(key, value));
    let more = [
        builder.get_config_value(&AzureConfigKey::AccountName),
        builder.get_config_value(&AzureConfigKey::Endpoint),
    ];
    Ok(connected_store(Arc::new(builder.build().map_err(|e| refused(url, &e))?), url, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_must_be_the_address_of_a_server() {
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
    fn an_invalid_endpoint_is_refused_before_any_request() {
        for (address, key) in [("s3://bucket/x", "endpoint"), ("s3://bucket/x", "aws_endpoint_url")] {
            let url = ObjectUrl::parse(std::path::Path::new(address)).unwrap();
            let options = StoreOptions::new([(key, "http://HIDDEN@127.0.0.1:1:1")]).unwrap();
            let error = connect(&url, &options).map(drop).unwrap_err().to_string();
            assert!(error.contains("endpoint") && !error.contains("HIDDEN"), "{error}");
        }
    }
}
