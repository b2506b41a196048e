//! Join tokens (k3s `pkg/clientaccess/token.go`).
//!
//! A full token is `K10`, the SHA-256 of the cluster's authority, `::`, and a login: `user:password`, or a bootstrap token
//! as kubeadm has them. A short one is the password or the bootstrap token alone, and says nothing of the authority.

use base::digest::Digest;
use document::secret::Secret;

const PREFIX: &str = "K10";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The authority that the cluster must have.
    pub authority: Option<Digest>,
    pub login: Login,
}

/// How a token logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// With a password; the user name depends on the request.
    Password(Secret),
    /// With a bootstrap token, which lets agents in and no servers.
    Bootstrap(Secret),
}

impl Token {
    /// Reads a token as the distributions do.
    ///
    /// # Errors
    /// What is wrong, a clause without any part of the token.
    pub fn read(token: &Secret) -> Result<Self, &'static str> {
        let text = token.expose();
        let Some(rest) = text.strip_prefix(PREFIX) else {
            let login = bootstrap(text).unwrap_or_else(|| Login::Password(Secret::new(text)));
            return Ok(Self { authority: None, login });
        };
        let (authority, login) = match rest.split_once("::") {
            Some(("", login)) => (None, login),
            Some((authority, login)) => {
                let authority =
                    authority.parse().map_err(|_| "has no SHA-256 checksum between K10 and ::")?;
                (Some(authority), login)
            }
            None => (None, rest),
        };
        let login = match bootstrap(login) {
            Some(login) => login,
            None => match login.split_once(':') {
                Some((_, password)) if !password.is_empty() => Login::Password(Secret::new(password)),
                _ => return Err("begins with K10 but does not end in user:password"),
            },
        };
        Ok(Self { authority, login })
    }

    /// The token from which kubeadm's secrets are derived. There a token of the form of a bootstrap token is a password like any other.
    #[must_use]
    pub fn password(&self) -> &Secret {
        match &self.login {
            Login::Password(password) | Login::Bootstrap(password) => password,
        }
    }

    /// The full token that says that the cluster must have this authority.
    #[must_use]
    pub fn pinned_to(&self, authority: Digest) -> Secret {
        let login = match &self.login {
            Login::Password(password) => format!("server:{}", password.expose()),
            Login::Bootstrap(token) => token.expose().to_owned(),
        };
        Secret::new(format!("{PREFIX}{authority}::{login}"))
    }
}

/// `[a-z0-9]{6}.[a-z0-9]{16}`.
fn bootstrap(text: &str) -> Option<Login> {
    let (id, secret) = text.split_once('.')?;
    let is = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    (is(id, 6) && is(secret, 16)).then(|| Login::Bootstrap(Secret::new(text)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Token, &'static str> {
        Token::read(&Secret::new(text))
    }

    fn password(text: &str) -> Login {
        Login::Password(Secret::new(text))
    }

    #[test]
    fn tokens_are_read_as_the_distributions_read_them() {
        let hash = "ab".repeat(32);
        let digest = hash.parse().ok();
        let cases = [
            ("hunter2".to_owned(), None, password("hunter2")),
            ("server:hunter2".to_owned(), None, password("server:hunter2")),
            (format!("K10{hash}::server:hunter2"), digest, password("hunter2")),
            (format!("K10{hash}::node:a::b:c"), digest, password("a::b:c")),
            ("K10::server:hunter2".to_owned(), None, password("hunter2")),
            ("K10server:hunter2".to_owned(), None, password("hunter2")),
            (
                "abcdef.0123456789abcdef".to_owned(),
                None,
                Login::Bootstrap(Secret::new("abcdef.0123456789abcdef")),
            ),
            (
                format!("K10{hash}::abcdef.0123456789abcdef"),
                digest,
                Login::Bootstrap(Secret::new("abcdef.0123456789abcdef")),
            ),
            ("abcdef.0123456789abcdeF".to_owned(), None, password("abcdef.0123456789abcdeF")),
        ];
        for (text, authority, login) in cases {
            assert_eq!(read(&text), Ok(Token { authority, login }), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_full_token_is_refused_without_being_quoted() {
        for text in ["K10", "K10hush", "K10hush::server:hush", "K10::hush", "K10::server:", "K10abc::a:b"] {
            let wrong = read(text).unwrap_err();
            assert!(!wrong.contains("hush"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_token_that_is_pinned_logs_in_as_before_and_names_its_authority(text in "[ -~]{1,60}", seed: u64) {
            let digest = Digest::of(&seed.to_le_bytes());
            if let Ok(token) = read(&text) {
                let pinned = Token::read(&token.pinned_to(digest));
                prop_assert_eq!(pinned, Ok(Token { authority: Some(digest), login: token.login }));
            }
        }
    }
}
