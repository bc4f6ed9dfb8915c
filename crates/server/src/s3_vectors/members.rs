//! Members of requests that several operations have.

use super::failure::ApiError;
use serde::Deserialize;

/// Entries of a page of a listing, if the client does not say how many it wants, and the most.
const LISTED: usize = 500;

/// A listing: of buckets, or of the indexes of a bucket.
pub(super) struct Page {
    pub(super) prefix: String,
    pub(super) after: String,
    pub(super) limit: usize,
}

impl Page {
    pub(super) fn of(
        most: Option<usize>,
        token: Option<String>,
        prefix: Option<String>,
    ) -> Result<Page, ApiError> {
        let limit = most.unwrap_or(LISTED);
        if !(1..=LISTED).contains(&limit) {
            return Err(ApiError::field("maxResults", format!("it is {limit}; 1 to {LISTED} are allowed")));
        }
        Ok(Page { prefix: prefix.unwrap_or_default(), after: token.unwrap_or_default(), limit })
    }
}

/// The encryption that a request asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Encryption {
    #[serde(default)]
    sse_type: Option<String>,
    #[serde(default)]
    kms_key_arn: Option<String>,
}

impl Encryption {
    /// Refuses encryption, which the server does not do.
    pub(super) fn refuse(given: Option<&Encryption>) -> Result<(), ApiError> {
        match given {
            Some(Encryption { sse_type: None, kms_key_arn: None }) | None => Ok(()),
            Some(_) => Err(ApiError::field(
                "encryptionConfiguration",
                "the server does not encrypt its data; leave this out, and encrypt the disk",
            )),
        }
    }
}

/// The mode of indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum IndexMode {
    Classic,
    Enhanced,
}

impl IndexMode {
    /// Refuses the mode that has searches of text.
    pub(super) fn check(self, field: &str) -> Result<(), ApiError> {
        match self {
            IndexMode::Classic => Ok(()),
            IndexMode::Enhanced => {
                Err(ApiError::field(field, "the server has indexes of the mode CLASSIC only"))
            }
        }
    }
}
