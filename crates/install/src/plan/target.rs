//! A disk as the executor needs it, and the error for one that does not fit.

use std::path::PathBuf;

use serde::Serialize;

use super::choose::listing;
use super::disk_search::{DATA, DiskSearch};
use super::layout::{self, LayoutError, SectorSize};
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::inventory::{Disk, Inventory, Signature};
use model::config::Profile;
use model::config::sizes::PartitionSizes;

#[derive(Clone, Debug, Serialize)]
pub struct Target {
    pub path: PathBuf,
    pub name: String,
    pub size: ByteSize,
    pub sector: SectorSize,
    pub description: String,
    /// The signatures on it now outside its partitions, which are lost.
    pub signatures: Vec<Signature>,
}

pub fn target(disk: &Disk) -> Result<Target, Failure> {
    let sector = SectorSize::try_from(disk.logical_sector)
        .map_err(|error| Failure::new(Class::Hardware, does_not_fit(disk)).because(error))?;
    Ok(Target {
        path: disk.path.clone(),
        name: disk.name.clone(),
        size: disk.size,
        sector,
        description: disk.identify(),
        signatures: disk.signatures.clone(),
    })
}

fn does_not_fit(disk: &Disk) -> String {
    format!("{} does not fit", disk.describe())
}

/// The error for a disk that has no room for what `error` says. `key` names the disk in the configuration.
pub(super) fn refuse(disk: &Disk, inventory: &Inventory, error: LayoutError, key: &'static str) -> Failure {
    let (class, hint) = match &error {
        LayoutError::Disk { needed, .. } => {
            let larger = listing(DiskSearch { inventory, key, least: *needed });
            let trial = PartitionSizes::of(Profile::Trial);
            let trial = if key == DATA { trial.data_minimum } else { layout::least(trial, true) };
            // A trial is a way out only where the disk has room for one, and it is none already.
            let trial = match *needed > trial && disk.size >= trial {
                true => " For tests and trials, install.profile: trial asks for less.",
                false => "",
            };
            (Class::Hardware, format!("Choose a larger disk with {key}. {larger}{trial}"))
        }
        LayoutError::NoRoomBefore { .. } | LayoutError::NoRoomForTable { .. } => (
            Class::Hardware,
            format!(
                "Install the system on another disk and keep this one: {key} for that one, {} for this one. \
                 Or save the data, and install without install.keep.",
                DATA
            ),
        ),
        _ => (Class::Invalid, "Change install.persistent_partition_size, or leave it out.".into()),
    };
    Failure::new(class, does_not_fit(disk)).because(error).hint(hint)
}
