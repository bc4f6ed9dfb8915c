//! Connecting to a node for a queue that must not block: a separate thread connects, and retries as long as
//! the queue's source allows.

use super::source::RegionSource;
use bathyal_tier::{FaultKind, ReadFault};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Interval between attempts to reach a lost node.
pub(super) const RETRY: Duration = Duration::from_millis(200);

/// Result of connecting.
type ConnectResult<L> = Result<L, ReadFault>;

/// Connects in the background for one queue.
pub(super) struct Reconnector<L> {
    source: Arc<RegionSource>,
    /// Time since which the node cannot be reached, and time of the next attempt.
    lost_since: Option<Instant>,
    next_try: Option<Instant>,
    /// Receives the result of the attempt in progress.
    connecting: Option<Receiver<ConnectResult<L>>>,
}

impl<L: Send + 'static> Reconnector<L> {
    pub(super) fn new(source: Arc<RegionSource>) -> Reconnector<L> {
        Reconnector { source, lost_since: None, next_try: None, connecting: None }
    }

    /// Returns a connection or the final failure; `None` while neither is known. Does not block: a thread
    /// runs `connect`, and wakes `waker` when it has a result.
    pub(super) fn poll(
        &mut self,
        connect: impl FnOnce(&RegionSource) -> ConnectResult<L> + Send + 'static,
        waker: impl FnOnce() -> Option<Waker>,
    ) -> Option<ConnectResult<L>> {
        if self.connecting.is_none() && self.next_try.is_none_or(|next| Instant::now() >= next) {
            self.connecting = Some(start(self.source.clone(), connect, waker()));
        }
        let result = match self.connecting.as_ref()?.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(ReadFault::of(FaultKind::LostPeer)),
        };
        self.connecting = None;
        if result.is_err() {
            let since = *self.lost_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.source.wait() {
                self.next_try = Some(Instant::now() + RETRY);
                return None;
            }
        }
        self.reset();
        Some(result)
    }

    /// Forgets earlier failures: the time that a lost node is waited for starts anew.
    pub(super) fn reset(&mut self) {
        (self.lost_since, self.next_try) = (None, None);
    }
}

/// Starts a thread that connects. Returns the receiver of its result.
fn start<L: Send + 'static>(
    source: Arc<RegionSource>,
    connect: impl FnOnce(&RegionSource) -> ConnectResult<L> + Send + 'static,
    waker: Option<Waker>,
) -> Receiver<ConnectResult<L>> {
    let (sender, receiver) = channel();
    let connect = move || {
        // The queue may have been dropped.
        let _ = sender.send(connect(&source));
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    // If the thread cannot be started, the sender is dropped, and the queue treats the node as lost.
    let _ = std::thread::Builder::new().name("memory-node-peer".into()).spawn(connect);
    receiver
}
