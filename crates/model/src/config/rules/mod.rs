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
mod distribution;
mod fetching;
mod files;
mod ipv4;
mod kubernetes;
mod modes;
mod network;
mod proxies;
mod ranges;
mod registries;
mod scheme;
pub mod secrets;
mod settings;
mod shared;
mod storage;
mod time;
mod vip;
mod webhook;

pub(crate) use cards::USUAL_PACKETS;
pub use ipv4::prefix_length;
pub use modes::idle;
pub(crate) use modes::without_idle;
pub(crate) use network::MANAGEMENT;
pub use ranges::{PODS, SERVICES, no_overlap};

use document::finding::Finding;

use super::install_config::InstallConfig;

type Rule = fn(&InstallConfig) -> Vec<Finding>;

/// Every rule.
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
    kubernetes::labels_are_allowed,
    kubernetes::taints_and_arguments,
    kubernetes::manifests_are_objects,
    kubernetes::values_are_yaml,
    modes::only_where_it_works,
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
