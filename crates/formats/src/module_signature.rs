//! Signatures of kernel modules, and the certificates of a machine's firmware that they are compared with.
//!
//! Whether a signature is right only a kernel judges, which has all of its keys. Here a signer is known by what names its certificate: the
//! issuer and the serial number (RFC 5652, 5.3), as the kernel finds keys by them too (crypto/asymmetric_keys/pkcs7_trust.c of Linux).

use base::digest::Digest;

/// The end of a module with a signature (linux/module_signature.h).
pub(crate) const SIGNATURE_END: &[u8] = b"~Module signature appended~\n";
/// What is in front of it: eight bytes, the last four with the length of the signature.
const DESCRIPTION_BYTES: usize = 12;

/// Tags of DER (X.690): all that is needed here are these.
const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0]` and `[1]`, as CMS and X.509 use them for optional parts.
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;

/// EFI_CERT_X509_GUID, in the order of its bytes (UEFI 2.10, 32.4.1).
const X509: [u8; 16] =
    [0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72];
/// The header of a list of signatures: its kind, then its length, that of a further header and that of each entry.
const LIST_HEADER_BYTES: usize = 28;
/// The owner in front of each entry.
const OWNER_BYTES: usize = 16;

/// Who has signed a module: the SHA-256 of issuer and serial number of the certificate, as DER has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignerId(pub Digest);

impl SignerId {
    /// The signer of the module with these bytes; none if it has no signature, or one of another form.
    #[must_use]
    pub fn of_module(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_suffix(SIGNATURE_END)?;
        let (rest, description) = bytes.split_at_checked(bytes.len().checked_sub(DESCRIPTION_BYTES)?)?;
        let length = u32::from_be_bytes(description[8..].try_into().ok()?);
        let signature = rest.get(rest.len().checked_sub(usize::try_from(length).ok()?)?..)?;
        Self::of_cms(signature)
    }

    /// That of the first signer of a CMS structure.
    fn of_cms(der: &[u8]) -> Option<Self> {
        let content = Value::read(der, SEQUENCE)?.content;
        // The type of the content, then the content.
        let signed = Value::read(Value::any(content)?.rest, CONTEXT_0)?.content;
        let mut rest = Value::read(signed, SEQUENCE)?.content;
        // Version, algorithms, what is signed; certificates and revocations are optional.
        for tag in [INTEGER, SET, SEQUENCE] {
            rest = Value::read(rest, tag)?.rest;
        }
        for tag in [CONTEXT_0, CONTEXT_1] {
            rest = Value::read(rest, tag).map_or(rest, |found| found.rest);
        }
        let signer = Value::read(Value::read(rest, SET)?.content, SEQUENCE)?.content;
        let named = Value::read(Value::read(signer, INTEGER)?.rest, SEQUENCE)?.content;
        let issuer = Value::read(named, SEQUENCE)?;
        let serial = Value::read(issuer.rest, INTEGER)?;
        Some(Self::of(issuer, serial))
    }

    /// That of the holder of a certificate in DER; none if it is no certificate.
    #[must_use]
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let certificate = Value::read(Value::read(der, SEQUENCE)?.content, SEQUENCE)?.content;
        // The version is optional.
        let rest = Value::read(certificate, CONTEXT_0).map_or(certificate, |version| version.rest);
        let serial = Value::read(rest, INTEGER)?;
        let issuer = Value::read(Value::read(serial.rest, SEQUENCE)?.rest, SEQUENCE)?;
        Some(Self::of(issuer, serial))
    }

    fn of(issuer: Value<'_>, serial: Value<'_>) -> Self {
        Self(Digest::of(&[issuer.whole, serial.whole].concat()))
    }
}

/// The certificates in a variable such as `db` or `MokListRT`: lists of signatures, one after the other (UEFI 2.10, 32.4.1). What cannot be
/// read ends the reading.
#[must_use]
pub fn certificates(lists: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut rest) = (Vec::new(), lists);
    while let Some((entries, next)) = first_list(rest) {
        found.extend(entries);
        rest = next;
    }
    found
}

/// The certificates in the first of some lists, none if it is one of hashes, and what follows it.
fn first_list(lists: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let number = |at: usize| -> Option<usize> {
        usize::try_from(u32::from_le_bytes(lists.get(at..at + 4)?.try_into().ok()?)).ok()
    };
    let (length, header, entry) = (number(16)?, number(20)?, number(24)?);
    let (list, rest) = lists.split_at_checked(length).filter(|_| length >= LIST_HEADER_BYTES)?;
    if !list.starts_with(&X509) {
        return Some((Vec::new(), rest));
    }
    let entries = list.get(LIST_HEADER_BYTES.checked_add(header)?..)?.chunks_exact(entry.max(1));
    Some((entries.filter_map(|entry| entry.get(OWNER_BYTES..)).collect(), rest))
}

/// A value of DER.
#[derive(Clone, Copy, Debug)]
struct Value<'a> {
    tag: u8,
    whole: &'a [u8],
    content: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Value<'a> {
    /// The value at the start, if it has this tag.
    fn read(bytes: &'a [u8], tag: u8) -> Option<Self> {
        Self::any(bytes).filter(|value| value.tag == tag)
    }

    fn any(bytes: &'a [u8]) -> Option<Self> {
        let (tag, first) = (*bytes.first()?, *bytes.get(1)?);
        let (length, start) = match first {
            short @ 0..0x80 => (usize::from(short), 2),
            // More than four bytes of length has nothing here.
            long => {
                let count = usize::from(long & 0x7f);
                let digits = bytes.get(2..2 + count).filter(|_| (1..=4).contains(&count))?;
                (digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), 2 + count)
            }
        };
        let (whole, rest) = bytes.split_at_checked(start.checked_add(length)?)?;
        Some(Self { tag, whole, content: &whole[start..], rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};
    use proptest::prelude::*;
    use std::fs;

    /// A certificate in DER, and a module that its key has signed as the kernel's sign-file does.
    fn signed(module: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("module"), module).unwrap();
        let script = "cd $0 && openssl req -new -x509 -newkey rsa:2048 -nodes -days 9 -subj '/CN=Modules of a test/' \
                      -keyout key -out certificate 2>/dev/null && openssl x509 -in certificate -outform der -out der && \
                      openssl cms -sign -binary -noattr -nocerts -signer certificate -inkey key -in module -outform der -out cms";
        SystemRunner.run(&Invocation::new("sh").args(["-c", script]).arg(directory.path())).unwrap();
        let (der, signature) = (fs::read(at("der")).unwrap(), fs::read(at("cms")).unwrap());
        let mut description = [0; DESCRIPTION_BYTES];
        description[2] = 2;
        description[8..].copy_from_slice(&u32::try_from(signature.len()).unwrap().to_be_bytes());
        (der, [module, &signature, &description, SIGNATURE_END].concat())
    }

    fn list(kind: [u8; 16], entries: &[&[u8]]) -> Vec<u8> {
        let entry = entries[0].len() + OWNER_BYTES;
        let length = LIST_HEADER_BYTES + entry * entries.len();
        let numbers = [length, 0, entry].map(|number| u32::try_from(number).unwrap().to_le_bytes()).concat();
        let entries: Vec<u8> =
            entries.iter().flat_map(|data| [&[7; OWNER_BYTES][..], data].concat()).collect();
        [&kind[..], &numbers, &entries].concat()
    }

    #[test]
    fn a_signature_names_the_certificate_that_made_it() {
        let (certificate, module) = signed(b"a module of the kernel");
        let signer = SignerId::of_module(&module).unwrap();
        assert_eq!(Some(signer), SignerId::of_certificate(&certificate));
        let (other, _) = signed(b"x");
        assert_ne!(Some(signer), SignerId::of_certificate(&other));
        assert_eq!(SignerId::of_module(b"a module of the kernel"), None);
        assert_eq!(SignerId::of_module(SIGNATURE_END), None);
    }

    #[test]
    fn the_certificates_of_a_variable_are_those_of_its_lists_of_certificates() {
        let hashes = list([1; 16], &[&[9; 32], &[8; 32]]);
        let variable = [list(X509, &[b"first"]), hashes, list(X509, &[b"second", b"third!"])].concat();
        assert_eq!(certificates(&list(X509, &[b"first"])), [b"first"]);
        let found = certificates(&variable);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], b"first");
        assert!(certificates(&variable[..30]).is_empty() && certificates(b"").is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), length in any::<u32>()) {
            let _ = SignerId::of_certificate(&bytes);
            let _ = SignerId::of_cms(&bytes);
            let mut description = [0; DESCRIPTION_BYTES];
            description[8..].copy_from_slice(&length.to_be_bytes());
            let _ = SignerId::of_module(&[&bytes[..], &description, SIGNATURE_END].concat());
            let _ = certificates(&[&X509[..], &bytes].concat());
        }
    }
}
