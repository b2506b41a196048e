//! The NQRust Hypervisor image builder as a library.
//!
//! An image definition goes in, media come out. [`build`] is the graph of steps; what needs to see itself as root
//! is in [`steps`] and runs in the [`sandbox`]. The parts that media are made of have rooms of their own:
//! [`images`] the image store (with [`bolt`] for containerd's database), [`boot`] the loaders,
//! [`media`] the ISOs, [`kubernetes`] the distribution, [`workloads`] what the cluster applies; [`archive`] reads tar archives of strangers. [`medium`]
//! inspects and verifies what is finished, [`customize`] changes it, and [`iso9660`] reads it.
//!
//! Configuration types, the release manifest and the leaves (digests, files, commands, progress) come
//! from the `installer` library, so that both programs agree on them.

pub mod archive;
pub mod bolt;
pub mod boot;
pub mod build;
pub mod cache;
pub mod cli;
pub mod customize;
pub mod definition;
pub(crate) mod elf;
pub mod files;
pub mod images;
pub mod kubernetes;
pub mod lock;
pub mod media;
pub mod medium;
pub(crate) mod namespaces;
pub mod obtain;
pub mod packages;
pub mod sandbox;
pub mod sbom;
pub mod serve;
pub mod steps;
pub mod workloads;
