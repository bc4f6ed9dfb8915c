//! Why a request failed: what to do about it follows from that, whoever's store it is. Never repeats what may be a secret.

use super::observed::Observed;
use bathyal_store::StoreError;
use bathyal_tier::{FaultKind, ReadFault};
use std::path::PathBuf;

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The store asks for fewer requests.
    Throttled,
    /// The store, or what leads to it, fails at this moment.
    Unavailable,
    /// There is no such object.
    Gone,
    /// Another version of the object is there.
    Changed,
    /// Something is there already.
    Exists,
    /// The store does not let this caller.
    Denied,
    /// More or fewer bytes came than were asked for.
    Short,
    /// Anything else: asking again would not help.
    Refused,
}

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) why: Why,
    /// A clause for people.
    pub(super) reason: String,
}

/// What the library says of an address without TLS.
const NO_PLAIN: &str = "URL scheme is not allowed";
/// The address at which machines of a cloud are told their credentials.
const METADATA: &str = "169.254.169.254";

impl Fault {
    pub(super) fn new(why: Why, reason: impl Into<String>) -> Fault {
        Fault { why, reason: reason.into() }
    }

    pub(crate) fn changed() -> Fault {
        Fault::new(Why::Changed, "another version of the object is there than was read before")
    }

    pub(crate) fn throttled_by_emulation() -> Fault {
        Fault::new(Why::Throttled, "the emulated store answered 503 SlowDown")
    }

    pub(crate) fn short(got: u64, wanted: u64) -> Fault {
        Fault::new(Why::Short, format!("{wanted} bytes were asked for, and the store sent {got}"))
    }

    /// What `error` says, with the answer that was `seen` below it.
    pub(super) fn of(error: &object_store::Error, seen: Option<Observed>) -> Fault {
        use object_store::Error;
        let Some(seen) = seen else { return Fault::unanswered(error) };
        let why = match (seen.status, seen.code.as_str(), error) {
            (
                _,
                "RequestTimeTooSkewed"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthenticationFailed"
                | "AccessDenied"
                | "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                // What some gateways say of an access key that they do not know.
                | "XAdminUserNotFound"
                | "NoSuchUser",
                _,
            ) => Why::Denied,
            // No object is missing, but the place for all of them.
            (_, "NoSuchBucket", _) => Why::Refused,
            (429 | 503, ..) | (_, "SlowDown" | "TooManyRequests", _) => Why::Throttled,
            (401 | 403, ..) => Why::Denied,
            (404, ..) | (_, _, Error::NotFound { .. }) => Why::Gone,
            (412, _, Error::AlreadyExists { .. }) | (409, ..) => Why::Exists,
            (412, ..) => Why::Changed,
            (416, ..) => Why::Short,
            (408 | 500..=599, ..) => Why::Unavailable,
            _ => Why::Refused,
        };
        let advice = match seen.code.as_str() {
            "RequestTimeTooSkewed" => "; set this machine's clock",
            "ExpiredToken" | "InvalidToken" => "; renew the credentials",
            _ if why == Why::Denied => {
                "; check that the credentials (environment, profile or store options) are right and reach so far"
            }
            "NoSuchBucket" => "; create the bucket, or correct its name",
            "PermanentRedirect" | "AuthorizationHeaderMalformed" => {
                "; name the bucket's region (store option region)"
            }
            _ => "",
        };
        let said = [seen.code.as_str(), seen.message.as_str()].map(str::trim);
        let said: Vec<&str> = said.into_iter().filter(|words| !words.is_empty()).collect();
        Fault::new(
            why,
            format!("the store answered {} {}{advice}", seen.status, said.join(": ")).replace(" ;", ";"),
        )
    }

    /// What `error` says that no answer led to.
    fn unanswered(error: &object_store::Error) -> Fault {
        use object_store::Error;
        let why = match error {
            Error::NotFound { .. } => Why::Gone,
            Error::AlreadyExists { .. } => Why::Exists,
            Error::Precondition { .. } | Error::NotModified { .. } => Why::Changed,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Why::Denied,
            Error::Generic { .. } => Why::Unavailable,
            _ => Why::Refused,
        };
        if error.to_string().contains(METADATA) {
            return Fault::new(
                Why::Denied,
                "no credentials were found: put AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY into the environment, name a profile \
                 (AWS_PROFILE), or give store options; for a bucket that anybody may read, skip_signature=true",
            );
        }
        // The innermost cause has no address in it, with whatever that holds.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let innermost = cause.to_string();
        if innermost.contains(NO_PLAIN) {
            return Fault::new(
                Why::Refused,
                "the store's address begins with http://, over which all is sent for anybody to read; if that is meant, give the \
                 store option allow_http=true",
            );
        }
        let reason = if innermost.contains("://") { "the store cannot be reached".into() } else { innermost };
        Fault::new(why, reason)
    }

    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self.why, Why::Throttled | Why::Unavailable | Why::Short)
    }

    /// Whether what was asked may have been done although this says otherwise.
    pub(crate) fn is_doubtful(&self) -> bool {
        matches!(self.why, Why::Throttled | Why::Unavailable | Why::Short | Why::Exists | Why::Changed)
    }

    /// The last of so many tries.
    pub(crate) fn after(mut self, tries: u32) -> Fault {
        if tries > 1 {
            self.reason = format!("{}, after {tries} tries", self.reason);
        }
        self
    }

    /// As an error of doing `operation` to `path`.
    pub(crate) fn error(self, operation: &'static str, path: impl Into<PathBuf>) -> StoreError {
        let path = path.into();
        match self.why {
            Why::Gone => StoreError::Missing { what: "object", path },
            Why::Changed => StoreError::Changed { path },
            Why::Denied => StoreError::Denied { operation, path, reason: self.reason },
            _ => StoreError::Remote { operation, path, reason: self.reason },
        }
    }

    /// As the end of a read of a tier.
    pub(crate) fn of_read(&self) -> ReadFault {
        ReadFault::of(match self.why {
            Why::Throttled => FaultKind::Throttled,
            Why::Unavailable | Why::Refused => FaultKind::LostPeer,
            Why::Gone => FaultKind::Gone,
            Why::Changed | Why::Exists => FaultKind::Changed,
            Why::Denied => FaultKind::Denied,
            Why::Short => FaultKind::Damaged,
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
    fn answers_are_told_apart_and_said_with_what_to_do() {
        let seen = |status, code: &str| Observed { status, code: code.into(), message: "Words".into() };
        for (status, code, why, part) in [
            (503, "SlowDown", Why::Throttled, "503 SlowDown: Words"),
            (429, "", Why::Throttled, "429 Words"),
            (500, "InternalError", Why::Unavailable, "500"),
            (403, "RequestTimeTooSkewed", Why::Denied, "clock"),
            (400, "ExpiredToken", Why::Denied, "renew"),
            (403, "AccessDenied", Why::Denied, "credentials"),
            (404, "NoSuchKey", Why::Gone, "404"),
            (404, "NoSuchBucket", Why::Refused, "create the bucket"),
            (412, "PreconditionFailed", Why::Changed, "412"),
            (400, "InvalidArgument", Why::Refused, "400"),
        ] {
            let fault = Fault::of(&generic(), Some(seen(status, code)));
            assert_eq!(fault.why, why, "{status} {code}");
            let error = fault.error("read", "s3://bucket/x");
            assert_eq!(matches!(error, StoreError::Denied { .. }), why == Why::Denied, "{error}");
            let text = error.to_string();
            assert!(!text.contains("SECRET"), "{text}");
            assert!(text.contains(part) || why == Why::Gone || why == Why::Changed, "{text}");
        }
        let plain = object_store::Error::Generic { store: "GCS", source: "URL scheme is not allowed".into() };
        let fault = Fault::of(&plain, None);
        assert!(!fault.may_pass() && fault.reason.contains("allow_http=true"), "{}", fault.reason);
        let text = Fault::of(&generic(), None).after(3).error("read", "s3://bucket/x").to_string();
        assert_eq!(text, "cannot read s3://bucket/x: the store cannot be reached, after 3 tries");
    }
}
