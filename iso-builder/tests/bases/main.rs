//! Bases that are not made of Debian packages, through the program: what a tree holds comes out of every form that it
//! can have; what is broken or hostile is refused. The trees have no kernel, so that each build ends after the base.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod build;
mod entries;
mod forms;
mod layers;
mod metrics;
mod refused;
