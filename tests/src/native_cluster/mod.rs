//! A real cluster without virtual machines: its nodes are namespaces of this machine. [`TestCluster`] has all of it.
//!
//! Each node has a network card on one switch, processes, mounts and control groups of its own. Its files are Debian's packages
//! ([`BaseTree`]) under what the image builder and the release of Kubernetes add ([`OsLayer`]), with a fresh `/etc` at every start, as the
//! installed system has it. `installer apply` writes the files of its document, and its units start what they start on a node.
//!
//! Not as on a node are: systemd, for which a script starts and stops units ([`NativeNode`]); NetworkManager, whose address the node is
//! given; the host's kernel and its settings ([`HostSettings`]); and how control groups are named ([`adapt`]). A node has a disk with
//! slots only where a test gives it one ([`NodeDisk`]).

mod adapt;
mod base_tree;
mod cluster;
mod cluster_file;
mod control_groups;
mod disk;
mod host_settings;
mod kubectl;
mod node;
mod os_layer;
mod pod_image;
mod release;
mod switch;

pub use self::base_tree::BaseTree;
pub use self::cluster::{Progress, TestCluster, is_ready};
pub use self::cluster_file::{AGENT_TOKEN, ClusterNode, TOKEN, VIP};
pub use self::disk::{NodeDisk, small_medium};
pub use self::host_settings::HostSettings;
pub use self::kubectl::Kubectl;
pub use self::node::{NativeNode, NodePlace};
pub use self::os_layer::OsLayer;
pub use self::pod_image::POD_IMAGE;
pub use self::release::KubernetesRelease;
pub use self::switch::{AdministratorNetwork, Switch};
