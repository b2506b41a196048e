//! Tokens: 128 bits of the operating system's randomness, as 32 hexadecimal digits. What is kept of them is a digest.

use std::fs::File;
use std::io::Read;

use anyhow::Result;
use installer::config::Secret;
use installer::digest::Digest;
use installer::failure::{Class, Classify};

/// The operating system's random numbers (random(4)).
const SOURCE: &str = "/dev/urandom";
/// The number of bytes.
const BYTES: usize = 16;

/// A new token.
pub fn random() -> Result<Secret> {
    let mut bytes = [0; BYTES];
    let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut bytes));
    read.class(Class::Unexpected, || format!("reading {SOURCE}"))?;
    Ok(Secret::new(hex::encode(bytes)))
}

/// What is kept of a token; none of a text that is no token.
#[must_use]
pub fn digest(token: &str) -> Option<Digest> {
    let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (token.len() == 2 * BYTES && token.bytes().all(plain)).then(|| Digest::of(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_another_and_all_have_the_form() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert!(digest(one.expose()).is_some() && digest(one.expose()) != digest(other.expose()));
    }

    #[test]
    fn what_is_no_token_has_no_digest() {
        for text in ["", "0", &"0".repeat(31), &"0".repeat(33), &"A".repeat(32), &"é".repeat(16)] {
            assert_eq!(digest(text), None, "{text}");
        }
    }
}
