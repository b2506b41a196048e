//! A release as an artifact in a registry of container images, or in a directory of the same form (an OCI layout).
//!
//! ```text
//! artifactType: application/vnd.nqrust.release.v1+json
//! config:       application/vnd.nqrust.release.v1+json    release.json, byte for byte
//! layers:       application/vnd.nqrust.….v1…              each payload once, under its own digest; title = its path
//! ```
//!
//! So a registry keeps one copy of what several releases have in common, and of the blobs of container images that it has
//! anyway; and `release.json`, whose digest names the release, says by itself what every layer has to be. What the medium
//! itself leaves to the network (the blobs of a net-install medium) is not in the artifact either.
//!
//! Two layers are no payloads: GRUB's boot code for ISOs, which is on an ISO but in none of its files. With it the ISO can be
//! made again, byte for byte.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`reference`] | how a release is named: `registry/name:tag`, `oci:DIRECTORY` |
//! | [`media_types`] | what a layer is called |
//! | [`manifest`] | the manifest of the artifact, written and read |
//! | [`boot_code`] | the boot code that is in no payload, taken from a medium |
//!
//! [`sources`](crate::sources) reads payloads from there; `iso-builder` pushes and pulls.

pub mod boot_code;
pub mod manifest;
pub mod media_types;
pub mod reference;

pub use boot_code::{BootCode, BootCodePart};
pub use manifest::{ArtifactForm, ArtifactLayer, ReleaseArtifact};
pub use reference::{ArtifactReference, LAYOUT, LayoutReference};
