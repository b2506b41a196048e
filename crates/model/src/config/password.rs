//! Passwords: telling hashes from clear text, and making hashes.

use yescrypt::{PasswordHasher, Yescrypt};

use super::Secret;

/// The form of a password in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordKind {
    /// A crypt(5) hash that the node can check.
    Hash,
    /// The password itself.
    Clear,
    /// A hash that is not to be used, and why: a clause that continues "the value is …".
    Unsupported(&'static str),
    /// A value that locks an account in shadow(5), such as `*` or `!` before a hash. Nobody chooses it as a password.
    Lock,
}

/// Words for an account without a password, in any case and with any punctuation around them.
const LOCKS: [&str; 18] = [
    "",
    "x",
    "lk",
    "lck",
    "lock",
    "locked",
    "np",
    "nologin",
    "nopass",
    "nopasswd",
    "nopassword",
    "disabled",
    "none",
    "null",
    "nil",
    "no",
    "off",
    "false",
];

/// True if a text locks an account: marks alone, marks before a hash, or a word for it. passwd(5), shadow(5), and the
/// words of Solaris (`*LK*`, `NP`).
fn is_lock(text: &str) -> bool {
    let marks = |c: char| c == '!' || c == '*' || c.is_whitespace();
    let behind = text.trim_start_matches(marks);
    let word = text.trim_matches(marks).trim_matches(['<', '>', '(', ')', '-', '_']).to_ascii_lowercase();
    let word = word.replace(['-', '_', ' '], "");
    LOCKS.contains(&word.as_str())
        || behind.len() < text.len()
            && (behind.starts_with('$') && !behind.contains(' ') || looks_like_des(behind))
}

/// The kind of the password `text`. Methods and their strength are those of crypt(5) on Debian 13.
#[must_use]
pub fn kind(text: &str) -> PasswordKind {
    if is_lock(text) {
        return PasswordKind::Lock;
    }
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"./$,=*!".contains(&b));
    match text.strip_prefix('$').and_then(|rest| rest.split_once('$')) {
        Some((method, rest)) if plain && !method.is_empty() => match method {
            "y" | "gy" | "7" | "2b" | "2y" | "2a" | "6" | "5" if is_complete(method, rest) => {
                PasswordKind::Hash
            }
            "y" | "gy" | "7" | "2b" | "2y" | "2a" | "6" | "5" => {
                PasswordKind::Unsupported("an incomplete password hash")
            }
            "1" | "md5" | "sha1" | "3" => PasswordKind::Unsupported("a hash of a method that is too weak"),
            _ => PasswordKind::Unsupported("a hash of a method that the node does not know"),
        },
        _ if looks_like_des(text) => PasswordKind::Unsupported("a DES hash, a method that is too weak"),
        _ => PasswordKind::Clear,
    }
}

/// True if the salt and a hash of the method's length are there: no password matches a hash that was cut off.
fn is_complete(method: &str, rest: &str) -> bool {
    let last = rest.rsplit('$').next().unwrap_or_default();
    let length = match method {
        "2a" | "2b" | "2y" => 53,
        "6" => 86,
        _ => 43,
    };
    let parts = rest.split('$').count();
    let enough = match method {
        "y" | "gy" => parts == 3,
        "5" | "6" => (2..=3).contains(&parts),
        _ => parts == 2,
    };
    enough && last.len() == length && rest.split('$').all(|part| !part.is_empty())
}

/// Thirteen characters of the DES alphabet that a person would hardly choose: with a `.` or `/`, and with
/// letters of both cases and digits.
fn looks_like_des(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    text.len() == 13
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"./".contains(&b))
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(|b| b"./".contains(b))
}

/// A yescrypt hash of `clear` with a random salt, at the cost that Debian's own tools use.
pub fn hash(clear: &str) -> anyhow::Result<Secret> {
    let hash = Yescrypt::default().hash_password(clear.as_bytes());
    hash.map(|hash| Secret::new(hash.to_string()))
        .map_err(|error| anyhow::anyhow!("hashing a password: {error}"))
}

/// The same with a given salt of 16 bytes, for a caller that must get the same hash each time.
pub fn hash_with_salt(clear: &str, salt: &[u8; 16]) -> anyhow::Result<Secret> {
    let hash = Yescrypt::default().hash_password_with_salt(clear.as_bytes(), salt);
    hash.map(|hash| Secret::new(hash.to_string()))
        .map_err(|error| anyhow::anyhow!("hashing a password: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_and_clear_text_are_told_apart() {
        let yescrypt = format!("$y$j9T$salt${}", "a".repeat(43));
        let sha512 = format!("$6$rounds=5000$salt${}", "a".repeat(86));
        let bcrypt = format!("$2b$12${}", "a".repeat(53));
        for text in [&yescrypt, &sha512, &bcrypt] {
            assert_eq!(kind(text), PasswordKind::Hash, "{text}");
        }
        for text in ["correct horse", "hunter2", "$", "$$", "pa$$word", "Sup3r$ecret$", "$mile $now fall"] {
            assert_eq!(kind(text), PasswordKind::Clear, "{text}");
        }
        for text in
            ["$1$salt$qJH7.N4xYta3aEG/dfqo/0", "$md5$x$y", "rl.3StKT.4T8M", "$y$j9T$cut", "$argon2id$v=19$x"]
        {
            assert!(matches!(kind(text), PasswordKind::Unsupported(_)), "{text}");
        }
    }

    #[test]
    fn what_locks_an_account_is_no_password() {
        let hash = format!("$y$j9T$salt${}", "a".repeat(43));
        let texts = [
            "",
            " ",
            "*",
            "!",
            "!!",
            "!*",
            "*!",
            "**",
            "! *",
            "x",
            "X",
            "*LK*",
            "!LK",
            "NP",
            "*NP*",
            "!locked",
            "locked",
            "!!x",
            "nologin",
            "no-password",
            "<none>",
            "disabled",
            "null",
            "none",
            "false",
            "-",
            "!$1$salt$hash",
            "!rl.3StKT.4T8M",
        ];
        for text in texts.into_iter().map(str::to_owned).chain([
            format!("!{hash}"),
            format!("!!{hash}"),
            format!("*{hash}"),
        ]) {
            assert_eq!(kind(&text), PasswordKind::Lock, "{text:?}");
        }
        for text in ["!secret phrase", "hunter2!", "x-ray and more", "*star*", "nonesuch", "! $ome words"] {
            assert_eq!(kind(text), PasswordKind::Clear, "{text:?}");
        }
    }

    #[test]
    fn a_new_hash_is_complete_and_never_the_same_twice() {
        let (one, two) = (hash("hunter2").unwrap(), hash("hunter2").unwrap());
        assert_eq!(kind(one.expose()), PasswordKind::Hash);
        assert!(one.expose().starts_with("$y$j9T$"), "the parameters of Debian's own tools");
        assert_ne!(one, two);
        let salted = hash_with_salt("hunter2", &[7; 16]).unwrap();
        assert_eq!(salted, hash_with_salt("hunter2", &[7; 16]).unwrap());
    }
}
