//! This machine, and the node that is installed on it: what it has, where the node keeps its parts, and its network.
//!
//! Nothing here decides what becomes of a machine, and nothing knows of Kubernetes.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`inventory`] | disks and network cards, from sysfs and from the bytes on the disks; devices with their drivers |
//! | [`nics`], [`nic_setup`] | the network cards that a node remembers, and finding them again |
//! | [`network`] | the profiles of NetworkManager, and the addresses that came of them |
//! | [`network_disks`] | disks that are reached over the network: how, the logins, and what came of them |
//! | [`host`] | settings of the machine under virtual machines: what it can do, setting it up, and what came of it |
//! | [`live`] | the live system that an install runs in |
//! | [`clock`], [`keyboard`] | the clock beside another one; layouts of the keyboard |
//! | [`installed_node`] | the node at a root directory, by its document: what everything else on a node begins with |
//! | [`paths`], [`node_files`] | where an installed node has its parts; one file of a node |
//! | [`machine_id`], [`hostname`], [`node_release`], [`update_state`] | the identity of the node, its name, its release, its updates |
//! | [`trust_store`], [`release_origin`], [`unsigned_record`] | the keys that the system trusts, who has signed its release, and whether it ever had an unsigned one |
//! | [`trust_memory`] | what it must not take any more, whichever release it runs |
//! | [`mount`], [`mounted`], [`arrays`], [`multipath`], [`disk_paths`] | file systems and the devices below them |
//! | [`verity_device`], [`image_health`] | the device through which the OS image is read, and what was found damaged in it |
//! | [`crash_dumps`] | dumps of kernels that have crashed |
//! | [`module_trust`] | whether the kernel loads signed modules only, and whose |
//! | [`write_latency`] | how long flushed writes take on a disk, as etcd makes them |
//! | [`seed`] | copies of directories of the image |

pub mod arrays;
pub mod clock;
pub mod console_text;
pub mod crash_dumps;
pub mod disk_paths;
pub mod host;
pub mod hostname;
pub mod image_health;
pub mod installed_node;
pub mod inventory;
pub mod keyboard;
pub mod live;
pub mod machine_id;
pub mod module_trust;
pub mod mount;
pub mod mounted;
pub mod multipath;
pub mod network;
pub mod network_disks;
pub mod network_trouble;
pub mod nic_setup;
pub mod nics;
pub mod node_files;
pub mod node_release;
pub mod paths;
pub mod readable_secret;
pub mod release_origin;
pub mod seed;
pub mod trust_memory;
pub mod trust_store;
pub mod unsigned_record;
pub mod update_state;
pub mod verity_device;
pub mod write_latency;
