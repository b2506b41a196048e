//! `install.reinstall`: when an automatic install may go over a finished node.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ONCE: &str = "once:";

/// The longest word, in characters.
const LONGEST: usize = 64;

/// When an automatic install may go over a finished node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reinstall {
    /// Never.
    #[default]
    Never,
    /// Where the node was installed from another medium or with another configuration.
    Changed,
    /// Unless the node has recorded this word.
    Once(OnceWord),
}

/// The word of `once:WORD`: letters, digits, `.`, `_` and `-`, at most 64, the first a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OnceWord(String);

/// Text that is no such value.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not false, true or once:WORD, with up to 64 letters, digits, '.', '_' and '-' for WORD")]
pub struct ParseReinstallError;

impl OnceWord {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OnceWord {
    type Err = ParseReinstallError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let sound = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(inner);
        if sound && text.len() <= LONGEST { Ok(Self(text.to_owned())) } else { Err(ParseReinstallError) }
    }
}

impl TryFrom<String> for OnceWord {
    type Error = ParseReinstallError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OnceWord> for String {
    fn from(word: OnceWord) -> Self {
        word.0
    }
}

impl FromStr for Reinstall {
    type Err = ParseReinstallError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "false" => Ok(Self::Never),
            "true" => Ok(Self::Changed),
            text => text.strip_prefix(ONCE).ok_or(ParseReinstallError)?.parse().map(Self::Once),
        }
    }
}

impl fmt::Display for Reinstall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("false"),
            Self::Changed => f.write_str("true"),
            Self::Once(OnceWord(word)) => write!(f, "{ONCE}{word}"),
        }
    }
}

impl Serialize for Reinstall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Never => serializer.serialize_bool(false),
            Self::Changed => serializer.serialize_bool(true),
            Self::Once(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Reinstall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum WrittenReinstall {
            Truth(bool),
            Text(String),
        }
        match WrittenReinstall::deserialize(deserializer)? {
            WrittenReinstall::Truth(false) => Ok(Self::Never),
            WrittenReinstall::Truth(true) => Ok(Self::Changed),
            WrittenReinstall::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl JsonSchema for Reinstall {
    fn schema_name() -> Cow<'static, str> {
        "Reinstall".into()
    }

    /// Text first: that is what the checks of a document take every scalar for.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "boolean"],
            "format": "reinstall-rule",
            "pattern": "^(true|false|once:[A-Za-z0-9][A-Za-z0-9._-]{0,63})$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn read(value: &str) -> Result<Reinstall, String> {
        let parsed = parse(&format!("install: {{reinstall: {value}}}"), "f");
        parsed.map(|config| config.install.reinstall).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn both_truth_values_and_a_word_are_read_and_written_again() {
        assert_eq!(read("false"), Ok(Reinstall::Never));
        assert_eq!(read("true"), Ok(Reinstall::Changed));
        let once = Reinstall::Once("ticket-4711".parse().unwrap());
        assert_eq!(read("'once:ticket-4711'"), Ok(once.clone()));
        for value in [Reinstall::Never, Reinstall::Changed, once] {
            let json = serde_json::to_value(&value).unwrap();
            assert_eq!(serde_json::from_value::<Reinstall>(json).unwrap(), value);
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        assert_eq!(serde_json::to_value(Reinstall::Never).unwrap(), false);
    }

    #[test]
    fn a_word_that_a_kernel_command_line_could_not_carry_is_refused_where_it_stands() {
        let long = format!("once:{}", "a".repeat(65));
        for value in ["once", "'once:'", "'once:a b'", "'once:-a'", "'once:\u{e4}'", "always", &long] {
            let told = read(value).unwrap_err();
            assert!(told.contains("invalid-reinstall") && told.contains("once:WORD"), "{value}: {told}");
        }
    }
}
