//! `installer disk replace`.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use uuid::Uuid;

use crate::app::gather::kernel_command_line;
use crate::app::root_only;
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::Context;
use install::execute::{
    FirmwareEntry, OpenDisk, ReplacementEffects, SystemHost, await_arrays, read_esp, replace_disk,
    was_started_alone,
};
use install::plan::{DiskReplacement, PartitionName, ReplacementKind, Target, disk_replacement};
use machine::arrays::arrays;
use machine::inventory::{Inventory, Roots};
use machine::node_release;
use model::boot::BootParameters;
use node::update::UpdateLock;

#[derive(Debug, clap::Args)]
pub(super) struct ReplaceArgs {
    /// The disk that takes the place of the lost one, such as /dev/sdb or a link in /dev/disk/by-id; by default the only one that fits.
    #[arg(value_name = "DISK")]
    disk: Option<PathBuf>,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Erase what is on the disk without a question.
    #[arg(long, short)]
    yes: bool,
    /// End when the arrays with data are filled, too.
    #[arg(long)]
    until_whole: bool,
    /// Wait so many seconds for an update of this node that is at work.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

const PAUSE: Duration = Duration::from_millis(500);

impl ReplaceArgs {
    /// # Errors
    /// As [`disk_replacement`] and [`replace_disk`]; [`Class::Cancelled`] without a consent.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        root_only::require("replacing a disk", "disk replace")?;
        let root = Path::new("/");
        let installed = BootParameters::parse(&kernel_command_line()?)?.ok_or_else(|| {
            Failure::new(Class::Hardware, "this is not an installed node")
                .hint("Run this on an installed node, as root.")
        })?;
        let title = node_release::read_manifest(root)?.name.clone();
        let _lock = UpdateLock::take(root, Duration::from_secs(self.wait))?;
        let inventory = Inventory::scan(&Roots::default())?;
        let path = self.disk.as_deref();
        let mut plan = disk_replacement(&inventory, &arrays(root), installed.esp, path)?;
        if is_complete(&plan, &inventory) {
            return context.show(&plan, || "The mirror is whole; nothing is to be replaced.\n".to_owned());
        }
        let alone = plan.kind == ReplacementKind::Returned
            && was_started_alone(&plan, &OpenDisk::open_to_read(&plan.disk)?)?;
        if alone {
            let parts = inventory.find(&plan.disk.path).map(|disk| disk.partitions.clone());
            plan = plan.anew(parts.unwrap_or_default());
            let told = "This disk was started alone after the other one, and each has changes that the other lacks. \
                 Those of this disk are lost.";
            context.tell("replace", told);
        }
        if self.dry_run {
            return context.show(&plan, || plan.to_string());
        }
        context.tell("replace", plan.to_string().trim_end());
        if plan.erases_content() && !self.yes {
            consent(&plan, context)?;
        }
        let cancel = Cancel::on_signals();
        let host = SystemHost::new()?;
        let effects = ReplacementEffects {
            open_source: &|target| Ok(Box::new(OpenDisk::open_to_read(target)?)),
            open: &|target| Ok(Box::new(OpenDisk::open(target)?)),
            open_in_use: &|target| Ok(Box::new(OpenDisk::open_in_use(target)?)),
            host: &host,
            runner: &SystemRunner,
            arrays: &|| arrays(root),
            progress: &context.progress,
            cancel: &cancel,
            pause: PAUSE,
        };
        let present = partitions_of_others(&inventory, &plan.disk);
        replace_disk(&plan, &FirmwareEntry { title: &title, present: &present }, &effects)?;
        if self.until_whole {
            await_arrays(&PartitionName::ALL, &effects)?;
        }
        let left: Vec<_> = arrays(root).into_iter().filter(|array| !array.filled.is_empty()).collect();
        context.show(&plan, || {
            done(&plan.disk, &left.iter().map(|array| array.name.as_str()).collect::<Vec<_>>())
        })
    }
}

/// Whether the disk that would be completed lacks nothing.
fn is_complete(plan: &DiskReplacement, inventory: &Inventory) -> bool {
    if plan.kind != ReplacementKind::Begun || !plan.arrays.is_empty() {
        return false;
    }
    let esp = |target: &Target| {
        let disk = inventory.find(&target.path)?;
        let part =
            disk.partitions.iter().find(|part| part.label.as_deref() == Some(PartitionName::Esp.as_str()))?;
        read_esp(&part.path).ok()
    };
    let files = esp(&plan.disk);
    files.is_some() && files == esp(&plan.source)
}

/// The PARTUUIDs of all partitions of this machine but those of `disk`.
fn partitions_of_others(inventory: &Inventory, disk: &Target) -> Vec<Uuid> {
    let others = inventory.disks.iter().filter(|other| other.name != disk.name);
    let all = others.flat_map(|other| &other.partitions);
    all.filter_map(|part| Some(part.entry?.uuid)).collect()
}

fn done(disk: &Target, left: &[&str]) -> String {
    let path = disk.path.display();
    let rest = match left {
        [] => "The mirror is whole.".to_owned(),
        left => format!(
            "The kernel is still filling {}; `installer status` shows how far it is.",
            left.join(" and ")
        ),
    };
    format!("The machine can start from {path}. {rest}\n")
}

/// Asks whether the content of the disk may be erased.
fn consent(plan: &DiskReplacement, context: &Context) -> Result<()> {
    let path = plan.disk.path.display().to_string();
    if !io::stdin().is_terminal() {
        return Err(Failure::new(Class::Invalid, format!("erasing {path} needs a confirmation"))
            .because("something is on it")
            .hint("Start this on a terminal, or give it --yes.")
            .into());
    }
    context.tell("replace", &format!("This erases {path}. To go on, type its name, {path}:"));
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed).context("reading the answer")?;
    if typed.trim() == path {
        return Ok(());
    }
    Err(Failure::new(Class::Cancelled, "the name of the disk was not typed; nothing has changed").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::size::ByteSize;
    use install::plan::SectorSize;

    #[test]
    fn what_is_left_is_told() {
        let disk = Target {
            path: "/dev/sdb".into(),
            name: "sdb".into(),
            size: ByteSize::gib(32),
            sector: SectorSize::B512,
            description: String::new(),
            signatures: Vec::new(),
        };
        assert_eq!(done(&disk, &[]), "The machine can start from /dev/sdb. The mirror is whole.\n");
        assert!(done(&disk, &["persistent", "data"]).contains("still filling persistent and data;"));
    }
}
