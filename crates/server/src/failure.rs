//! Failures of requests, and of starting a server.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bathyal_collection::{CollectionError, FilterError};
use bathyal_console::{Failure, Kind};
use bathyal_index::IndexError;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Seconds after which a client may repeat a request that was refused because the server is busy.
const RETRY_SECONDS: &str = "1";

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An option is invalid, or does not go with another one.
    #[error("{0}")]
    Option(String),
    /// A file cannot be read or written.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// A file has another content than expected.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault, and what is expected.
        reason: String,
    },
    /// The server cannot listen at an address, or cannot start its threads.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The data cannot be opened.
    #[error(transparent)]
    Data(#[from] CollectionError),
}

/// A request that was not done. `kind` and `message` are those of the command.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// Number of characters of the filter before the fault.
    pub(crate) position: Option<usize>,
}

impl Refusal {
    /// Returns a failure with the usual status of its kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Refusal {
        Refusal::with_status(status_of(kind), kind, message)
    }

    /// Returns a failure with another status than the usual one of its kind.
    pub(crate) fn with_status(status: StatusCode, kind: Kind, message: impl Into<String>) -> Refusal {
        Refusal { status, kind, message: message.into(), position: None }
    }

    /// Returns the failure without the path of the served folder, which is nobody else's business: entries
    /// are known by their names.
    pub(crate) fn within(self, data: &Path) -> Refusal {
        let folder = format!("{}/", data.display());
        Refusal { message: self.message.replace(&folder, ""), ..self }
    }

    /// The request itself is wrong.
    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(Kind::InvalidArgument, message)
    }

    /// The server has too much to do.
    pub(crate) fn overloaded(what: &str) -> Refusal {
        let message = format!("the server has too many {what}; try again in a moment");
        Refusal::with_status(StatusCode::TOO_MANY_REQUESTS, Kind::Busy, message)
    }

    /// The time of the request is over before its work began.
    pub(crate) fn late() -> Refusal {
        Refusal::new(Kind::Timeout, "the time of the request was over before a thread was free for it")
    }

    /// The server is being stopped.
    pub(crate) fn stopping() -> Refusal {
        Refusal::new(Kind::Cancelled, "the server is being stopped; send the request again")
    }
}

/// Returns the usual status of a kind.
fn status_of(kind: Kind) -> StatusCode {
    match kind {
        Kind::InvalidArgument | Kind::InvalidData => StatusCode::BAD_REQUEST,
        Kind::NotFound | Kind::NotAnIndex => StatusCode::NOT_FOUND,
        Kind::Exists => StatusCode::CONFLICT,
        Kind::Busy | Kind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Store => StatusCode::BAD_GATEWAY,
        Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Kind::Damaged
        | Kind::LaterVersion
        | Kind::Memory
        | Kind::Permission
        | Kind::Io
        | Kind::Device
        | Kind::Failed
        | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<CollectionError> for Refusal {
    fn from(error: CollectionError) -> Refusal {
        let Failure { kind, message, .. } = error.into();
        Refusal::new(kind, message)
    }
}

impl From<IndexError> for Refusal {
    fn from(error: IndexError) -> Refusal {
        let Failure { kind, message, .. } = error.into();
        Refusal::new(kind, message)
    }
}

impl From<FilterError> for Refusal {
    fn from(error: FilterError) -> Refusal {
        Refusal { position: error.position, ..Refusal::invalid(error.to_string()) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal { status, kind, message, position } = self;
        let mut error = json!({ "kind": kind, "message": message });
        if let Some(position) = position {
            error["position"] = position.into();
        }
        let body = json!({ "error": error }).to_string();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        let headers = response.headers_mut();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"bathyal\""));
        }
        response
    }
}
