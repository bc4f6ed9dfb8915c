//! Sends requests to other servers of the same data.

use crate::failure::ServerError;
use crate::lease::Holder;
use crate::options::ServerOptions;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version, header, request::Parts};
use axum::response::Response;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The header of a request that was forwarded: the identity of the server that it is for. A server never
/// forwards such a request.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("bathyal-forwarded");
/// The most time of connecting to another server.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections that were unused for longer are not used again: shorter than a server keeps them.
const IDLE: Duration = Duration::from_secs(10);
/// The most bytes of an answer; those to changes are short.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Headers that are about one connection, and not about the request.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

/// The other servers of the same data.
pub(crate) struct Peers {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// True if keys may travel unencrypted to other machines.
    is_insecure: bool,
}

/// The outcome of a request to another server.
#[derive(Debug)]
pub(crate) enum Sent {
    /// It was answered.
    Answered(Response),
    /// The server does not write, or is not the one that was meant. Nothing was done.
    Misdirected,
    /// The request did not reach the server. Nothing was done.
    Unreachable(String),
    /// It is unknown whether the request was done.
    Unknown(String),
}

impl Peers {
    /// # Errors
    /// [`ServerError`] for certificates that cannot be used.
    pub(crate) fn new(options: &ServerOptions) -> Result<Peers, ServerError> {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT));
        http.set_nodelay(true);
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new().with_tls_config(trusted(options)?);
        let connector = connector.https_or_http().enable_http1().wrap_connector(http);
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE);
        Ok(Peers { client: client.build(connector), is_insecure: options.insecure })
    }

    /// Sends a request to the server that writes, as it is: its sender's key and signature stay valid.
    pub(crate) async fn send(&self, holder: &Holder, parts: &Parts, body: &Bytes) -> Sent {
        let request = match self.request(holder, parts, body) {
            Ok(request) => request,
            Err(reason) => return Sent::Unreachable(reason),
        };
        let answer = match self.client.request(request).await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return Sent::Unreachable(causes(&error)),
            Err(error) => return Sent::Unknown(causes(&error)),
        };
        let (mut parts, body) = answer.into_parts();
        if parts.status == StatusCode::MISDIRECTED_REQUEST {
            return Sent::Misdirected;
        }
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => {
                HOP_BY_HOP.iter().for_each(|name| drop(parts.headers.remove(name)));
                Sent::Answered(Response::from_parts(parts, Body::from(body.to_bytes())))
            }
            Err(error) => Sent::Unknown(format!("its answer ended early: {error}")),
        }
    }

    fn request(
        &self,
        holder: &Holder,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<hyper::Request<Full<Bytes>>, String> {
        let Some(address) = &holder.address else {
            return Err("it has told no address; start it with --advertise".into());
        };
        let base: Uri = address.parse().map_err(|error| format!("its address {address:?}: {error}"))?;
        if !self.is_insecure && base.scheme_str() != Some("https") && !is_loopback(&base) {
            return Err(format!(
                "its address {address} is on another machine, and keys would travel there unencrypted; give \
                 it an https:// address, or start this server with --insecure"
            ));
        }
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = format!("{}{path}", address.trim_end_matches('/'))
            .parse()
            .map_err(|error| format!("its address {address:?} with {path:?}: {error}"))?;
        let mut request = hyper::Request::new(Full::new(body.clone()));
        *request.method_mut() = parts.method.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = headers(parts);
        *request.uri_mut() = uri;
        let identity = HeaderValue::from_str(&holder.identity).map_err(|error| error.to_string())?;
        request.headers_mut().insert(FORWARDED, identity);
        Ok(request)
    }
}

/// Returns the headers of a request for another connection. The host stays that of the sender, whose
/// signature covers it.
fn headers(parts: &Parts) -> HeaderMap {
    let mut headers = parts.headers.clone();
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
    let authority = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let (None, Some(host)) = (headers.get(header::HOST), authority) {
        headers.insert(header::HOST, host);
    }
    headers
}

/// Returns true if an address is one of this machine.
pub(crate) fn is_loopback(address: &Uri) -> bool {
    let host = address.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns an error and its causes in one sentence.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the configuration of TLS for connections to other servers.
fn trusted(options: &ServerOptions) -> Result<ClientConfig, ServerError> {
    let mut roots = RootCertStore::empty();
    match &options.peer_certificates {
        Some(path) => {
            let refuse = |reason: String| ServerError::Content { path: path.clone(), reason };
            let bytes = std::fs::read(path).map_err(|source| ServerError::File {
                path: path.clone(),
                action: "read the certificates",
                source,
            })?;
            for certificate in CertificateDer::pem_slice_iter(&bytes) {
                let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
                roots.add(certificate).map_err(|error| refuse(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(refuse("there is no certificate in PEM".into()));
            }
        }
        // Certificates that the system has in a form that is not understood are left out.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| ServerError::Option(format!("TLS to other servers: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_known() {
        for (address, expected) in [
            ("http://127.0.0.1:7700", true),
            ("http://[::1]:7700", true),
            ("http://localhost", true),
            ("http://10.0.0.1:7700", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn the_host_of_the_sender_is_kept() {
        let (mut parts, ()) = hyper::Request::builder()
            .uri("http://first.example:80/PutVectors?a=%2F")
            .header("connection", "close")
            .header("x-amz-date", "now")
            .body(())
            .unwrap()
            .into_parts();
        assert_eq!(headers(&parts)["host"], "first.example:80");
        parts.headers.insert("host", "given.example".parse().unwrap());
        let headers = headers(&parts);
        assert_eq!((&headers["host"], headers.get("connection")), (&"given.example".parse().unwrap(), None));
        assert_eq!(headers["x-amz-date"], "now");
    }
}
