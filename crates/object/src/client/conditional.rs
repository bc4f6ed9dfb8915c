//! Objects that are created once, whoever else tries: the answer of a request may be lost, and some stores do not keep their
//! word, so what was created is read again.

use super::{Client, Fault, Why};
use bathyal_store::Traffic;
use bytes::Bytes;
use object_store::PutMode;
use object_store::path::Path as Key;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object is there, and is this one.
    Ours,
    /// Another one is there.
    Another,
}

impl Client {
    /// Creates the object `key` unless there is one. `bytes` are unlike what any other writer would put there.
    pub(crate) async fn create(&self, key: &Key, bytes: Bytes, traffic: &Traffic) -> Result<Created, Fault> {
        self.again(traffic, || self.create_once(key, bytes.clone(), traffic)).await
    }

    async fn create_once(&self, key: &Key, bytes: Bytes, traffic: &Traffic) -> Result<Created, Fault> {
        let put = self.put_once(key, bytes.clone(), PutMode::Create, traffic).await;
        match put {
            Err(fault) if !fault.is_doubtful() => return Err(fault),
            _ => {}
        }
        match (self.fetch(key, None, &super::Version::default(), traffic).await, put) {
            (Ok(found), _) if found == bytes => Ok(Created::Ours),
            (Ok(_), _) => Ok(Created::Another),
            // It was not done.
            (Err(fault), Err(refused)) if fault.why == Why::Gone => Err(Fault {
                why: if refused.why == Why::Exists { Why::Unavailable } else { refused.why },
                ..refused
            }),
            (Err(fault), _) if fault.why == Why::Gone => {
                Err(Fault::new(Why::Refused, "the store does not have what it was just given"))
            }
            (Err(fault), _) => Err(fault),
        }
    }
}
