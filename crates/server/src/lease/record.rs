//! The record by which the holder of a lease tells others of itself, as JSON in a file or an object.

use crate::failure::Refusal;
use bathyal_console::Kind;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The version of the format that this program writes and reads.
const VERSION: u32 = 1;
/// The longest lease in a record: whoever reads a longer one would wait for it.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// The record of the holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    bathyal_lease: u32,
    /// Identifies the server among all that ever were.
    pub(super) holder: String,
    /// The address under which other servers reach it; `None` if it has none.
    pub(super) address: Option<String>,
    /// How long it writes after it has renewed the lease, in milliseconds; 0 if it writes until it ends.
    duration_ms: u64,
    /// Counts the renewals, so that each changes the record.
    pub(super) renewal: u64,
    /// True if it has given up the lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) released: bool,
}

#[derive(Deserialize)]
struct RecordVersion {
    bathyal_lease: u32,
}

impl LeaseRecord {
    pub(super) fn new(holder: &str, address: Option<&str>, duration: Option<Duration>) -> LeaseRecord {
        LeaseRecord {
            bathyal_lease: VERSION,
            holder: holder.to_owned(),
            address: address.map(str::to_owned),
            duration_ms: duration.map_or(0, |duration| duration.as_millis() as u64),
            renewal: 0,
            released: false,
        }
    }

    pub(super) fn duration(&self) -> Duration {
        Duration::from_millis(self.duration_ms)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Refusal> {
        serde_json::to_vec(self)
            .map_err(|error| Refusal::new(Kind::Internal, format!("the record of a lease: {error}")))
    }

    /// Parses a record. `path` is its path or address, for messages.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<LeaseRecord, Refusal> {
        let damaged = |reason: String| {
            let message = format!(
                "{}: is not the record of the server that writes ({reason}); remove it once no server of \
                 this data runs",
                path.display()
            );
            Refusal::new(Kind::Damaged, message)
        };
        let RecordVersion { bathyal_lease } =
            serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if bathyal_lease > VERSION {
            let message = format!(
                "{}: is version {bathyal_lease} of the record of the server that writes, and this Bathyal \
                 reads versions up to {VERSION}; upgrade Bathyal",
                path.display()
            );
            return Err(Refusal::new(Kind::LaterVersion, message));
        }
        let record: LeaseRecord =
            serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if record.duration() > MAX_DURATION {
            return Err(damaged(format!("its duration of {} ms is more than a day", record.duration_ms)));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_others_are_refused() {
        let path = Path::new("s3://b/.bathyal/lease/1");
        let record = LeaseRecord {
            renewal: 3,
            ..LeaseRecord::new("abc", Some("http://x:1"), Some(Duration::from_secs(5)))
        };
        assert_eq!(LeaseRecord::parse(&record.to_bytes().unwrap(), path).unwrap(), record);
        for (text, part) in [
            ("", "s3://b/.bathyal/lease/1: is not the record"),
            ("{\"bathyal_lease\": 1}", "missing field"),
            ("\u{1}garbage", "remove it once"),
            ("{\"bathyal_lease\": 2}", "upgrade Bathyal"),
            (
                "{\"bathyal_lease\":1,\"holder\":\"a\",\"address\":null,\"duration_ms\":1e18,\"renewal\":0}",
                "is not the record",
            ),
            (
                "{\"bathyal_lease\":1,\"holder\":\"a\",\"address\":null,\"duration_ms\":86400001,\
                 \"renewal\":0}",
                "more than a day",
            ),
        ] {
            let refused = LeaseRecord::parse(text.as_bytes(), path).unwrap_err();
            assert!(refused.message.contains(part), "{text}: {}", refused.message);
        }
    }
}
