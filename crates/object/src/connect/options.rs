//! Options of a store that its address does not contain.

use super::cache::{CacheOptions, CacheSettings};
#[cfg(feature = "client")]
use super::url::Provider;
#[cfg(feature = "client")]
use crate::client::SendOptions;
use crate::shaper::{Shaper, Shaping};
#[cfg(feature = "client")]
use bathyal_store::Prices;
use bathyal_store::StoreError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The default for the most requests in flight: a distant store needs hundreds, and each holds a connection.
pub(crate) const DEFAULT_MAX_REQUESTS: usize = 512;
/// The largest limit on requests in flight; more would exceed the usual limit on a process's open
/// connections.
const LARGEST_MAX_REQUESTS: usize = 4096;

/// Keys and values that a store is opened with; they take precedence over the environment. The keys are those
/// of the provider (`region`, `endpoint`, `access_key_id`, `account_name`, ...), as environment variables
/// name them, with or without their prefix (`aws_region`), and these:
///
/// | key | value |
/// |---|---|
/// | `max_requests` | the most requests in flight, 1 to 4096; default 512 |
/// | `hedge` | `on` or `off`: send a late request a second time; default on |
/// | `scratch` | the local folder in which an index is built before it is uploaded |
/// | `profile` | the profile of `~/.aws` for credentials, region and endpoint |
/// | `price_reads` | dollars for a million read requests; default: list price, s3 0.40, gs 0.40, az 0.50 |
/// | `price_gigabyte` | dollars for 10^9 bytes that leave the store; default 0, as within a region |
/// | `cache_memory` | bytes of memory for cached blocks (`2GB`); default 256 MiB with any cache option |
/// | `cache` | the local folder for cached blocks; one process uses it at a time |
/// | `cache_disk` | bytes of disk for cached blocks; default 10 GB if a folder is given |
/// | `cache_policy` | `s3-fifo` (default), `slru`, `lru`: see [`CachePolicy`](crate::CachePolicy) |
/// | `emulate` | emulates a slower store: `paper`, `s3`, `s3-express`, `rack` (see [`Shaping`]) |
#[derive(Clone, Default)]
pub struct StoreOptions {
    values: BTreeMap<String, String>,
    /// Delays requests, as set by `emulate` or by a study.
    pub shaper: Option<Arc<Shaper>>,
    /// The most requests in flight; 0 means the default.
    pub(crate) max_requests: usize,
    /// True if late requests are hedged; `None` means the default.
    hedge: Option<bool>,
    /// The folder of drafts.
    pub(crate) scratch: Option<PathBuf>,
    /// The profile of `~/.aws`.
    pub(crate) profile: Option<String>,
    /// Prices in dollars, if given.
    price_reads: Option<f64>,
    price_gigabyte: Option<f64>,
    /// The options of the cache.
    cache: CacheSettings,
}

impl StoreOptions {
    /// Parses pairs of a key and a value; a later pair replaces an earlier one of the same key.
    ///
    /// # Errors
    /// [`StoreError::Address`] for invalid values. Keys of a provider are checked once the provider is known.
    pub fn new<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<StoreOptions, StoreError> {
        let mut options = StoreOptions::default();
        for (key, value) in pairs {
            options.set(key.into(), value.into())?;
        }
        Ok(options)
    }

    /// Parses texts of the form `KEY=VALUE`.
    ///
    /// # Errors
    /// [`StoreError::Address`].
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<StoreOptions, StoreError> {
        let pair = |text: &str| match text.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(StoreError::Address(
                "a store option is written KEY=VALUE, for example region=eu-central-1".into(),
            )),
        };
        StoreOptions::new(texts.iter().map(|text| pair(text.as_ref())).collect::<Result<Vec<_>, _>>()?)
    }

    fn set(&mut self, key: String, value: String) -> Result<(), StoreError> {
        let key = key.trim().to_ascii_lowercase();
        let refuse = |what: String| Err(StoreError::Address(format!("store option {key}: {what}")));
        match self.cache.set(&key, &value) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(what) => return refuse(what),
        }
        match key.as_str() {
            "" => return Err(StoreError::Address("a store option needs a key: KEY=VALUE".into())),
            "max_requests" => match value.parse() {
                Ok(requests @ 1..=LARGEST_MAX_REQUESTS) => self.max_requests = requests,
                _ => return refuse(format!("must be a number from 1 to {LARGEST_MAX_REQUESTS}")),
            },
            "hedge" => match value.as_str() {
                "on" | "true" => self.hedge = Some(true),
                "off" | "false" => self.hedge = Some(false),
                _ => return refuse("must be on or off".into()),
            },
            "price_reads" | "price_gigabyte" => {
                let Some(price) = value.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0)
                else {
                    return refuse("must be a number of dollars".into());
                };
                let field =
                    if key == "price_reads" { &mut self.price_reads } else { &mut self.price_gigabyte };
                *field = Some(price);
            }
            "scratch" => self.scratch = Some(PathBuf::from(value)),
            "profile" | "aws_profile" => self.profile = Some(value),
            "emulate" => self.shaper = Some(Arc::new(Shaper::new(Shaping::named(&value)?, 0))),
            _ => {
                self.values.insert(key, value);
            }
        }
        Ok(())
    }

    /// Returns the prices of a store of `provider`: the given prices, or else its list prices.
    #[cfg(feature = "client")]
    pub(crate) fn prices(&self, provider: Provider) -> Prices {
        let listed = match provider {
            Provider::S3 | Provider::Gcs => 0.4,
            Provider::Azure => 0.5,
            Provider::Memory => 0.0,
        };
        let million_reads = self.price_reads.unwrap_or(listed);
        Prices { million_reads, gigabyte: self.price_gigabyte.unwrap_or(0.0) }
    }

    /// Returns the keys and values for the provider.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns all keys and values, for a store that is no object store. `whose` is its kind, for messages.
    ///
    /// # Errors
    /// [`StoreError::Address`] if an option was given that only object stores have.
    pub fn plain(&self, whose: &str) -> Result<impl Iterator<Item = (&str, &str)>, StoreError> {
        let unsupported = [
            ("cache", !self.cache.is_empty()),
            ("emulate", self.shaper.is_some()),
            ("profile", self.profile.is_some()),
            ("max_requests", self.max_requests != 0),
            ("hedge", self.hedge.is_some()),
            ("price_reads", self.price_reads.is_some()),
            ("price_gigabyte", self.price_gigabyte.is_some()),
        ];
        if let Some((key, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
            return Err(StoreError::Address(format!(
                "store option {key}: is an option of object stores, not of {whose}"
            )));
        }
        let scratch = self.scratch.as_ref().map(|folder| {
            let text = folder
                .to_str()
                .ok_or_else(|| StoreError::Address("store option scratch: is not UTF-8".into()));
            text.map(|text| ("scratch", text))
        });
        Ok(self.values().chain(scratch.transpose()?))
    }

    /// Returns true if no option was given.
    pub fn is_empty(&self) -> bool {
        let StoreOptions {
            values,
            shaper,
            max_requests,
            hedge,
            scratch,
            profile,
            price_reads,
            price_gigabyte,
            cache,
        } = self;
        values.is_empty()
            && shaper.is_none()
            && *max_requests == 0
            && hedge.is_none()
            && scratch.is_none()
            && profile.is_none()
            && price_reads.is_none()
            && price_gigabyte.is_none()
            && cache.is_empty()
    }

    /// Returns the options of the cache that objects are read through, if any.
    pub fn cache(&self) -> Option<CacheOptions> {
        self.cache.options()
    }

    /// Returns the options for sending requests.
    #[cfg(feature = "client")]
    pub(super) fn send_options(&self) -> SendOptions {
        let (hedge, shaper) = (self.hedge(), self.shaper.clone());
        SendOptions { max_requests: self.max_requests(), hedge, shaper }
    }

    /// Returns true if late requests are hedged.
    #[cfg(feature = "client")]
    pub(super) fn hedge(&self) -> bool {
        self.hedge.unwrap_or(true)
    }

    /// Returns the most requests in flight.
    pub(crate) fn max_requests(&self) -> usize {
        if self.max_requests == 0 { DEFAULT_MAX_REQUESTS } else { self.max_requests }
    }
}

impl fmt::Debug for StoreOptions {
    /// Prints the keys alone, since values may be secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.values.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_and_secrets_are_not_shown() {
        let options =
            StoreOptions::parse(&["Region=eu", "secret_access_key=HIDDEN=", "max_requests=8", "hedge=off"])
                .unwrap();
        assert_eq!(
            options.values().collect::<Vec<_>>(),
            [("region", "eu"), ("secret_access_key", "HIDDEN=")]
        );
        assert_eq!((options.max_requests(), options.hedge, options.is_empty()), (8, Some(false), false));
        assert!(!format!("{options:?}").contains("HIDDEN"));
        for text in ["x", "=y", "max_requests=0", "max_requests=many", "hedge=maybe", "emulate=moon"] {
            assert!(matches!(StoreOptions::parse(&[text]), Err(StoreError::Address(_))), "{text}");
        }
        let error = StoreOptions::parse(&["SECRET"]).unwrap_err().to_string();
        assert!(!error.contains("SECRET"), "{error}");
    }

    #[test]
    fn each_option_alone_counts_as_given() {
        assert!(StoreOptions::default().is_empty());
        let of_object_stores = [
            "max_requests=8",
            "hedge=on",
            "hedge=off",
            "profile=work",
            "price_reads=0",
            "price_gigabyte=0",
            "cache_memory=64MiB",
            "cache=/somewhere",
            "cache_disk=0",
            "cache_policy=lru",
            "emulate=s3",
        ];
        for text in of_object_stores {
            let options = StoreOptions::parse(&[text]).unwrap();
            assert!(!options.is_empty(), "{text}");
            assert!(options.plain("memory nodes").is_err(), "{text}");
        }
        for text in ["scratch=/somewhere", "region=eu"] {
            let options = StoreOptions::parse(&[text]).unwrap();
            assert!(!options.is_empty() && options.plain("memory nodes").is_ok(), "{text}");
        }
    }
}
