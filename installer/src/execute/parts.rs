//! What a run of the executor works with: disks, medium, machine, and who hears of it.
//!
//! The caller of [`super::execute`] makes it; the steps of a run read it.

use anyhow::Result;

use super::cancel::Cancel;
use super::disk::device::BlockDevice;
use super::disk::host::Host;
use super::payload::unpack::Unpacking;
use crate::plan::Target;
use base::command::Runner;
use base::progress::Progress;
use medium::sources::PayloadSource;
use model::config::{InstallConfig, Secret};

/// Opens a disk of the plan for this process alone.
pub type DiskOpener<'a> = dyn Fn(&Target) -> Result<Box<dyn BlockDevice + 'a>> + 'a;

/// What a run works with.
#[allow(missing_debug_implementations)]
pub struct RunParts<'a> {
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
    /// Turns the configuration into the text of the node document; passwords are hashed in it.
    pub document: &'a dyn Fn(&InstallConfig) -> Result<Secret>,
    /// What the node keeps to tell the server of its fleet how it comes into its cluster.
    pub fleet: Option<&'a Secret>,
    /// What the node keeps about this install, for the next one to know.
    pub installed: &'a Secret,
    /// Unpacks images, where the release wants that.
    pub unpacking: &'a Unpacking,
    /// What the checks of the machine said, for the log.
    pub preflight: &'a str,
}
