//! The signatures of a release as bytes: how they are read, and the form that they have on an ISO.
//!
//! An ISO has [`SIGNATURES_LENGTH`] bytes for them, signed or not: the text, then newlines. So it can be signed after it
//! was built by changing these bytes only. Everywhere else the file has the text alone, or is missing. Who signed what is
//! decided elsewhere, from the text.

use std::io::Read;
use std::str;

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Failure};
use model::release::{SIGNATURES, SIGNATURES_LENGTH};

const LENGTH: usize = SIGNATURES_LENGTH as usize;
/// The hint for signatures that cannot be used.
const SIGN_AGAIN: &str = "Get the release again, or remove the file and have it signed again.";

/// The text of the signatures in `file`, without padding; none if there is no text. `holder` names what has the file.
///
/// # Errors
/// [`Class::Verification`] if it is longer than [`SIGNATURES_LENGTH`]; otherwise that of the reader.
pub fn read(file: impl Read, holder: impl Fn() -> String) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(SIGNATURES_LENGTH + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("reading {SIGNATURES} of {}", holder()))?;
    let read = bytes.len();
    let text = text(bytes);
    // The newline at the end counts, also where the file lacks it.
    if read.max(text.as_ref().map_or(0, Vec::len)) > LENGTH {
        return Err(too_long(&format!("{SIGNATURES} of {}", holder())).into());
    }
    Ok(text)
}

/// The text that `bytes` begin with, which ends with one newline; none if there are only newlines.
#[must_use]
pub fn text(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let length = bytes.iter().rposition(|byte| *byte != b'\n')? + 1;
    bytes.truncate(length);
    bytes.push(b'\n');
    Some(bytes)
}

/// The signatures as an ISO has them: [`SIGNATURES_LENGTH`] bytes.
///
/// # Errors
/// [`Class::Verification`] if they are too long, or not a text without empty lines.
pub fn padded(text: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
    let text = text.unwrap_or_default();
    let end = text.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
    // The text ends with a newline.
    if end >= LENGTH {
        return Err(too_long(SIGNATURES));
    }
    let mut region = text[..end].to_vec();
    region.resize(LENGTH, b'\n');
    match first_fault(&region) {
        None => Ok(region),
        Some(at) => Err(Failure::new(
            Class::Verification,
            format!("{SIGNATURES} is not valid: byte {at} is unexpected"),
        )
        .because(anyhow!("it has to be text in UTF-8 without control characters and empty lines"))
        .hint(SIGN_AGAIN)),
    }
}

/// The first byte of `region` that an ISO cannot have there: its text has no control characters but tabs and newlines, and
/// from its first empty line on there are only newlines.
#[must_use]
pub fn first_fault(region: &[u8]) -> Option<usize> {
    let text_length = match region {
        [b'\n', ..] => 0,
        _ => region.windows(2).position(|pair| pair == b"\n\n").map_or(region.len(), |end| end + 1),
    };
    let (text, padding) = region.split_at(text_length);
    let in_padding = || Some(text_length + padding.iter().position(|byte| *byte != b'\n')?);
    fault_of_text(text).or_else(in_padding)
}

fn fault_of_text(text: &[u8]) -> Option<usize> {
    let valid = match str::from_utf8(text) {
        Ok(valid) => valid,
        Err(error) => str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(),
    };
    let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if let Some((at, _)) = valid.char_indices().find(|(_, c)| control(*c)) {
        return Some(at);
    }
    match text.last() {
        _ if valid.len() < text.len() => Some(valid.len()),
        None | Some(b'\n') => None,
        Some(_) => Some(text.len() - 1),
    }
}

fn too_long(what: &str) -> Failure {
    Failure::new(Class::Verification, format!("{what} has more than {SIGNATURES_LENGTH} bytes"))
        .hint(SIGN_AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use proptest::prelude::*;

    const ONE: &[u8] = b"untrusted comment: a\nRWQ=\ntrusted comment: b\nAAA=\n";

    fn reading(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        read(bytes, || "the medium".into())
    }

    #[test]
    fn the_text_comes_back_without_the_padding_and_newlines_alone_are_no_signature() {
        let region = padded(Some(ONE)).unwrap();
        assert_eq!(region.len(), LENGTH);
        for bytes in [&region[..], ONE, &ONE[..ONE.len() - 1], &[ONE, b"\n\n"].concat()] {
            assert_eq!(reading(bytes).unwrap().as_deref(), Some(ONE));
        }
        for nothing in [&b""[..], b"\n", &padded(None).unwrap(), &padded(Some(b"\n\n")).unwrap()] {
            assert_eq!(reading(nothing).unwrap(), None);
        }
    }

    #[test]
    fn what_is_longer_than_the_place_on_an_iso_is_refused_wherever_it_is() {
        let longest = [&[b'a'; LENGTH - 1][..], b"\n"].concat();
        assert_eq!(reading(&longest).unwrap().unwrap(), longest);
        assert_eq!(padded(Some(&longest)).unwrap(), longest);
        let longer = [b'a'; LENGTH + 1];
        let error = reading(&longer).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
        assert!(
            error.to_string().contains("release.json.minisig of the medium has more than 8192"),
            "{error}"
        );
        for text in [&longer[..], &longer[1..]] {
            assert_eq!(class_of(&reading(text).unwrap_err()), Class::Verification);
            assert_eq!(padded(Some(text)).unwrap_err().class(), Class::Verification);
        }
        assert!(read(std::io::repeat(b'a'), || "an endless file".into()).is_err());
    }

    #[test]
    fn the_first_byte_that_is_no_text_or_no_padding_is_found() {
        for (text, at) in [
            (&b""[..], None),
            (ONE, None),
            ("tr\u{fc}sted\tcomment".as_bytes(), None),
            (b"a\0b", Some(1)),
            (b"a\r\nb", Some(1)),
            (b"ab\x1b[2J", Some(2)),
            ("a\u{9b}".as_bytes(), Some(1)),
            (b"ab\xff", Some(2)),
            (b"\xc3", Some(0)),
            (b"a\n\nb", Some(3)),
            (b"\nb", Some(1)),
        ] {
            let mut region = text.to_vec();
            region.resize(LENGTH, b'\n');
            assert_eq!(first_fault(&region), at, "{text:?}");
            assert_eq!(padded(Some(text)).is_ok(), at.is_none(), "{text:?}");
        }
        assert_eq!(first_fault(&[b'a'; 10]), Some(9), "a text that does not end");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_are_there_is_a_place_or_a_text_that_comes_back(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..200),
        ) {
            match padded(Some(&bytes)) {
                Ok(region) => {
                    prop_assert_eq!(first_fault(&region), None);
                    prop_assert_eq!(text(region), text(bytes));
                }
                Err(_) => prop_assert!(first_fault(&bytes).is_some()),
            }
        }
    }
}
