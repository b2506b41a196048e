//! What a run of the executor acts by: disks, medium, programs, machine, and who hears of it. What it does is in the plan
//! alone.
//!
//! The caller of [`super::execute`] makes it; tests put doubles in.

use anyhow::Result;

use super::cancel::Cancel;
use super::disk::device::BlockDevice;
use super::disk::host::Host;
use super::payload::unpack::Unpacking;
use crate::plan::Target;
use base::command::Runner;
use base::progress::Progress;
use medium::sources::PayloadSource;

/// Opens a disk of the plan for this process alone.
pub type DiskOpener<'a> = dyn Fn(&Target) -> Result<Box<dyn BlockDevice + 'a>> + 'a;

/// What a run acts by.
#[allow(missing_debug_implementations)]
pub struct RunEffects<'a> {
    /// The disk of the system.
    pub device: &'a dyn BlockDevice,
    /// Opens another disk that the plan writes on.
    pub open: &'a DiskOpener<'a>,
    /// Where payloads come from.
    pub source: &'a dyn PayloadSource,
    /// Runs other programs, such as `mkfs.ext4`.
    pub runner: &'a dyn Runner,
    /// Partition nodes and mounts.
    pub host: &'a dyn Host,
    /// Hears of every step.
    pub progress: &'a Progress,
    /// Says when to stop.
    pub cancel: &'a Cancel,
    /// Unpacks images, where the release wants that.
    pub unpacking: &'a Unpacking,
}
