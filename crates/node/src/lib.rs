//! What an installed node does: applying its document, starting, trying a changed network, updating, and recovery.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`boot`] | the read-only image becomes a node, in the initrd |
//! | [`root_image`] | the OS image, opened in the initrd by the hashes of its release, and watched while the node runs |
//! | [`apply`](mod@apply), [`apply_running`] | the files of the document, written below a root directory |
//! | [`render`](mod@render), [`accounts`] | what those files are; pure |
//! | [`host`] | the machine under virtual machines, set up at each start |
//! | [`crash`] | the kernel that starts where the running one crashes, and the dump that it writes |
//! | [`network_trial`] | a changed network that is taken back unless somebody confirms it |
//! | [`update`] | writing a slot, trying it, going back |
//! | [`recovery`], [`pending_reset`] | the recovery system, and the request for a reset |
//! | [`reporter`], [`status`], [`metrics`](mod@metrics) | what the node reports to its fleet, to those who ask it, and to Prometheus |

pub mod accounts;
pub mod applied;
pub mod apply;
pub mod apply_running;
pub mod boot;
pub mod crash;
pub mod host;
pub mod metrics;
pub mod network_disks;
pub mod network_trial;
pub mod pending_reset;
mod proxies;
pub mod recovery;
pub mod render;
pub mod reporter;
pub mod root_image;
pub mod status;
pub mod update;
mod write_files;
