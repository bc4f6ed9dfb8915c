//! The identity of a node: the key pair that clients verify, and the token that authorizes clients.
//!
//! There is no certificate authority: a client is given the SHA-256 of the node's public key and accepts no
//! other key. The other content of the certificate, such as its dates, is not checked.

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

/// Minimum length of a token, in characters.
pub const MIN_TOKEN_CHARS: usize = 16;
/// Name in certificates, which is not checked.
const NAME: &str = "bathyal-memory-node";
/// File with the node's secrets, in its folder.
const NODE_FILE: &str = "node.json";
/// File with the credentials for clients, in the same folder.
const CLIENT_FILE: &str = "client.json";

/// Credentials of a client of a node: the content of the file that the node writes for its
/// clients.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// Secret that authorizes clients.
    pub token: String,
    /// Fingerprint of the node's public key: `sha256:` and 64 hexadecimal digits.
    pub peer_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.peer_key)
    }
}

impl Credentials {
    /// Reads the credentials in a file that a node wrote.
    ///
    /// # Errors
    /// [`StoreError::Address`] if the file cannot be read or holds no credentials.
    pub fn from_file(path: &Path) -> Result<Credentials, StoreError> {
        let refuse = |what: String| {
            StoreError::Address(format!(
                "{}: {what}; it is the file {CLIENT_FILE} that `bathyal memory-node` writes",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
        // The message quotes nothing of the file, because it holds a secret.
        serde_json::from_str(&text).map_err(|_| refuse("holds no token and peer_key".into()))
    }
}

/// The secrets of a node: token, certificate and private key.
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
struct NodeSecrets {
    token: String,
    certificate: String,
    private_key: String,
}

impl Identity {
    /// Generates a new identity.
    ///
    /// # Errors
    /// [`io::Error`] if the system provides no random numbers.
    pub fn new() -> io::Result<Identity> {
        let failed = |e: rcgen::Error| io::Error::other(e.to_string());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(failed)?;
        let parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).map_err(failed)?;
        let certificate = parameters.self_signed(&key).map_err(failed)?.der().to_vec();
        Identity::from_parts(hex(&random::<16>()?), certificate, key.serialize_der())
    }

    fn from_parts(token: String, certificate: Vec<u8>, private_key: Vec<u8>) -> io::Result<Identity> {
        let peer_key = fingerprint(&certificate)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its certificate cannot be read"))?;
        Ok(Identity { credentials: Credentials { token, peer_key }, certificate, private_key })
    }

    /// Reads the identity in `folder`, or generates one and writes it there, readable by this user only. Also
    /// writes the file with the credentials for clients if it is missing or differs.
    ///
    /// # Errors
    /// [`io::Error`] for files that cannot be read or written, or hold no identity.
    pub fn in_folder(folder: &Path) -> io::Result<Identity> {
        let path = folder.join(NODE_FILE);
        let invalid =
            |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
        let identity = match std::fs::read_to_string(&path) {
            Ok(text) => {
                let secrets: NodeSecrets =
                    serde_json::from_str(&text).map_err(|_| invalid("is no identity of a memory node"))?;
                let (certificate, key) = (unhex(&secrets.certificate), unhex(&secrets.private_key));
                let (Some(certificate), Some(key)) = (certificate, key) else {
                    return Err(invalid("is no identity of a memory node"));
                };
                if secrets.token.chars().count() < MIN_TOKEN_CHARS {
                    return Err(invalid("has a token of fewer than 16 characters"));
                }
                Identity::from_parts(secrets.token, certificate, key)?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let identity = Identity::new()?;
                std::fs::create_dir_all(folder)?;
                let secrets = NodeSecrets {
                    token: identity.credentials.token.clone(),
                    certificate: hex(&identity.certificate),
                    private_key: hex(&identity.private_key),
                };
                write_private(&path, &serde_json::to_vec_pretty(&secrets)?)?;
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

    /// Returns the credentials for clients.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns true if `token` is the node's token. The comparison takes constant time.
    pub(crate) fn admits(&self, token: &str) -> bool {
        self.credentials.token.as_bytes().ct_eq(token.as_bytes()).into()
    }

    pub(crate) fn server_config(&self) -> io::Result<ServerConfig> {
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

/// Returns the folder with this user's node identity, which is used unless another one is given. Clients on
/// the same machine look for credentials there.
///
/// # Errors
/// [`StoreError::Address`] if the environment names no home folder.
pub fn keys_folder() -> Result<PathBuf, StoreError> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let folder = folder.ok_or_else(|| {
        StoreError::Address("this user has no folder for keys: set HOME, or name a folder".into())
    })?;
    Ok(folder.join("bathyal/memory-node"))
}

/// Returns the path of the file with the credentials for clients in a node's folder.
pub fn client_file(folder: &Path) -> PathBuf {
    folder.join(CLIENT_FILE)
}

/// Returns a TLS configuration that accepts the node with this key only, and its verifier, which records the
/// key that the node presented.
pub(crate) fn client_config(peer_key: &str) -> io::Result<(ClientConfig, Arc<PinnedKeyVerifier>)> {
    let verifier = Arc::new(PinnedKeyVerifier {
        expected: peer_key.to_owned(),
        seen: Mutex::default(),
        provider: provider(),
    });
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_no_client_auth();
    Ok((config, verifier))
}

/// Returns the server name for the TLS handshake, which is not checked.
pub(crate) fn server_name() -> io::Result<ServerName<'static>> {
    ServerName::try_from(NAME).map_err(io::Error::other)
}

/// Certificate verifier that accepts one public key only.
#[derive(Debug)]
pub(crate) struct PinnedKeyVerifier {
    expected: String,
    seen: Mutex<Option<String>>,
    provider: Arc<CryptoProvider>,
}

impl PinnedKeyVerifier {
    /// Returns the key that the node presented, if it is not the expected one.
    pub(crate) fn unexpected_key(&self) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        seen.filter(|seen| *seen != self.expected)
    }
}

impl ServerCertVerifier for PinnedKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = fingerprint(end_entity);
        let is_expected = seen.as_deref() == Some(self.expected.as_str());
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        if is_expected {
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

/// Returns the fingerprint of a certificate's public key: its SHA-256.
fn fingerprint(certificate: &[u8]) -> Option<String> {
    let certificate = CertificateDer::from(certificate);
    let key = rustls::server::ParsedCertificate::try_from(&certificate).ok()?.subject_public_key_info();
    Some(format!("sha256:{}", hex(digest(&SHA256, &key).as_ref())))
}

/// Returns true if `text` has the form of a fingerprint.
pub(crate) fn is_peer_key(text: &str) -> bool {
    text.strip_prefix("sha256:").and_then(unhex).is_some_and(|bytes| bytes.len() == 32)
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system provides no random numbers"))?;
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

/// Writes `bytes` to `path` atomically, readable by this user only.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let temporary = path.with_extension("new");
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()));
    // A file left by a killed process may have other permissions.
    let _ = std::fs::remove_file(&temporary);
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    // On other systems, the folder's permissions protect the file.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary).map_err(named)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(named)?;
    std::fs::rename(&temporary, path).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_is_kept_and_readable_by_its_owner_only() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("keys");
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
    fn hexadecimal_digits_decode_to_the_encoded_bytes() {
        assert_eq!(unhex(&hex(&[0, 1, 0xff])), Some(vec![0, 1, 0xff]));
        for text in ["0", "zz", "+1", "é"] {
            assert!(unhex(text).is_none_or(|bytes| hex(&bytes) == text), "{text}");
        }
    }
}
