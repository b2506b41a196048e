//! HTTPS with a certificate of the operator, or of the server's [own authority](super::authority).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateChoice {
    /// The certificate and its private key, both in PEM.
    Files(PathBuf, PathBuf),
    /// A certificate from an authority of the server's own.
    Own,
}

/// `certificate` is a file with the server's certificate and its chain, `key` one with the private key; both are PEM.
/// Files that cannot be used are [`Class::Invalid`].
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let what = || format!("reading the certificate {}", certificate.display());
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).class(Class::Invalid, what)?;
    if chain.is_empty() {
        let what = format!("{} has no certificate", certificate.display());
        return Err(Failure::new(Class::Invalid, what).hint("Give --tls a file in PEM.").into());
    }
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.class(Class::Invalid, || format!("reading the private key {}", key.display()))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.class(Class::Unexpected, || "preparing TLS".into())?.with_no_client_auth();
    let pair = || format!("using {} with the key {}", certificate.display(), key.display());
    let mut config = builder.with_single_cert(chain, private).class(Class::Invalid, pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use std::process::Command;

    /// A self-signed certificate for 127.0.0.1 and its key, in `directory`.
    pub(crate) fn certificate(directory: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        openssl.args(["-subj", "/CN=server", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "30"]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
        assert!(openssl.output().unwrap().status.success());
        (certificate, key)
    }

    #[test]
    fn files_that_do_not_do_are_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = certificate(directory.path());
        acceptor(&certificate, &key).unwrap();
        let empty = directory.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        let absent = directory.path().join("absent.pem");
        for (certificate, key, named) in [
            (&empty, &key, "empty.pem"),
            (&certificate, &empty, "empty.pem"),
            (&absent, &key, "absent.pem"),
            (&certificate, &certificate, "cert.pem"),
        ] {
            let error = acceptor(certificate, key).err().unwrap();
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(text.contains(named) && !text.contains("BEGIN"), "{text}");
        }
    }
}
