//! The NQRust Hypervisor image builder as a library.
//!
//! An image definition goes in, media come out. [`pipeline`] is the graph of steps; what needs to see itself as root
//! is in [`steps`] and runs in the [`sandbox`]. [`obtain`] has what a definition names, and [`lock`] keeps it by digest.
//! The parts that media are made of have rooms of their own: [`images`] the image store (with [`bolt`] for containerd's
//! database), [`boot`] the loaders, [`kubernetes`] the distribution, [`workloads`] what the cluster
//! applies, [`extensions`] kernel modules from outside of the base; [`product`] what makes a medium ours on any base; [`signing`] the keys of releases; [`provenance`] what a
//! release was built from, and [`reproduce`] the trial of that; [`archive`] reads untrusted tar archives. [`media`] assembles media, inspects, verifies and customizes finished ones, and takes them to registries and back.

pub mod archive;
pub mod bolt;
pub mod boot;
pub mod cache;
pub mod cli;
pub mod definition;
pub(crate) mod elf;
pub(crate) mod emulation;
pub mod extensions;
pub mod files;
pub mod firmware;
pub mod images;
pub mod kubernetes;
pub mod lock;
pub mod media;
pub(crate) mod namespaces;
pub mod obtain;
pub mod packages;
pub mod pipeline;
pub mod product;
pub mod provenance;
pub mod reproduce;
pub mod sandbox;
pub mod sbom;
pub mod signing;
pub mod steps;
pub(crate) mod wording;
pub mod workloads;
