//! Memory for the bodies of all requests, reserved before they are read.

use crate::failure::Refusal;
use axum::http::StatusCode;
use bathyal_console::Kind;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit.
pub(crate) const PERMIT_BYTES: u64 = 4096;

/// Memory for the bodies of all requests.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    permits: Arc<Semaphore>,
    all: u32,
}

impl BodyMemory {
    pub(crate) fn new(bytes: u64) -> BodyMemory {
        let all = (bytes / PERMIT_BYTES).clamp(1, u64::from(u32::MAX >> 3)) as u32;
        BodyMemory { permits: Arc::new(Semaphore::new(all as usize)), all }
    }

    /// Reserves memory, or refuses at once if others have it.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Refusal> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX).max(1);
        if permits > self.all {
            let most = u64::from(self.all) * PERMIT_BYTES;
            return Err(Refusal::with_status(
                StatusCode::PAYLOAD_TOO_LARGE,
                Kind::Memory,
                format!(
                    "the body would take {bytes} bytes of memory while it is read, but all requests together \
                     have {most}; send fewer rows at once, or start the server with more --request-memory"
                ),
            ));
        }
        self.permits
            .clone()
            .try_acquire_many_owned(permits)
            .map_err(|_| Refusal::overloaded("large requests"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_refused_while_others_have_it() {
        let memory = BodyMemory::new(10 * PERMIT_BYTES);
        let held = memory.reserve(8 * PERMIT_BYTES).unwrap();
        let refused = memory.reserve(3 * PERMIT_BYTES).unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        drop(held);
        drop(memory.reserve(10 * PERMIT_BYTES).unwrap());
        let never = memory.reserve(10 * PERMIT_BYTES + 1).unwrap_err();
        assert_eq!(never.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
