//! How to install.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::{Addon, Harvester, VipMode};
use super::disk::DiskSelector;
use super::network::{Cidr, ManagementInterface, Network};
use super::network_disks::NetworkDisks;
use super::reinstall::Reinstall;
use super::text::{CheckName, DevicePath, HttpUrl, IsoUrl, MacAddress, Pem, Sha256, Tty};
use super::webhook::Webhook;
use base::size::ByteSize;

/// How to install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    /// Install without questions.
    pub automatic: bool,
    /// Whether an automatic install goes over a finished node of this product on one of its disks. `false`: never; the
    /// node is told of, and started. `true`: only over one that was installed from another medium or with another
    /// configuration. `once:WORD`: once for each WORD, whatever the node is; the node records WORD.
    pub reinstall: Reinstall,
    /// What the node is to its cluster.
    pub mode: Mode,
    /// Which part the node plays in the cluster; `worker` and `witness` only join.
    pub role: Role,
    /// Minimum sizes of a production node, or those of a trial.
    pub profile: Profile,
    /// Go on whatever the checks of the machine find.
    pub skipchecks: bool,
    /// Checks of the machine to leave out, by name; `installer preflight --list` shows them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skip_checks: Vec<CheckName>,
    /// The disk for the system: a path below /dev, or clauses. Needed where more than one disk matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DiskSelector>,
    /// A second disk for the system, which mirrors that of `device` (RAID 1): the node starts and runs when either is
    /// gone. A path below /dev, or clauses. Everything on it is lost; the smaller of the two says how much room there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<DiskSelector>,
    /// A disk of its own for the data of virtual machines, 50 GiB or more (1 GiB in a trial). Everything on it is lost.
    /// The persistent partition then takes the rest of the system's disk. The system's disk here is as if this were
    /// left out; a witness has no data disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<DiskSelector>,
    /// Size of the persistent partition; without effect, and with a warning, where `data_disk` is another disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte-size"))]
    pub persistent_partition_size: Option<ByteSize>,
    /// The most milliseconds in which 99 of 100 flushed writes have to be done on the disk of etcd, which an install measures where
    /// the node gets etcd: it ends before anything but empty file systems is on the disk. Unless given, a disk that takes more
    /// than 10 is a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 60000))]
    pub etcd_write_latency_limit: Option<u32>,
    /// What may be lost. A list of disks to wipe, or `wipe_all_disks`, is consent for those disks; with `none` it is
    /// refused.
    pub wipe: Wipe,
    /// What is on the disks that a new install keeps. `data` is the data of virtual machines: the partition with the
    /// ext4 file system labelled `HARV_LH_DEFAULT`, on the system's disk or on that of `data_disk`. The install is
    /// refused where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<Keep>,
    /// Wipe every other disk that holds a system of this product or of its predecessor, or its data, by the labels of
    /// partitions and their file systems. Never the boot medium; a disk in use, read-only or removable stays, with a warning.
    pub wipe_all_disks: bool,
    /// Other disks to wipe, by paths below /dev. A disk that is missing is a warning; a partition, the boot medium, or a
    /// disk that the install is for, is refused; `wipe_failure` says what a disk is that cannot be wiped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wipe_disks_list: Vec<DevicePath>,
    /// What becomes of an install when another disk cannot be wiped, because it is in use, read-only or broken: with
    /// `fail` the install ends before the system's disk is written, with `warn` it goes on and says so.
    pub wipe_failure: WipeFailure,
    /// Nodes boot on BIOS and on UEFI whatever this says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_efi: Option<bool>,
    /// Disks always get a GUID partition table; `false` is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_gpt: Option<bool>,
    /// Has no meaning here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent: Option<bool>,
    /// Keep a report when the install fails: `/run/nqrust/report-TIME.tar.gz` of the installing system, with the
    /// kernel's and the system's messages, the disks and network cards found, the plan and the configuration
    /// without its secrets.
    pub debug: bool,
    /// The serial console of the installed node, such as `ttyS0,115200n8`, instead of `ttyS0,115200`. The screen
    /// stays a console. With a screen such as `tty1`, system messages go to the screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<Tty>,
    /// Power off at the end instead of rebooting.
    pub poweroff: bool,
    /// Where payloads come from that the boot medium does not hold: the URL of a full ISO, which ends in
    /// `.iso` and is read by ranges, or of the directory that has the content of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "medium-url"))]
    pub medium: Option<String>,
    /// The same as `medium`, of which a document has one. `local` is the medium that the machine booted from,
    /// a path is a directory of the installing system with the content of a full medium. The URL of an ISO is for media that lack
    /// images; a full medium passes it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_url: Option<IsoUrl>,
    /// A configuration to fetch; it is stronger than the medium's own and weaker than kernel parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_url: Option<HttpUrl>,
    /// SHA-256 that what `config_url` gives must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<Sha256>,
    /// Certificates (PEM) of authorities to trust beside the usual ones, for everything that is fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ca_certificates: Vec<Pem>,
    /// Whether the container images are put on the node (`preload`, unless given), from the medium or over the
    /// network, or are left to the node, which pulls them when it starts (`defer`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Images>,
    /// The same as `images`: `true` means `defer`, `false` means `preload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_net_images: Option<bool>,
    /// The management network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_interface: Option<ManagementInterface>,
    /// Further networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// Disks that the machine reaches over the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_disks: Option<NetworkDisks>,
    /// The virtual address of the cluster, free and in the network of the nodes. In create mode, where it is needed
    /// unless it comes from a DHCP server; a trial can do without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<Ipv4Addr>,
    /// Where the virtual address comes from; `static` unless given. A management node that joins a cluster whose
    /// address is from DHCP says so too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_mode: Option<VipMode>,
    /// Hardware address that the virtual address has towards a DHCP server; in create mode, for `vip_mode: dhcp`,
    /// which needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_hw_addr: Option<MacAddress>,
    /// Network of the pods, a /24 or larger; 10.52.0.0/16 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pod_cidr: Option<Cidr>,
    /// Network of the services, a /12 to a /28; 10.53.0.0/16 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_service_cidr: Option<Cidr>,
    /// Address of the cluster's name server, in the network of the services; its tenth unless given. The first is
    /// the API's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_dns: Option<Ipv4Addr>,
    /// Calls to other systems when something happens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    /// Addons of the cluster by name; in create mode.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "addon" }))]
    pub addons: BTreeMap<String, Addon>,
    /// Settings of the hypervisor's own charts; in create mode.
    pub harvester: Harvester,
    /// Join without taking work until somebody allows it; in join mode.
    pub cordoned: bool,
}

impl Install {
    /// The network of the pods of all nodes.
    #[must_use]
    pub fn pods(&self) -> Cidr {
        self.cluster_pod_cidr.unwrap_or(Cidr::containing(Ipv4Addr::new(10, 52, 0, 0), 16))
    }

    /// The network of the addresses of services.
    #[must_use]
    pub fn services(&self) -> Cidr {
        self.cluster_service_cidr.unwrap_or(Cidr::containing(Ipv4Addr::new(10, 53, 0, 0), 16))
    }

    /// The role that the node really has: the first node of a cluster is a management node, whatever `role` says.
    #[must_use]
    pub fn own_role(&self) -> Role {
        if self.mode == Mode::Create { Role::Management } else { self.role }
    }

    /// The role that the node really has, beside the one that is asked for where that is another one.
    #[must_use]
    pub fn node_role(&self) -> NodeRole {
        let role = self.own_role();
        NodeRole { role, asked_role: Some(self.role).filter(|asked| *asked != role) }
    }

    /// True if the node joins its cluster without a control plane and without etcd.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        self.mode == Mode::Join && matches!(self.role, Role::Default | Role::Worker)
    }

    /// True if the node gets a member of etcd with its install. A default node may become a server later.
    #[must_use]
    pub fn has_etcd(&self) -> bool {
        self.mode != Mode::Install && !self.is_agent()
    }

    /// When the node gets its container images, by whichever key says it.
    #[must_use]
    pub fn images(&self) -> Images {
        let defer = |with_net_images| if with_net_images { Images::Defer } else { Images::Preload };
        self.images.or(self.with_net_images.map(defer)).unwrap_or_default()
    }
}

/// When a node gets its container images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Images {
    /// During the install: every image that its role needs, whole and checked.
    #[default]
    Preload,
    /// When it runs: each when it is wanted.
    Defer,
}

/// What the node is to its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The first node of a new cluster.
    #[default]
    Create,
    /// A further node.
    Join,
    /// The operating system only.
    Install,
}

/// Which part the node plays in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A worker that may be promoted.
    #[default]
    Default,
    /// Runs the control plane.
    Management,
    /// Never runs the control plane.
    Worker,
    /// Votes in etcd and runs nothing else; has no data partition.
    Witness,
}

base::names!(Role { Default = "default", Management = "management", Worker = "worker", Witness = "witness" });

/// The role of a node in its cluster, in the words of every page and every report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeRole {
    pub role: Role,
    /// The role in its document, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_role: Option<Role>,
}

impl NodeRole {
    /// The role and something beside it, in parentheses.
    #[must_use]
    pub fn beside(&self, note: &str) -> String {
        let asked = self.asked_role.map(|asked| format!("asked: {}, ", asked.name())).unwrap_or_default();
        format!("{} ({asked}{note})", self.role.name())
    }
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.role.name())?;
        self.asked_role.map_or(Ok(()), |asked| write!(f, " (asked: {})", asked.name()))
    }
}

base::names!(Mode { Create = "create", Join = "join", Install = "install" });

/// Which minimum sizes hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The sizes that a production node needs.
    #[default]
    Production,
    /// Small partitions for tests and trials.
    Trial,
}

/// What an install can leave as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The data of virtual machines.
    Data,
}

/// What an install may make unreadable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wipe {
    /// Nothing: a disk with partitions or other content is refused.
    None,
    /// What is on the disks that the install is for, and on other disks whose wiping is asked for.
    #[default]
    Selected,
    /// The same, said aloud.
    AllListed,
}

/// What a disk that cannot be wiped means for the install.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WipeFailure {
    /// The install goes on, and says which disk stays as it is.
    Warn,
    /// The install ends while the system's disk is as it was.
    #[default]
    Fail,
}
