//! Public keys of accounts on GitHub and GitLab, and of any URL that returns lines of authorized_keys(5).

use std::collections::BTreeMap;

use anyhow::Result;

use super::fetch::{Fetch, plain_http};
use base::failure::{Class, Classify, Failure};
use base::url::shown;
use model::config::formats::access;
use model::config::{InstallConfig, SshKey};

/// Every list of keys with its dotted path.
pub(super) fn lists(config: &InstallConfig) -> Vec<(String, &[SshKey])> {
    let users = config.os.users.iter().enumerate();
    let users = users.map(|(i, user)| (of_user(i), user.ssh_authorized_keys.as_slice()));
    std::iter::once((LOGIN.to_owned(), config.os.ssh_authorized_keys.as_slice())).chain(users).collect()
}

/// The keys of the login user.
const LOGIN: &str = "os.ssh_authorized_keys";

fn of_user(index: usize) -> String {
    format!("os.users[{index}].ssh_authorized_keys")
}

/// The URLs of the entries that are not keys themselves.
pub(super) fn remote(entries: &[SshKey]) -> impl Iterator<Item = String> + '_ {
    entries.iter().filter_map(|entry| access::remote_keys(entry)?.ok())
}

/// Puts the keys themselves into the document. Each URL is requested once.
pub(super) fn resolve(
    config: &mut InstallConfig,
    fetch: &dyn Fetch,
    warn: &mut dyn FnMut(String),
) -> Result<()> {
    let mut known = BTreeMap::new();
    let os = &mut config.os;
    let users = os.users.iter_mut().enumerate().map(|(i, user)| (of_user(i), &mut user.ssh_authorized_keys));
    for (path, list) in std::iter::once((LOGIN.to_owned(), &mut os.ssh_authorized_keys)).chain(users) {
        let mut literal = Vec::new();
        for entry in list.iter() {
            let Some(Ok(url)) = access::remote_keys(entry) else {
                literal.push(entry.clone());
                continue;
            };
            let keys = match known.get(&url) {
                Some(keys) => keys,
                None => {
                    plain_http(&format!("`{path}`"), &url, warn);
                    let keys = obtain(entry, &url, fetch).class(Class::Network, || {
                        format!("getting the keys of {} for `{path}`", shown(entry))
                    })?;
                    known.entry(url).or_insert(keys)
                }
            };
            literal.extend(keys.iter().cloned());
        }
        *list = literal;
    }
    Ok(())
}

fn obtain(entry: &str, url: &str, fetch: &dyn Fetch) -> Result<Vec<SshKey>> {
    let refuse = |why: String| {
        Failure::new(Class::Network, format!("{} {why}", shown(url)))
            .hint("Check the name or the URL in the configuration, or write the keys themselves there.")
    };
    let text = String::from_utf8(fetch.url(url)?).map_err(|_| refuse("does not return text".into()))?;
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let wrong =
            |message: String| refuse(format!("returns no list of public keys: line {number} {message}"));
        access::literal_key(line.trim()).map_err(|fault| wrong(fault.message))?;
        let noted = format!("{} {}", line.trim(), source(entry));
        keys.push(noted.parse().map_err(|_| wrong("is not a key".into()))?);
    }
    if keys.is_empty() {
        return Err(refuse("returns no public key".into()).into());
    }
    Ok(keys)
}

/// The name of the source for the comment of a key: one word, and no part of a URL that could be a secret.
fn source(entry: &str) -> String {
    let name = shown(entry);
    name.split(['?', '#']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Shelf, config};
    use super::*;
    use base::failure::{class_of, render};

    const ONE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g";
    const TWO: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8h me@home";
    const BOTH: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g\r\n\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8h me@home\n";

    #[test]
    fn keys_take_the_place_of_accounts_and_say_where_they_are_from() {
        let shelf = Shelf::with(&[("https://github.com/me.keys", BOTH), ("https://a/keys?secret=x", TWO)]);
        let text = format!(
            "os: {{ssh_authorized_keys: [github:me, '{ONE} own'], \
             users: [{{name: x, ssh_authorized_keys: ['https://a/keys?secret=x', github:me]}}]}}"
        );
        let resolved = super::super::resolve(&config(&text), &shelf, &mut |text| panic!("{text}")).unwrap();
        let words = |keys: &[SshKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let from_github = [format!("{ONE} github:me"), format!("{TWO} github:me")];
        assert_eq!(
            words(&resolved.os.ssh_authorized_keys),
            [&from_github[..], &[format!("{ONE} own")]].concat()
        );
        assert_eq!(
            words(&resolved.os.users[0].ssh_authorized_keys),
            [&[format!("{TWO} https://a/keys")], &from_github[..]].concat()
        );
        assert_eq!(shelf.asked.borrow().len(), 2, "each URL is asked once");
    }

    #[test]
    fn what_is_not_a_list_of_keys_is_refused_whole() {
        for (content, told) in [
            ("", "returns no public key"),
            ("<html>not found</html>", "line 1 does not begin with a type of key"),
            ("\nssh-ed25519 !!!", "line 2 is damaged"),
            ("command=\"rm\" ssh-ed25519 AAAA", "line 1 does not begin"),
        ] {
            let shelf = Shelf::with(&[("http://a/k", Box::leak(content.to_owned().into_boxed_str()))]);
            let mut warnings = Vec::new();
            let document = config("os: {ssh_authorized_keys: ['http://a/k']}");
            let error =
                super::super::resolve(&document, &shelf, &mut |text| warnings.push(text)).unwrap_err();
            assert_eq!(class_of(&error), Class::Network);
            let text = render(&error);
            assert!(text.contains(told) && text.contains("http://a/k") && text.contains("next:"), "{text}");
            assert!(warnings[0].contains("without TLS"));
        }
    }
}
