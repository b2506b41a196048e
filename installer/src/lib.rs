//! The NQRust Hypervisor installer: its commands, each with its arguments and what it does with the crates below.
//!
//! `commands` has one file for each. What several of them share is in `app`: gathering a configuration, running an install,
//! its questions and its reports.

mod app;
pub mod commands;
