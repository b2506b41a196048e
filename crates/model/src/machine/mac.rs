//! Hardware addresses of network cards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of one card, not that of a group of cards. It is read in either case with `:` or `-`, and written in
/// lower case with `:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// The error about a text that is not a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseMacError {
    /// Other characters, or more or fewer of them.
    #[error("is not a hardware address such as 52:54:00:12:34:56")]
    Form,
    /// A multicast address, or nothing but zeros.
    #[error("is the address of a group of cards or of none")]
    Group,
}

/// Six pairs of hexadecimal digits, joined by `joint`.
#[must_use]
pub fn bytes(text: &str, joint: char) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut pairs = text.split(joint);
    for byte in &mut bytes {
        let pair = pairs.next()?;
        hex::decode_to_slice(pair, std::slice::from_mut(byte)).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}

/// True if a card can have this address (IEEE 802: the lowest bit of the first byte marks a group).
#[must_use]
pub fn is_single(bytes: [u8; 6]) -> bool {
    bytes[0] & 1 == 0 && bytes != [0; 6]
}

impl Mac {
    /// The address with `-`, as file names have it.
    #[must_use]
    pub fn hyphenated(&self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, ParseMacError> {
        let bytes = [':', '-'].into_iter().find_map(|joint| bytes(text, joint)).ok_or(ParseMacError::Form)?;
        is_single(bytes).then_some(Self(bytes)).ok_or(ParseMacError::Group)
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseMacError;

    fn try_from(text: String) -> Result<Self, ParseMacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_in_every_way_of_writing_it() {
        let one: Mac = "52:54:00:ab:cd:ef".parse().unwrap();
        for text in ["52:54:00:AB:CD:EF", "52-54-00-ab-cd-ef"] {
            assert_eq!(text.parse::<Mac>().unwrap(), one);
        }
        assert_eq!(one.to_string(), "52:54:00:ab:cd:ef");
        assert_eq!(one.hyphenated(), "52-54-00-ab-cd-ef");
    }

    #[test]
    fn what_no_card_has_is_refused() {
        for (text, why) in [
            ("", ParseMacError::Form),
            ("52:54:00:ab:cd", ParseMacError::Form),
            ("52:54:00:ab:cd:ef:00", ParseMacError::Form),
            ("52:54-00:ab:cd:ef", ParseMacError::Form),
            ("5:54:00:ab:cd:ef", ParseMacError::Form),
            ("00:00:00:00:00:00", ParseMacError::Group),
            ("ff:ff:ff:ff:ff:ff", ParseMacError::Group),
            ("01:00:5e:00:00:01", ParseMacError::Group),
        ] {
            assert_eq!(text.parse::<Mac>(), Err(why), "{text}");
        }
    }
}
