//! Shared test support: servers with scripted responses, a small release, documents with marked secrets. Nothing that ships
//! depends on this crate.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_debug_implementations
)]

mod api_exchange;
pub mod cases;
pub mod command_tables;
pub mod disks;
pub mod docs;
pub mod documents;
pub mod elf;
pub mod golden;
pub mod http;
pub mod initrd;
pub mod inventories;
pub mod iso;
pub mod json_schema;
pub mod kernel;
pub mod kubeadm_cluster;
pub mod machine;
pub mod medium;
pub mod node;
pub mod numbers;
pub mod postgres;
pub mod privileges;
pub mod programs;
pub mod progress;
pub mod prometheus;
pub mod registry;
pub mod release;
pub mod reports;
pub mod runner;
pub mod servers;
pub mod specimens;
pub mod squashfs;
pub mod supervisor;
pub mod xorriso;
