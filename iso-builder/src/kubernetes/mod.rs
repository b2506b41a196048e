//! The Kubernetes distribution of an image: one release of RKE2, K3s or upstream Kubernetes, built into the OS image and
//! the image store.
//!
//! [`spec`] is what a definition says and which files of the release follow from it, [`texts`] the texts in it.
//! [`crate::obtain`] downloads these files, each with the digest that the release publishes. [`upstream`] knows what a
//! release of upstream Kubernetes has, which kubeadm sets up; [`program_version`] tells the release of a program, [`runtime`] finds the image that RKE2 takes its programs
//! from, and [`system`] has the files of ours that go beside those of the release. The step that lays all of it out is in
//! [`crate::steps`]; what a node does with it is in `cluster::configuration`.

pub mod program_version;
pub mod runtime;
pub mod spec;
pub mod system;
pub mod texts;
pub mod upstream;

pub use spec::Kubernetes;
