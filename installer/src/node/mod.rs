//! What runs on an installed machine: applying the node document, mounting at boot, status.
//!
//! [`render`](mod@render), [`network`] and [`accounts`] are pure and make the files of a document; [`apply`](mod@apply) writes them below a
//! root directory.

pub mod accounts;
pub mod applied;
pub mod apply;
pub mod apply_running;
pub mod arrays;
pub mod boot;
pub mod certificates;
pub mod cluster;
mod console_text;
pub mod etcd_gateway;
pub mod files;
pub mod health;
pub mod hostname;
pub mod identity;
pub mod images;
pub mod kubeadm;
mod kubeconfig;
pub mod kubernetes_version;
pub mod membership;
pub mod mount;
pub mod mounted;
pub(crate) mod multipath;
pub mod network;
pub mod network_trial;
pub mod nic_setup;
mod node_watch;
pub mod own_node;
pub mod paths;
pub mod pod_network;
mod proxies;
pub mod release;
pub mod render;
pub mod reporter;
pub mod reset_wish;
pub mod seed;
pub mod stages;
pub mod status;
pub mod tokens;
pub mod update_state;
mod write_files;
