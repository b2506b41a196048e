//! Patches from one image to the next, for updates that fetch little.
//!
//! A patch cuts the new image into segments. Each is compressed by zstd with a part of the old image as if it came just
//! before, so that what has changed a little costs little. Whoever applies a patch needs a part of the old image, a segment
//! and its compressed form in memory, and no more: [`format`] has the bounds. Nothing is taken on trust: a segment is
//! written only once its digest is known to be right.
//!
//! | Module | What it does |
//! |---|---|
//! | `format` | the bytes of a patch |
//! | `samples` | finds the part of the old image that a segment is most like |
//! | [`make`] | makes patches, on a machine that has time |
//! | [`apply`] | applies them, on a node |
//!
//! Images should be in their expanded form ([`crate::squashfs`]): of compressed data, a small change leaves nothing alike.

pub mod apply;
mod format;
pub mod make;
mod samples;
#[cfg(test)]
mod tests;

pub use apply::Patch;
pub use format::{DeltaError, ImageIdentity};
