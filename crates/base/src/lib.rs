//! Basics that every other crate needs; nothing about installs or media.

pub mod cancel;
pub mod cancellation;
pub mod command;
pub mod completions;
pub mod containerd;
pub mod digest;
pub mod encode;
pub mod failure;
pub mod files;
pub mod listen;
pub mod manual;
pub mod meminfo;
mod names;
pub mod notes;
pub mod package_note;
pub mod parallel;
pub mod percent;
pub mod program;
pub mod progress;
pub mod size;
pub mod standard_output;
pub mod url;
