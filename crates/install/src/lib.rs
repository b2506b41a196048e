//! An install: where its configuration comes from, what it will do, and doing it.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`sources`], [`resolve`] | where a configuration comes from; what it refers to |
//! | [`plan`] | from configuration, inventory and release to a plan; pure |
//! | [`execute`] | the executor of a plan |
//! | [`installed`] | finished nodes that are on the disks already |
//! | [`late_devices`] | disks and network cards that appear late |
//! | [`usb_stick`] | files that are saved on a USB stick |

pub mod execute;
pub mod installed;
pub mod late_devices;
pub mod plan;
pub mod resolve;
pub mod sources;
pub mod usb_stick;
