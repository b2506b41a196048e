//! Extensions: kernel modules that the kernel of the base lacks, built against it or given ready.
//!
//! [`spec`] is what a definition says, [`tools`] names the packages that modules are built with, and [`module`] judges and describes the
//! modules. They are built in the sandbox (`steps::extension`), in a tree of their own
//! with compiler and kernel headers, of which nothing but the modules gets into an OS image.

pub mod module;
pub mod spec;
pub mod tools;

pub use module::{BuiltExtension, BuiltModule};
pub use spec::{ExtensionSpec, ModuleSource};
