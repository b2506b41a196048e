//! A plan as text.

use std::fmt;

use uuid::Uuid;

use super::{
    AfterInstall, FatContent, KeptPartition, Partition, Plan, PlannedContent, PlannedFile, SectorSize, Step,
    Target, describe_holder,
};
use base::size::ByteSize;
use machine::crash_dumps;
use machine::inventory::FoundPartition;
use model::config::Images;
use model::release::Payload;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Install {}", self.product)?;
        disks(f, self, Detail::Whole)?;
        losses(f, self)?;
        partitions(f, self, Detail::Whole)?;
        host(f, self)?;
        warnings(f, self)?;
        fetched(f, self)?;
        steps(f, self)
    }
}

/// A plan as a person reviews it on a console: what decides comes first, and identifiers of tables, partitions and arrays are
/// left out.
#[derive(Debug)]
pub struct PlanReview<'a>(pub &'a Plan);

impl fmt::Display for PlanReview<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        writeln!(f, "Install {}", plan.product)?;
        warnings(f, plan)?;
        disks(f, plan, Detail::Review)?;
        losses(f, plan)?;
        partitions(f, plan, Detail::Review)?;
        host(f, plan)?;
        fetched(f, plan)?;
        steps(f, plan)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// With identifiers.
    Whole,
    Review,
}

fn disks(f: &mut fmt::Formatter<'_>, plan: &Plan, detail: Detail) -> fmt::Result {
    writeln!(f, "\n  role    {}", plan.role.beside(plan.mode.name()))?;
    writeln!(f, "  disk    {}", plan.disk.description)?;
    table(f, plan.disk_guid, plan.disk.sector, detail)?;
    if let Some(mirror) = &plan.mirror {
        writeln!(f, "  mirror  {}", mirror.disk.description)?;
        table(f, mirror.disk_guid, mirror.disk.sector, detail)?;
    }
    if let Some(data) = &plan.data_disk {
        writeln!(f, "  data    {}", data.disk.description)?;
        table(f, data.disk_guid, data.disk.sector, detail)?;
    }
    if let Some(kept) = plan.kept_apart() {
        writeln!(f, "  data    {}", kept.disk.description)?;
    }
    plan.wiped
        .iter()
        .try_for_each(|wiped| writeln!(f, "  wiped   {} ({})", wiped.disk.description, wiped.key))
}

fn losses(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    write!(f, "\n{}", Losses(plan))?;
    if !plan.taken_down.is_empty() {
        writeln!(f, "\nTaken down")?;
    }
    plan.taken_down.iter().try_for_each(|holder| writeln!(f, "  {}", describe_holder(holder)))
}

fn partitions(f: &mut fmt::Formatter<'_>, plan: &Plan, detail: Detail) -> fmt::Result {
    writeln!(f, "\nNew partitions")?;
    made(f, &plan.partitions, detail)?;
    if let Some(mirror) = &plan.mirror {
        writeln!(f, "\nNew partitions of {}", mirror.disk.path.display())?;
        made(f, &mirror.partitions, detail)?;
        writeln!(f, "\nNew arrays over both disks")?;
        for array in &mirror.arrays {
            let (name, size) = (array.partition.as_str(), array.size.to_string());
            write!(f, "     {name:<10}  {size:>12}")?;
            identifier(f, array.id(), detail)?;
        }
    }
    if let Some(data) = &plan.data_disk {
        writeln!(f, "\nNew partitions of {}", data.disk.path.display())?;
        made(f, &data.partitions, detail)?;
    }
    Ok(())
}

/// The settings of the machine, which the node sets up at each start.
fn host(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let settings = &plan.host;
    if settings.is_empty() {
        return Ok(());
    }
    writeln!(f, "\nThe machine, at each start of the node")?;
    for pages in &settings.huge_pages {
        let (count, size, memory) = (pages.count, pages.size.word(), pages.memory());
        writeln!(f, "  huge pages   {count} of {size}, {memory} of memory")?;
    }
    let devices = settings.passthrough.iter();
    devices.into_iter().try_for_each(|device| writeln!(f, "  passthrough  {device}"))?;
    for card in &settings.sriov {
        let names = [card.name.as_deref(), card.hw_addr.as_deref()];
        let card_name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
        writeln!(f, "  SR-IOV       {card_name}, {} virtual functions", card.functions)?;
    }
    if let Some(governor) = settings.cpu.governor {
        writeln!(f, "  governor     {}", governor.name())?;
    }
    if let Some(nested) = settings.nested_virtualization {
        writeln!(f, "  nested       {}", if nested { "on" } else { "off" })?;
    }
    if settings.has_crash_kernel() {
        writeln!(f, "  crash dumps  {}", crash_dumps::DIRECTORY)?;
    }
    let words = plan.document.os.host_words(plan.release.architecture);
    if !words.is_empty() {
        writeln!(f, "  kernel       {}", words.join(" "))?;
    }
    Ok(())
}

fn warnings(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    if !plan.warnings.is_empty() {
        writeln!(f, "\nWarnings")?;
    }
    plan.warnings.iter().try_for_each(|warning| writeln!(f, "  {warning}"))
}

fn fetched(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    if !plan.fetched.is_empty() {
        writeln!(f, "\nFetched when an install begins, and not now")?;
    }
    plan.fetched.iter().try_for_each(|found| writeln!(f, "  {}  from {}", found.key, found.from))
}

fn steps(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    writeln!(f, "\nSteps")?;
    for (number, step) in (1..).zip(&plan.steps) {
        let what = match step {
            Step::Images { .. } if plan.document.install.images() == Images::Defer => {
                "no container images are stored; the node pulls them when it runs (deferred)".into()
            }
            Step::Wipe if plan.kept_here().is_some() => {
                "erase the old boot code, and the start and end of each new partition except the kept one"
                    .into()
            }
            Step::Partition if plan.kept_here().is_some() => {
                "write the partition table over the old one, a copy at a time, and read it back".into()
            }
            Step::Filesystems { .. } if plan.document.install.has_etcd() => {
                format!("{}, and measure how fast etcd can write", describe(step))
            }
            step => describe(step),
        };
        writeln!(f, "  {number:>2}  {:<13}  {what}", step.id())?;
        if let Step::Esp(FatContent { files, .. }) = step {
            files.iter().try_for_each(|file| writeln!(f, "      {}", describe_file(file)))?;
        }
    }
    let finish = match plan.finish {
        AfterInstall::Reboot => "restarts",
        AfterInstall::Poweroff => "is powered off",
    };
    writeln!(f, "\nThen the machine {finish}.")
}

/// What is erased and what is kept, disk by disk.
#[derive(Debug)]
pub struct Losses<'a>(pub &'a Plan);

impl fmt::Display for Losses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.0;
        lost(f, &plan.disk, &plan.erased, plan.kept_here())?;
        if plan.continued {
            writeln!(f, "Intact parts of an unfinished install of the same content are kept.")?;
        }
        if let Some(mirror) = &plan.mirror {
            lost(f, &mirror.disk, &mirror.erased, None)?;
        }
        if let Some(kept) = plan.kept_apart() {
            writeln!(f, "NOTHING on {} is changed.", kept.disk.path.display())?;
            writeln!(f, "  kept    {}", kept.partition.describe())?;
        }
        if let Some(data) = &plan.data_disk {
            lost(f, &data.disk, &data.erased, None)?;
        }
        for wiped in &plan.wiped {
            lost(f, &wiped.disk, &wiped.erased, None)?;
        }
        Ok(())
    }
}

fn table(f: &mut fmt::Formatter<'_>, guid: Uuid, sector: SectorSize, detail: Detail) -> fmt::Result {
    match detail {
        Detail::Whole => writeln!(f, "  table   GPT {guid}, sectors of {} bytes", sector.bytes()),
        Detail::Review => Ok(()),
    }
}

/// Ends a line with an identifier, where the form has identifiers.
fn identifier(f: &mut fmt::Formatter<'_>, identifier: impl fmt::Display, detail: Detail) -> fmt::Result {
    match detail {
        Detail::Whole => writeln!(f, "  {identifier}"),
        Detail::Review => writeln!(f),
    }
}

fn lost(
    f: &mut fmt::Formatter<'_>,
    disk: &Target,
    erased: &[FoundPartition],
    kept: Option<&KeptPartition>,
) -> fmt::Result {
    let but = if kept.is_some() { " except what is kept" } else { "" };
    writeln!(f, "EVERYTHING on {} is erased{but}.", disk.path.display())?;
    if let Some(kept) = kept {
        writeln!(f, "  kept    {}", kept.partition.describe())?;
    }
    // The table that names what is kept is replaced, and not lost.
    for found in disk.signatures.iter().filter(|found| kept.is_none() || !found.kind.is_table()) {
        writeln!(f, "  lost    {}  {found}", disk.path.display())?;
    }
    for old in erased {
        writeln!(f, "  lost    {}", old.describe())?;
    }
    if erased.is_empty() && kept.is_none() {
        writeln!(f, "  The kernel sees no partitions on it now.")?;
    }
    Ok(())
}

fn made(f: &mut fmt::Formatter<'_>, partitions: &[Partition], detail: Detail) -> fmt::Result {
    partitions.iter().try_for_each(|new| {
        let (start, size) = (new.start.to_string(), new.size.to_string());
        let name = new.name.as_str();
        write!(f, "  {}  {name:<10}  at {start:>12}  {size:>12}", new.number)?;
        identifier(f, new.uuid, detail)
    })
}

/// The name of a value in JSON.
fn describe(step: &Step) -> String {
    match step {
        Step::VerifyMedium { payloads } => {
            format!("check {} payloads, {}, before anything is written", payloads.len(), sum(payloads))
        }
        Step::Wipe => {
            "erase the old boot code, the old table and the start and end of each new partition".into()
        }
        Step::WipeDisks => "erase tables, ends and partition starts of the other disks to wipe".into(),
        Step::DataDisk { filesystem } => format!(
            "write the table of the data disk, read it back, make ext4 on {} ({})",
            filesystem.partition.as_str(),
            filesystem.label
        ),
        Step::Partition => "write the partition table and read it back".into(),
        Step::Esp(esp) => format!("write {} files for the firmware", esp.files.len()),
        Step::Slot { partition, image, .. } => format!(
            "write {} to {}, {}, with its hash tree, kernel and initrd",
            image.path,
            partition.as_str(),
            ByteSize::bytes(image.size)
        ),
        Step::Mirror => "join the partitions of both disks into arrays (RAID 1)".into(),
        Step::Filesystems { filesystems } => {
            let each = |fs: &super::Filesystem| format!("{} ({})", fs.partition.as_str(), fs.label);
            format!("make ext4 on {}", filesystems.iter().map(each).collect::<Vec<_>>().join(", "))
        }
        Step::Images { blobs, .. } if blobs.is_empty() => "no container images are needed".into(),
        Step::Images { blobs, .. } => {
            format!("store {} blobs of container images, {}", blobs.len(), sum(blobs))
        }
        Step::Unpack { images } => {
            format!("unpack {} container images, with the containerd of this system", images.len())
        }
        Step::Node => {
            "write the node document, the identity, the log and what installs of other machines need".into()
        }
        Step::BootCode { .. } => "write GRUB for BIOS".into(),
        Step::Prove => "check the table, the boot files and the node document on the disk".into(),
        Step::Commit => "write the one sector that makes the disk bootable".into(),
    }
}

fn describe_file(file: &PlannedFile) -> String {
    match &file.content {
        PlannedContent::Payload(payload) => {
            format!("{}  from {}, {}", file.path, payload.path, ByteSize::bytes(payload.size))
        }
        PlannedContent::Text(text) => format!("{}  {}", file.path, ByteSize::bytes(text.len() as u64)),
        PlannedContent::Secret(text) => {
            format!("{}  {}", file.path, ByteSize::bytes(text.expose().len() as u64))
        }
    }
}

fn sum(payloads: &[Payload]) -> ByteSize {
    ByteSize::bytes(payloads.iter().map(|payload| payload.size).sum())
}
