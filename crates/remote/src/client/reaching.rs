//! Getting at a node for a queue that must not wait: what connects is a thread of its own, and tries again for as long as the
//! queue's source says.

use super::source::Source;
use bathyal_tier::{FaultKind, ReadFault};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How often a node that is waited for is looked for.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// What came of connecting.
type Came<L> = Result<L, ReadFault>;

/// See the module's description.
pub(super) struct Reaching<L> {
    source: Arc<Source>,
    /// Since when the node cannot be reached, and when that is tried again.
    lost_since: Option<Instant>,
    next_try: Option<Instant>,
    /// What tells what came of a connection that is being made.
    connecting: Option<Receiver<Came<L>>>,
}

impl<L: Send + 'static> Reaching<L> {
    pub(super) fn new(source: Arc<Source>) -> Reaching<L> {
        Reaching { source, lost_since: None, next_try: None, connecting: None }
    }

    /// A connection if there is one by now, or why there is none and will be none; `None` as long as that is not known. Nobody
    /// waits here: a thread runs `connect`, and ends the wait of `waker`'s when it has come to something.
    pub(super) fn look(
        &mut self,
        connect: impl FnOnce(&Source) -> Came<L> + Send + 'static,
        waker: impl FnOnce() -> Option<Waker>,
    ) -> Option<Came<L>> {
        if self.connecting.is_none() && self.next_try.is_none_or(|next| Instant::now() >= next) {
            self.connecting = Some(begin(self.source.clone(), connect, waker()));
        }
        let came = match self.connecting.as_ref()?.try_recv() {
            Ok(came) => came,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(ReadFault::of(FaultKind::LostPeer)),
        };
        self.connecting = None;
        if came.is_err() {
            let since = *self.lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.source.wait() {
                self.next_try = Some(Instant::now() + RETRY);
                return None;
            }
        }
        self.forget();
        Some(came)
    }

    /// Whatever was lost before: the next time is the first.
    pub(super) fn forget(&mut self) {
        (self.lost_since, self.next_try) = (None, None);
    }
}

/// Begins to connect; the receiver hears what came of it.
fn begin<L: Send + 'static>(
    source: Arc<Source>,
    connect: impl FnOnce(&Source) -> Came<L> + Send + 'static,
    waker: Option<Waker>,
) -> Receiver<Came<L>> {
    let (tell, told) = channel();
    let connect = move || {
        // A queue that is gone wants no connection.
        let _ = tell.send(connect(&source));
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    // Without a thread the other end of the channel is gone, which is heard as a node that is lost.
    let _ = std::thread::Builder::new().name("memory-node-peer".into()).spawn(connect);
    told
}
