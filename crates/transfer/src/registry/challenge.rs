//! How a registry asks clients to log in (RFC 9110, 11.6.1; distribution's token specification).

/// The login that a registry requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// No login.
    None,
    /// User name and password with every request.
    Basic,
    /// A token, which another service gives.
    Bearer {
        realm: String,
        /// The name of the registry for the token service.
        service: Option<String>,
    },
}

impl Challenge {
    /// Reads the value of `WWW-Authenticate`, if there is one. A token is preferred to a password.
    pub(super) fn read(value: Option<&str>) -> Self {
        let Some(value) = value else { return Self::None };
        let lower = value.to_ascii_lowercase();
        match lower.find("bearer") {
            Some(start) => {
                let parameters = &value[start + "bearer".len()..];
                let realm = parameter(parameters, "realm").unwrap_or_default();
                Self::Bearer { realm, service: parameter(parameters, "service") }
            }
            None => Self::Basic,
        }
    }
}

fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_matches([',', ' ', '\t']);
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.trim().to_owned());
        }
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer { realm: realm.into(), service: service.map(str::to_owned) }
    }

    #[test]
    fn every_form_of_a_challenge_is_read() {
        for (value, expected) in [
            (None, Challenge::None),
            (Some("Basic realm=\"Registry\""), Challenge::Basic),
            (Some("Bearer realm=\"https://a/t\",service=\"s\""), bearer("https://a/t", Some("s"))),
            (Some("bearer service=s , realm=\"https://a/t?x=1,2\""), bearer("https://a/t?x=1,2", Some("s"))),
            (Some("Basic realm=\"x\", Bearer realm=\"https://a/t\""), bearer("https://a/t", None)),
            (Some("Bearer"), bearer("", None)),
        ] {
            assert_eq!(Challenge::read(value), expected, "{value:?}");
        }
    }
}
