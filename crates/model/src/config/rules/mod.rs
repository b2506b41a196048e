//! Rules about several values. A rule sees the typed configuration, of which values with a
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
mod distribution;
mod fetching;
mod files;
mod host;
mod ipv4;
mod kubernetes;
mod modes;
mod network;
mod network_disks;
mod proxies;
mod ranges;
mod registries;
mod scheme;
pub mod secrets;
mod settings;
mod shared;
mod storage;
mod time;
mod trust;
mod vip;
mod webhook;

pub(crate) use cards::USUAL_PACKETS;
pub use ipv4::prefix_length;
pub use modes::idle;
pub(crate) use modes::without_idle;
pub(crate) use network::MANAGEMENT;
pub use ranges::{PODS, SERVICES, no_overlap};

use base::encode;
use document::diagnostic::Severity;
use document::finding::Finding;
use serde_json::Value;

use super::install_config::InstallConfig;

type Rule = fn(&InstallConfig) -> Vec<Finding>;

const RULES: &[Rule] = &[
    scheme::scheme_version,
    scheme::superfluous_keys,
    access::host_name_is_a_label,
    access::host_name_is_a_name,
    access::a_login_is_possible,
    access::one_password,
    access::passwords_are_strong,
    access::users_are_further_ones,
    access::keys_before_passwords_go,
    addresses::static_is_complete,
    addresses::only_static_has_addresses,
    addresses::addresses_fit,
    addresses::name_servers,
    bonds::options_fit_the_mode,
    bonds::links_are_watched_in_one_way,
    bonds::primary_is_a_card,
    bonds::delays_fit,
    cards::cards_are_named,
    cards::each_card_once,
    cards::packet_size,
    cards::names_are_unique,
    cluster::token_is_given_once,
    cluster::agents_have_no_token_of_servers,
    cluster::tokens_are_strong,
    secrets::are_not_placeholders,
    cluster::the_cluster_is_named,
    cluster::roles_fit,
    disks::different_disks,
    disks::mirrors_have_two_disks,
    disks::wiping_is_allowed,
    disks::keeping_is_possible,
    disks::clauses_can_match,
    disks::paths_last,
    distribution::only_with_kubeadm,
    distribution::name_server_is_the_tenth,
    distribution::kinds_of_the_hypervisor,
    fetching::one_medium,
    fetching::an_iso_is_for_net_installs,
    fetching::images_come_once,
    fetching::one_configuration,
    fetching::nothing_in_the_clear,
    fetching::a_medium_in_the_clear,
    fetching::certificates_are_checked,
    fetching::checks_stay_on,
    files::kept_directories,
    files::each_file_once,
    files::content_decodes,
    files::files_are_as_meant,
    files::places_can_be_written,
    files::environment_is_public,
    host::sizes_are_given_once,
    host::devices_are_given_once,
    host::a_processor_is_left,
    host::arguments_fit,
    host::arguments_are_given_once,
    kubernetes::labels_are_allowed,
    kubernetes::taints_and_arguments,
    kubernetes::manifests_are_objects,
    kubernetes::values_are_yaml,
    modes::only_where_it_works,
    network_disks::cards_have_no_other_use,
    network_disks::targets_are_reached,
    network_disks::nvme_has_a_host,
    network_disks::passwords_fit,
    proxies::environment_leaves_the_cluster_out,
    proxies::setting_leaves_the_cluster_out,
    ranges::no_overlap,
    ranges::large_enough,
    ranges::name_server,
    registries::are_readable,
    registries::are_given_once,
    registries::suit_the_distribution,
    settings::values,
    storage::persistent_size,
    time::servers_are_given_once,
    time::enough_servers,
    time::zone_is_known,
    trust::keys_are_named,
    trust::each_key_once,
    trust::a_release_can_be_trusted,
    vip::is_complete,
    vip::fits_the_network,
    vip::suits_the_distribution,
    webhook::each_once,
];

#[must_use]
pub fn check(config: &InstallConfig) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(config)).collect()
}

/// The same where what is chosen is in use already.
#[must_use]
pub fn check_in_use(config: &InstallConfig) -> Vec<Finding> {
    check(config).into_iter().map(shared::of_choice_in_use).collect()
}

/// The configuration without each value that breaks a rule, for a boot that nobody can correct it for. Values at the paths `kept`
/// stay, and so does what lacks a value: there is nothing to leave out.
#[must_use]
pub(crate) fn without_breaches(mut config: InstallConfig, kept: &[&str]) -> InstallConfig {
    loop {
        let value = encode::json(&config);
        let breaches =
            check_in_use(&config).into_iter().filter(|finding| finding.severity == Severity::Error);
        let mut paths = breaches.map(|finding| finding.path).filter(|path| !kept.contains(&path.as_str()));
        // Without the first of two values that contradict each other the second may be right.
        // A default that breaks a rule comes again.
        let rest = |path: String| without(&value, &path).filter(|rest| *rest != config);
        let Some(rest) = paths.find_map(rest) else { return config };
        config = rest;
    }
}

/// The configuration `value` without the value at `path`, or without the group or element around it where that cannot be without it.
/// `None` if it has no such value.
fn without(value: &Value, path: &str) -> Option<InstallConfig> {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    value.pointer(&pointer).filter(|value| !value.is_null())?;
    let mut around = pointer.as_str();
    while let Some((outer, name)) = around.rsplit_once('/') {
        let mut rest = value.clone();
        match rest.pointer_mut(outer)? {
            Value::Object(entries) => drop(entries.remove(name)),
            Value::Array(items) => drop(items.remove(name.parse().ok()?)),
            _ => return None,
        }
        if let Ok(config) = serde_json::from_value(rest) {
            return Some(config);
        }
        around = outer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn read(text: &str) -> InstallConfig {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn only_values_that_break_a_rule_are_left_out() {
        let config = read(
            "os: {hostname: node-1, users: [{name: root, password: a}, {name: alice, ssh_authorized_keys: []}]}\n\
             install: {role: worker, mode: create}\n\
             system_settings: {additional-ca: pem, ui-index: a}\n",
        );
        assert!(check_in_use(&config).iter().any(|finding| finding.path.starts_with("os.users[0]")));
        let rest = without_breaches(config, &["install.role", "install.mode"]);
        assert_eq!(rest.os.hostname.as_ref().map(|name| name.as_str()), Some("node-1"));
        let names: Vec<_> = rest.os.users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!(names, ["alice"]);
        assert_eq!(rest.system_settings.keys().collect::<Vec<_>>(), ["ui-index"]);
        assert_eq!(rest.install.role, crate::config::Role::Worker, "it is kept, whatever a rule says");
    }

    #[test]
    fn what_is_right_stays_whole() {
        let text = "os: {hostname: node-1}\ninstall: {mode: join, role: worker}\nserver_url: https://192.0.2.10\ntoken: a\n";
        let config = parse(text, "node.yaml").unwrap();
        assert_eq!(without_breaches(config.clone(), &[]), config);
    }
}
