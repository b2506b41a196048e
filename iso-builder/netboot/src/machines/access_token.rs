//! Tokens by which people and programs use the fleet page and its API, each with a role and an end.
//!
//! A token is `nqrust_ID_SECRET`: the ID, 8 hexadecimal digits, finds its record, and the secret, 128 random bits, opens it. Only the
//! SHA-256 of the whole is stored; nobody can search a secret of that length, so a slow hash would add nothing.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use base::digest::Digest;
use model::config::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::token::{random, same};
use crate::moment::Moment;

/// What every token begins with, so that programs that search for leaked secrets find it.
const PREFIX: &str = "nqrust_";
/// The longest name of a token, in bytes.
const NAME: usize = 64;
/// The name in the audit log of the token in the address that a server prints at its start. No other token has it.
pub const START_TOKEN: &str = "fleet-url";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TokenRole {
    /// To see the fleet, its audit log and the metrics of the server.
    Read,
    /// To act on machines, too: allow, deny, redeploy, forget, dismiss.
    Operate,
    /// To install with the fallback, for machines that no configuration names. It opens nothing else.
    Enroll,
}

base::names!(TokenRole { Read = "read", Operate = "operate", Enroll = "enroll" });

impl TokenRole {
    #[must_use]
    pub fn may_act(self) -> bool {
        self == Self::Operate
    }

    #[must_use]
    pub fn may_look(self) -> bool {
        self != Self::Enroll
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a token, by which the audit log calls who uses it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TokenName(String);

impl TokenName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        if text.is_empty() || text.len() > NAME || !text.chars().all(plain) {
            return Err(format!(
                "{text:?} is not a name of a token: 1 to {NAME} letters, digits, and - _ . @"
            ));
        }
        if text == START_TOKEN {
            return Err(format!(
                "{START_TOKEN} is the name of the token in the address that a server prints"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The record of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    pub id: String,
    pub name: TokenName,
    pub role: TokenRole,
    /// SHA-256 of the token.
    pub digest: Digest,
    pub created: Moment,
    /// From then on it is not valid; none for a token without an end.
    pub expires: Option<Moment>,
    /// How many more machines it lets install; none for a token of another role.
    pub uses: Option<u32>,
}

impl AccessToken {
    /// A new token, and its text, which is not stored anywhere.
    pub fn new(
        name: TokenName,
        role: TokenRole,
        expires: Option<Moment>,
        uses: Option<u32>,
        now: Moment,
    ) -> Result<(Self, Secret)> {
        let id = hex::encode(random::<4>()?);
        let text = format!("{PREFIX}{id}_{}", hex::encode(random::<16>()?));
        let digest = Digest::of(text.as_bytes());
        Ok((Self { id, name, role, digest, created: now, expires, uses }, Secret::new(text)))
    }

    /// True if `text` is this token, and it has not ended. Takes a time that does not depend on how much of it is right.
    #[must_use]
    pub fn is_opened_by(&self, text: &str, now: Moment) -> bool {
        same(Digest::of(text.as_bytes()).as_bytes(), self.digest.as_bytes()) && self.is_valid(now)
    }

    #[must_use]
    pub fn is_valid(&self, now: Moment) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// True if a text has only characters that tokens have, so that it means nothing else in a script.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'_'))
}

/// The ID in the text of a token; none in any other text.
#[must_use]
pub fn id_of(text: &str) -> Option<&str> {
    let (id, _) = text.strip_prefix(PREFIX)?.split_once('_')?;
    is_id(id).then_some(id)
}

/// True if a text has the form of an ID.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_own_record_until_it_ends() {
        let new = |expires| {
            AccessToken::new("a".parse().unwrap(), TokenRole::Read, expires, None, Moment(7)).unwrap()
        };
        let (token, text) = new(Some(Moment(100)));
        assert_eq!(id_of(text.expose()), Some(&*token.id));
        assert!(is_plain(text.expose()) && !is_plain("a b") && !is_plain("${x}") && !is_plain(""));
        assert!(token.is_opened_by(text.expose(), Moment(99)));
        assert!(!token.is_opened_by(text.expose(), Moment(100)));
        let (other, endless) = new(None);
        assert!(other.is_opened_by(endless.expose(), Moment(u64::MAX)));
        assert!(!token.is_opened_by(endless.expose(), Moment(7)) && token.id != other.id);
        // The digest, which a backup of the database has, opens nothing.
        let with_digest = format!("nqrust_{}_{}", token.id, token.digest);
        assert!(!token.is_opened_by(&with_digest, Moment(7)));
        assert!(!format!("{token:?}").contains(&text.expose()["nqrust_01234567_".len()..]));
    }

    #[test]
    fn other_texts_have_no_id() {
        for text in
            ["", "nqrust_", "nqrust_0123456_x", "nqrust_0123456G_x", "nqrust_01234567", "0123_01234567_x"]
        {
            assert_eq!(id_of(text), None, "{text}");
        }
        assert_eq!(id_of("nqrust_0123abcd_"), Some("0123abcd"));
    }

    #[test]
    fn names_are_plain_and_tell_tokens_from_that_of_the_start() {
        for (name, good) in [
            ("prometheus", true),
            ("alice@example.org", true),
            (&*"a".repeat(64), true),
            (&*"a".repeat(65), false),
            ("", false),
            ("a b", false),
            ("é", false),
            ("a\n", false),
            ("fleet-url", false),
        ] {
            assert_eq!(name.parse::<TokenName>().is_ok(), good, "{name:?}");
        }
    }
}
