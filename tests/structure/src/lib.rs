//! The import structure of this workspace, computed from its sources.
//!
//! A file imports another one when a path in it (in `use`, in an expression, a type or a macro's arguments) names an item
//! that the other one defines; names that a module only hands on (`pub use`) are followed to where they are defined. What is
//! compiled for tests only is left out. `tests/circles.rs` holds the sources to what `docs/architecture.md` promises.

pub mod circles;
pub mod imports;
pub mod modules;
pub mod workspace;
