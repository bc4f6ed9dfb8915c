//! Who a node is, and who may speak to it: the key that its peers know it by, and the token that it knows them by.
//!
//! There is no authority: a peer is told the SHA-256 of the node's public key and takes no other. What stands in the
//! certificate, its dates too, is not looked at.

use bathyal_store::StoreError;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq;

/// Characters that a token has at least.
pub const LEAST_TOKEN_CHARS: usize = 16;
/// The name in certificates, which nobody looks at.
const NAME: &str = "bathyal-memory-node";
/// A node's own secrets, in its folder.
const NODE_FILE: &str = "node.json";
/// What its peers are given, beside it.
const CLIENT_FILE: &str = "client.json";

/// What a peer has to have to speak to a node: the content of the file that a node writes for its peers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// What the node knows its peers by.
    pub token: String,
    /// What its peers know the node by: `sha256:` and 64 hexadecimal digits.
    pub peer_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.peer_key)
    }
}

impl Credentials {
    /// Those in a file that a node wrote.
    ///
    /// # Errors
    /// [`StoreError::Address`] if there is no such file, or no credentials in it.
    pub fn from_file(path: &Path) -> Result<Credentials, StoreError> {
        let refuse = |what: String| {
            StoreError::Address(format!(
                "{}: {what}; it is the file {CLIENT_FILE} that `bathyal memory-node` writes",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        // Nothing of the file is repeated: it holds a secret.
        serde_json::from_str(&text).map_err(|_| refuse("has no token and peer_key in it".into()))
    }
}

/// A node's secrets.
pub struct Identity {
    credentials: Credentials,
    certificate: Vec<u8>,
    private_key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity({})", self.credentials.peer_key)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    token: String,
    certificate: String,
    private_key: String,
}

impl Identity {
    /// A new one.
    ///
    /// # Errors
    /// [`io::Error`] without random numbers.
    pub fn new() -> io::Result<Identity> {
        let failed = |e: rcgen::Error| io::Error::other(e.to_string());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(failed)?;
        let parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
        let certificate = parameters.self_signed(&key).map_err(failed)?.der().to_vec();
        Identity::of(hex(&random::<16>()?), certificate, key.serialize_der())
    }

    fn of(token: String, certificate: Vec<u8>, private_key: Vec<u8>) -> io::Result<Identity> {
        let peer_key = fingerprint(&certificate)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its certificate cannot be read"))?;
        Ok(Identity { credentials: Credentials { token, peer_key }, certificate, private_key })
    }

    /// The one in `folder`, or a new one that is put there, readable by this user alone, with the file for its peers.
    ///
    /// # Errors
    /// [`io::Error`] for files that cannot be read or written, or hold something else.
    pub fn in_folder(folder: &Path) -> io::Result<Identity> {
        let path = folder.join(NODE_FILE);
        let invalid =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
        let identity = match std::fs::read_to_string(&path) {
            Ok(text) => {
                let kept: Kept =
                    serde_json::from_str(&text).map_err(|_| invalid("is no identity of a memory node"))?;
                let (certificate, key) = (unhex(&kept.certificate), unhex(&kept.private_key));
                let (Some(certificate), Some(key)) = (certificate, key) else {
                    return Err(invalid("is no identity of a memory node"));
                };
                if kept.token.chars().count() < LEAST_TOKEN_CHARS {
                    return Err(invalid("has a token of fewer than 16 characters"));
                }
                Identity::of(kept.token, certificate, key)?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::new()?;
                std::fs::create_dir_all(folder)?;
                let kept = Kept {
                    token: identity.credentials.token.clone(),
                    certificate: hex(&identity.certificate),
                    private_key: hex(&identity.private_key),
                };
                write_private(&path, &serde_json::to_vec_pretty(&kept)?)?;
                identity
            }
            Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
        };
        let client = folder.join(CLIENT_FILE);
        if Credentials::from_file(&client).ok().as_ref() != Some(&identity.credentials) {
            write_private(&client, &serde_json::to_vec_pretty(&identity.credentials)?)?;
        }
        Ok(identity)
    }

    /// What its peers are given.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Whether `token` is the one that peers are known by; takes as long whatever it is.
    pub(crate) fn admits(&self, token: &str) -> bool {
        self.credentials.token.as_bytes().ct_eq(token.as_bytes()).into()
    }

    pub(crate) fn server(&self) -> io::Result<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.private_key.clone())
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(self.certificate.clone())], key)
            .map_err(io::Error::other)
    }
}

/// Where a node's identity is if nothing else is said, and where its peers on the same machine look.
///
/// # Errors
/// [`StoreError::Address`] without a home.
pub fn keys_folder() -> Result<PathBuf, StoreError> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| {
        StoreError::Address("there is no folder of this user's for keys: set HOME, or name a folder".into())
    })?;
    Ok(folder.join("bathyal/memory-node"))
}

/// The file for peers in a node's folder.
pub fn client_file(folder: &Path) -> PathBuf {
    folder.join(CLIENT_FILE)
}

/// What a peer speaks to a node by. The key that the node showed is found in `seen`, whether it was the right one or not.
pub(crate) fn client(peer_key: &str) -> io::Result<(ClientConfig, Arc<Pin>)> {
    let pin = Arc::new(Pin { wanted: peer_key.to_owned(), seen: Mutex::default(), provider: provider() });
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(pin.clone())
        .with_no_client_auth();
    Ok((config, pin))
}

/// The name that is asked for, which nobody looks at.
pub(crate) fn server_name() -> io::Result<ServerName<'static>> {
    ServerName::try_from(NAME).map_err(io::Error::other)
}

/// Takes one key and no other.
#[derive(Debug)]
pub(crate) struct Pin {
    wanted: String,
    seen: Mutex<Option<String>>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    /// The key that was shown, if it is not the one that was wanted.
    pub(crate) fn other(&self) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        seen.filter(|seen| *seen != self.wanted)
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = fingerprint(end_entity);
        let right = seen.as_deref() == Some(self.wanted.as_str());
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        if right {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What a certificate's key is known by: its SHA-256.
fn fingerprint(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from(certificate);
    let key = rustls::server::ParsedCertificate::try_from(&certificate).ok()?.subject_public_key_info();
    Some(format!("sha256:{}", hex(digest(&SHA256, &key).as_ref())))
}

/// Whether a text may be a key's name.
pub(crate) fn is_peer_key(text: &str) -> bool {
    text.strip_prefix("sha256:").and_then(unhex).is_some_and(|bytes| bytes.len() == 32)
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// Puts `bytes` at `path` at once, readable by this user alone.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let half = path.with_extension("new");
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()));
    // One that a kill left has whatever permissions it has.
    let _ = std::fs::remove_file(&half);
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    // Elsewhere what lies in a user's folder is that user's by what the folder says.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&half).map_err(named)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(named)?;
    std::fs::rename(&half, path).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_stays_and_is_nobody_elses_to_read() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("keys");
        let first = Identity::in_folder(&folder).unwrap();
        let again = Identity::in_folder(&folder).unwrap();
        assert_eq!(first.credentials(), again.credentials());
        assert_eq!(Credentials::from_file(&client_file(&folder)).unwrap(), *first.credentials());
        assert!(is_peer_key(&first.credentials().peer_key));
        for name in [NODE_FILE, CLIENT_FILE] {
            let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(first.admits(&first.credentials().token));
        assert!(!first.admits("") && !first.admits(&first.credentials().peer_key));
        let shown = format!("{first:?} {:?}", first.credentials());
        assert!(!shown.contains(&first.credentials().token), "{shown}");
        std::fs::write(folder.join(NODE_FILE), b"{\"token\": \"secret\"}").unwrap();
        let refused = Identity::in_folder(&folder).unwrap_err().to_string();
        assert!(refused.contains("is no identity") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn digits_are_read_as_they_are_written() {
        assert_eq!(unhex(&hex(&[0, 1, 0xff])), Some(vec![0, 1, 0xff]));
        for text in ["0", "zz", "+1", "é"] {
            assert!(unhex(text).is_none_or(|bytes| hex(&bytes) == text), "{text}");
        }
    }
}
