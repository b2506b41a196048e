//! The NQRust Hypervisor installer: its command line, and what each command does with the crates below.

mod app;
pub mod cli;
