//! The cluster file: a whole cluster as pools of machines that are made from templates.
//!
//! It is a source of install configurations, not another kind of them: what all nodes share, and each template, is a
//! part of an install configuration, with its keys in their places. [`read`] finds the mistakes of form, [`layers`]
//! puts the install configuration of each machine together with the merge of the configuration's own sources,
//! [`nodes`] holds each against the rules of single nodes, and [`rules`] see the whole. [`render`] makes documents of
//! it and [`output`] is what touches the disk. `installer validate --cluster` and `installer render` call this.

mod dialect;
mod document;
mod layers;
mod nodes;
mod output;
mod places;
mod published;
mod read;
#[cfg(test)]
mod reference;
mod render;
mod rules;
#[cfg(test)]
mod tests;

pub use document::{ClusterFile, KeyGroup, Machine, NodeCounts, Pool};
pub use output::{Report, rendered, write};
pub use published::json_schema;
pub use read::{ValidClusterFile, check, load};
pub use render::{DocumentRecord, RenderedDocument, shown};
