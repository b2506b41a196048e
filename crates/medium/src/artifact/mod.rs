//! A release as an artifact in a registry of container images, or in a directory of the same form (an OCI layout).
//!
//! ```text
//! artifactType: application/vnd.nqrust.release.v1+json
//! config:       application/vnd.nqrust.release.v1+json    release.json, byte for byte
//! layers:       application/vnd.nqrust.….v1…              each payload once, under its own digest; title = its path
//!               application/vnd.nqrust.release.signatures.v1      release.json.minisig, the last one, if it is signed
//! ```
//!
//! So a registry stores common content of several releases once, and shares the blobs of container images that it has anyway.
//! `release.json`, whose digest names the release, has the digest of every layer. Blobs that a net-install medium leaves to
//! the network are not in the artifact either.
//!
//! Two more layers are not payloads: GRUB's boot code for ISOs, which is on an ISO but not in its files. With it the ISO can be
//! reproduced byte for byte.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`reference`] | references to releases: `registry/name:tag`, `oci:DIRECTORY` |
//! | [`media_types`] | the media types of layers |
//! | [`manifest`] | the manifest of the artifact, written and read |
//! | [`index`] | the index of artifacts for several architectures |
//! | [`document`] | documents about a release that refer to its artifact: provenance, bill of materials |
//! | [`boot_code`] | the boot code that is not a payload, read from a medium |
//!
//! [`sources`](crate::payload_sources) reads payloads from there; `iso-builder` pushes and pulls.

pub mod boot_code;
pub mod document;
pub mod index;
pub mod manifest;
pub mod media_types;
pub mod reference;

pub use boot_code::{BootCode, BootCodePart};
pub use document::{EMPTY_CONFIG, ReleaseDocument};
pub use manifest::{ArtifactForm, ArtifactLayer, ReleaseArtifact};
pub use reference::{ArtifactReference, LAYOUT, LayoutReference};
