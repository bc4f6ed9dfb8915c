//! Accepts connections, and serves requests on them until the server stops.

use crate::options::RequestLimits;
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

/// The most bytes of the headers of a request.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The most headers of a request.
const MAX_HEADERS: usize = 100;
/// The most requests of a connection of HTTP/2 at once.
const MAX_STREAMS: u32 = 128;
/// The pause after an error of accepting, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An address at which connections arrive, and how they are served.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) router: Router,
    pub(crate) limits: RequestLimits,
}

impl Listener {
    /// Serves connections until `stopping` becomes true, then lets requests end for at most `patience`.
    pub(crate) async fn serve(self, mut stopping: watch::Receiver<bool>, patience: Duration) {
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => break,
                accepted = accept(&self.socket, &places) => accepted,
            };
            let Some((stream, place)) = accepted else { break };
            let (tls, router) = (self.tls.clone(), self.router.clone());
            let (limits, watcher) = (self.limits, graceful.watcher());
            tokio::spawn(async move {
                let _place = place;
                match tls {
                    None => serve_connection(stream, router, limits, watcher).await,
                    Some(tls) => {
                        // A client that does not speak TLS, or not in time, is gone.
                        let Ok(Ok(stream)) = tokio::time::timeout(limits.idle, tls.accept(stream)).await
                        else {
                            return;
                        };
                        serve_connection(stream, router, limits, watcher).await;
                    }
                }
            });
        }
        drop(self.socket);
        if tokio::time::timeout(patience, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests had not ended when the server stopped");
        }
    }
}

/// Returns the next connection and its place among all; `None` if there will be none.
async fn accept(
    socket: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                // Without it, small answers wait for the acknowledgement of the ones before.
                let _ = stream.set_nodelay(true);
                return Some((stream, place));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    limits: RequestLimits,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(limits.idle)
        .keep_alive_timeout(limits.idle);
    let service = TowerToHyperService::new(
        router.map_request(|request: hyper::Request<Incoming>| request.map(Body::new)),
    );
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    // The client has closed the connection, or has broken the protocol: nobody is left to be told.
    let _ = watcher.watch(connection).await;
}
