//! The password of the boot menu, as a hash that GRUB checks.
//!
//! Clear text is refused: it would have to be hashed on the way to the node, and the medium, whose menu has the same
//! password, is made before any node is known.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::formats::access;

/// The name that GRUB asks for before the password.
pub const USER: &str = "root";

/// The lines of a GRUB configuration by which it asks for the password before the editor, the command line and every menu
/// entry that is not `--unrestricted`. Where no password follows, all of these stay shut. Exported, so that a menu within
/// the menu is protected too.
pub const PROTECT: &str = "set superusers=\"root\"\nexport superusers\n";

/// A hash by grub-mkpasswd-pbkdf2(1): `grub.pbkdf2.sha512.ROUNDS.SALT.HASH`. Its `Debug` hides it, because a weak password
/// can be found from it by trying.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootPassword(String);

/// Text that is no such hash; does not repeat it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseHashError(String);

impl BootPassword {
    /// The hash in the clear: the caller answers for where it goes.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The line of a GRUB configuration that says what the password is. The hash has letters, digits and dots only.
    #[must_use]
    pub fn grub_command(&self) -> String {
        format!("password_pbkdf2 {USER} {}\n", self.0)
    }
}

impl FromStr for BootPassword {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        match access::boot_password(text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(fault) => Err(ParseHashError(format!("the boot password {}", fault.message))),
        }
    }
}

impl TryFrom<String> for BootPassword {
    type Error = ParseHashError;

    fn try_from(text: String) -> Result<Self, ParseHashError> {
        text.parse()
    }
}

impl From<BootPassword> for String {
    fn from(password: BootPassword) -> Self {
        password.0
    }
}

impl fmt::Debug for BootPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl JsonSchema for BootPassword {
    fn schema_name() -> Cow<'static, str> {
        "BootPassword".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "boot-password", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::documents::HASH;

    #[test]
    fn what_grub_mkpasswd_prints_is_taken_and_nothing_else() {
        assert_eq!(HASH.parse::<BootPassword>().unwrap().expose(), HASH);
        assert_eq!(HASH.to_lowercase().parse::<BootPassword>().unwrap().expose(), HASH.to_lowercase());
        let parts: Vec<_> = HASH.splitn(6, '.').collect();
        let with =
            |rounds: &str, salt: &str, hash: &str| format!("grub.pbkdf2.sha512.{rounds}.{salt}.{hash}");
        let (salt, hash) = (parts[4], parts[5]);
        for text in [
            "hunter2",
            "",
            "$6$salt$hash",
            "grub.pbkdf2.sha512.10000",
            &with("010000", salt, hash),
            &with("0x10", salt, hash),
            &with("999", salt, hash),
            &with("10000001", salt, hash),
            &with("10000", "AB", hash),
            &with("10000", &salt[1..], hash),
            &with("10000", salt, &hash[1..]),
            &with("10000", salt, "AB"),
            &with("10000", salt, &hash[..64]),
            &with("10000", salt, &hash.replace('A', "G")),
            &format!("{HASH}\nset superusers="),
            &format!("{HASH} "),
            &format!("PBKDF2 hash of your password is {HASH}"),
        ] {
            assert!(text.parse::<BootPassword>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn neither_debug_output_nor_an_error_shows_it() {
        let password: BootPassword = HASH.parse().unwrap();
        assert_eq!(format!("{password:?}"), "[hidden]");
        let error = "marked-clear-text".parse::<BootPassword>().unwrap_err().to_string();
        assert!(!error.contains("marked") && error.contains("grub-mkpasswd-pbkdf2"), "{error}");
    }
}
