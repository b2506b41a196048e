//! Signatures for finished media: on a machine that did not build them, without building or unpacking anything.
//!
//! Whoever calls this has the keys; here only bytes move. [`SignableMedia::open`] finds the release manifests and refuses
//! what cannot be signed, before anything is written. [`SignableMedia::sign`] then asks for the signatures of each manifest
//! and puts them beside all of its copies: over the bytes that every ISO has for them, and into the file beside the
//! `release.json` of a directory. In the output directory of a build, checksums and report follow.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`signable_media`] | what a user names: one medium, or all of a build |
//! | [`signable_medium`] | one manifest, the signatures that it has, and where they are |
//! | [`region`] | changing the bytes of an ISO so that a power cut leaves no wrong signature |
//! | [`listed_outputs`] | checksums and report of a build, brought up to date |
//!
//! A run that was cut off leaves each medium with its old signatures, the new ones, or none that are valid; another run
//! completes it.

mod listed_outputs;
mod region;
mod signable_media;
mod signable_medium;
#[cfg(test)]
mod tests;

pub(crate) use listed_outputs::as_built;
pub use signable_media::{
    ManifestToSign, SignManifest, SignProvenance, SignReport, SignableMedia, SignedMedia, SignedProvenance,
};
