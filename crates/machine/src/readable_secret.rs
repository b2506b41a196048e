//! Random secrets that a person reads from a screen and types elsewhere: the password of help access, the token of a new cluster.

use std::fs::File;
use std::io::Read;

use anyhow::Result;

use base::failure::{Class, Classify};
use model::config::Secret;

/// Lower-case letters without those that look alike (`i`, `l`, `o`) or are at different places on keyboards (`y`, `z`).
const LETTERS: &[u8; 21] = b"abcdefghjkmnpqrstuvwx";
/// Letters between dots, which help to read it and have the same key on most keyboards.
const GROUP_LETTERS: usize = 4;

/// A secret of this many letters, with 4.39 bits each, in groups of four: `kfmt.nbpq.rsuv.wxah`.
///
/// # Errors
/// The kernel's random numbers cannot be read.
pub fn readable_secret(letters: usize) -> Result<Secret> {
    let reading = || "reading random numbers from /dev/urandom".to_owned();
    let mut random = File::open("/dev/urandom").class(Class::Unexpected, reading)?;
    let mut text = Vec::new();
    while text.len() < letters {
        let mut bytes = [0; 32];
        random.read_exact(&mut bytes).class(Class::Unexpected, reading)?;
        text.extend(bytes.iter().filter_map(|byte| letter(*byte)));
    }
    let groups: Vec<String> =
        text[..letters].chunks(GROUP_LETTERS).map(|group| group.iter().collect()).collect();
    Ok(Secret::new(groups.join(".")))
}

/// The letter of a random byte; `None` for those bytes that would make some letters more likely than others.
fn letter(byte: u8) -> Option<char> {
    let fair = 256 / LETTERS.len() * LETTERS.len();
    let at = usize::from(byte);
    (at < fair).then(|| char::from(LETTERS[at % LETTERS.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn secrets_differ_and_have_no_letters_that_look_alike() {
        let made: Vec<_> = (0..50).map(|_| readable_secret(16).unwrap().expose().to_owned()).collect();
        for secret in &made {
            let groups: Vec<_> = secret.split('.').collect();
            assert!(groups.len() == 4 && groups.iter().all(|group| group.len() == 4), "{secret}");
            assert!(groups.concat().bytes().all(|byte| LETTERS.contains(&byte)), "{secret}");
            assert!(!secret.contains(['i', 'l', 'o', 'y', 'z', '0', '1']));
        }
        assert!(made.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn every_letter_is_as_likely_as_every_other() {
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        (0..=255).filter_map(letter).for_each(|letter| *counts.entry(letter).or_default() += 1);
        assert_eq!(counts.len(), LETTERS.len());
        assert!(counts.values().all(|count| *count == 12), "{counts:?}");
    }
}
