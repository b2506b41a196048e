//! One identifier of a machine, as users write it (`mac:52:54:00:12:34:56`), and as a file's name has it
//! (`mac-52-54-00-12-34-56`).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Identity, Mac};
use base::percent;

/// The longest serial number or tag; SMBIOS has 64 characters for each string of its own making.
const LONGEST: usize = 128;

/// An identifier that selects one machine. Serial numbers and tags that differ in upper and lower case alone are the same:
/// people copy them from labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Selector {
    /// A card of the machine has this address.
    Mac(Mac),
    Serial(HardwareLabel),
    Uuid(Uuid),
    AssetTag(HardwareLabel),
}

/// A serial number or a tag.
#[derive(Clone, Debug)]
pub struct HardwareLabel(String);

/// A text that is not a selector, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {why}")]
pub struct ParseSelectorError {
    text: String,
    why: String,
}

impl Selector {
    /// True if it means the machine with this identity.
    #[must_use]
    pub fn fits(&self, identity: &Identity) -> bool {
        let has =
            |text: &Option<String>, mark: &HardwareLabel| text.as_deref().is_some_and(|text| mark.is(text));
        match self {
            Self::Mac(mac) => identity.macs.contains(mac),
            Self::Serial(mark) => has(&identity.serial, mark),
            Self::Uuid(uuid) => identity.uuid.as_ref() == Some(uuid),
            Self::AssetTag(mark) => has(&identity.asset_tag, mark),
        }
    }

    /// The selector as the name of a file without its suffix. Characters that not every file system takes in a name
    /// are written `%20`.
    #[must_use]
    pub fn stem(&self) -> String {
        match self {
            Self::Mac(mac) => format!("mac-{}", mac.hyphenated()),
            Self::Serial(mark) => format!("serial-{}", escaped(&mark.0)),
            Self::Uuid(uuid) => format!("uuid-{}", uuid.hyphenated()),
            Self::AssetTag(mark) => format!("asset-tag-{}", escaped(&mark.0)),
        }
    }

    /// The selector that the name of a file without its suffix is.
    pub fn from_stem(stem: &str) -> Result<Self, ParseSelectorError> {
        let wrong = |why: &str| ParseSelectorError { text: stem.into(), why: why.into() };
        let split = |kind| Some((kind, stem.strip_prefix(kind)?.strip_prefix('-')?));
        let found = ["mac", "serial", "uuid", "asset-tag"].into_iter().find_map(split);
        let (kind, rest) = found.ok_or_else(|| {
            wrong("does not begin with mac-, serial-, uuid- or asset-tag-, and is not default")
        })?;
        let rest =
            percent::decode(rest).ok_or_else(|| wrong("has a % without two hexadecimal digits behind it"))?;
        Self::new(kind, &rest).map_err(|why| wrong(&why))
    }

    fn new(kind: &str, rest: &str) -> Result<Self, String> {
        match kind {
            "mac" => rest.parse().map(Self::Mac).map_err(|why| why.to_string()),
            "serial" => HardwareLabel::new(rest).map(Self::Serial),
            "uuid" => {
                let uuid = rest
                    .parse()
                    .map_err(|_| "is not a UUID such as 4c4c4544-0042-3510-8052-b4c04f4a5a32".to_owned())?;
                super::identity::real_uuid(rest)
                    .ok_or("is a UUID that many machines have; name it by mac:, serial: or asset-tag:")?;
                Ok(Self::Uuid(uuid))
            }
            "asset-tag" => HardwareLabel::new(rest).map(Self::AssetTag),
            _ => Err("does not begin with mac:, serial:, uuid: or asset-tag:".into()),
        }
    }
}

impl HardwareLabel {
    fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
            return Err(format!("does not have 1 to {LONGEST} printable characters"));
        }
        super::identity::real_text(text)
            .map(Self)
            .ok_or_else(|| "is a placeholder that makers use for no value".into())
    }

    /// The number or tag as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is(&self, text: &str) -> bool {
        self.0.eq_ignore_ascii_case(text)
    }
}

impl PartialEq for HardwareLabel {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for HardwareLabel {}

impl PartialOrd for HardwareLabel {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HardwareLabel {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.to_ascii_lowercase().cmp(&other.0.to_ascii_lowercase())
    }
}

impl FromStr for Selector {
    type Err = ParseSelectorError;

    fn from_str(text: &str) -> Result<Self, ParseSelectorError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        Self::new(kind, rest).map_err(|why| ParseSelectorError { text: text.into(), why })
    }
}

impl TryFrom<String> for Selector {
    type Error = ParseSelectorError;

    fn try_from(text: String) -> Result<Self, ParseSelectorError> {
        text.parse()
    }
}

impl From<Selector> for String {
    fn from(selector: Selector) -> Self {
        selector.to_string()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "mac:{mac}"),
            Self::Serial(mark) => write!(f, "serial:{}", mark.0),
            Self::Uuid(uuid) => write!(f, "uuid:{}", uuid.hyphenated()),
            Self::AssetTag(mark) => write!(f, "asset-tag:{}", mark.0),
        }
    }
}

fn escaped(text: &str) -> String {
    percent::encode_but(text, b"-_.+")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4c4c4544-0042-3510-8052-b4c04f4a5a32";

    fn selector(text: &str) -> Selector {
        text.parse().unwrap()
    }

    #[test]
    fn a_selector_has_one_form_for_people_and_one_for_files() {
        for (text, shown, stem) in [
            ("mac:52-54-00-AB-CD-EF", "mac:52:54:00:ab:cd:ef".to_owned(), "mac-52-54-00-ab-cd-ef".to_owned()),
            ("serial:CZ12", "serial:CZ12".into(), "serial-CZ12".into()),
            ("serial: a b/c ", "serial:a b/c".into(), "serial-a%20b%2Fc".into()),
            ("uuid:4C4C4544004235108052B4C04F4A5A32", format!("uuid:{UUID}"), format!("uuid-{UUID}")),
            ("asset-tag:rack:7", "asset-tag:rack:7".into(), "asset-tag-rack%3A7".into()),
        ] {
            let found = selector(text);
            assert_eq!((found.to_string(), found.stem()), (shown, stem));
            assert_eq!(Selector::from_stem(&found.stem()), Ok(found));
        }
    }

    #[test]
    fn what_is_no_selector_says_why() {
        for (text, why) in [
            ("52:54:00:12:34:56", "does not begin with mac:, serial:, uuid: or asset-tag:"),
            ("host:a", "does not begin with mac:, serial:, uuid: or asset-tag:"),
            ("mac:52:54", "is not a hardware address"),
            ("mac:ff:ff:ff:ff:ff:ff", "is the address of a group of cards"),
            ("uuid:7", "is not a UUID"),
            ("uuid:00000000-0000-0000-0000-000000000000", "that many machines have"),
            ("serial:", "does not have 1 to 128 printable characters"),
            ("serial:a\nb", "does not have 1 to 128 printable characters"),
            ("asset-tag:To be filled by O.E.M.", "is a placeholder that makers use for no value"),
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        for stem in ["node-1", "mac-52", "serial-%2", "serial-%zz", "serial-%ff"] {
            Selector::from_stem(stem).unwrap_err();
        }
    }

    #[test]
    fn a_selector_fits_the_machine_that_has_the_mark() {
        let identity = Identity {
            macs: vec!["52:54:00:00:00:01".parse().unwrap(), "52:54:00:00:00:02".parse().unwrap()],
            serial: Some("CZ12".into()),
            uuid: Some(UUID.parse().unwrap()),
            asset_tag: None,
        };
        for (text, fits) in [
            ("mac:52:54:00:00:00:02", true),
            ("mac:52:54:00:00:00:03", false),
            ("serial:cz12", true),
            ("serial:CZ1", false),
            (&format!("uuid:{}", UUID.to_uppercase()), true),
            ("asset-tag:CZ12", false),
        ] {
            assert_eq!(selector(text).fits(&identity), fits, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_was_read_is_read_again_from_both_forms(text in "(mac|serial|uuid|asset-tag|x)[:-]\\PC{0,40}") {
            for found in [text.parse::<Selector>(), Selector::from_stem(&text)].into_iter().flatten() {
                proptest::prop_assert_eq!(&found.to_string().parse::<Selector>().unwrap(), &found);
                proptest::prop_assert_eq!(&Selector::from_stem(&found.stem()).unwrap(), &found);
            }
        }
    }
}
