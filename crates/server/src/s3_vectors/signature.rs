//! Signatures of requests: AWS Signature Version 4, in a header or in the address (presigned).
//!
//! The identifier of the signing key is the name of a key of the server, and the signing key is its secret.

use super::failure::ApiError;
use crate::keys::hexadecimal;
use axum::http::{HeaderMap, Method, Uri, header};
use chrono::{DateTime, NaiveDateTime, Utc};
use ring::hmac;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use subtle::ConstantTimeEq;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const TERMINATOR: &str = "aws4_request";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The format of times.
const TIME: &str = "%Y%m%dT%H%M%SZ";
/// The most seconds by which the clock of a client may differ.
const MAX_SKEW: i64 = 15 * 60;
/// The most seconds for which a presigned address is valid: a week.
const MAX_EXPIRES: i64 = 7 * 24 * 3600;

/// The claim of a request about its signature.
#[derive(Debug)]
pub(super) struct Claim {
    /// The name of the key.
    pub(super) key: String,
    /// The region of the client, which appears in the names of resources.
    pub(super) region: String,
    date: String,
    service: String,
    time: String,
    signed_headers: Vec<String>,
    signature: String,
}

impl Claim {
    /// Reads the claim of a request that arrives at `now`, before its body is read.
    ///
    /// # Errors
    /// A request without a signature, with a malformed one, or with one that is not valid now.
    pub(super) fn read(headers: &HeaderMap, uri: &Uri, now: DateTime<Utc>) -> Result<Claim, ApiError> {
        let incomplete = |what: &str| ApiError::signature("IncompleteSignatureException", what);
        let query = parameters(uri);
        let parameter =
            |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let presigned = parameter("X-Amz-Signature").is_some();
        let (credential, signed, signature) = match presigned {
            true => {
                if parameter("X-Amz-Algorithm").as_deref() != Some(ALGORITHM) {
                    return Err(incomplete("X-Amz-Algorithm has to be AWS4-HMAC-SHA256"));
                }
                let of =
                    |name: &str| parameter(name).ok_or_else(|| incomplete(&format!("{name} is missing")));
                (of("X-Amz-Credential")?, of("X-Amz-SignedHeaders")?, of("X-Amz-Signature")?)
            }
            false => {
                let given = headers.get(header::AUTHORIZATION).ok_or_else(|| {
                    let message = "Missing Authentication Token: requests are signed with AWS Signature \
                                   Version 4, with the name and the secret of a key of the server";
                    ApiError::signature("MissingAuthenticationTokenException", message)
                })?;
                let text = given.to_str().unwrap_or_default();
                let parts = text.strip_prefix(ALGORITHM).ok_or_else(|| {
                    incomplete("the header Authorization has to begin with AWS4-HMAC-SHA256")
                })?;
                let of = |name: &str| {
                    let parts = parts.split(',').map(str::trim);
                    let found = parts.into_iter().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
                    found
                        .map(str::to_owned)
                        .ok_or_else(|| incomplete(&format!("the header Authorization has no {name}")))
                };
                (of("Credential")?, of("SignedHeaders")?, of("Signature")?)
            }
        };
        let time = parameter("X-Amz-Date").filter(|_| presigned);
        let header_time =
            || headers.get("x-amz-date").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let time = time.or_else(header_time).ok_or_else(|| incomplete("X-Amz-Date is missing"))?;
        let scope: Vec<&str> = credential.rsplitn(5, '/').collect();
        let &[TERMINATOR, service, region, date, key] = &scope[..] else {
            return Err(incomplete(
                "the credential has to be NAME/DATE/REGION/SERVICE/aws4_request, with the name of a key",
            ));
        };
        if !time.starts_with(date) {
            return Err(incomplete("the date of the credential is not that of X-Amz-Date"));
        }
        let expires = match presigned {
            false => None,
            true => Some(parameter("X-Amz-Expires").and_then(|text| text.parse().ok()).unwrap_or(-1)),
        };
        check_time(&time, expires, now)?;
        let signed_headers: Vec<String> = signed.split(';').map(str::to_ascii_lowercase).collect();
        if !signed_headers.iter().any(|name| name == "host") {
            return Err(incomplete("the signed headers lack `host`"));
        }
        Ok(Claim {
            key: key.into(),
            region: region.into(),
            date: date.into(),
            service: service.into(),
            time,
            signed_headers,
            signature,
        })
    }

    /// Compares the signature with that of the request by the holder of `secret`.
    ///
    /// # Errors
    /// If it is another one, or if the body is not the one that was signed.
    pub(super) fn check(
        &self,
        secret: &str,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        body: &[u8],
    ) -> Result<(), ApiError> {
        let hash = hexadecimal(&Sha256::digest(body));
        let named = headers.get("x-amz-content-sha256").and_then(|value| value.to_str().ok());
        let payload = match named {
            Some(UNSIGNED) => UNSIGNED,
            Some(given) if !given.eq_ignore_ascii_case(&hash) => {
                let message = "the body has another SHA-256 than the header x-amz-content-sha256 says";
                return Err(ApiError::signature("InvalidSignatureException", message));
            }
            _ => &hash,
        };
        let canonical = self.canonical_request(method, uri, headers, payload);
        let expected = self.signature_of(secret, &canonical);
        if bool::from(expected.as_bytes().ct_eq(self.signature.as_bytes())) {
            return Ok(());
        }
        Err(ApiError::signature(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your AWS \
             Secret Access Key (the secret of the key) and the signing method",
        ))
    }

    fn canonical_request(&self, method: &Method, uri: &Uri, headers: &HeaderMap, payload: &str) -> String {
        let query: BTreeMap<(String, String), ()> = parameters(uri)
            .into_iter()
            .filter(|(name, _)| name != "X-Amz-Signature")
            .map(|(name, value)| ((encoded(&name, ""), encoded(&value, "")), ()))
            .collect();
        let query: Vec<String> = query.into_keys().map(|(name, value)| format!("{name}={value}")).collect();
        let mut text = format!("{method}\n{}\n{}\n", encoded(uri.path(), "/"), query.join("&"));
        for name in &self.signed_headers {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<String> =
                values.map(|value| value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")).collect();
            // HTTP/2 has the host in the address.
            let host = || uri.authority().map(|authority| authority.to_string()).unwrap_or_default();
            let value = if values.is_empty() && name == "host" { host() } else { values.join(",") };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}:{value}");
        }
        let _ = write!(text, "\n{}\n{payload}", self.signed_headers.join(";"));
        text
    }

    fn signature_of(&self, secret: &str, canonical: &str) -> String {
        let scope = format!("{}/{}/{}/{TERMINATOR}", self.date, self.region, self.service);
        let hash = hexadecimal(&Sha256::digest(canonical.as_bytes()));
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{hash}", self.time);
        let sign = |key: &[u8], text: &str| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
        };
        let key = [&self.region[..], &self.service, TERMINATOR]
            .into_iter()
            .fold(sign(format!("AWS4{secret}").as_bytes(), &self.date), |key, part| sign(&key, part));
        hexadecimal(&sign(&key, &text))
    }
}

/// Refuses times that are too far from `now`, and presigned addresses that have expired.
fn check_time(time: &str, expires: Option<i64>, now: DateTime<Utc>) -> Result<(), ApiError> {
    let invalid = |message: String| ApiError::signature("InvalidSignatureException", message);
    let signed = NaiveDateTime::parse_from_str(time, TIME)
        .map_err(|_| invalid(format!("X-Amz-Date is {time:?}; expected a time such as 20250715T120000Z")))?;
    let age = (now.naive_utc() - signed).num_seconds();
    let shown = now.format(TIME);
    if let Some(expires) = expires {
        if !(1..=MAX_EXPIRES).contains(&expires) {
            return Err(invalid(format!("X-Amz-Expires has to be 1 to {MAX_EXPIRES} seconds")));
        }
        if age > expires {
            return Err(invalid(format!(
                "Signature expired: the address was valid until {expires} s after {time}; it is {shown}"
            )));
        }
    }
    if age < -MAX_SKEW || expires.is_none() && age > MAX_SKEW {
        return Err(invalid(format!(
            "Signature expired or not yet current: the request is of {time} and the server has {shown}; the \
             clocks may differ by {} minutes",
            MAX_SKEW / 60
        )));
    }
    Ok(())
}

/// Returns the parameters of an address, decoded.
fn parameters(uri: &Uri) -> Vec<(String, String)> {
    let query = uri.query().unwrap_or_default();
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    };
    query.split('&').filter(|part| !part.is_empty()).map(pair).collect()
}

/// Decodes percent signs.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let hex = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Encodes all characters but letters, digits, `-._~` and those of `kept`.
fn encoded(text: &str, kept: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let plain =
            byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.as_bytes().contains(&byte);
        if plain {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn time(text: &str) -> DateTime<Utc> {
        NaiveDateTime::parse_from_str(text, TIME).unwrap().and_utc()
    }

    /// The request `get-vanilla` of the test suite of AWS for Signature Version 4.
    fn vanilla() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("example.amazonaws.com"));
        headers.insert("x-amz-date", HeaderValue::from_static("20150830T123600Z"));
        let signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        let text = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, Signature={signature}"
        );
        headers.insert(header::AUTHORIZATION, text.parse().unwrap());
        headers
    }

    #[test]
    fn the_request_of_the_test_suite_has_its_signature() {
        let (headers, uri) = (vanilla(), Uri::from_static("/"));
        let claim = Claim::read(&headers, &uri, time("20150830T124000Z")).unwrap();
        assert_eq!((claim.key.as_str(), claim.region.as_str()), ("AKIDEXAMPLE", "us-east-1"));
        assert!(claim.check(SECRET, (&Method::GET, &uri, &headers), b"").is_ok());
        for refused in [
            claim.check("another", (&Method::GET, &uri, &headers), b""),
            claim.check(SECRET, (&Method::POST, &uri, &headers), b""),
            claim.check(SECRET, (&Method::GET, &Uri::from_static("/x"), &headers), b""),
            claim.check(SECRET, (&Method::GET, &Uri::from_static("/?a=b"), &headers), b""),
            claim.check(SECRET, (&Method::GET, &uri, &headers), b"x"),
        ] {
            assert!(format!("{:?}", refused.unwrap_err()).contains("does not match"));
        }
    }

    #[test]
    fn clocks_that_differ_are_named() {
        let uri = Uri::from_static("/");
        let refused = |now: &str| format!("{:?}", Claim::read(&vanilla(), &uri, time(now)).unwrap_err());
        for now in ["20150830T125101Z", "20150830T122059Z", "20250101T000000Z"] {
            assert!(
                refused(now).contains("20150830T123600Z") && refused(now).contains(now),
                "{}",
                refused(now)
            );
        }
        assert!(Claim::read(&vanilla(), &uri, time("20150830T125100Z")).is_ok());
    }

    #[test]
    fn malformed_claims_are_refused() {
        let (now, uri) = (time("20150830T123600Z"), Uri::from_static("/"));
        let with = |authorization: &str| {
            let mut headers = vanilla();
            headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            format!("{:?}", Claim::read(&headers, &uri, now).unwrap_err())
        };
        assert!(with("Bearer secret").contains("AWS4-HMAC-SHA256"));
        assert!(
            with("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=0").contains("credential")
        );
        let scope = "a/20150830/r/s/aws4_request";
        assert!(with(&format!("AWS4-HMAC-SHA256 Credential={scope}, Signature=0")).contains("SignedHeaders"));
        let unsigned = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=x-amz-date, Signature=0");
        assert!(with(&unsigned).contains("host"));
        let other =
            "AWS4-HMAC-SHA256 Credential=a/20150829/r/s/aws4_request, SignedHeaders=host, Signature=0";
        assert!(with(other).contains("date of the credential"));
        let none = Claim::read(&HeaderMap::new(), &uri, now).unwrap_err();
        assert!(format!("{none:?}").contains("MissingAuthenticationToken"));
    }

    #[test]
    fn percent_signs_are_decoded_and_encoded() {
        assert_eq!(decoded("a%2Fb+c%zz%"), "a/b c%zz%");
        assert_eq!(encoded("/tags/arn%3Aaws", "/"), "/tags/arn%253Aaws");
        assert_eq!(encoded("a b/ü~", ""), "a%20b%2F%C3%BC~");
    }
}
