//! The certificate of a server, which is read again when its files change.

use crate::failure::ServerError;
use crate::gate::changed_at;
use crate::options::TlsFiles;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// The certificate that is valid now.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: TlsFiles,
    current: RwLock<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    changed: FileTimes,
}

/// When the files of a certificate and of its key were changed.
type FileTimes = [Option<SystemTime>; 2];

impl Certificates {
    /// Reads a certificate.
    ///
    /// # Errors
    /// [`ServerError::Content`] for files that are no certificate and its key.
    pub(crate) fn read(files: &TlsFiles) -> Result<Arc<Certificates>, ServerError> {
        let loaded = LoadedCertificate { changed: times(files), key: read(files)? };
        Ok(Arc::new(Certificates { files: files.clone(), current: RwLock::new(loaded) }))
    }

    /// Reads the certificate again if a file has changed. Returns true if one has. After an error, the former
    /// one stays valid.
    ///
    /// # Errors
    /// As [`Certificates::read`].
    pub(crate) fn reload(&self) -> Result<bool, ServerError> {
        let changed = times(&self.files);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).changed == changed {
            return Ok(false);
        }
        let read = read(&self.files);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Files that are refused are reported once.
        current.changed = changed;
        current.key = read?;
        Ok(true)
    }

    /// Returns the configuration of connections.
    ///
    /// # Errors
    /// [`ServerError::Option`] if the library has no usable protocol.
    pub(crate) fn configuration(self: Arc<Certificates>) -> Result<rustls::ServerConfig, ServerError> {
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerError::Option(format!("TLS: {error}")))?;
        let mut configuration = builder.with_no_client_auth().with_cert_resolver(self);
        configuration.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(configuration)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).key.clone())
    }
}

fn times(files: &TlsFiles) -> FileTimes {
    [changed_at(&files.certificate), changed_at(&files.key)]
}

fn read(files: &TlsFiles) -> Result<Arc<CertifiedKey>, ServerError> {
    let refuse = |path: &Path, reason: String| ServerError::Content { path: path.to_path_buf(), reason };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refuse(&files.certificate, format!("is no certificate in PEM: {error}")))?;
    if chain.is_empty() {
        return Err(refuse(&files.certificate, "has no certificate in PEM".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| refuse(&files.key, format!("is no private key in PEM: {error}")))?;
    let key = CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| refuse(&files.key, format!("does not belong to the certificate: {error}")))?;
    Ok(Arc::new(key))
}
