//! The import structure of this workspace, computed from its sources.
//!
//! A file imports another one if a path in it (in `use`, in an expression, a type or a macro's arguments) names an item
//! that the other one defines; re-exported names (`pub use`) are followed to their definition. Code that is compiled
//! for tests only is left out. `tests/circles.rs` checks the sources against the rules of `docs/architecture.md`.

pub mod circles;
pub mod imports;
pub mod modules;
pub mod workspace;
