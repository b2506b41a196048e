//! The disks beside the system's own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::execute::disk::device::{self, BlockDevice};
use crate::execute::disk::host::Host;
use crate::execute::disk::table;
use crate::execute::disk::wipe;
use crate::execute::effects::RunEffects;
use crate::plan::{DataDisk, PartitionName, Plan, Target, WipedDisk};
use base::failure::{Class, Failure};
use model::config::{Wipe, WipeFailure};

/// Every other disk of a plan, opened before anything is written, so that a disk that cannot be opened costs nothing.
pub(crate) struct OtherDisks<'a> {
    data: Option<Box<dyn BlockDevice + 'a>>,
    kept: Option<Box<dyn BlockDevice + 'a>>,
    /// `None` for a disk that cannot be opened, if the configuration tolerates that.
    wiped: Vec<Option<Box<dyn BlockDevice + 'a>>>,
}

impl<'a> OtherDisks<'a> {
    pub(crate) fn open(plan: &Plan, effects: &RunEffects<'a>) -> Result<Self> {
        let data = plan.data_disk.as_ref().map(|data| (effects.open)(&data.disk)).transpose()?;
        let kept = plan.kept_apart().map(|kept| (effects.open)(&kept.disk)).transpose()?;
        let open = |wiped: &WipedDisk| tolerated(plan, effects, &wiped.disk, (effects.open)(&wiped.disk));
        let wiped = plan.wiped.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { data, kept, wiped })
    }

    /// Erases each disk that the plan wipes. If the configuration tolerates a failure, it is a warning.
    pub(crate) fn wipe(&self, plan: &Plan, effects: &RunEffects<'_>) -> Result<()> {
        for (device, wiped) in self.wiped.iter().zip(&plan.wiped) {
            let Some(device) = device else { continue };
            effects.cancel.check()?;
            effects.progress.note("wipe-disks", format!("Erasing {}", wiped.disk.description));
            let cleared = wipe::clear(device.as_ref(), &wiped.disk.signatures, &wiped.erased)
                .with_context(|| format!("erasing {}", wiped.disk.path.display()));
            if tolerated(plan, effects, &wiped.disk, cleared)?.is_none() {
                continue;
            }
            // Nothing of this disk is used again before the machine restarts.
            if let Err(error) = effects.host.partition_nodes(&wiped.disk, &[]) {
                effects
                    .progress
                    .note("wipe-disks", format!("The kernel still shows old partitions: {error:#}"));
            }
        }
        Ok(())
    }

    /// The separate disk that is kept, if there is one.
    pub(crate) fn kept(&self) -> Option<&dyn BlockDevice> {
        self.kept.as_deref()
    }

    /// The data disk and what the plan says of it.
    pub(crate) fn data<'b>(&'b self, plan: &'b Plan) -> Option<(&'b dyn BlockDevice, &'b DataDisk)> {
        self.data.as_deref().zip(plan.data_disk.as_ref())
    }
}

/// With `install.wipe_failure: warn`, a failure on a disk that is only wiped is a warning.
fn tolerated<T>(plan: &Plan, effects: &RunEffects<'_>, disk: &Target, done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if plan.document.install.wipe_failure == WipeFailure::Warn => {
            let path = disk.path.display();
            effects.progress.note("wipe-disks", format!("warning: {path} is not wiped: {error:#}"));
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Under `install.wipe: none`, refuses a disk of the install that has content without partitions, such as a file system on the
/// whole disk. The plan has refused disks with partitions already.
pub(crate) fn refuse_protected(plan: &Plan, device: &dyn BlockDevice, disk: &Target) -> Result<()> {
    if plan.document.install.wipe != Wipe::None || wipe::is_blank(device)? {
        return Ok(());
    }
    let what = format!("{} is not empty, and install.wipe is none", disk.path.display());
    Err(Failure::new(Class::Hardware, what)
        .hint("Choose an empty disk, or set install.wipe to selected to erase this one.")
        .into())
}

/// Erases the data disk, writes its table, and finds the device of its partition.
pub(crate) fn make_data(
    device: &dyn BlockDevice,
    data: &DataDisk,
    host: &dyn Host,
) -> Result<BTreeMap<PartitionName, PathBuf>> {
    let made = (|| {
        wipe::wipe(device, &data.partitions, &|_| false)?;
        table::write(device, data.disk_guid, &data.partitions)?;
        device::barrier(device)?;
        table::verify(device, data.disk_guid, &data.partitions)
    })();
    made.with_context(|| format!("making the data disk {}", data.disk.path.display()))?;
    host.partition_nodes(&data.disk, &data.partitions)
}

/// Compares the table on the data disk with the plan again.
pub(crate) fn verify_data(device: &dyn BlockDevice, data: &DataDisk) -> Result<()> {
    let checked = table::verify(device, data.disk_guid, &data.partitions);
    checked.with_context(|| format!("checking the data disk {}", data.disk.path.display()))?;
    device::barrier(device)
}
