//! End-to-end tests: media as `iso-builder` builds them, in virtual machines on QEMU.
//!
//! `make test` runs the one of `install_uefi`, `make e2e` the others, `make soak` all. Each test keeps its logs below
//! `target/e2e/NAME`. They share one medium and run in parallel, so that an install on BIOS and one on UEFI take the
//! time of one.

mod arm64;
mod bad_input;
mod bases;
mod broken_release;
mod cluster;
mod console;
mod crash;
mod customize;
mod damaged_image;
mod disk_images;
mod extensions;
mod hardware;
mod images;
mod install_bios;
mod install_registry;
mod install_target;
mod install_uefi;
mod keep;
mod kubernetes;
mod loader;
mod mirror;
mod network_disks;
mod node_console;
mod packages;
mod pipeline;
mod power_cut;
mod questions;
mod recovery;
mod reinstall;
mod reproducible;
mod serve;
mod site;
mod trust;
mod update;
mod zoo;
