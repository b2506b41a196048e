//! Definitions with a Kubernetes distribution, through the program: releases that are made here, of scripts and small
//! images in the form that the real ones have. The bases have no kernel, so that each build ends after its base.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod drift;
mod kubeadm;
mod public;
mod public_upstream;
mod refused;
mod release;
mod tree;
