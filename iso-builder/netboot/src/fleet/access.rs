//! Access to the fleet page: one random token, made at each start of the server and printed for the operator.
//!
//! A browser sends the token once in the URL and gets a cookie for it; programs send it as a bearer token (RFC 6750). Forms
//! carry a second value that only pages of this server contain, so that another site cannot submit them.

use std::fmt;

use base::digest::Digest;
use model::config::Secret;

use crate::machines::token::same;

/// Cookies are shared by all ports of a host.
pub const COOKIE: &str = "nqrust-fleet";
/// How long a browser keeps the cookie, in seconds: a week.
const AGE: u32 = 7 * 24 * 3600;

/// Values derived from the token. The token itself is not kept.
#[derive(Clone)]
pub struct FleetAccess {
    bearer: Digest,
    cookie: String,
    form: String,
}

impl fmt::Debug for FleetAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetAccess")
    }
}

impl FleetAccess {
    /// `token` has to be random.
    #[must_use]
    pub fn new(token: &Secret) -> Self {
        let token = token.expose();
        let derived = |purpose: &str| Digest::of(format!("{purpose}\n{token}").as_bytes()).to_string();
        Self { bearer: Digest::of(token.as_bytes()), cookie: derived("cookie"), form: derived("form") }
    }

    #[must_use]
    pub fn is_token(&self, token: &str) -> bool {
        // Digests are compared, so that a guess cannot be improved digit by digit.
        same(Digest::of(token.as_bytes()).as_bytes(), self.bearer.as_bytes())
    }

    /// True if the header fields of a request carry the token or its cookie.
    #[must_use]
    pub fn is_open_to(&self, authorization: Option<&str>, cookies: Option<&str>) -> bool {
        let bearer = authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let values = cookies.unwrap_or_default().split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut ours = values.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
        bearer.is_some_and(|token| self.is_token(token))
            || ours.any(|value| same(value.as_bytes(), self.cookie.as_bytes()))
    }

    /// The value of `Set-Cookie` for a browser that sent the token.
    #[must_use]
    pub fn set_cookie(&self, tls: bool) -> String {
        let secure = if tls { "; Secure" } else { "" };
        format!("{COOKIE}={}; Path=/; Max-Age={AGE}; HttpOnly; SameSite=Strict{secure}", self.cookie)
    }

    /// The hidden value of every form.
    #[must_use]
    pub fn form_value(&self) -> &str {
        &self.form
    }

    /// True if a form came from a page of this server.
    #[must_use]
    pub fn is_form_value(&self, value: &str) -> bool {
        same(value.as_bytes(), self.form.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_opens_as_bearer_and_through_its_cookie_and_nothing_else_does() {
        let access = FleetAccess::new(&Secret::new("T-secret"));
        let set = access.set_cookie(false);
        let pair = set.split(';').next().unwrap();
        let (_, value) = pair.split_once('=').unwrap();
        for (authorization, cookies, opens) in [
            (None, None, false),
            (Some("Bearer T-secret"), None, true),
            (Some("bearer  T-secret"), None, true),
            (Some("Basic T-secret"), None, false),
            (Some("T-secret"), None, false),
            (Some("Bearer T-secre"), None, false),
            (Some("Bearer T-secretx"), None, false),
            (Some("Bearer "), None, false),
            (None, Some(pair), true),
            (None, Some(&*format!("a=b; {pair}; c")), true),
            (None, Some(&*format!("other={value}")), false),
            (None, Some("nqrust-fleet=T-secret"), false),
            (None, Some("nqrust-fleet="), false),
            (Some("Bearer wrong"), Some(pair), true),
        ] {
            assert_eq!(access.is_open_to(authorization, cookies), opens, "{authorization:?} {cookies:?}");
        }
    }

    #[test]
    fn a_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites_and_is_not_the_token() {
        let access = FleetAccess::new(&Secret::new("T-secret"));
        for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(access.set_cookie(false).contains(part));
        }
        assert!(
            access.set_cookie(true).ends_with("; Secure") && !access.set_cookie(false).contains("Secure")
        );
        assert!(!access.set_cookie(true).contains("T-secret") && !format!("{access:?}").contains("T-secret"));
    }

    #[test]
    fn a_form_of_another_server_is_known() {
        let (one, other) = (FleetAccess::new(&Secret::new("one")), FleetAccess::new(&Secret::new("other")));
        assert!(one.is_form_value(one.form_value()));
        assert!(!one.is_form_value(other.form_value()) && !one.is_form_value(""));
        assert!(!one.set_cookie(false).contains(one.form_value()));
    }
}
