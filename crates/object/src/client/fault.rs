//! The cause of a failed request, from which the reaction follows, independent of the provider. Messages
//! never repeat possible secrets.

use super::observed::ErrorResponse;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadFault};
use std::path::PathBuf;

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The store asks for fewer requests.
    Throttled,
    /// The store, or the network to it, fails at this moment.
    Unavailable,
    /// The object does not exist.
    Gone,
    /// The object has another version.
    Changed,
    /// An object of this key exists already.
    Exists,
    /// The store denies access.
    Denied,
    /// The response has more or fewer bytes than requested.
    Short,
    /// Any other failure; a retry would not help.
    Refused,
}

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) struct RequestFault {
    pub(crate) cause: Cause,
    /// A clause for messages to users.
    pub(super) reason: String,
}

/// The library's message for an address without TLS.
const NO_PLAIN: &str = "URL scheme is not allowed";
/// The address of the service that gives machines in a cloud their credentials.
const METADATA: &str = "169.254.169.254";

impl RequestFault {
    pub(super) fn new(cause: Cause, reason: impl Into<String>) -> RequestFault {
        RequestFault { cause, reason: reason.into() }
    }

    pub(crate) fn changed() -> RequestFault {
        RequestFault::new(
            Cause::Changed,
            "the object now has another version than the one that was read before",
        )
    }

    pub(crate) fn throttled_by_emulation() -> RequestFault {
        RequestFault::new(Cause::Throttled, "the emulated store answered 503 SlowDown")
    }

    pub(crate) fn short(got: u64, wanted: u64) -> RequestFault {
        RequestFault::new(Cause::Short, format!("the store sent {got} of {wanted} requested bytes"))
    }

    /// Makes a fault from the library's error and the error response that was observed below it, if any.
    pub(super) fn from_error(error: &object_store::Error, response: Option<ErrorResponse>) -> RequestFault {
        use object_store::Error;
        let Some(response) = response else { return RequestFault::without_response(error) };
        let cause = match (response.status, response.code.as_str(), error) {
            (
                _,
                "RequestTimeTooSkewed"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthenticationFailed"
                | "AccessDenied"
                | "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                // Sent by some gateways for an unknown access key.
                | "XAdminUserNotFound"
                | "NoSuchUser",
                _,
            ) => Cause::Denied,
            // The bucket is missing, not an object.
            (_, "NoSuchBucket", _) => Cause::Refused,
            (429 | 503, ..) | (_, "SlowDown" | "TooManyRequests", _) => Cause::Throttled,
            (401 | 403, ..) => Cause::Denied,
            (404, ..) | (_, _, Error::NotFound { .. }) => Cause::Gone,
            (412, _, Error::AlreadyExists { .. }) | (409, ..) => Cause::Exists,
            (412, ..) => Cause::Changed,
            (416, ..) => Cause::Short,
            (408 | 500..=599, ..) => Cause::Unavailable,
            _ => Cause::Refused,
        };
        let advice = match response.code.as_str() {
            "RequestTimeTooSkewed" => "; set this machine's clock",
            "ExpiredToken" | "InvalidToken" => "; renew the credentials",
            _ if cause == Cause::Denied => {
                "; check that the credentials (environment, profile or store options) are right and allow \
                 this"
            }
            "NoSuchBucket" => "; create the bucket, or correct its name",
            "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
                "; set the bucket's region (store option region)"
            }
            _ => "",
        };
        let details = [response.code.as_str(), response.message.as_str()].map(str::trim);
        let details: Vec<&str> = details.into_iter().filter(|words| !words.is_empty()).collect();
        RequestFault::new(
            cause,
            format!("the store answered {} {}{advice}", response.status, details.join(": "))
                .replace(" ;", ";"),
        )
    }

    /// Makes a fault from the library's error if no error response was received.
    fn without_response(error: &object_store::Error) -> RequestFault {
        use object_store::Error;
        let cause = match error {
            Error::NotFound { .. } => Cause::Gone,
            Error::AlreadyExists { .. } => Cause::Exists,
            Error::Precondition { .. } | Error::NotModified { .. } => Cause::Changed,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Cause::Denied,
            Error::Generic { .. } => Cause::Unavailable,
            _ => Cause::Refused,
        };
        if error.to_string().contains(METADATA) {
            return RequestFault::new(
                Cause::Denied,
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
                 environment, choose a profile (AWS_PROFILE), or give store options; for a public bucket, \
                 give the store option skip_signature=true",
            );
        }
        // The innermost cause contains no address, which may contain secrets.
        let mut source: &dyn std::error::Error = error;
        while let Some(inner) = source.source() {
            source = inner;
        }
        let innermost = source.to_string();
        if innermost.contains(NO_PLAIN) {
            return RequestFault::new(
                Cause::Refused,
                "the store's address begins with http://, which sends everything unencrypted; if that is \
                 intended, give the store option allow_http=true",
            );
        }
        let reason = if innermost.contains("://") { "the store cannot be reached".into() } else { innermost };
        RequestFault::new(cause, reason)
    }

    /// Returns true if the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::Throttled | Cause::Unavailable | Cause::Short)
    }

    /// Returns true if the operation may have been done although the request failed.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(
            self.cause,
            Cause::Throttled | Cause::Unavailable | Cause::Short | Cause::Exists | Cause::Changed
        )
    }

    /// Adds the number of attempts, of which this was the last, to the reason.
    pub(crate) fn after(mut self, tries: u32) -> RequestFault {
        if tries > 1 {
            self.reason = format!("{}, after {tries} tries", self.reason);
        }
        self
    }

    /// Converts the fault into the error of `operation` on `path`.
    pub(crate) fn error(self, operation: &'static str, path: impl Into<PathBuf>) -> StoreError {
        let path = path.into();
        match self.cause {
            Cause::Gone => StoreError::Missing { what: "object", path },
            Cause::Changed => StoreError::Changed { path },
            Cause::Denied => StoreError::Denied { operation, path, reason: self.reason },
            _ => StoreError::Remote { operation, path, reason: self.reason },
        }
    }

    /// Converts the fault into that of a tier's read.
    pub(crate) fn read_fault(&self) -> ReadFault {
        ReadFault::of(match self.cause {
            Cause::Throttled => FaultKind::Throttled,
            Cause::Unavailable | Cause::Refused => FaultKind::LostPeer,
            Cause::Gone => FaultKind::Gone,
            Cause::Changed | Cause::Exists => FaultKind::Changed,
            Cause::Denied => FaultKind::Denied,
            Cause::Short => FaultKind::Damaged,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic() -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: "https://bucket/?sig=SECRET is away".into() }
    }

    #[test]
    fn error_responses_are_classified_and_reported_with_advice() {
        let response =
            |status, code: &str| ErrorResponse { status, code: code.into(), message: "Words".into() };
        for (status, code, cause, part) in [
            (503, "SlowDown", Cause::Throttled, "503 SlowDown: Words"),
            (429, "", Cause::Throttled, "429 Words"),
            (500, "InternalError", Cause::Unavailable, "500"),
            (403, "RequestTimeTooSkewed", Cause::Denied, "clock"),
            (400, "ExpiredToken", Cause::Denied, "renew"),
            (403, "AccessDenied", Cause::Denied, "credentials"),
            (404, "NoSuchKey", Cause::Gone, "404"),
            (404, "NoSuchBucket", Cause::Refused, "create the bucket"),
            (412, "PreconditionFailed", Cause::Changed, "412"),
            (400, "InvalidArgument", Cause::Refused, "400"),
        ] {
            let fault = RequestFault::from_error(&generic(), Some(response(status, code)));
            assert_eq!(fault.cause, cause, "{status} {code}");
            let error = fault.error("read", "s3://bucket/x");
            assert_eq!(matches!(error, StoreError::Denied { .. }), cause == Cause::Denied, "{error}");
            let text = error.to_string();
            assert!(!text.contains("SECRET"), "{text}");
            assert!(text.contains(part) || cause == Cause::Gone || cause == Cause::Changed, "{text}");
        }
        let plain = object_store::Error::Generic { store: "GCS", source: "URL scheme is not allowed".into() };
        let fault = RequestFault::from_error(&plain, None);
        assert!(!fault.may_pass() && fault.reason.contains("allow_http=true"), "{}", fault.reason);
        let text =
            RequestFault::from_error(&generic(), None).after(3).error("read", "s3://bucket/x").to_string();
        assert_eq!(text, "cannot read s3://bucket/x: the store cannot be reached, after 3 tries");
    }
}
