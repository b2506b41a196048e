//! What the commands do: they bring configuration, machine, executor, user interface and reports together.
//!
//! `cli` calls one function of it for each command. `run` is `installer install` as a whole: it calls `questions` if there is a
//! console for them, and both call `install`. `gather` finds medium and configuration for all of them.

pub(crate) mod apply;
pub(crate) mod bless;
pub(crate) mod boot;
pub(crate) mod console;
pub(crate) mod consoles;
pub(crate) mod convert;
pub(crate) mod customized;
pub(crate) mod disk_image;
pub(crate) mod dry_run;
pub(crate) mod finished_nodes;
pub(crate) mod first_start;
pub(crate) mod fitness;
pub(crate) mod gather;
pub(crate) mod grow;
pub(crate) mod health;
pub(crate) mod images;
pub(crate) mod install;
pub(crate) mod inventory_file;
pub(crate) mod kubeadm;
pub(crate) mod kubernetes_guard;
pub(crate) mod network_trial;
pub(crate) mod pod_network;
pub(crate) mod questions;
pub(crate) mod recovery;
pub(crate) mod registries;
pub(crate) mod render;
pub(crate) mod report;
pub(crate) mod report_target;
pub(crate) mod root_only;
pub(crate) mod run;
pub(crate) mod started_image;
pub(crate) mod status;
pub(crate) mod update;
pub(crate) mod validate;
pub(crate) mod verify;
pub(crate) mod virtual_address;
