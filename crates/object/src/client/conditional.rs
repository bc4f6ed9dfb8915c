//! Conditional creation of objects. The response of a request may be lost, and some stores do not enforce the
//! condition, so a created object is always read back.

use super::{Cause, Client, RequestFault};
use bathyal_store::Traffic;
use bytes::Bytes;
use object_store::PutMode;
use object_store::path::Path as Key;

/// The result of a conditional creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object exists with our bytes.
    Ours,
    /// An object with other bytes exists.
    Another,
}

impl Client {
    /// Creates the object `key` unless one exists. `bytes` must differ from those of every other writer.
    pub(crate) async fn create(
        &self,
        key: &Key,
        bytes: Bytes,
        traffic: &Traffic,
    ) -> Result<Created, RequestFault> {
        self.with_retries(traffic, || self.create_once(key, bytes.clone(), traffic)).await
    }

    async fn create_once(&self, key: &Key, bytes: Bytes, traffic: &Traffic) -> Result<Created, RequestFault> {
        let put = self.put_once(key, bytes.clone(), PutMode::Create, traffic).await;
        match put {
            Err(fault) if !fault.is_doubtful() => return Err(fault),
            _ => {}
        }
        match (self.fetch(key, None, &super::Version::default(), traffic).await, put) {
            (Ok(found), _) if found == bytes => Ok(Created::Ours),
            (Ok(_), _) => Ok(Created::Another),
            // The object was not created.
            (Err(fault), Err(refused)) if fault.cause == Cause::Gone => Err(RequestFault {
                cause: if refused.cause == Cause::Exists { Cause::Unavailable } else { refused.cause },
                ..refused
            }),
            (Err(fault), _) if fault.cause == Cause::Gone => Err(RequestFault::new(
                Cause::Refused,
                "the store reported success, but does not have the object",
            )),
            (Err(fault), _) => Err(fault),
        }
    }
}
