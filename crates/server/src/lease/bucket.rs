//! The lease of a bucket: numbered objects, of which the greatest number is the lease.
//!
//! A server takes the lease by creating the next number, which only one can do. It renews it by writing the
//! object again. Others see that it changes; whoever has seen no change for longer than the lease lasts, by
//! its own clock, creates the next number. Clocks of machines are not compared.

use super::record::LeaseRecord;
use super::{Found, Holder};
use crate::failure::Refusal;
use bathyal_collection::CollectionError;
use bathyal_console::Kind;
use bathyal_object::Claims;
use bathyal_store::StoreError;
use std::time::{Duration, Instant};

/// Attempts to take the lease. Each failed one means that another server has taken it.
const MAX_ATTEMPTS: usize = 8;

/// The lease of a bucket.
#[derive(Debug)]
pub(super) struct BucketLease {
    claims: Claims,
    record: LeaseRecord,
    /// The number that this server has created and has not lost.
    own: Option<u64>,
    seen: Option<SeenRecord>,
}

/// The record of another server as it was last seen.
#[derive(Debug)]
struct SeenRecord {
    number: u64,
    content: Vec<u8>,
    /// When it was first seen so.
    since: Instant,
}

fn failed(error: StoreError) -> Refusal {
    CollectionError::from(error).into()
}

/// Returns the time without a change after which a lease is over for others: longer than its holder counts,
/// whose clock may run slower.
fn patience(duration: Duration) -> Duration {
    duration + duration / 4
}

impl BucketLease {
    pub(super) fn new(claims: Claims, record: LeaseRecord) -> BucketLease {
        BucketLease { claims, record, own: None, seen: None }
    }

    /// Renews the lease if this server has it, takes it if it is free, or returns its holder. Blocks.
    pub(super) fn look(&mut self) -> Result<Found, Refusal> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(until) = self.renew()? {
                return Ok(Found::Ours { until: Some(until) });
            }
            let newest = self.claims.newest().map_err(failed)?;
            let next = match newest {
                None => 1,
                Some((number, content)) => {
                    let record = LeaseRecord::parse(&content, &self.claims.address(number))?;
                    if record.released {
                        // Its holder does not renew it any more.
                        self.seen = None;
                    } else if !self.is_over(number, content, record.duration()) {
                        return Ok(Found::Theirs(Holder::of(record)));
                    }
                    number + 1
                }
            };
            if let Some(until) = self.take(next)? {
                return Ok(Found::Ours { until: Some(until) });
            }
        }
        let message = "other servers take over writing one after the other; send the request again";
        Err(Refusal::new(Kind::Busy, message))
    }

    /// Notes what was seen. Returns true if it has not changed for longer than the lease lasts.
    fn is_over(&mut self, number: u64, content: Vec<u8>, duration: Duration) -> bool {
        match &self.seen {
            Some(seen) if seen.number == number && seen.content == content => {
                seen.since.elapsed() > patience(duration)
            }
            _ => {
                self.seen = Some(SeenRecord { number, content, since: Instant::now() });
                false
            }
        }
    }

    /// Creates a number. Returns the moment until which this server holds the lease; `None` if another one
    /// came first.
    fn take(&mut self, number: u64) -> Result<Option<Instant>, Refusal> {
        let before = self.seen.take();
        let began = Instant::now();
        self.record.renewal += 1;
        if !self.claims.create(number, &self.record.to_bytes()?).map_err(failed)? {
            return Ok(None);
        }
        // A server that waited long before it created the number may have been overtaken by several others,
        // which have removed the numbers below theirs.
        if self.claims.numbers().map_err(failed)?.last() != Some(&number) {
            return Ok(None);
        }
        self.own = Some(number);
        // The former holder may have renewed its lease after it was last seen, and before the new number was
        // there. It finds the number when it renews the next time.
        if let Some(before) = before.filter(|before| before.number + 1 == number) {
            let now = self.claims.read(before.number).map_err(failed)?;
            if now.is_some_and(|now| now != before.content) {
                std::thread::sleep(patience(self.record.duration()));
                return self.renew();
            }
        }
        if let Err(error) = self.claims.remove_below(number) {
            tracing::warn!(%error, "former leases could not be removed");
        }
        Ok(Some(began + self.record.duration()))
    }

    /// Renews the lease. Returns the moment until which this server holds it; `None` if it does not hold it,
    /// or if another server has taken over.
    pub(super) fn renew(&mut self) -> Result<Option<Instant>, Refusal> {
        let Some(own) = self.own else { return Ok(None) };
        let began = Instant::now();
        self.record.renewal += 1;
        // The object is written before the numbers are listed: a server that creates the next number without
        // having seen this renewal is then found.
        self.claims.replace(own, &self.record.to_bytes()?).map_err(failed)?;
        if self.claims.numbers().map_err(failed)?.last().is_none_or(|newest| *newest == own) {
            return Ok(Some(began + self.record.duration()));
        }
        self.own = None;
        Ok(None)
    }

    /// Gives up the lease, if this server has it.
    pub(super) fn release(&mut self) {
        let Some(own) = self.own.take() else { return };
        let mut released = self.record.clone();
        released.released = true;
        let written = released.to_bytes().and_then(|bytes| self.claims.replace(own, &bytes).map_err(failed));
        if let Err(refusal) = written {
            tracing::warn!(error = refusal.message, "the lease could not be released; it ends by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::StoreOptions;
    use bathyal_object::ObjectUrl;
    use std::path::Path;

    const SHORT: Duration = Duration::from_millis(40);
    const LONG: Duration = Duration::from_secs(3600);

    fn claims(bucket: &str) -> Claims {
        let url = ObjectUrl::parse(Path::new(&format!("memory://lease-{bucket}/lease"))).unwrap();
        Claims::new(&url, &StoreOptions::default()).unwrap()
    }

    fn lease(bucket: &str, name: &str, duration: Duration) -> BucketLease {
        let record = LeaseRecord::new(name, Some("http://127.0.0.1:1"), Some(duration));
        BucketLease::new(claims(bucket), record)
    }

    fn holder(lease: &mut BucketLease) -> String {
        match lease.look().unwrap() {
            Found::Ours { .. } => "ours".into(),
            Found::Theirs(holder) => holder.identity,
        }
    }

    #[test]
    fn a_lease_that_is_renewed_is_not_taken_and_a_released_one_is_at_once() {
        let (mut a, mut b) = (lease("kept", "a", LONG), lease("kept", "b", LONG));
        assert_eq!(
            (holder(&mut a), holder(&mut b), holder(&mut a)),
            ("ours".into(), "a".into(), "ours".into())
        );
        a.release();
        assert_eq!((holder(&mut b), holder(&mut a)), ("ours".into(), "b".into()));
        // The objects of former leases are removed.
        assert_eq!(claims("kept").numbers().unwrap(), [2]);
        assert!(a.renew().unwrap().is_none());
    }

    #[test]
    fn a_lease_without_renewals_is_taken_and_its_holder_notices() {
        let (mut a, mut b) = (lease("dead", "a", SHORT), lease("dead", "b", SHORT));
        assert_eq!((holder(&mut a), holder(&mut b)), ("ours".into(), "a".into()));
        while holder(&mut b) != "ours" {
            std::thread::sleep(SHORT / 4);
        }
        assert!(a.renew().unwrap().is_none());
        assert_eq!((holder(&mut a), holder(&mut b)), ("b".into(), "ours".into()));
    }

    #[test]
    fn a_renewal_that_was_not_seen_delays_the_next_holder() {
        let (mut a, mut b) = (lease("late", "a", SHORT), lease("late", "b", SHORT));
        assert_eq!((holder(&mut a), holder(&mut b)), ("ours".into(), "a".into()));
        // As if the renewal came between the last look and the creation.
        assert!(a.renew().unwrap().is_some());
        let began = Instant::now();
        assert!(b.take(2).unwrap().is_some());
        assert!(began.elapsed() >= patience(SHORT));
        assert!(a.renew().unwrap().is_none());
    }

    #[test]
    fn one_of_many_takes_the_lease() {
        let mut all: Vec<_> = (0..6).map(|i| lease("many", &i.to_string(), LONG)).collect();
        std::thread::scope(|scope| {
            let found: Vec<_> = all.iter_mut().map(|one| scope.spawn(|| holder(one))).collect();
            let found: Vec<String> = found.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(found.iter().filter(|name| *name == "ours").count(), 1, "{found:?}");
        });
    }

    #[test]
    fn garbage_is_named() {
        let mut a = lease("garbage", "a", SHORT);
        claims("garbage").create(7, b"garbage").unwrap();
        let refused = a.look().unwrap_err();
        assert_eq!(refused.kind, Kind::Damaged);
        assert!(refused.message.contains("lease/00000000000000000007"), "{}", refused.message);
    }
}
