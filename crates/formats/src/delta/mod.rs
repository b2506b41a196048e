//! Patches from one image to the next, for updates that fetch little.
//!
//! A patch divides the new image into segments. zstd compresses each with a part of the old image as its dictionary, so
//! small changes cost little. Applying a patch needs memory for a part of the old image, a segment and its compressed form:
//! [`format`] has the bounds. A segment is written only after its digest has been checked.
//!
//! | Module | What it does |
//! |---|---|
//! | `format` | the bytes of a patch |
//! | `samples` | finds the part of the old image that a segment is most like |
//! | [`make`] | makes patches, on a machine that has time |
//! | [`apply`] | applies them, on a node |
//!
//! Images should be in their expanded form ([`crate::squashfs`]): a small change makes all compressed data after it different.

pub mod apply;
mod format;
pub mod make;
mod samples;
#[cfg(test)]
mod tests;

pub use apply::Patch;
pub use format::{DeltaError, ImageIdentity};
