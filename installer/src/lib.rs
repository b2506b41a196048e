//! The NQRust Hypervisor installer as a library.
//!
//! Modules depend only on modules further down in this table.
//!
//! | Module | What it is for |
//! |---|---|
//! | `cli` | the arguments of the commands |
//! | `app` | what the commands do |
//! | `ui` | the screens on consoles: the questions of an install, the page of a node |
//! | `recovery` | the recovery system: resets, repairs, and when it starts a slot by itself |
//! | `rollout` | the updates of a cluster's nodes, one after the other: what a node reports, when it may leave, how it leaves |
//! | `update` | updates of a node: writing a slot, trying it, going back |
//! | `execute` | the executor of a plan |
//! | `node` | what runs on an installed machine |
//! | `preflight` | whether a machine is fit to be installed |
//! | `live` | the live system that an install runs in |
//! | `fleet`, `webhook`, `report` | reports to servers about an install, and files for people |
//! | `installed` | finished nodes that are on the disks already |
//! | `plan` | from configuration, inventory and release to a plan; pure |
//! | `usb_stick`, `sources` | files on a stick; where a configuration comes from |
//! | `nics` | the network cards that a node remembers |
//! | `keyboard` | layouts of the keyboard at the screen, and the keymaps for them |
//! | `inventory`, `resolve` | what the machine has; what a configuration refers to |
//! | `clock` | how far this machine's clock is from another one |
//! | `kubeadm` | what a cluster of upstream Kubernetes has from its token |
//! | `kubernetes` | files and objects of Kubernetes that are read |

mod app;
pub mod cli;
pub mod clock;
pub mod execute;
pub mod fleet;
pub mod installed;
pub mod inventory;
pub mod keyboard;
pub mod kubernetes;
pub mod live;
pub mod nics;
pub mod node;
pub mod plan;
pub mod preflight;
mod readable_secret;
pub mod recovery;
pub mod report;
pub mod resolve;
pub mod rollout;
pub mod sources;
pub mod ui;
pub mod update;
pub mod usb_stick;
pub mod webhook;
