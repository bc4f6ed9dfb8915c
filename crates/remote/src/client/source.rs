//! A generation that was opened on a node: the session that holds its memory, and how that is got back when the connection
//! was lost.

use super::options::RemoteUrl;
use super::session::{Failed, Session};
use crate::control::ObjectEntry;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadFault};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Source {
    session: Mutex<Arc<Session>>,
    /// What was opened: the name, and which generation of it. `None` of a draft, which is gone with its connection.
    opened: Option<(String, u64)>,
}

impl Source {
    /// Opens the generation at `url`; with what it consists of.
    pub(crate) fn open(
        session: Arc<Session>,
        url: &RemoteUrl,
    ) -> Result<(Source, Vec<ObjectEntry>), StoreError> {
        let path = std::path::PathBuf::from(url.to_string());
        let (generation, objects) = session.open(&url.name).map_err(|e| e.at("open", &path))?;
        let opened = Some((url.name.clone(), generation));
        Ok((Source { session: Mutex::new(session), opened }, objects))
    }

    /// Regions of drafts of a session.
    pub(crate) fn of_drafts(session: Arc<Session>) -> Source {
        Source { session: Mutex::new(session), opened: None }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A data connection; where the node has lost the session, after another one was begun. It fails for good if what was
    /// opened is not there any more.
    pub(crate) fn connect(&self) -> Result<TcpStream, ReadFault> {
        let session = self.session();
        match session.data() {
            Ok(stream) => Ok(stream),
            Err(e) => {
                let lost = ReadFault { kind: FaultKind::LostPeer, errno: e.raw_os_error().unwrap_or(0) };
                self.renew(&session, lost)?.data().map_err(|_| lost)
            }
        }
    }

    /// A session in the place of one that is over; `lost` is why.
    fn renew(&self, over: &Arc<Session>, lost: ReadFault) -> Result<Arc<Session>, ReadFault> {
        let Some((name, generation)) = &self.opened else { return Err(lost) };
        let changed = ReadFault::of(FaultKind::Changed);
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&held, over) {
            // Another queue was faster.
            return Ok(held.clone());
        }
        let session = over.again().map_err(|_| lost)?.ok_or(changed)?;
        match session.open(name) {
            Ok((there, _)) if there == *generation => {}
            Ok(_) | Err(Failed::Refused(..)) => return Err(changed),
            Err(Failed::Lost(_)) => return Err(lost),
        }
        *held = session.clone();
        Ok(session)
    }
}
