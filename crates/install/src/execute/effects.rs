//! What a run of the executor works with: disks, medium, programs, machine and progress reports. What it does is in the plan
//! alone.
//!
//! The caller of [`super::execute`] makes it; tests put doubles in.

use anyhow::Result;

use super::disk::device::BlockDevice;
use super::disk::host::Host;
use super::payload::unpack::Unpacking;
use crate::plan::Target;
use base::cancel::Cancel;
use base::command::Runner;
use base::progress::Progress;
use medium::payload_sources::PayloadSource;

/// Opens a disk of the plan exclusively.
pub type DiskOpener<'a> = dyn Fn(&Target) -> Result<Box<dyn BlockDevice + 'a>> + 'a;

#[allow(missing_debug_implementations)]
pub struct RunEffects<'a> {
    pub device: &'a dyn BlockDevice,
    /// Opens a further disk of the plan.
    pub open: &'a DiskOpener<'a>,
    pub source: &'a dyn PayloadSource,
    pub runner: &'a dyn Runner,
    /// Partition nodes and mounts.
    pub host: &'a dyn Host,
    pub progress: &'a Progress,
    /// Checked wherever it is safe to stop.
    pub cancel: &'a Cancel,
    pub unpacking: &'a Unpacking,
}
