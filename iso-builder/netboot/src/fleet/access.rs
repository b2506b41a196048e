//! Who may use the fleet page and its API: the holder of the token that is made at each start of the server and printed for the
//! operator, and the holders of [access tokens](crate::machines::access_token), each with a role.
//!
//! A browser sends a token once in the URL and gets a cookie for it; programs send it as a bearer token (RFC 6750). Forms
//! carry a second value that only pages of this server contain, so that another site cannot submit them.

use std::fmt;

use anyhow::Result;
use base::digest::Digest;
use model::config::Secret;

use crate::machines::access_token::{AccessToken, START_TOKEN, TokenRole};
use crate::machines::registry::MachineRegistry;
use crate::machines::token::same;
use crate::moment::Moment;

/// Cookies are shared by all ports of a host.
pub const COOKIE: &str = "nqrust-fleet";
/// How long a browser keeps the cookie, in seconds: a week. The server looks at the end of the token at each request.
const AGE: u32 = 7 * 24 * 3600;

/// Values derived from the token of the start. The token itself is not kept.
#[derive(Clone)]
pub struct FleetAccess {
    bearer: Digest,
    cookie: String,
    form: String,
}

/// A client that has sent a valid token or the cookie of one.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetVisitor {
    /// The name of the token.
    pub name: String,
    pub role: TokenRole,
    /// True if the token itself was sent, which no other site can make a browser do.
    pub is_bearer: bool,
    cookie: String,
    form: String,
}

impl fmt::Debug for FleetAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetAccess")
    }
}

impl fmt::Debug for FleetVisitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, role, is_bearer, .. } = self;
        let mut shown = f.debug_struct("FleetVisitor");
        shown.field("name", name).field("role", role).field("is_bearer", is_bearer).finish_non_exhaustive()
    }
}

impl FleetAccess {
    /// `token` is that of the start, and has to be random.
    #[must_use]
    pub fn new(token: &Secret) -> Self {
        let token = token.expose();
        let derived = |purpose: &str| Digest::of(format!("{purpose}\n{token}").as_bytes()).to_string();
        Self { bearer: Digest::of(token.as_bytes()), cookie: derived("cookie"), form: derived("form") }
    }

    /// Who holds the token `text`; nobody if it is not valid now.
    pub fn holder(&self, text: &str, store: &MachineRegistry, now: Moment) -> Result<Option<FleetVisitor>> {
        // Digests are compared, so that a guess cannot be improved digit by digit.
        if same(Digest::of(text.as_bytes()).as_bytes(), self.bearer.as_bytes()) {
            return Ok(Some(self.starter(true)));
        }
        let token = store.access_token(text, now)?.filter(|token| token.role.may_look());
        Ok(token.map(|token| FleetVisitor::with(&token, store, true)))
    }

    /// Who has sent these header fields of a request; nobody without a valid token or the cookie of one.
    pub fn visitor(
        &self,
        authorization: Option<&str>,
        cookies: Option<&str>,
        store: &MachineRegistry,
        now: Moment,
    ) -> Result<Option<FleetVisitor>> {
        let bearer = authorization.and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        if let Some(visitor) = bearer.map(|token| self.holder(token, store, now)).transpose()?.flatten() {
            return Ok(Some(visitor));
        }
        let values = cookies.unwrap_or_default().split(';').filter_map(|pair| pair.trim().split_once('='));
        for (_, value) in values.filter(|(name, _)| *name == COOKIE) {
            if same(value.as_bytes(), self.cookie.as_bytes()) {
                return Ok(Some(self.starter(false)));
            }
            let Some((id, _)) = value.split_once('.') else { continue };
            let token = store.access_token_with_id(id, now)?.filter(|token| token.role.may_look());
            let Some(token) = token else { continue };
            let visitor = FleetVisitor::with(&token, store, false);
            if same(value.as_bytes(), visitor.cookie.as_bytes()) {
                return Ok(Some(visitor));
            }
        }
        Ok(None)
    }

    /// The holder of the token of the start.
    fn starter(&self, is_bearer: bool) -> FleetVisitor {
        FleetVisitor {
            name: START_TOKEN.to_owned(),
            role: TokenRole::Operate,
            is_bearer,
            cookie: self.cookie.clone(),
            form: self.form.clone(),
        }
    }
}

impl FleetVisitor {
    fn with(token: &AccessToken, store: &MachineRegistry, is_bearer: bool) -> Self {
        Self {
            name: token.name.to_string(),
            role: token.role,
            is_bearer,
            cookie: format!("{}.{}", token.id, store.derived("cookie", token)),
            form: store.derived("form", token),
        }
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

    /// True if a form came from a page of this server that was made for this visitor.
    #[must_use]
    pub fn is_form_value(&self, value: &str) -> bool {
        same(value.as_bytes(), self.form.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::audit::Actor;
    use crate::test_support::registry;

    const NOW: Moment = Moment(1_700_000_000);

    /// A server with the token `T-secret` of its start, and its state.
    fn access() -> (tempfile::TempDir, FleetAccess, MachineRegistry) {
        let directory = tempfile::tempdir().unwrap();
        let store = registry(directory.path());
        (directory, FleetAccess::new(&Secret::new("T-secret")), store)
    }

    fn made(store: &MachineRegistry, name: &str, role: TokenRole, expires: Option<Moment>) -> Secret {
        let actor = Actor::command("root", "host");
        store.make_token(name.parse().unwrap(), role, expires, None, &actor, NOW).unwrap().unwrap().text
    }

    fn pair(visitor: &FleetVisitor) -> String {
        visitor.set_cookie(false).split(';').next().unwrap().to_owned()
    }

    #[test]
    fn a_token_opens_as_bearer_and_through_its_cookie_and_nothing_else_does() {
        let (_directory, access, store) = access();
        let read = made(&store, "prometheus", TokenRole::Read, None);
        let (start, read) = ("T-secret", read.expose());
        for (token, name, role) in
            [(start, START_TOKEN, TokenRole::Operate), (read, "prometheus", TokenRole::Read)]
        {
            let opens = |authorization: Option<&str>, cookies: Option<&str>| {
                let visitor = access.visitor(authorization, cookies, &store, NOW).unwrap();
                visitor.map(|visitor| (visitor.name, visitor.role, visitor.is_bearer))
            };
            let (bearer, cookie) =
                (Some((name.to_owned(), role, true)), Some((name.to_owned(), role, false)));
            let set = pair(&access.holder(token, &store, NOW).unwrap().unwrap());
            let (_, value) = set.split_once('=').unwrap();
            let shorter = &value[..value.len() - 1];
            for (authorization, cookies, expected) in [
                (None, None, None),
                (Some(format!("Bearer {token}")), None, bearer.clone()),
                (Some(format!("bearer  {token}")), None, bearer.clone()),
                (Some(format!("Basic {token}")), None, None),
                (Some(token.to_owned()), None, None),
                (Some(format!("Bearer {}", &token[..token.len() - 1])), None, None),
                (Some(format!("Bearer {token}x")), None, None),
                (Some("Bearer ".into()), None, None),
                (None, Some(set.clone()), cookie.clone()),
                (None, Some(format!("a=b; {set}; c")), cookie.clone()),
                (None, Some(format!("{COOKIE}=other; {set}")), cookie.clone()),
                (None, Some(format!("other={value}")), None),
                (None, Some(format!("{COOKIE}={token}")), None),
                (None, Some(format!("{COOKIE}={shorter}")), None),
                (None, Some(format!("{COOKIE}=")), None),
                (Some("Bearer wrong".into()), Some(set.clone()), cookie.clone()),
            ] {
                let found = opens(authorization.as_deref(), cookies.as_deref());
                assert_eq!(found, expected, "{authorization:?} {cookies:?}");
            }
        }
    }

    #[test]
    fn a_token_that_has_ended_or_was_revoked_opens_nothing_and_neither_does_its_cookie() {
        let (_directory, access, store) = access();
        let short = made(&store, "short", TokenRole::Operate, Some(NOW.plus(60)));
        let long = made(&store, "long", TokenRole::Operate, None);
        let cookie = |token: &Secret| pair(&access.holder(token.expose(), &store, NOW).unwrap().unwrap());
        let (of_short, of_long) = (cookie(&short), cookie(&long));
        let opens = |token: &Secret, cookie: &str, now| {
            let bearer = access.holder(token.expose(), &store, now).unwrap().is_some();
            assert_eq!(access.visitor(None, Some(cookie), &store, now).unwrap().is_some(), bearer);
            bearer
        };
        assert!(opens(&short, &of_short, NOW.plus(59)) && !opens(&short, &of_short, NOW.plus(60)));
        assert!(opens(&long, &of_long, NOW.plus(1 << 40)));
        store.revoke_token(&"long".parse().unwrap(), &Actor::command("root", "host"), NOW).unwrap().unwrap();
        assert!(!opens(&long, &of_long, NOW));
        // Nor does the cookie open a token of the same name that is made after it.
        made(&store, "long", TokenRole::Operate, None);
        assert!(!opens(&long, &of_long, NOW));
    }

    #[test]
    fn a_token_that_lets_machines_install_opens_nothing() {
        let (_directory, access, store) = access();
        let actor = Actor::command("root", "host");
        let made = store.make_token("rack-7".parse().unwrap(), TokenRole::Enroll, None, Some(9), &actor, NOW);
        let made = made.unwrap().unwrap();
        let text = made.text.expose();
        assert_eq!(access.holder(text, &store, NOW).unwrap(), None);
        let cookie = format!("{COOKIE}={}.{}", made.token.id, store.derived("cookie", &made.token));
        let bearer = format!("Bearer {text}");
        assert_eq!(access.visitor(Some(&bearer), Some(&cookie), &store, NOW).unwrap(), None);
    }

    #[test]
    fn a_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites_and_is_not_the_token() {
        let (_directory, access, store) = access();
        let read = made(&store, "prometheus", TokenRole::Read, None);
        for token in ["T-secret", read.expose()] {
            let visitor = access.holder(token, &store, NOW).unwrap().unwrap();
            for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
                assert!(visitor.set_cookie(false).contains(part));
            }
            assert!(visitor.set_cookie(true).ends_with("; Secure"));
            assert!(!visitor.set_cookie(false).contains("Secure"));
            let secret = token.rsplit('_').next().unwrap();
            assert!(
                !visitor.set_cookie(true).contains(secret)
                    && !format!("{visitor:?}{access:?}").contains(secret)
            );
            assert!(!visitor.set_cookie(false).contains(visitor.form_value()));
        }
    }

    #[test]
    fn a_form_of_another_server_or_of_another_visitor_is_known() {
        let (_directory, access, store) = access();
        let read = made(&store, "prometheus", TokenRole::Read, None);
        let start = access.holder("T-secret", &store, NOW).unwrap().unwrap();
        let read = access.holder(read.expose(), &store, NOW).unwrap().unwrap();
        let other = FleetAccess::new(&Secret::new("other")).holder("other", &store, NOW).unwrap().unwrap();
        assert!(start.is_form_value(start.form_value()) && read.is_form_value(read.form_value()));
        for form in [other.form_value(), read.form_value(), ""] {
            assert!(!start.is_form_value(form), "{form}");
        }
    }
}
