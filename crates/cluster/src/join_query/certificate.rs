//! Fields of certificates (RFC 5280, section 4.1). Signatures are not checked.

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use base::digest::Digest;

/// Whether this is a certificate (DER) that names itself as its issuer.
pub(super) fn is_self_issued(certificate: &[u8]) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| certificate.issuer().as_raw() == certificate.subject().as_raw())
}

/// SHA-256 of the `SubjectPublicKeyInfo` of a certificate (DER).
pub(super) fn key_digest(certificate: &[u8]) -> Option<Digest> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(Digest::of(certificate.public_key().raw))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Certificates of version 1 from OpenSSL: a root, and one that it signed.
    const ROOT_V1: &str = "-----BEGIN CERTIFICATE-----
MIIBWDCB/wIUFsg3oBhZt6CMfZkM3krSVoCfZ2wwCgYIKoZIzj0EAwIwLjEQMA4G
A1UECgwHRXhhbXBsZTEaMBgGA1UEAwwRcm9vdCBvZiB2ZXJzaW9uIDEwIBcNMjYx
MTIzMDYyNjI0WhgPMjEyNjEwMzAwNjI2MjRaMC4xEDAOBgNVBAoMB0V4YW1wbGUx
GjAYBgNVBAMMEXJvb3Qgb2YgdmVyc2lvbiAxMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEkXaXtFr7LitNefAZnJSfDR1zbgfhtpR6/gYImQGdPvEVtOyDBPl2+kMp
+n4vxPe5i+aFw6gC+Fll57JViy+T4DAKBggqhkjOPQQDAgNIADBFAiEAswgSyRhc
ZHKK6LiCDfdKtxV4DmrtlpUF1IPTX2wPoSgCIB1YZSu0hMQu/GWZDnRZD/2XagAD
HV/5fs5XWjgRdc9F
-----END CERTIFICATE-----";
    const SIGNED_V1: &str = "-----BEGIN CERTIFICATE-----
MIIBWDCB/wIUcaoL0+mD6WB9hqUJHq/xcckJehowCgYIKoZIzj0EAwIwLjEQMA4G
A1UECgwHRXhhbXBsZTEaMBgGA1UEAwwRcm9vdCBvZiB2ZXJzaW9uIDEwIBcNMjYx
MTIzMDYyNjI0WhgPMjEyNjEwMzAwNjI2MjRaMC4xEDAOBgNVBAoMB0V4YW1wbGUx
GjAYBgNVBAMMEWxlYWYgb2YgdmVyc2lvbiAxMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEErB6ufSUTAxz8mSJyElO0X54ASEYzemLxjn5QNBvjOxHPrviu2YZBjEF
76tKfLn4hstuBmkwmWo87RNpbePsTDAKBggqhkjOPQQDAgNIADBFAiB38nBZ+ODL
kft+P99hduF4TF81Vpo6yAsg1rXU3V5imQIhAOIxa2rZbsfXbOGENE3cKvxLePxO
oELe2Pdvh3qTSR2z
-----END CERTIFICATE-----";

    /// A certificate of version 3.
    fn certificate(issuer: &str, subject: &str) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let params = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, name);
            params
        };
        let issuer = params(issuer);
        params(subject).signed_by(&key, &Issuer::from_params(&issuer, &key)).unwrap().der().to_vec()
    }

    fn der(pem: &str) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[test]
    fn a_root_names_itself_as_its_issuer() {
        let long = "x".repeat(300);
        for (issuer, subject, is_root) in
            [("root", "root", true), ("root", "middle", false), (&long, &long, true), (&long, "root", false)]
        {
            assert_eq!(is_self_issued(&certificate(issuer, subject)), is_root, "{issuer} {subject}");
        }
        assert!(is_self_issued(&der(ROOT_V1)));
        assert!(!is_self_issued(&der(SIGNED_V1)));
    }

    /// `openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER | sha256sum`.
    #[test]
    fn a_key_has_the_digest_that_openssl_gives_it() {
        let digest = key_digest(&der(ROOT_V1)).unwrap();
        assert_eq!(digest.to_string(), "18d862d619fb74d310d5a789cb115c3630ba24671a735c7576ae16c60c116ad9");
        assert_eq!(key_digest(b"no certificate"), None);
    }

    #[test]
    fn a_part_of_a_certificate_is_none() {
        let root = certificate("root", "root");
        assert!((0..root.len()).all(|length| !is_self_issued(&root[..length])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (is_self_issued(&bytes), key_digest(&bytes));
        }

        #[test]
        fn names_are_compared_as_they_are(issuer in "[a-zA-Z0-9 ]{1,40}", subject in "[a-zA-Z0-9 ]{1,40}") {
            prop_assert_eq!(is_self_issued(&certificate(&issuer, &subject)), issuer == subject);
            prop_assert!(is_self_issued(&certificate(&issuer, &issuer)));
        }

        #[test]
        fn a_damaged_certificate_is_read_or_not(at: prop::sample::Index, byte: u8) {
            let mut root = der(ROOT_V1);
            let at = at.index(root.len());
            root[at] = byte;
            let _ = (is_self_issued(&root), key_digest(&root));
        }
    }
}
