//! Numbered objects in a folder of a bucket, by which processes agree on one of them.
//!
//! A number is created once: of two processes that create the same one, the second is told. The process that
//! created a number may replace its content, and nobody else does. So only conditional creation is needed,
//! which every provider has. What the numbers mean is up to the caller.

use crate::client::{Cause, Client, Created, RequestFault};
use crate::connect::{ObjectUrl, StoreOptions, connect};
use crate::runtime::wait_for;
use bathyal_store::{StoreError, Traffic};
use object_store::path::Path as Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Decimal digits of a number in a key, so that keys sort by their numbers.
const DIGITS: usize = 20;
/// Attempts to read the newest object, which its successor's owner may remove between listing and reading.
const MAX_ATTEMPTS: usize = 16;

/// Numbered objects in a folder of a bucket. All methods block.
#[derive(Debug)]
pub struct Claims {
    client: Arc<Client>,
    folder: Key,
    address: PathBuf,
    traffic: Traffic,
}

impl Claims {
    /// Makes the claims in the folder `url`. Sends no request.
    ///
    /// # Errors
    /// [`StoreError::Address`] for options that the provider does not have.
    pub fn new(url: &ObjectUrl, options: &StoreOptions) -> Result<Claims, StoreError> {
        let address = url.folder_address().join(&url.name);
        let names = url.folder.iter().chain([&url.name]);
        let path = names.map(String::as_str).collect::<Vec<_>>().join("/");
        let folder = Key::parse(&path).map_err(|error| {
            StoreError::Address(format!("{}: is not a valid key: {error}", address.display()))
        })?;
        Ok(Claims { client: connect(url, options)?, folder, address, traffic: Traffic::default() })
    }

    /// Returns the address of a number, for messages.
    pub fn address(&self, number: u64) -> PathBuf {
        self.address.join(format!("{number:0DIGITS$}"))
    }

    /// Returns the address of the folder, for messages.
    pub fn folder(&self) -> &Path {
        &self.address
    }

    fn key(&self, number: u64) -> Key {
        self.folder.clone().join(format!("{number:0DIGITS$}"))
    }

    fn failed(&self, operation: &'static str, number: u64, fault: RequestFault) -> StoreError {
        fault.error(operation, self.address(number))
    }

    /// Returns the numbers that exist, in ascending order.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let listed = wait_for(self.client.list(&self.folder, &self.traffic))?;
        let listed = listed.map_err(|fault| fault.error("list", &self.address))?;
        // A store that treats other characters as slashes lists keys of other folders, too.
        let below = listed.iter().filter(|found| found.location.prefix_matches(&self.folder));
        let names = below.filter_map(|found| found.location.filename());
        let number = |name: &str| {
            let plain = name.len() == DIGITS && name.bytes().all(|digit| digit.is_ascii_digit());
            plain.then(|| name.parse().ok()).flatten()
        };
        let mut numbers: Vec<u64> = names.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Reads the content of a number; `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub fn read(&self, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match wait_for(self.client.get(&self.key(number), &self.traffic))? {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(fault) if fault.cause == Cause::Gone => Ok(None),
            Err(fault) => Err(self.failed("read", number, fault)),
        }
    }

    /// Returns the greatest number and its content; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub fn newest(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(number) = self.numbers()?.pop() else { return Ok(None) };
            if let Some(content) = self.read(number)? {
                return Ok(Some((number, content)));
            }
        }
        Err(StoreError::Busy { path: self.address.clone() })
    }

    /// Creates a number. Returns false if another process has created it. `content` must differ from that of
    /// every other process.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer; the number may exist then.
    pub fn create(&self, number: u64, content: &[u8]) -> Result<bool, StoreError> {
        let content = content.to_vec().into();
        match wait_for(self.client.create(&self.key(number), content, &self.traffic))? {
            Ok(created) => Ok(created == Created::Ours),
            Err(fault) => Err(self.failed("create", number, fault)),
        }
    }

    /// Replaces the content of a number that this process has created.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer; it may have the new content then.
    pub fn replace(&self, number: u64, content: &[u8]) -> Result<(), StoreError> {
        let content = content.to_vec().into();
        let put = wait_for(self.client.put(&self.key(number), content, &self.traffic))?;
        put.map(drop).map_err(|fault| self.failed("write", number, fault))
    }

    /// Removes the numbers below `number`.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer; some may be left.
    pub fn remove_below(&self, number: u64) -> Result<(), StoreError> {
        let old = self.numbers()?.into_iter().filter(|old| *old < number);
        let keys = old.map(|old| self.key(old)).collect();
        wait_for(self.client.delete(keys, &self.traffic))?
            .map_err(|fault| fault.error("delete", &self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(name: &str) -> Claims {
        let url = ObjectUrl::parse(Path::new(&format!("memory://claims-{name}/lease"))).unwrap();
        Claims::new(&url, &StoreOptions::default()).unwrap()
    }

    #[test]
    fn a_number_has_one_owner() {
        let claims = claims("owner");
        assert_eq!(claims.newest().unwrap(), None);
        assert!(claims.create(1, b"first").unwrap());
        assert!(!claims.create(1, b"second").unwrap());
        // A response that was lost: the same process creates it again.
        assert!(claims.create(1, b"first").unwrap());
        claims.replace(1, b"renewed").unwrap();
        assert_eq!(claims.newest().unwrap(), Some((1, b"renewed".to_vec())));
        assert!(claims.create(2, b"third").unwrap() && claims.create(10, b"fourth").unwrap());
        assert_eq!(claims.numbers().unwrap(), [1, 2, 10]);
        assert_eq!(claims.newest().unwrap(), Some((10, b"fourth".to_vec())));
        claims.remove_below(10).unwrap();
        assert_eq!((claims.numbers().unwrap(), claims.read(1).unwrap()), (vec![10], None));
        assert!(claims.address(10).ends_with("lease/00000000000000000010"));
    }

    #[test]
    fn processes_that_create_the_same_number_agree_on_one() {
        let claims = claims("race");
        for number in 1..20 {
            let won: usize = std::thread::scope(|scope| {
                let racing = [b"a", b"b", b"c"].map(|content| scope.spawn(|| claims.create(number, content)));
                racing.into_iter().map(|one| usize::from(one.join().unwrap().unwrap())).sum()
            });
            assert_eq!(won, 1);
        }
    }
}
