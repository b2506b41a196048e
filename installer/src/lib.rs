//! The NQRust Hypervisor installer as a library.
//!
//! Modules point one way. On top stand `cli` and `main`; below them `interactive` (the questions on a console) and
//! `node_console` (what a node shows there), `install` (the executor), `node` (what runs on an installed machine) and
//! `preflight` (whether a machine is fit to be installed) and `fleet` (what a
//! server hears of an install); below those `installed` (nodes that are on the disks already) and the pure core: `plan`,
//! `cards`, `cluster_file`, `config`, `release`, `iso` (what an ISO has at every byte), `inventory`, `stick`, `machine`,
//! `customization`; at the bottom small leaves that know nothing of installing: `digest`, `download`,
//! `registry`, `oci`, `size`, `command`, `containerd`, `files`, `fat`, `partition_table`, `percent`, `progress`, `failure`,
//! `terminal`.
//!
//! `iso-builder` uses the configuration types, the release manifest and the leaves of this library.

pub mod cli;
pub mod fleet;
pub mod install;
pub mod installed;
pub mod interactive;
pub mod inventory;
pub mod live;
pub mod nics;
pub mod node;
pub mod node_console;
pub mod plan;
pub mod preflight;
pub mod report;
pub mod resolve;
pub mod sources;
pub mod terminal;
pub mod usb_stick;
pub mod webhook;
