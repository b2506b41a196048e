//! The authority of a cluster: the certificates that its servers show, and which of them are trusted.
//!
//! A token of RKE2 and K3s names one certificate by its SHA-256: that of the file where the file has one certificate, else that of
//! the root's own bytes (k3s `hashCA`); with kubeadm it names a public key by that of its `SubjectPublicKeyInfo` (kubeadm
//! `pubkeypin`). Upstream then trusts every certificate of the file. Here the one that is named is the only anchor and the others
//! are no more than links to it, so whoever adds a certificate to the file gains nothing.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use super::certificate::{is_self_issued, key_digest};
use crate::api::http;
use base::digest::Digest;
use machine::network_trouble::NetworkTrouble;

/// The certificates that a cluster presents as its authority.
#[derive(Clone, Debug)]
pub(super) struct AuthorityBundle {
    certificates: Vec<CertificateDer<'static>>,
    whole: Digest,
}

/// An authority, and the certificates that may link a server's certificate to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The digest by which tokens name it.
    pub digest: Digest,
    anchors: Vec<CertificateDer<'static>>,
    links: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAuthority {
    pub authority: Authority,
    pub proof: AuthorityProof,
}

/// Why the authority is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityProof {
    /// The token names it.
    Named,
    /// It is signed with the token, which the server therefore knows.
    Signed,
    /// Trust on first use.
    FirstUse,
}

impl AuthorityBundle {
    /// Reads the answer of `/cacerts`; none if it holds no certificates.
    pub(super) fn read(pem: &[u8]) -> Option<Self> {
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
        (!certificates.is_empty()).then(|| Self { certificates, whole: Digest::of(pem) })
    }

    /// The authority that a token names, if this is it.
    pub(super) fn named(&self, digest: Digest) -> Option<Authority> {
        self.authorities().find(|authority| authority.digest == digest)
    }

    /// The authorities that a token could name, the likeliest first. Which of them a server's certificate really leads to,
    /// the server has to show.
    pub(super) fn authorities(&self) -> impl Iterator<Item = Authority> {
        let authority = |digest, anchors: &[CertificateDer<'static>]| Authority {
            digest,
            anchors: anchors.to_vec(),
            links: self.certificates.clone(),
        };
        // The first of several signs the servers' certificates and is no root.
        let roots = self.certificates.iter().skip(1).filter(|certificate| is_self_issued(certificate));
        let roots = roots
            .map(move |root| authority(Digest::of(root), std::slice::from_ref(root)))
            .collect::<Vec<_>>();
        roots.into_iter().chain([authority(self.whole, &self.certificates)])
    }

    /// The authorities by their public keys, as kubeadm's pins name them.
    pub(super) fn keys(&self) -> impl Iterator<Item = Authority> {
        self.certificates.iter().filter_map(|certificate| {
            Some(Authority {
                digest: key_digest(certificate)?,
                anchors: vec![certificate.clone()],
                links: self.certificates.clone(),
            })
        })
    }
}

/// Refuses a cluster whose authority is another one than the token names.
pub(super) fn other_authority(shown: impl Iterator<Item = Authority>, named: Digest) -> NetworkTrouble {
    let shown = shown.map(|authority| authority.digest.to_string()).next().unwrap_or_default();
    NetworkTrouble::Silent(format!(
        "has another authority than the token names: its own is {shown}, the token's {named}"
    ))
}

impl Authority {
    /// A verifier that trusts this authority alone and takes `now` for the time.
    pub(super) fn verifier(&self, now: SystemTime) -> Option<Arc<dyn ServerCertVerifier>> {
        let judge = http::verifier(self.anchors.clone())?;
        let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        Some(Arc::new(Verifier { judge, links: self.links.clone(), now }))
    }
}

/// Verifies by one authority, and adds the intermediate certificates that a server may leave out.
#[derive(Debug)]
struct Verifier {
    judge: Arc<WebPkiServerVerifier>,
    links: Vec<CertificateDer<'static>>,
    now: UnixTime,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let links: Vec<_> = sent.iter().chain(&self.links).cloned().collect();
        self.judge.verify_server_cert(server, &links, name, ocsp, self.now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.judge.verify_tls12_signature(message, server, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        server: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.judge.verify_tls13_signature(message, server, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}
