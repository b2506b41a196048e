//! The reader of the YAML documents that people write: install configurations, cluster files and image definitions. It
//! knows none of their keys; a document comes with its [`shape`], its [`format`]s and its [`dialect`].
//!
//! 1. [`tree`] reads YAML into nodes that know their places.
//! 2. [`shape`] says which keys and values the types accept; it is made from their JSON Schema.
//! 3. [`shape_check`] compares the tree with the shape, reports every [`diagnostic::Problem`] at its place, and returns the value in
//!    canonical spelling.
//! 4. The rules of a document judge that value. Each [`finding`] gets its place from that check; [`echo`] drops those that
//!    only repeat another mistake.
//! 5. [`diagnostic`] shows the problems under the user's own lines, without secrets.
//!
//! `model` has the configurations and cluster files, `iso-builder` the image definitions.

pub mod accepted_spellings;
mod characters;
pub mod diagnostic;
pub mod dialect;
pub mod echo;
pub mod finding;
pub mod format;
pub mod nearest;
pub mod placeholder;
pub mod secret;
pub mod shape;
pub mod shape_check;
pub mod span;
pub mod text;
pub mod tree;
