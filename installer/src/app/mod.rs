//! What several commands share: they bring configuration, machine, executor, user interface and reports together.
//!
//! `install` makes one install, for `installer install` and for `questions`. `gather` finds medium and configuration for all of
//! them.

pub(crate) mod consoles;
pub(crate) mod customized;
pub(crate) mod finished_nodes;
pub(crate) mod fitness;
pub(crate) mod gather;
pub(crate) mod install;
pub(crate) mod inventory_file;
pub(crate) mod questions;
pub(crate) mod registries;
pub(crate) mod report;
pub(crate) mod report_target;
pub(crate) mod root_only;
pub(crate) mod started_image;
