//! As much of a certificate's form (RFC 5280, section 4.1, in DER) as tells a root from what it has signed. It says
//! what a certificate claims to be; signatures are not looked at.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Whether a certificate names itself as its issuer.
pub(super) fn is_self_issued(certificate: &[u8]) -> bool {
    names(certificate).is_some_and(|(issuer, subject)| issuer == subject)
}

/// Issuer and subject of a certificate.
fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (SEQUENCE, certificate, _) = element(certificate)? else { return None };
    let (SEQUENCE, mut rest, _) = element(certificate)? else { return None };
    let mut next = || {
        let (tag, content, after) = element(rest)?;
        rest = after;
        Some((tag, content))
    };
    if next()?.0 == VERSION {
        // The serial number, which certificates of the first version begin with.
        next()?;
    }
    let (_algorithm, issuer, _validity, subject) = (next()?, next()?, next()?, next()?);
    Some((issuer.1, subject.1))
}

/// The tag and the content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        // The number of bytes that the length has; certificates are never as long as four of them could say.
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(length)?;
    Some((tag, content, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match content.len() {
            short @ 0..0x80 => bytes.push(u8::try_from(short).unwrap()),
            long => bytes.extend([&[0x82], &u16::try_from(long).unwrap().to_be_bytes()[..]].concat()),
        }
        bytes.extend(content);
        bytes
    }

    fn certificate(version: bool, issuer: &[u8], subject: &[u8]) -> Vec<u8> {
        let version = if version { tlv(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let name = |name: &[u8]| tlv(SEQUENCE, name);
        let fields =
            [version, tlv(2, &[1]), name(b"alg"), name(issuer), name(b"validity"), name(subject)].concat();
        tlv(SEQUENCE, &tlv(SEQUENCE, &fields))
    }

    #[test]
    fn a_root_names_itself_as_its_issuer() {
        for version in [true, false] {
            assert!(is_self_issued(&certificate(version, b"root", b"root")));
            assert!(!is_self_issued(&certificate(version, b"root", b"middle")));
            assert!(is_self_issued(&certificate(version, &[7; 300], &[7; 300])));
        }
        assert!(!is_self_issued(b""));
        assert!(!is_self_issued(&certificate(true, b"root", b"root")[..20]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_certificate_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = is_self_issued(&bytes);
        }

        #[test]
        fn names_come_back_as_they_were(issuer: Vec<u8>, subject: Vec<u8>, version: bool) {
            let certificate = certificate(version, &issuer, &subject);
            prop_assert_eq!(names(&certificate), Some((&issuer[..], &subject[..])));
        }
    }
}
