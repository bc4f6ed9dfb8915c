//! The errors of the API, as Amazon S3 Vectors has them: a status, a code, a message, and for invalid
//! requests the members that are wrong.

use crate::failure::Refusal;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bathyal_collection::CollectionError;
use bathyal_console::Kind;
use serde_json::json;

/// The header with the code of an error.
const ERROR_TYPE: HeaderName = HeaderName::from_static("x-amzn-errortype");

/// A request that was not done.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The path of a member that is wrong.
    field: Option<String>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), field: None }
    }

    /// The request is wrong.
    pub(super) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "ValidationException", message)
    }

    /// A member of the request is wrong.
    pub(super) fn field(path: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { field: Some(path.into()), ..ApiError::invalid(message) }
    }

    pub(super) fn not_found(what: &str) -> ApiError {
        let message = format!("The specified {what} could not be found");
        ApiError::new(StatusCode::NOT_FOUND, "NotFoundException", message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, "ConflictException", message)
    }

    pub(super) fn denied(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "AccessDeniedException", message)
    }

    /// The signature cannot be checked, or is not that of the request.
    pub(super) fn signature(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(super) fn quota(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::PAYMENT_REQUIRED, "ServiceQuotaExceededException", message)
    }

    /// The failure of a change that another server should do. That it is not meant keeps its status, by which
    /// the server that has forwarded the change knows it.
    pub(super) fn of_place(refusal: Refusal) -> ApiError {
        match refusal.status {
            StatusCode::MISDIRECTED_REQUEST => {
                ApiError::new(refusal.status, "ServiceUnavailableException", refusal.message)
            }
            _ => refusal.into(),
        }
    }

    pub(super) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerException", message)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        let Refusal { status, kind, message, .. } = refusal;
        if status == StatusCode::TOO_MANY_REQUESTS {
            return ApiError::new(status, "TooManyRequestsException", message);
        }
        match kind {
            Kind::InvalidArgument | Kind::InvalidData => ApiError::invalid(message),
            Kind::NotFound | Kind::NotAnIndex => {
                ApiError::new(StatusCode::NOT_FOUND, "NotFoundException", message)
            }
            Kind::Exists => ApiError::conflict(message),
            Kind::Permission => ApiError::denied(message),
            Kind::NoSpace => ApiError::quota(message),
            Kind::Timeout => ApiError::new(StatusCode::REQUEST_TIMEOUT, "RequestTimeoutException", message),
            Kind::Busy | Kind::Cancelled => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableException", message)
            }
            _ => ApiError::internal(message),
        }
    }
}

impl From<CollectionError> for ApiError {
    fn from(error: CollectionError) -> ApiError {
        Refusal::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ApiError { status, code, message, field } = self;
        let mut body = json!({ "message": message });
        if let Some(path) = field {
            body["fieldList"] = json!([{ "path": path, "message": message }]);
        }
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response();
        response.headers_mut().insert(ERROR_TYPE, HeaderValue::from_static(code));
        response
    }
}
