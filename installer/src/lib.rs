//! The NQRust Hypervisor installer as a library.
//!
//! Modules point one way, from the top of this table to its end.
//!
//! | Module | What it is for |
//! |---|---|
//! | `cli` | the commands of the program |
//! | `interactive`, `node_console` | the questions on a console, and what a node shows there |
//! | `preflight` | whether a machine is fit to be installed |
//! | `install`, `installed` | the executor of a plan; finished nodes that are on the disks already |
//! | `live` | the live system that an install runs in |
//! | `node` | what runs on an installed machine |
//! | `fleet`, `webhook`, `report` | what others hear of an install, and what a person takes away |
//! | `plan` | from configuration, inventory and release to a plan; pure |
//! | `usb_stick`, `sources` | files on a stick; where a configuration comes from |
//! | `nics` | the network cards that a node remembers |
//! | `inventory`, `resolve` | what the machine has; what a configuration refers to |
//! | `terminal` | consoles, keys and forms |
//!
//! `iso-builder` uses what of this library an image has to agree with.

pub mod cli;
pub mod fleet;
pub mod install;
pub mod installed;
pub mod interactive;
pub mod inventory;
pub mod live;
pub mod nics;
pub mod node;
pub mod node_console;
pub mod plan;
pub mod preflight;
pub mod report;
pub mod resolve;
pub mod sources;
pub mod terminal;
pub mod usb_stick;
pub mod webhook;
