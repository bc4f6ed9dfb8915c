//! Sends changes to the server that writes, if that is another one.
//!
//! The request travels as it is, so that the server that writes checks the key or the signature of its sender
//! itself. A request whose fate is unknown is sent again only to the same server, and only with an
//! idempotency key, by which that server knows it.

use crate::body::read_whole;
use crate::failure::Refusal;
use crate::lease::{Holder, Writer};
use crate::peers::{FORWARDED, Sent};
use crate::replay::has_key;
use crate::state::Shared;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::Response;
use bathyal_console::Kind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time in which a server that has just taken the lease of a folder may not be reached yet.
const STARTS_WITHIN: Duration = Duration::from_secs(2);
/// The shortest and the longest pause before the lease is looked at again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The time beyond that of a request in which the other server answers that its time is over.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A change, and where it is done.
pub(crate) enum Placed {
    /// By this server.
    Here(Request),
    /// By another one, which has answered.
    There(Response),
}

/// Limits of a request that changes data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeLimits {
    /// The most bytes of its body.
    pub(crate) body_bytes: u64,
    /// True if it may take longer than other requests.
    pub(crate) is_long: bool,
}

/// Finds out which server does a change, and sends it there if that is another one.
pub(crate) async fn place(
    shared: &Arc<Shared>,
    request: Request,
    limits: ChangeLimits,
) -> Result<Placed, Refusal> {
    let forwarded = request.headers().get(FORWARDED).cloned();
    if let Some(identity) = forwarded {
        return match shared.lease.is_meant(identity.as_bytes()).await {
            Ok(true) => Ok(Placed::Here(request)),
            Ok(false) => Err(misdirected()),
            Err(refusal) => Err(shared.refusal(refusal)),
        };
    }
    if shared.lease.writer().await.map_err(|refusal| shared.refusal(refusal))? == Writer::This {
        return Ok(Placed::Here(request));
    }
    let (parts, body) = request.into_parts();
    let told = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let length: u64 = told.unwrap_or(limits.body_bytes);
    if length > limits.body_bytes {
        return Err(crate::body::too_large(limits.body_bytes));
    }
    let memory = shared.body_memory.reserve(length)?;
    let body = read_whole(body, limits.body_bytes, shared.limits.idle).await?;
    let forwarding = Forwarding { shared, parts: &parts, body: &body, is_long: limits.is_long };
    let answer = forwarding.run().await;
    match answer {
        Ok(Some(response)) => {
            shared.counters.forwarded.answered.fetch_add(1, Ordering::Relaxed);
            Ok(Placed::There(response))
        }
        Ok(None) => {
            // The operation reserves memory for the body itself.
            drop(memory);
            Ok(Placed::Here(Request::from_parts(parts, Body::from(body))))
        }
        Err(refusal) => {
            shared.counters.forwarded.failed.fetch_add(1, Ordering::Relaxed);
            Err(shared.refusal(refusal))
        }
    }
}

fn misdirected() -> Refusal {
    let message = "the request was forwarded to this server as the one that writes, and it is not; send it \
                   without the header Bathyal-Forwarded";
    Refusal::with_status(StatusCode::MISDIRECTED_REQUEST, Kind::Busy, message)
}

/// A change on its way to the server that writes.
struct Forwarding<'a> {
    shared: &'a Arc<Shared>,
    parts: &'a Parts,
    body: &'a Bytes,
    is_long: bool,
}

/// Failures of a request so far.
#[derive(Default)]
struct Troubles {
    /// The server that may have done the change.
    doubted: Option<Holder>,
    /// A server that was not reached, since when, and why.
    unreached: Option<(Holder, Instant, String)>,
}

impl Forwarding<'_> {
    /// Returns the answer of the server that writes; `None` if that is this one by now.
    async fn run(&self) -> Result<Option<Response>, Refusal> {
        let lease = &self.shared.lease;
        let pause = (lease.interval() / 4).clamp(PAUSES.0, PAUSES.1);
        let deadline = Instant::now() + self.shared.limits.time;
        let mut troubles = Troubles::default();
        loop {
            let holder = match lease.writer().await? {
                Writer::This if troubles.doubted.is_none() => return Ok(None),
                Writer::This => return Err(self.unknown("it does not write any more")),
                Writer::Other(holder) => holder,
            };
            let is_same = |doubted: &Holder| doubted.identity == holder.identity;
            if !troubles.doubted.as_ref().is_none_or(is_same) {
                return Err(self.unknown("another server writes by now"));
            }
            match self.send(&holder).await {
                Sent::Answered(response) => return Ok(Some(response)),
                Sent::Misdirected if troubles.doubted.is_some() => {
                    return Err(self.unknown("it does not write any more"));
                }
                Sent::Misdirected => {}
                Sent::Unreachable(reason) => troubles.note_unreached(&holder, reason)?,
                Sent::Unknown(reason) if !has_key(&self.parts.headers) || troubles.doubted.is_some() => {
                    return Err(self.unknown(&reason));
                }
                Sent::Unknown(_) => troubles.doubted = Some(holder.clone()),
            }
            lease.forget(&holder);
            if Instant::now() > deadline {
                return Err(match troubles.doubted {
                    Some(_) => self.unknown("it is not reached any more"),
                    None => troubles.unreachable(),
                });
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends the request, and watches the lease meanwhile: a server that hangs does not answer, and is
    /// replaced.
    async fn send(&self, holder: &Holder) -> Sent {
        let lease = &self.shared.lease;
        let began = Instant::now();
        let mut sent = std::pin::pin!(self.shared.peers.send(holder, self.parts, self.body));
        loop {
            tokio::select! {
                sent = &mut sent => return sent,
                () = tokio::time::sleep(lease.interval()) => {}
            }
            match lease.look().await {
                Ok(Writer::Other(other)) if other.identity == holder.identity => {}
                Ok(_) => return Sent::Unknown("another server has taken over meanwhile".into()),
                // The store does not answer; the other server still may.
                Err(_) => {}
            }
            if !self.is_long && began.elapsed() > self.shared.limits.time + ANSWERS_WITHIN {
                return Sent::Unknown("it has not answered in time".into());
            }
        }
    }

    /// Returns the refusal of a change that may have been done.
    fn unknown(&self, reason: &str) -> Refusal {
        let begin = format!(
            "the server that writes did not answer ({reason}); whether the change was done is unknown"
        );
        match has_key(&self.parts.headers) {
            true => {
                let message = format!("{begin}; send it again with the same Idempotency-Key");
                Refusal::new(Kind::Cancelled, message)
            }
            false => {
                let message = format!("{begin}; read the rows before you send it again");
                Refusal::with_status(StatusCode::BAD_GATEWAY, Kind::Failed, message)
            }
        }
    }
}

impl Troubles {
    /// Notes that a server was not reached. Refuses the request if that server runs nevertheless: waiting for
    /// another one would be in vain.
    fn note_unreached(&mut self, holder: &Holder, reason: String) -> Result<(), Refusal> {
        let known = self.unreached.take().filter(|(known, ..)| known.identity == holder.identity);
        let (first, since, _) = known.unwrap_or_else(|| (holder.clone(), Instant::now(), String::new()));
        let runs = match holder.renewal {
            // In a folder its lock shows that it runs; it may be about to listen.
            0 => since.elapsed() > STARTS_WITHIN,
            renewal => renewal != first.renewal,
        };
        self.unreached = Some((first, since, reason));
        if runs { Err(self.unreachable()) } else { Ok(()) }
    }

    fn unreachable(&self) -> Refusal {
        let message = match &self.unreached {
            Some((holder, _, reason)) => format!(
                "another server writes, and it cannot be reached at {}: {reason}. Nothing was done; check \
                 its --advertise",
                holder.address.as_deref().unwrap_or("any address")
            ),
            None => {
                "no server has taken over writing in time; nothing was done; send the request again".into()
            }
        };
        Refusal::new(Kind::Busy, message)
    }
}
