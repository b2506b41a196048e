//! The token and the password, if the document says where they are instead of what they are.

use std::fmt;
use std::path::Path;

use anyhow::Result;

use super::fetch::{Fetch, plain_http};
use base::failure::{Class, Classify, Failure};
use base::url::shown;
use model::config::formats::{FormatResult, access};
use model::config::rules::secrets;
use model::config::{InstallConfig, Secret, Severity};

pub(super) enum SecretSource<'a> {
    File(&'a str),
    Url(&'a str),
}

impl fmt::Display for SecretSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Url(url) => f.write_str(&shown(url)),
        }
    }
}

/// The keys of secrets that are elsewhere, and where.
pub(super) fn places(config: &InstallConfig) -> Vec<(&'static str, SecretSource<'_>)> {
    let file = |path| SecretSource::File(path);
    let token_file = config.token_file.as_deref().map(file).map(|place| ("token", place));
    let token_url = config.token_url.as_deref().map(SecretSource::Url).map(|place| ("token", place));
    let password = config.os.password_file.as_deref().map(file).map(|place| ("os.password", place));
    token_file.into_iter().chain(token_url).chain(password).collect()
}

pub(super) fn resolve(
    config: &mut InstallConfig,
    fetch: &dyn Fetch,
    warn: &mut dyn FnMut(String),
) -> Result<()> {
    let given = [
        ("`token`", config.token.is_some()),
        ("`token_file`", config.token_file.is_some()),
        ("`token_url`", config.token_url.is_some()),
    ];
    one_of(&given)?;
    let os = &config.os;
    one_of(&[("`os.password`", os.password.is_some()), ("`os.password_file`", os.password_file.is_some())])?;
    let mut found = Vec::new();
    for (key, place) in places(config) {
        let check = if key == "token" { access::token } else { access::password };
        found.push((key, obtain(key, &place, check, fetch, warn)?));
    }
    let mut named = Vec::new();
    for (key, secret) in found {
        let target = if key == "token" { &mut config.token } else { &mut config.os.password };
        *target = Some(secret);
        named.push(key);
    }
    judge(config, &named, warn)?;
    (config.token_file, config.token_url, config.os.password_file) = (None, None, None);
    Ok(())
}

/// Judges the secrets at `keys`, which have just been put there, as those that stand in a document.
fn judge(config: &InstallConfig, keys: &[&str], warn: &mut dyn FnMut(String)) -> Result<(), Failure> {
    for finding in secrets::check(config).into_iter().filter(|finding| keys.contains(&&*finding.path)) {
        let text = format!("the secret for `{}`: {}", finding.path, finding.message);
        match finding.severity {
            Severity::Error => return Err(Failure::new(Class::Invalid, text)),
            Severity::Warning => warn(text),
        }
    }
    Ok(())
}

fn one_of(keys: &[(&str, bool)]) -> Result<(), Failure> {
    let given: Vec<_> = keys.iter().filter(|(_, given)| *given).map(|(key, _)| *key).collect();
    if given.len() < 2 {
        return Ok(());
    }
    let what = format!("{} are both set", given.join(" and "));
    Err(Failure::new(Class::Invalid, what).hint("Keep one of them."))
}

fn obtain(
    key: &str,
    place: &SecretSource<'_>,
    check: fn(&str) -> FormatResult,
    fetch: &dyn Fetch,
    warn: &mut dyn FnMut(String),
) -> Result<Secret> {
    let bytes = match place {
        SecretSource::File(path) => {
            let content = fetch.file(Path::new(path)).class(Class::Invalid, || format!("getting `{key}`"))?;
            if content.readable_by_others {
                warn(format!("{path} holds `{key}`, and every user can read it; use chmod 600 {path}"));
            }
            content.bytes
        }
        SecretSource::Url(url) => {
            plain_http(&format!("`{key}`"), url, warn);
            fetch.url(url).class(Class::Network, || format!("getting `{key}`"))?
        }
    };
    let refuse = |why: &str| {
        Failure::new(Class::Invalid, format!("the content of {place}, for `{key}`, {why}"))
            .hint("Put only the value there; a final line end is allowed.")
    };
    let text = String::from_utf8(bytes).map_err(|_| refuse("is not text"))?;
    let text = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    check(text).map_err(|fault| refuse(&fault.message))?;
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Shelf, config};
    use super::*;
    use base::failure::{class_of, render};
    use proptest::prelude::*;

    fn run(text: &str, shelf: &Shelf) -> (Result<InstallConfig>, Vec<String>) {
        let mut warnings = Vec::new();
        let result = super::super::resolve(&config(text), shelf, &mut |text| warnings.push(text));
        (result, warnings)
    }

    #[test]
    fn a_fetched_secret_is_judged_as_one_in_the_document() {
        for content in ["${TOKEN}\n", "CHANGEME", "password\n"] {
            let shelf = Shelf::with(&[("/t", content)]);
            let mut document = config("token_file: /t");
            document.install.automatic = true;
            let refused = resolve(&mut document, &shelf, &mut |_| ()).unwrap_err();
            assert_eq!(class_of(&refused), Class::Invalid, "{content}");
            assert!(!render(&refused).contains(content.trim()), "{}", render(&refused));
        }
        let (resolved, warnings) = run("token_file: /t", &Shelf::with(&[("/t", "password\n")]));
        assert!(resolved.is_ok() && warnings.len() == 1, "who is asked is warned: {warnings:?}");
        let (resolved, _) = run("os: {password_file: /p}", &Shelf::with(&[("/p", "*\n")]));
        assert_eq!(class_of(&resolved.unwrap_err()), Class::Invalid);
    }

    #[test]
    fn values_take_the_place_of_references_without_their_last_line_end() {
        let shelf = Shelf::with(&[
            ("/t", "marked token of the test\r\n"),
            ("/p", "hunter2\n"),
            ("https://a/t", "4cb1dea79be2f83d5c60"),
        ]);
        let (resolved, warnings) = run("token_file: /t\nos: {password_file: /p}", &shelf);
        let resolved = resolved.unwrap();
        assert_eq!(resolved.token, Some(Secret::new("marked token of the test")));
        assert_eq!(resolved.os.password, Some(Secret::new("hunter2")));
        assert!(resolved.token_file.is_none() && resolved.os.password_file.is_none());
        assert!(warnings.is_empty());
        let document = resolved.for_node().unwrap().to_yaml();
        assert!(document.contains("marked token of the test") && !document.contains("hunter2"), "{document}");
        let (resolved, _) = run("token_url: https://a/t", &shelf);
        assert_eq!(resolved.unwrap().token, Some(Secret::new("4cb1dea79be2f83d5c60")));
    }

    #[test]
    fn what_is_open_to_everybody_is_warned_about() {
        let shelf = Shelf { shared: true, ..Shelf::with(&[("/t", "abc"), ("http://a/t?key=k", "abc")]) };
        let (_, warnings) = run("token_file: /t", &shelf);
        assert!(warnings[0].starts_with("/t holds `token`, and every user can read it"), "{warnings:?}");
        let (_, warnings) = run("token_url: 'http://a/t?key=k'", &shelf);
        assert!(warnings[0].contains("without TLS"), "{warnings:?}");
    }

    #[test]
    fn two_sources_of_one_secret_are_refused() {
        let mut twice = config("token_file: /t");
        twice.token = Some(Secret::new("abc"));
        let error = super::super::resolve(&twice, &Shelf::default(), &mut |_| {}).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("`token` and `token_file`"));
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_named_with_its_class() {
        for (text, class, place) in [
            ("token_file: /absent", Class::Invalid, "/absent"),
            ("token_url: https://a/absent", Class::Network, "https://a/absent"),
        ] {
            let error = run(text, &Shelf::default()).0.unwrap_err();
            assert_eq!(class_of(&error), class);
            let text = render(&error);
            assert!(text.contains(place) && text.contains("getting `token`"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_error_never_tells_the_content(bad in "[a-z]{8,20}[\\x00-\\x08\u{e9}\n][a-z]{8,20}") {
            let shelf = Shelf::with(&[("/t", Box::leak(bad.clone().into_boxed_str()))]);
            let text = render(&run("token_file: /t", &shelf).0.unwrap_err());
            prop_assert!(text.contains("/t") && !text.contains(&bad[..8]), "{}", text);
        }
    }
}
