//! Secrets: a type for them, and ways to recognize them in documents.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A password, token or key. Its `Debug` hides it and it has no `Display`; serialising it writes the text,
/// so only documents with mode 0600 may hold it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text in the clear. The caller is responsible for where it goes.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    /// `writeOnly` marks the value as one that the checks of a document, and other programs, must not show.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "secret", "writeOnly": true })
    }
}

/// Parts of the names of keys whose values are secrets or may contain one.
const SECRETIVE: [&str; 13] = [
    "pass",
    "token",
    "secret",
    "credential",
    "private",
    "auth",
    "apikey",
    "content",
    "payload",
    "environment",
    "header",
    "setting",
    "url",
];

/// True if the name of a key says that its value could be a secret.
#[must_use]
pub fn is_secretive(key: &str) -> bool {
    let key: String = key.chars().filter(|c| !matches!(c, '_' | '-')).collect();
    let key = key.to_ascii_lowercase();
    key != "sshauthorizedkeys" && SECRETIVE.iter().any(|word| key.contains(word))
}

/// True if `value` is a URL with a password, RFC 3986 section 3.2.1.
#[must_use]
pub fn has_password(value: &str) -> bool {
    let authority = value.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    user.and_then(|(user, _)| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_show_it() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some([hidden])");
    }
}
