//! What several values must be to one another. A rule sees the typed configuration, of which values with a
//! mistake of their own are missing; it names the dotted path that it is about.

mod access;
mod network;
mod registries;
mod storage;

pub(crate) use network::prefix_length;

use super::InstallConfig;

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The dotted key to underline; where the document does not have it, what is nearest above it.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people. Never holds a secret.
    pub message: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl Finding {
    fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.into(), code, message: message.into(), suggestion: None }
    }

    fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}

type Rule = fn(&InstallConfig) -> Vec<Finding>;

/// Every rule.
const RULES: &[Rule] = &[
    scheme_version,
    access::somebody_can_log_in,
    network::some_interface,
    network::interfaces_are_named,
    network::packet_size,
    network::static_is_complete,
    network::only_static_has_addresses,
    network::addresses_fit,
    registries::are_readable,
    storage::persistent_size,
];

/// What all rules find.
#[must_use]
pub fn check(config: &InstallConfig) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(config)).collect()
}

fn scheme_version(config: &InstallConfig) -> Vec<Finding> {
    let wrong = |version: &u32| *version != 1;
    let message = "this program reads documents of scheme version 1";
    let finding = |_| Finding::new("scheme_version", "unsupported-scheme-version", message).suggest("1");
    config.scheme_version.filter(wrong).map(finding).into_iter().collect()
}
