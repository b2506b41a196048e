//! Who may log in, and with what.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::password::{self, PasswordKind};
use document::format::{FormatFault, FormatResult, ensure};
use document::placeholder::is_placeholder;
use formats::minisign::{ParsePublicKeyError, PublicKey};

/// The key types that OpenSSH of Debian 13 accepts.
const KEY_TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// A public key, or where to fetch keys: `github:NAME`, `gitlab:NAME`, or a URL.
pub fn ssh_key(text: &str) -> FormatResult {
    match remote_keys(text) {
        Some(Ok(_)) => Ok(()),
        Some(Err(fault)) => Err(fault),
        None => literal_key(text),
    }
}

/// The keys of a text that is a file of them, as sshd reads it: no empty lines and no comments. `None` for a single key.
pub fn key_lines(text: &str) -> Option<Vec<&str>> {
    // A private key is one mistake, whatever its length.
    if text.contains("PRIVATE KEY") {
        return None;
    }
    let lines: Vec<_> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    (lines.len() >= 2 || text.contains('\n') && !lines.is_empty()).then_some(lines)
}

/// The URL of the keys that `text` stands for; none where it is a key itself.
pub fn remote_keys(text: &str) -> Option<Result<String, FormatFault>> {
    for (prefix, host) in [("github:", "github.com"), ("gitlab:", "gitlab.com")] {
        if let Some(name) = text.strip_prefix(prefix) {
            let body = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            let good = (1..=255).contains(&name.len()) && body && !name.starts_with(['.', '-']);
            let fault = || FormatFault::new(format!("does not name an account: {prefix}NAME"));
            return Some(good.then(|| format!("https://{host}/{name}.keys")).ok_or_else(fault));
        }
    }
    let url = text.starts_with("http://") || text.starts_with("https://");
    url.then(|| super::network::http_url(text).map(|()| text.to_owned()))
}

/// A public key on one line: type, base64, perhaps a comment. The type inside the base64 must be the same.
pub fn literal_key(text: &str) -> FormatResult {
    ensure(!text.contains("PRIVATE KEY"), "is a private key; give the public one")?;
    ensure(!text.chars().any(char::is_control), "is not one line")?;
    if is_placeholder(text) {
        let message = "is a placeholder; write the whole line of the file NAME.pub";
        return Err(FormatFault::new(message));
    }
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let names_a_type = |word: &str| KEY_TYPES.iter().any(|kind| word.ends_with(kind));
    if KEY_TYPES.contains(&kind) && words.clone().skip(1).any(names_a_type) {
        return Err(FormatFault::new("is more than one key; put each key into its own element or line"));
    }
    if text.ends_with(".pub") || text.starts_with(['/', '~', '.']) {
        return Err(FormatFault::new(
            "is the path of a file; write its content, the whole line of the file NAME.pub",
        ));
    }
    if let Some((site @ ("gh" | "gl" | "lp"), name)) = text.split_once(':') {
        let message = "names an account in an unknown form; expected github:NAME or gitlab:NAME";
        let site = match site {
            "gh" => Some("github"),
            "gl" => Some("gitlab"),
            _ => None,
        };
        let better = site.map(|site| format!("{site}:{name}")).filter(|better| ssh_key(better).is_ok());
        return Err(FormatFault::new(message).suggest(better));
    }
    if !KEY_TYPES.contains(&kind) {
        let message = format!("does not begin with a type of key, one of {}", KEY_TYPES.join(", "));
        return Err(FormatFault::new(message));
    }
    let key = words.next().unwrap_or_default();
    let placeholder =
        key.is_empty() || key.contains("..") || key.contains(['…', '<', '$', '{', '%', '@', '[', '*']);
    let placeholder = placeholder || is_placeholder(key);
    ensure(!placeholder, "has a placeholder in place of the key; write the whole line of the file NAME.pub")?;
    let blob = STANDARD.decode(key).unwrap_or_default();
    ensure(inner_type(&blob) == Some(kind.as_bytes()), "is damaged: its base64 part does not hold such a key")
}

/// The type that a key blob names: a string with its length before it, RFC 4253 section 6.6. Something must
/// follow it.
fn inner_type(blob: &[u8]) -> Option<&[u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let (kind, key) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (key.len() >= 16).then_some(kind)
}

/// A password in clear text, or a crypt(5) hash that the node's libcrypt knows and that is strong enough.
pub fn password(text: &str) -> FormatResult {
    ensure(!text.is_empty(), "is empty; remove the key to allow no password")?;
    ensure(!text.chars().any(char::is_control), "holds a control character")?;
    match password::kind(text) {
        PasswordKind::Lock => Err(FormatFault::new(
            "locks an account in /etc/shadow and is not a password; remove the key to allow logins with SSH keys only",
        )),
        PasswordKind::Unsupported(why) => Err(FormatFault::new(format!("is {why}"))
            .suggest(Some("a hash made by `mkpasswd --method=yescrypt`".into()))),
        PasswordKind::Hash | PasswordKind::Clear => Ok(()),
    }
}

/// The rounds of a boot password: fewer are tried too fast, more keep who types it waiting.
const BOOT_ROUNDS: std::ops::RangeInclusive<u32> = 1_000..=10_000_000;
/// The length of its salt, in bytes.
const BOOT_SALT: std::ops::RangeInclusive<usize> = 8..=128;
/// The length of its hash, in bytes: the default of the program. GRUB would take any, and no password matches a hash
/// that was cut off.
const BOOT_HASH: usize = 64;

/// A hash as grub-mkpasswd-pbkdf2(1) prints it: `grub.pbkdf2.sha512.ROUNDS.SALT.HASH`, the last two in hexadecimal. GRUB
/// reads a number that begins with 0 as octal, so that one is refused.
pub fn boot_password(text: &str) -> FormatResult {
    let fault = |message: &str| FormatFault { sensitive: true, ..FormatFault::new(message) };
    let Some(rest) = text.strip_prefix("grub.pbkdf2.sha512.") else {
        return Err(fault("is not a GRUB password hash; make one with `grub-mkpasswd-pbkdf2`"));
    };
    let parts: Vec<&str> = rest.split('.').collect();
    let [rounds, salt, hash] = parts[..] else {
        return Err(fault("is incomplete: expected ROUNDS.SALT.HASH"));
    };
    let number = rounds
        .parse()
        .ok()
        .filter(|_| rounds.bytes().all(|b| b.is_ascii_digit()) && !rounds.starts_with('0'));
    if !number.is_some_and(|number| BOOT_ROUNDS.contains(&number)) {
        return Err(fault("has a number of rounds that is not 1000 to 10000000"));
    }
    let bytes = |text: &str| {
        let hexadecimal = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
        hexadecimal.then_some(text.len() / 2)
    };
    if !bytes(salt).is_some_and(|length| BOOT_SALT.contains(&length)) {
        return Err(fault("has a salt that is not 8 to 128 bytes in hexadecimal digits"));
    }
    if bytes(hash) != Some(BOOT_HASH) {
        return Err(fault("has a hash that is not 64 bytes in hexadecimal digits"));
    }
    Ok(())
}

/// A public key of minisign: the second line of its file, or both lines.
pub fn minisign_key(text: &str) -> FormatResult {
    match PublicKey::parse(text) {
        Ok(_) => Ok(()),
        Err(ParsePublicKeyError::Secret) => Err(FormatFault {
            sensitive: true,
            ..FormatFault::new(
                "is a secret key; remove it from here, and give the public one, from the file that ends in .pub",
            )
        }),
        Err(ParsePublicKeyError::Layout) => Err(FormatFault {
            // It may be a part of a secret key.
            sensitive: true,
            ..FormatFault::new(
                "is not a public key of minisign: the line of 56 characters that begins with RW, from the file that ends \
                 in .pub",
            )
        }),
    }
}

/// A token: visible ASCII and inner spaces, so that it passes through environments, headers and files unchanged.
pub fn token(text: &str) -> FormatResult {
    let body = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && text.trim() == text;
    ensure(
        (1..=1024).contains(&text.len()) && body,
        "is not a token: 1 to 1024 visible ASCII characters, no space at the ends",
    )
}

/// A login name, as useradd(8) takes it.
pub fn user_name(text: &str) -> FormatResult {
    let body = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b));
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    ensure(
        text.len() <= 32 && body && first,
        "is not a login name: lower-case letters, digits, '_' and '-', at most 32",
    )
}

/// A user, or user and group joined by `:`, by name or by number.
pub fn owner(text: &str) -> FormatResult {
    let one = |name: &str| {
        let number = !name.is_empty() && name.len() <= 9 && name.bytes().all(|b| b.is_ascii_digit());
        number || user_name(name).is_ok()
    };
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    ensure(one(user) && group.is_none_or(one), "is not an owner: a user, or user and group joined by ':'")
}

/// Permissions: three or four octal digits.
pub fn file_mode(text: &str) -> FormatResult {
    let octal = text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    if (3..=5).contains(&text.len()) && octal {
        return Ok(());
    }
    let marked = text
        .strip_prefix("0o")
        .or(text.strip_prefix("0O"))
        .and_then(|text| u32::from_str_radix(text, 8).ok());
    let decimal = text.parse().ok().filter(|mode| !text.starts_with('0') && COMMON_MODES.contains(mode));
    let mode = marked.filter(|mode| *mode <= 0o7777).or(decimal).or_else(|| symbolic_mode(text));
    Err(FormatFault::new("is not a mode of permissions in octal digits, such as 0644")
        .suggest(mode.map(|mode| format!("{mode:04o}"))))
}

const COMMON_MODES: [u32; 19] = [
    0o400, 0o440, 0o444, 0o500, 0o550, 0o555, 0o600, 0o640, 0o644, 0o660, 0o664, 0o666, 0o700, 0o710, 0o750,
    0o755, 0o770, 0o775, 0o777,
];

/// The mode that digits mean as a decimal number, as programs print an octal number that YAML has read, where they mean
/// no usual mode in octal: 420 is 0644.
pub fn decimal_mode(text: &str) -> Option<String> {
    let usual = |mode: &u32| COMMON_MODES.contains(mode);
    let octal = u32::from_str_radix(text, 8).ok().filter(usual);
    let decimal: u32 = text.parse().ok().filter(|_| !text.starts_with('0')).filter(usual)?;
    octal.is_none().then(|| format!("{decimal:04o}"))
}

/// The mode of `u=rw,go=r`.
fn symbolic_mode(text: &str) -> Option<u32> {
    let mut mode = 0;
    for clause in text.split(',') {
        let (who, what) = clause.split_once('=')?;
        let bits = |letters: &str, of: &dyn Fn(char) -> Option<u32>| {
            letters.chars().try_fold(0, |bits, letter| Some(bits | of(letter)?))
        };
        let what = bits(what, &|c| match c {
            'r' => Some(4),
            'w' => Some(2),
            'x' => Some(1),
            _ => None,
        })?;
        let places = bits(who, &|c| match c {
            'u' => Some(0o100),
            'g' => Some(0o010),
            'o' => Some(0o001),
            'a' => Some(0o111),
            _ => None,
        })?;
        mode |= what * places;
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g";

    #[test]
    fn a_public_key_holds_what_it_says() {
        assert_eq!(ssh_key(KEY), Ok(()));
        assert_eq!(ssh_key(&format!("{KEY} me@example.org")), Ok(()));
        for text in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 !!!!",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5",
            &KEY.replace("ssh-ed25519", "ssh-rsa"),
            &format!("from=\"*\" {KEY}"),
            &format!("{KEY}\n{KEY}"),
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            &format!("{KEY},{KEY}"),
            &format!("{KEY} a {KEY} b"),
            "~/.ssh/id_ed25519.pub",
            "lp:name",
        ] {
            assert!(ssh_key(text).is_err(), "{text}");
        }
        for (text, better) in [("gh:name", "github:name"), ("gl:name", "gitlab:name")] {
            assert_eq!(ssh_key(text).unwrap_err().suggestion.as_deref(), Some(better), "{text}");
        }
    }

    #[test]
    fn passwords_that_only_look_like_hashes_are_refused() {
        assert_eq!(password("correct horse"), Ok(()));
        assert!(password("$1$salt$hash").is_err());
        for text in ["", "*", "!", "!!", "!*", "x"] {
            assert!(password(text).is_err(), "{text}");
        }
        assert!(password("a\nb").is_err());
    }

    #[test]
    fn permissions_are_octal_and_another_form_is_answered_with_them() {
        for (text, better) in [
            ("493", "0755"),
            ("384", "0600"),
            ("0o644", "0644"),
            ("u=rw,go=r", "0644"),
            ("u=rwx,g=rx,o=", "0750"),
        ] {
            assert_eq!(file_mode(text).unwrap_err().suggestion.as_deref(), Some(better), "{text}");
        }
        for (text, better) in [("420", Some("0644")), ("511", Some("0777")), ("416", Some("0640"))] {
            assert_eq!(decimal_mode(text).as_deref(), better, "{text}");
        }
        for text in ["644", "0420", "755", "600", "400", "0644", "440"] {
            assert_eq!((file_mode(text), decimal_mode(text)), (Ok(()), None), "{text}");
        }
    }

    #[test]
    fn tokens_are_visible_ascii() {
        assert_eq!(token("K10::server:abc+/="), Ok(()));
        assert_eq!(token("two words"), Ok(()));
        for text in ["", " a", "é", "a\n"] {
            assert!(token(text).is_err(), "{text:?}");
        }
    }
}
