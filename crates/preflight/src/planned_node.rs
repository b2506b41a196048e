//! The node that a machine is to become, as far as the checks need it: taken from an install configuration in one place.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::limits::Workload;
use cluster::join_query::{ClusterNetworks, Ports, Version, is_server};
use machine::network;
use machine::nics::wanted;
use model::config::network::NetworkMethod;
use model::config::{
    DiskSelector, Distribution, HostSettings, InstallConfig, Interface, Method, Mode, Network, Profile, Role,
    Secret, VipMode,
};
use model::hardware::{CrashDumpSupport, HardwareCoverage};
use model::network_disks::DiskProtocol;

const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

#[derive(Clone, Debug, Default)]
pub struct PlannedNode {
    pub role: Role,
    pub profile: Profile,
    pub workload: Workload,
    pub device: Option<DiskSelector>,
    pub data_disk: Option<DiskSelector>,
    pub mirror: Option<DiskSelector>,
    /// The settings of the machine under virtual machines.
    pub host: HostSettings,
    /// The cards of every network of the configuration.
    pub all_cards: Vec<Interface>,
    /// The cards of the management network; empty if the configuration names none.
    pub cards: Vec<Interface>,
    /// Addresses that no other machine may have.
    pub claims: Vec<AddressClaim>,
    /// Whether the node gets its address and name servers by DHCP.
    pub dhcp: bool,
    pub name_servers: Vec<Ipv4Addr>,
    /// By name or address.
    pub time_servers: Vec<String>,
    /// Other hosts that the node needs to find by name.
    pub names: Vec<String>,
    pub proxies: Vec<Proxy>,
    pub join: Option<PlannedJoin>,
    /// The cluster that the node will be a part of.
    pub cluster: Option<PlannedCluster>,
    pub skip: Vec<String>,
    /// Report everything and stop for nothing: the reference product's `skipchecks`.
    pub stop_for_nothing: bool,
    /// The release time in seconds since 1970; a correct clock is not before it.
    pub not_before: Option<u64>,
    /// Whether a node can be on a disk with several paths by its release; none if the release is not known.
    pub several_paths: Option<bool>,
    /// Whether a node can write crash dumps by its release; none if the release is not known.
    pub crash_dumps: Option<CrashDumpSupport>,
    /// What the release can drive; none if the release is not known, or does not say.
    pub coverage: Option<Arc<HardwareCoverage>>,
    /// The modules that the configuration loads.
    pub modules: Vec<String>,
    /// The protocols by which the initrd of its release reaches disks over the network; none if the release is not known.
    pub disk_protocols: Option<Vec<DiskProtocol>>,
}

/// The cluster of a node, as its document has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCluster {
    pub distribution: Distribution,
    pub networks: ClusterNetworks,
    pub keeps_etcd: bool,
}

impl PlannedCluster {
    fn of(config: &InstallConfig) -> Option<Self> {
        let install = &config.install;
        (install.mode != Mode::Install).then(|| Self {
            distribution: config.kubernetes.distribution(),
            networks: ClusterNetworks { pods: install.pods(), services: install.services() },
            keeps_etcd: is_server(install.own_role()),
        })
    }
}

/// The cluster to join, and what the node brings along.
#[derive(Clone, Debug)]
pub struct PlannedJoin {
    pub host: String,
    pub distribution: Distribution,
    pub ports: Ports,
    /// The token for joining; `None` if the document only refers to it.
    pub token: Option<Secret>,
    /// The token that the node, as a server, accepts from other nodes.
    pub agent_token: Option<Secret>,
    pub name: Option<String>,
    /// Whether the node will answer for the address in `server_url`, as one of the servers. With kubeadm the cluster tells its
    /// servers the virtual address.
    pub carries_address: bool,
    /// The version that the node will run, if that is known.
    pub version: Option<Version>,
}

impl PlannedJoin {
    fn of(config: &InstallConfig) -> Option<Self> {
        let install = &config.install;
        let url = config.server_url.as_ref().filter(|_| install.mode == Mode::Join)?;
        let distribution = config.kubernetes.distribution();
        let server = is_server(install.role);
        let (token, agent_token) = match server {
            true => (config.token.clone(), config.kubernetes.agent_token.clone()),
            // What is wrong with a token that cannot be read, the check of tokens says.
            false => (config.agent_credential().unwrap_or_else(|_| config.token.clone()), None),
        };
        Some(Self {
            host: url.host().to_owned(),
            distribution,
            ports: Ports::of(distribution),
            token,
            agent_token,
            name: config.os.hostname.as_ref().map(ToString::to_string),
            carries_address: install.role == Role::Management
                && distribution != Distribution::Kubeadm
                && install.vip.is_none()
                && install.vip_mode != Some(VipMode::Dhcp),
            version: None,
        })
    }
}

/// An address that the node, or the cluster, takes.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressClaim {
    pub address: Ipv4Addr,
    pub key: String,
    pub cards: Vec<Interface>,
    /// Less than 2 is none.
    pub vlan: u32,
    /// The device that has it on the node, and in a live system that has set up the network.
    pub device: String,
}

/// An HTTP proxy. Its URL may hold a password, and is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub host: String,
    /// TCP port.
    pub port: u16,
    pub tls: bool,
}

impl PlannedNode {
    #[must_use]
    pub fn of(config: &InstallConfig) -> Self {
        let (os, install) = (&config.os, &config.install);
        let management = install.management_interface.as_ref();
        let cluster = config.server_url.as_ref().map(|url| url.host().to_owned());
        let medium = install.medium.as_deref().and_then(host);
        Self {
            role: install.own_role(),
            profile: install.profile,
            workload: Workload::of(config.kubernetes.distribution()),
            device: install.device.clone(),
            data_disk: install.data_disk.clone(),
            mirror: install.mirror.clone(),
            host: os.host.clone(),
            all_cards: wanted(config).into_iter().map(|wanted| wanted.card.clone()).collect(),
            cards: management.map(|management| management.interfaces.clone()).unwrap_or_default(),
            claims: claims(config),
            dhcp: management.is_none_or(|management| management.method == Method::Dhcp),
            name_servers: os.dns_nameservers.clone(),
            time_servers: os.ntp_servers.iter().map(ToString::to_string).collect(),
            names: cluster.into_iter().chain(medium).filter(|host| is_name(host)).collect(),
            proxies: proxies(config),
            join: PlannedJoin::of(config),
            cluster: PlannedCluster::of(config),
            skip: install.skip_checks.iter().map(ToString::to_string).collect(),
            stop_for_nothing: install.skipchecks,
            not_before: None,
            several_paths: None,
            crash_dumps: None,
            coverage: None,
            modules: os.modules.iter().map(ToString::to_string).collect(),
            disk_protocols: None,
        }
    }

    /// Whether a DHCP server can change the address by which etcd knows this node. RKE2 and K3s follow such a change.
    #[must_use]
    pub fn etcd_address_can_change(&self) -> bool {
        let kept =
            |cluster: &PlannedCluster| cluster.keeps_etcd && cluster.distribution == Distribution::Kubeadm;
        self.dhcp && self.cluster.as_ref().is_some_and(kept)
    }
}

pub(super) fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_err()
}

fn claims(config: &InstallConfig) -> Vec<AddressClaim> {
    let install = &config.install;
    let mut claims = Vec::new();
    if let Some(management) = &install.management_interface {
        let claim = |address: Option<Ipv4Addr>, key: &str| {
            let (key, cards) = (key.to_owned(), management.interfaces.clone());
            let device = network::device(network::MANAGEMENT, management.vlan_id);
            address.map(|address| AddressClaim { address, key, cards, vlan: management.vlan_id, device })
        };
        claims.extend(claim(management.ip, "install.management_interface.ip"));
        // A cluster to join has its virtual address already.
        let vip = install.vip.filter(|_| install.mode == Mode::Create);
        claims.extend(claim(vip, "install.vip"));
    }
    let fixed = |network: &&Network| network.method == NetworkMethod::Static;
    claims.extend(install.networks.iter().filter(fixed).filter_map(|network| {
        let key = format!("install.networks, {}", network.name);
        let (cards, vlan) = (network.interfaces.clone(), network.vlan_id);
        Some(AddressClaim {
            address: network.ip?,
            key,
            cards,
            vlan,
            device: network::device(&network.name, vlan),
        })
    }));
    claims
}

/// The proxies of the node's environment, and of the cluster's setting, a JSON object with `httpProxy` and
/// `httpsProxy`.
fn proxies(config: &InstallConfig) -> Vec<Proxy> {
    let environment = config.os.environment.iter();
    let environment = environment.filter(|(name, _)| PROXY_VARIABLES.contains(&name.as_str()));
    let mut urls: Vec<String> = environment.map(|(_, url)| url.to_string()).collect();
    if let Some(setting) = config.system_settings.get("http-proxy") {
        let setting: serde_json::Value = serde_json::from_str(setting.expose()).unwrap_or_default();
        urls.extend(
            ["httpProxy", "httpsProxy"].iter().filter_map(|key| setting[*key].as_str().map(str::to_owned)),
        );
    }
    let mut proxies: Vec<Proxy> = Vec::new();
    for proxy in urls.iter().filter(|url| !url.is_empty()).filter_map(|url| proxy(url)) {
        if !proxies.contains(&proxy) {
            proxies.push(proxy);
        }
    }
    proxies
}

/// A proxy by its URL; without a scheme it uses HTTP, as in curl(1).
fn proxy(url: &str) -> Option<Proxy> {
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let url = reqwest::Url::parse(&url).ok()?;
    let port = url.port_or_known_default()?;
    Some(Proxy { host: without_brackets(url.host_str()?), port, tls: url.scheme() == "https" })
}

fn host(url: &str) -> Option<String> {
    reqwest::Url::parse(url).ok()?.host_str().map(without_brackets)
}

/// URLs have brackets round IPv6 addresses.
fn without_brackets(host: &str) -> String {
    host.trim_matches(['[', ']']).to_owned()
}
