//! The harness of the end-to-end tests and the benchmarks: virtual machines on QEMU, driven over their serial
//! console, QMP and SSH; the media they boot; and what is kept of a run for the person who reads a failure.
//!
//! The tests are in `tests/e2e`, the benchmarks in `bench`, a crate of their own. Nothing here is part of the product.

pub mod artifacts;
pub mod builder;
pub mod ci_page;
pub mod console;
pub mod containers;
pub mod damage;
pub mod deadline;
pub mod disk;
pub mod distribution;
pub mod faults;
pub mod fragile;
pub mod http;
pub mod identity;
pub mod images;
pub mod installed;
pub mod iscsi;
pub mod medium;
pub mod native_cluster;
pub mod node;
pub mod nvme_target;
pub mod paths;
pub mod programs;
pub mod qemu;
pub mod qmp;
pub mod registry;
pub mod secrets;
pub mod segment;
pub mod serial;
pub mod serve;
pub mod ssh;
pub mod steps;
pub mod updates;
pub mod wire;
pub mod write_log;
pub mod writer;
