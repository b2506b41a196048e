//! The firmware of a base of Debian packages: `servers`, `all`, `none`, or a list of sets and packages.

use std::borrow::Cow;
use std::fmt;

use model::architecture::Architecture;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::restriction;
use crate::firmware::FirmwareSet;
use crate::packages::plain_name;

/// The word for no firmware at all; the same as an empty list.
pub(super) const NONE: &str = "none";

/// Sets of packages and single packages; empty for none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FirmwareChoice(Vec<String>);

impl FirmwareChoice {
    /// What a list of words means.
    fn of(words: Vec<String>) -> Self {
        if words == [NONE] { Self(Vec::new()) } else { Self(words) }
    }

    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// The words of the definition, `none` where there are none.
    #[must_use]
    pub fn words(&self) -> String {
        if self.0.is_empty() { NONE.to_owned() } else { self.0.join(", ") }
    }

    /// The packages for an architecture in a release of Debian, with the versions that the definition gives; each once.
    #[must_use]
    pub fn packages(&self, suite: &str, architecture: Architecture) -> Vec<String> {
        let set = |word: &str| FirmwareSet::EVERY.into_iter().find(|set| set.word() == word);
        // Single packages first: one with a version counts in place of the same of a set.
        let mut named: Vec<&str> =
            self.0.iter().map(String::as_str).filter(|word| set(word).is_none()).collect();
        for set in self.0.iter().filter_map(|word| set(word)) {
            named.extend(set.packages(suite).map(|name| -> &str { name }));
        }
        let mut packages: Vec<String> = Vec::new();
        for package in named {
            let name = restriction::name(package);
            let is_known = packages.iter().any(|known| plain_name(known) == plain_name(name));
            if restriction::counts_for(package, architecture) && !is_known {
                packages.push(name.to_owned());
            }
        }
        packages.sort();
        packages
    }
}

impl From<FirmwareSet> for FirmwareChoice {
    fn from(set: FirmwareSet) -> Self {
        Self(vec![set.word().to_owned()])
    }
}

impl Default for FirmwareChoice {
    fn default() -> Self {
        FirmwareSet::Servers.into()
    }
}

impl JsonSchema for FirmwareChoice {
    fn schema_name() -> Cow<'static, str> {
        "FirmwareChoice".into()
    }

    fn inline_schema() -> bool {
        true
    }

    /// A list, of which one element may be written without it.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string" }, "x-single": true })
    }
}

impl<'de> Deserialize<'de> for FirmwareChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = Vec<String>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("servers, all, none, or a list of sets and packages")
            }

            fn visit_unit<E>(self) -> Result<Vec<String>, E> {
                Ok(Vec::new())
            }

            fn visit_str<E>(self, word: &str) -> Result<Vec<String>, E> {
                Ok(vec![word.to_owned()])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(words)
            }
        }

        deserializer.deserialize_any(Words).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str) -> FirmwareChoice {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn a_word_a_list_and_nothing_are_read() {
        assert_eq!(chosen("servers"), FirmwareChoice::default());
        assert_eq!(chosen("[servers]"), FirmwareChoice::default());
        for none in ["none", "[none]", "[]", "null"] {
            assert_eq!(chosen(none), FirmwareChoice::none(), "{none}");
            assert_eq!(chosen(none).words(), "none");
        }
        assert_eq!(chosen("[servers, firmware-iwlwifi]").words(), "servers, firmware-iwlwifi");
    }

    #[test]
    fn packages_are_those_of_the_architecture_and_the_release_each_once() {
        let packages = |text: &str, suite: &str, architecture| chosen(text).packages(suite, architecture);
        let amd64 = packages("servers", "trixie", Architecture::Amd64);
        let arm64 = packages("servers", "trixie", Architecture::Arm64);
        assert!(
            amd64.contains(&"intel-microcode".to_owned()) && amd64.contains(&"amd64-microcode".to_owned())
        );
        assert!(!arm64.iter().any(|name| name.contains("microcode")));
        assert!(arm64.contains(&"firmware-intel-misc".to_owned()));
        assert!(
            !packages("servers", "bookworm", Architecture::Amd64).contains(&"firmware-intel-misc".to_owned())
        );
        assert_eq!(packages("none", "trixie", Architecture::Amd64), Vec::<String>::new());
        let pinned = packages("[servers, firmware-bnx2=20250410-2, all]", "trixie", Architecture::Amd64);
        let bnx2: Vec<_> = pinned.iter().filter(|name| plain_name(name) == "firmware-bnx2").collect();
        assert_eq!(bnx2, ["firmware-bnx2=20250410-2"]);
        assert_eq!(
            packages("'intel-microcode [amd64]'", "trixie", Architecture::Arm64),
            Vec::<String>::new()
        );
        let all = packages("all", "trixie", Architecture::Arm64);
        assert!(all.len() > arm64.len() && all.contains(&"firmware-qcom-soc".to_owned()));
    }
}
