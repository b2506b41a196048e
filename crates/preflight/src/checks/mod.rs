//! The registry, and the numbers that the checks judge by.
//!
//! A check has an entry here and its name in `model::checks`, by which configurations skip it; a test compares both. Lists and
//! pages are made from the registry. Names are contracts.

mod address;
mod cluster;
pub(super) mod devices;
mod host;
pub(super) mod join;
mod judge;
mod machine;
mod members;
mod servers;

use super::check::Severity::{self, Error, Off, Warning};
use super::check::{Check, SeverityLevels};
use base::failure::Class;
use model::config::Role;

const fn levels(production: Severity, trial: Severity) -> SeverityLevels {
    SeverityLevels { production, trial, off_for: &[] }
}

/// For what only nodes that run virtual machines need.
const fn levels_of_hosts(production: Severity, trial: Severity) -> SeverityLevels {
    SeverityLevels { production, trial, off_for: &[Role::Witness] }
}

pub static CHECKS: &[Check] = &[
    Check {
        name: "cpu",
        title: "enough processors",
        looks_at: "processors that are online",
        levels: levels(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::cpu,
    },
    Check {
        name: "memory",
        title: "enough memory",
        looks_at: "modules and ranges of the DMI tables, or the kernel's MemTotal with a tenth for what it \
            reserves",
        levels: levels(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::memory,
    },
    Check {
        name: "kvm",
        title: "virtual machines can run",
        looks_at: "/dev/kvm, and the processor's flags for the reason",
        levels: levels_of_hosts(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::kvm,
    },
    Check {
        name: "virtualisation",
        title: "not itself a virtual machine",
        looks_at: "the processor's hypervisor flag",
        levels: levels(Warning, Off),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::virtualisation,
    },
    Check {
        name: "firmware",
        title: "started by UEFI",
        looks_at: "/sys/firmware/efi",
        levels: levels(Warning, Off),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::firmware,
    },
    Check {
        name: "dmi-uuid",
        title: "a UUID of its own",
        looks_at: "the product UUID of the DMI tables, against those that makers put into many machines",
        levels: levels(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: machine::dmi_uuid,
    },
    Check {
        name: "drivers",
        title: "cards and controllers have drivers",
        looks_at: "the network cards and disk controllers on the PCI bus, and the firmware that the kernel's log misses",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::drivers,
    },
    Check {
        name: "module-signatures",
        title: "the kernel loads the modules of extensions that this machine needs",
        looks_at: "whether the kernel is locked down (Secure Boot), the certificates in db and MokListRT, and the signatures \
            of the release's modules from outside the kernel's packages",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::module_signatures,
    },
    Check {
        name: "host-settings",
        title: "the machine can do what os.host asks for",
        looks_at: "sizes of huge pages and memory, the firmware's tables of an IOMMU, sriov_totalvfs, governors and numbers \
            of processors, the flags of virtual machines; for a crash kernel, memory, whether the initrd of the release \
            has makedumpfile and its kernel CONFIG_KEXEC_FILE, and whether the disk of the system is one of the machine",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: host::settings,
    },
    Check {
        name: "passthrough",
        title: "the node keeps its own devices",
        looks_at: "the devices that os.host.passthrough selects on the PCI bus, against those of the install's disks and of the \
            node's network cards, and the other devices of their IOMMU groups",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: host::passthrough,
    },
    Check {
        name: "disk-size",
        title: "room on the disk",
        looks_at: "the disk to install on; too small for the layout is an error, smaller than recommended a \
            warning",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: false,
        asks_network: false,
        run: devices::disk_size,
    },
    Check {
        name: "disk-speed",
        title: "a fast disk",
        looks_at: "whether the disk reports that it spins, and how it is attached",
        levels: levels(Warning, Off),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::disk_speed,
    },
    Check {
        name: "disk-paths",
        title: "the node can use the paths to its disks",
        looks_at: "how many paths lead to the disks for system and data, and whether the initrd of the release has multipathd",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::disk_paths,
    },
    Check {
        name: "network-disks",
        title: "the node can reach its disks over the network",
        looks_at: "the iSCSI targets and NVMe subsystems of the disks for system and data, the firmware's iBFT, the network cards to \
            them, and whether the initrd of the release reaches them",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::network_disks,
    },
    Check {
        name: "nic-link",
        title: "management cards have a link",
        looks_at: "the carrier of each management card; of any card if none is named",
        levels: levels(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::nic_link,
    },
    Check {
        name: "nic-speed",
        title: "management cards are fast",
        looks_at: "the speed of each management card; of the fastest if none is named",
        levels: levels(Error, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: devices::nic_speed,
    },
    Check {
        name: "clock",
        title: "the clock is right",
        looks_at: "the offset from the first time server that answers; the date of the release",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: servers::clock,
    },
    Check {
        name: "dns",
        title: "name servers answer",
        looks_at: "os.dns_nameservers, or those from DHCP, asked for the names in the configuration",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: servers::dns,
    },
    Check {
        name: "ntp",
        title: "time servers answer",
        looks_at: "os.ntp_servers",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: servers::ntp,
    },
    Check {
        name: "proxy",
        title: "proxies answer",
        looks_at: "the proxies of os.environment and of the setting http-proxy",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: servers::proxy,
    },
    Check {
        name: "address-conflict",
        title: "addresses are free",
        looks_at: "ARP answers for the node's fixed addresses, and in create mode for install.vip",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: address::address_conflict,
    },
    Check {
        name: "cluster-networks",
        title: "the cluster's networks are apart from the node's",
        looks_at: "the networks of pods and services, with kubeadm those that the cluster to join tells, against the node's \
            addresses",
        levels: levels(Error, Error),
        class: Class::Hardware,
        waivable: true,
        asks_network: true,
        run: cluster::networks,
    },
    Check {
        name: "etcd-address",
        title: "a node with etcd keeps its address",
        looks_at: "with kubeadm, whether the address of a node in mode create or of role management or witness is from DHCP",
        levels: levels(Warning, Warning),
        class: Class::Hardware,
        waivable: true,
        asks_network: false,
        run: cluster::lasting_address,
    },
    Check {
        name: "join-server",
        title: "the cluster to join answers",
        looks_at: "the host of server_url and the supervisor on its port: GET /ping; with kubeadm the API: GET /version",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::server,
    },
    Check {
        name: "join-authority",
        title: "the cluster is the intended one",
        looks_at: "/cacerts against the hash in a full token; with a short token, the authority that its \
            server proves to have; with kubeadm the signature of cluster-info by the token",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::authority,
    },
    Check {
        name: "join-token",
        title: "it accepts the token",
        looks_at: "what the supervisor answers to a node of the role: HEAD of server-bootstrap or config; with kubeadm \
            cluster-info and kubeadm-config, and for servers the metadata of kubeadm-certs",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::token,
    },
    Check {
        name: "join-clock",
        title: "clocks agree",
        looks_at: "the Date of the server's answers; 30 s apart at most",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::clock,
    },
    Check {
        name: "join-hostname",
        title: "the name is free in the cluster",
        looks_at: "os.hostname against the names of the nodes; with kubeadm, whether that node is ready",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::hostname,
    },
    Check {
        name: "join-witness",
        title: "there is no witness yet",
        looks_at: "the labels of the nodes",
        levels: SeverityLevels {
            production: Error,
            trial: Error,
            off_for: &[Role::Default, Role::Management, Role::Worker],
        },
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::witness,
    },
    Check {
        name: "join-vip",
        title: "server_url is the address of the cluster",
        looks_at: "whether one of the nodes has the address as its own",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::vip,
    },
    Check {
        name: "join-version",
        title: "the cluster runs the same distribution",
        looks_at: "the version that the Kubernetes API reports; with kubeadm that of kubeadm-config",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: join::version,
    },
    Check {
        name: "join-latency",
        title: "the nodes are near",
        looks_at: "echo requests to server_url and to the nodes that are ready, or connections where none is answered: with etcd on \
            both sides 10 ms there and back at most, one of 20 lost at most; no answer from a node that this one needs is an error, \
            the rest a warning",
        levels: levels(Error, Error),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: members::latency,
    },
    Check {
        name: "join-mtu",
        title: "large packets arrive",
        looks_at: "echo requests to the same nodes that may not be divided, as large as the network device sends them",
        levels: levels(Warning, Warning),
        class: Class::Join,
        waivable: true,
        asks_network: true,
        run: members::mtu,
    },
];
