//! The NQRust Hypervisor image builder as a library.
//!
//! An image definition goes in, media come out. [`build`] is the graph of steps; what needs to see itself as root
//! is in [`steps`] and runs in the [`sandbox`]. [`obtain`] has what a definition names, and [`lock`] keeps it by digest.
//! The parts that media are made of have rooms of their own: [`images`] the image store (with [`bolt`] for containerd's
//! database), [`boot`] the loaders, [`assemble`] the ISOs, [`kubernetes`] the distribution, [`workloads`] what the cluster
//! applies; [`product`] what makes a medium ours on any base; [`archive`] reads tar archives of strangers. [`finished`] inspects and verifies what is finished, and
//! [`customize`] changes it; [`publish`] takes it to registries and back.

pub mod archive;
pub mod assemble;
pub mod bolt;
pub mod boot;
pub mod build;
pub mod cache;
pub mod cli;
pub mod customize;
pub mod definition;
pub(crate) mod elf;
pub mod files;
pub mod finished;
pub mod images;
pub mod kubernetes;
pub mod lock;
pub(crate) mod namespaces;
pub mod obtain;
pub mod packages;
pub mod product;
pub mod publish;
pub mod sandbox;
pub mod sbom;
pub mod steps;
pub(crate) mod wording;
pub mod workloads;
