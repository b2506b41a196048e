//! The NQRust Hypervisor installer as a library.
//!
//! Modules point one way. On top stands `cli` (the arguments), below it `app` (what the commands do); below that `ui` (what
//! is shown on consoles), `execute` (the executor of an install), `node` (what runs on an installed machine), `preflight`
//! (whether a machine is fit to be installed), `fleet` (what a server hears of an install), `webhook` and `report`; below
//! those `installed` (nodes that are on the disks already) and the pure core: `plan`, `cards`, `inventory`, `stick`. What
//! both programs need is in the crates below this one.

mod app;
pub mod cards;
pub mod cli;
pub mod execute;
pub mod fleet;
pub mod installed;
pub mod inventory;
pub mod live;
pub mod node;
pub mod plan;
pub mod preflight;
pub mod report;
pub mod resolve;
pub mod sources;
pub mod stick;
pub mod ui;
pub mod webhook;
