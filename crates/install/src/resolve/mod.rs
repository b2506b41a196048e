//! What a configuration refers to is fetched: secrets in files and on servers, public keys of accounts.
//!
//! The installer calls [`resolve`] once, after the configuration has been checked and before the plan is made; the node document
//! then holds the values themselves. [`references`] lists what would be fetched without doing it. Whatever is fetched passes the
//! checks that a value in the document passes, and an error names where it came from, never its content.

mod fetch;
mod keys;
mod machine;
mod secrets;

use anyhow::Result;
use serde::Serialize;

use model::config::InstallConfig;

pub use fetch::{CONTENT_BYTES_MAX, Fetch, FetchedContent};
pub use machine::SystemFetch;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reference {
    pub key: String,
    pub from: String,
}

/// Every reference of the document, in a fixed order.
#[must_use]
pub fn references(config: &InstallConfig) -> Vec<Reference> {
    let reference = |key: &str, from: String| Reference { key: key.into(), from };
    let mut found: Vec<_> =
        secrets::places(config).into_iter().map(|(key, place)| reference(key, place.to_string())).collect();
    found.extend(keys::lists(config).into_iter().flat_map(|(key, entries)| {
        keys::remote(entries).map(move |url| Reference { key: key.clone(), from: base::url::shown(&url) })
    }));
    found
}

/// The document with the values of all its references; that of an agent without the token of servers. `warn` receives what works and is not recommended.
///
/// # Errors
/// `Class::Invalid` if a file cannot be read or a value does not pass its check, `Class::Network` if a server does not return
/// what is asked for.
pub fn resolve(
    config: &InstallConfig,
    fetch: &dyn Fetch,
    warn: &mut dyn FnMut(String),
) -> Result<InstallConfig> {
    let mut resolved = config.clone();
    secrets::resolve(&mut resolved, fetch, warn)?;
    keys::resolve(&mut resolved, fetch, warn)?;
    resolved.without_foreign_tokens()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use base::failure::{Class, Failure};

    /// Files and servers of a test, and the requests.
    #[derive(Default)]
    pub(super) struct Shelf {
        pub(super) things: BTreeMap<&'static str, &'static str>,
        pub(super) shared: bool,
        pub(super) asked: RefCell<Vec<String>>,
    }

    impl Shelf {
        pub(super) fn with(things: &[(&'static str, &'static str)]) -> Self {
            Self { things: things.iter().copied().collect(), ..Self::default() }
        }

        fn get(&self, name: &str, class: Class) -> Result<Vec<u8>> {
            self.asked.borrow_mut().push(name.to_owned());
            let found = self.things.get(name).map(|text| text.as_bytes().to_vec());
            found.ok_or_else(|| Failure::new(class, format!("{name} does not exist")).into())
        }
    }

    impl Fetch for Shelf {
        fn file(&self, path: &Path) -> Result<FetchedContent> {
            let bytes = self.get(path.to_str().unwrap(), Class::Invalid)?;
            Ok(FetchedContent { bytes, readable_by_others: self.shared })
        }

        fn url(&self, url: &str) -> Result<Vec<u8>> {
            self.get(url, Class::Network)
        }
    }

    pub(super) fn config(text: &str) -> InstallConfig {
        model::config::parse(text, "test").unwrap()
    }

    #[test]
    fn references_are_told_in_order_without_fetching() {
        let text = "token_url: https://a/t\nos: {password_file: /p, ssh_authorized_keys: [github:me, \
                    'https://a/k'], users: [{name: x, ssh_authorized_keys: ['gitlab:you']}]}";
        let told: Vec<_> = references(&config(text)).into_iter().map(|r| (r.key, r.from)).collect();
        let expected = [
            ("token", "https://a/t"),
            ("os.password", "/p"),
            ("os.ssh_authorized_keys", "https://github.com/me.keys"),
            ("os.ssh_authorized_keys", "https://a/k"),
            ("os.users[0].ssh_authorized_keys", "https://gitlab.com/you.keys"),
        ];
        assert_eq!(told, expected.map(|(key, from)| (key.to_owned(), from.to_owned())));
    }

    #[test]
    fn a_document_without_references_stays_as_it_is() {
        let (config, shelf) = (config("token: abc"), Shelf::default());
        assert_eq!(resolve(&config, &shelf, &mut |text| panic!("{text}")).unwrap(), config);
        assert!(shelf.asked.borrow().is_empty());
    }
}
