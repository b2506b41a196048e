//! What several values must be to one another. A rule sees the typed configuration, of which values with a
//! mistake of their own are missing; it names the dotted path that it is about.
//!
//! Two kinds of rules: what contradicts itself is told of every document; what is missing is told where nobody can
//! be asked, with `install.automatic`.

mod access;
mod addresses;
mod bonds;
mod cards;
mod cluster;
mod disks;
mod fetching;
mod files;
mod kubernetes;
mod modes;
mod network;
mod ranges;
mod registries;
mod settings;
mod storage;
mod time;
mod vip;
mod webhook;

pub use addresses::prefix_length;
pub use modes::idle;
pub use ranges::{PODS, SERVICES, no_overlap};

use std::collections::HashMap;
use std::hash::Hash;

use super::diagnostic::Severity;
use super::{InstallConfig, Mode};

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// Whether the configuration can be used all the same.
    pub severity: Severity,
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
    pub fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { severity: Severity::Error, path, code, message, suggestion: None }
    }

    pub fn warning(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(path, code, message) }
    }

    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}

type Rule = fn(&InstallConfig) -> Vec<Finding>;

/// Every rule.
const RULES: &[Rule] = &[
    scheme_version,
    superfluous_keys,
    access::somebody_can_log_in,
    access::one_password,
    access::passwords_are_strong,
    access::users_are_further_ones,
    access::keys_before_passwords_go,
    addresses::static_is_complete,
    addresses::only_static_has_addresses,
    addresses::addresses_fit,
    addresses::name_servers,
    bonds::options_fit_the_mode,
    bonds::primary_is_a_card,
    bonds::delays_fit,
    cards::cards_are_named,
    cards::each_card_once,
    cards::packet_size,
    cards::names_are_unique,
    cluster::token_is_given_once,
    cluster::tokens_are_strong,
    cluster::the_cluster_is_named,
    cluster::roles_fit,
    disks::different_disks,
    disks::mirrors_have_two_disks,
    disks::wiping_is_allowed,
    disks::keeping_is_possible,
    disks::clauses_can_match,
    disks::paths_last,
    fetching::one_medium,
    fetching::images_come_once,
    fetching::one_configuration,
    fetching::nothing_in_the_clear,
    fetching::a_medium_in_the_clear,
    fetching::certificates_are_checked,
    fetching::checks_stay_on,
    files::kept_directories,
    files::each_file_once,
    files::content_decodes,
    files::places_can_be_written,
    files::environment_is_public,
    kubernetes::labels_are_allowed,
    kubernetes::taints_and_arguments,
    kubernetes::manifests_are_objects,
    kubernetes::values_are_yaml,
    modes::only_where_it_works,
    ranges::no_overlap,
    ranges::large_enough,
    ranges::name_server,
    registries::are_readable,
    settings::values,
    storage::persistent_size,
    time::servers_are_given_once,
    time::enough_servers,
    vip::is_complete,
    vip::fits_the_network,
    webhook::each_once,
];

/// What all rules find.
#[must_use]
pub fn check(config: &InstallConfig) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(config)).collect()
}

/// Whether nobody can be asked for what the document leaves out, and the node becomes part of a cluster.
fn is_unattended(config: &InstallConfig) -> bool {
    config.install.automatic && config.install.mode != Mode::Install
}

/// Pairs of the place of a later element and the place of the first one that it equals.
fn repeated<T: Eq + Hash>(items: &[T]) -> impl Iterator<Item = (usize, usize)> {
    let mut first = HashMap::new();
    items.iter().enumerate().filter_map(move |(later, item)| {
        let earlier = *first.entry(item).or_insert(later);
        (earlier < later).then_some((later, earlier))
    })
}

fn scheme_version(config: &InstallConfig) -> Vec<Finding> {
    let wrong = |version: &u32| *version != 1;
    let message = "this program reads documents of scheme version 1";
    let finding = |_| Finding::new("scheme_version", "unsupported-scheme-version", message).suggest("1");
    config.scheme_version.filter(wrong).map(finding).into_iter().collect()
}

/// Keys of the reference product that say what is so anyway.
fn superfluous_keys(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let mut findings = Vec::new();
    let keys = [
        ("install.force_efi", install.force_efi.is_some(), "nodes boot on BIOS and on UEFI whatever it says"),
        ("install.force_gpt", install.force_gpt == Some(true), "disks always get a GUID partition table"),
        ("install.silent", install.silent.is_some(), "it has no meaning here"),
    ];
    for (path, given, reason) in keys {
        if given {
            let message = format!("the key can go: {reason}");
            findings.push(Finding::warning(path, "superfluous-key", message));
        }
    }
    if install.force_gpt == Some(false) {
        let message = "disks always get a GUID partition table, from which BIOS boots too";
        findings.push(Finding::new("install.force_gpt", "unsupported-value", message));
    }
    findings
}
