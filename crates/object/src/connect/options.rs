//! How a store is reached, as far as its address does not say.

use super::cache::{CacheOptions, Wanted};
#[cfg(feature = "client")]
use super::url::Provider;
#[cfg(feature = "client")]
use crate::client::Sending;
use crate::shaper::{Shaper, Shaping};
#[cfg(feature = "client")]
use bathyal_store::Prices;
use bathyal_store::StoreError;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Requests in flight at most: a store far away takes hundreds, and each holds a connection.
pub(crate) const DEFAULT_MOST_REQUESTS: usize = 512;
/// More would be more connections than a process may usually have open.
const MOST_REQUESTS: usize = 4096;

/// Keys and values that a store is opened with, before what the environment says. The keys are those of the provider
/// (`region`, `endpoint`, `access_key_id`, `account_name`, ...), as environment variables name them, with or without their
/// prefix (`aws_region`), and these:
///
/// | key | value |
/// |---|---|
/// | `max_requests` | requests in flight at most, 1 to 4096; default 512 |
/// | `hedge` | `on` or `off`: whether a request that is late is sent a second time; default on |
/// | `scratch` | the folder in which an index lies while it is built, before it is uploaded |
/// | `profile` | the profile of `~/.aws` to take credentials, region and endpoint from |
/// | `price_reads` | dollars for a million requests that read; default what the provider lists: s3 0.40, gs 0.40, az 0.50 |
/// | `price_gigabyte` | dollars for 10^9 bytes that leave the store; default 0, as within a region |
/// | `cache_memory` | bytes of memory to keep blocks of objects in (`2GB`, `512MiB`); default 256 MiB if any cache is wanted |
/// | `cache` | the folder of this machine to keep blocks of objects in; one process uses it at a time |
/// | `cache_disk` | bytes of disk to keep blocks of objects in; default 10 GB if a folder is named |
/// | `cache_policy` | what is given up first: `s3-fifo` (default), `slru`, `lru` (see [`CachePolicy`](crate::CachePolicy)) |
/// | `emulate` | makes the store slower: `paper`, `s3`, `s3-express`, `rack` (see [`Shaping`]) |
#[derive(Clone, Default)]
pub struct StoreOptions {
    values: BTreeMap<String, String>,
    /// Slows the store down; what `emulate` names, or whatever a study needs.
    pub shaper: Option<Arc<Shaper>>,
    /// Requests in flight at most; 0 is the default.
    pub(crate) max_requests: usize,
    /// Whether late requests are not sent again.
    pub(crate) no_hedge: bool,
    /// Where drafts lie.
    pub(crate) scratch: Option<PathBuf>,
    /// The profile of `~/.aws`.
    pub(crate) profile: Option<String>,
    /// What is charged, as far as it was said.
    price_reads: Option<f64>,
    price_gigabyte: Option<f64>,
    /// What is said of a cache.
    cache: Wanted,
}

impl StoreOptions {
    /// Options from pairs of a key and a value; a later one takes the place of an earlier one.
    ///
    /// # Errors
    /// [`StoreError::Address`] for values that make no sense. Keys of a provider are checked when it is known which one it is.
    pub fn new<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<StoreOptions, StoreError> {
        let mut options = StoreOptions::default();
        for (key, value) in pairs {
            options.set(key.into(), value.into())?;
        }
        Ok(options)
    }

    /// Options from texts `KEY=VALUE`.
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
                Ok(requests @ 1..=MOST_REQUESTS) => self.max_requests = requests,
                _ => return refuse(format!("is a number from 1 to {MOST_REQUESTS}")),
            },
            "hedge" => match value.as_str() {
                "on" | "true" => self.no_hedge = false,
                "off" | "false" => self.no_hedge = true,
                _ => return refuse("is on or off".into()),
            },
            "price_reads" | "price_gigabyte" => {
                let Some(price) = value.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0)
                else {
                    return refuse("is a number of dollars".into());
                };
                let said =
                    if key == "price_reads" { &mut self.price_reads } else { &mut self.price_gigabyte };
                *said = Some(price);
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

    /// What a store of `provider` charges: what was said, and what it lists.
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

    /// Keys and values for the provider.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Keys and values as they were said, of a store that is none of objects: `whose`.
    ///
    /// # Errors
    /// [`StoreError::Address`] if something was said that only stores of objects know.
    pub fn plain(&self, whose: &str) -> Result<impl Iterator<Item = (&str, &str)>, StoreError> {
        let unknown = [
            ("cache", self.cache.options().is_some()),
            ("emulate", self.shaper.is_some()),
            ("profile", self.profile.is_some()),
            ("max_requests", self.max_requests != 0),
            ("hedge", self.no_hedge),
            ("price_reads", self.price_reads.is_some()),
            ("price_gigabyte", self.price_gigabyte.is_some()),
        ];
        if let Some((key, _)) = unknown.iter().find(|(_, said)| *said) {
            return Err(StoreError::Address(format!(
                "store option {key}: is for stores of objects, not for {whose}"
            )));
        }
        let scratch = self.scratch.as_ref().map(|folder| {
            let text = folder
                .to_str()
                .ok_or_else(|| StoreError::Address("store option scratch: is no text in UTF-8".into()));
            text.map(|text| ("scratch", text))
        });
        Ok(self.values().chain(scratch.transpose()?))
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
            && self.shaper.is_none()
            && self.scratch.is_none()
            && self.profile.is_none()
            && self.cache.options().is_none()
            && (self.max_requests, self.no_hedge) == (0, false)
    }

    /// The cache that objects are read through; `None` for none.
    pub fn cache(&self) -> Option<CacheOptions> {
        self.cache.options()
    }

    /// How requests are sent.
    #[cfg(feature = "client")]
    pub(super) fn sending(&self) -> Sending {
        let (hedge, shaper) = (!self.no_hedge, self.shaper.clone());
        Sending { most_requests: self.most_requests(), hedge, shaper }
    }

    /// Requests in flight at most.
    pub(crate) fn most_requests(&self) -> usize {
        if self.max_requests == 0 { DEFAULT_MOST_REQUESTS } else { self.max_requests }
    }
}

impl fmt::Debug for StoreOptions {
    /// Keys alone: values may be secrets.
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
        assert_eq!((options.most_requests(), options.no_hedge, options.is_empty()), (8, true, false));
        assert!(!format!("{options:?}").contains("HIDDEN"));
        for text in ["x", "=y", "max_requests=0", "max_requests=many", "hedge=maybe", "emulate=moon"] {
            assert!(matches!(StoreOptions::parse(&[text]), Err(StoreError::Address(_))), "{text}");
        }
        let error = StoreOptions::parse(&["SECRET"]).unwrap_err().to_string();
        assert!(!error.contains("SECRET"), "{error}");
    }
}
