//! One run of a plan, step by step.

mod outcome;
mod payloads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::boot::bios;
use super::boot::fat_volume::{self, FatPlace};
use super::boot::firmware;
use super::data::etcd_disk;
use super::data::keep::{self, KeptCheck, KeptGuard};
use super::data::other_disks::{self, OtherDisks};
use super::disk::device;
use super::disk::filesystems::NewFilesystem;
use super::disk::host::{MountAccess, with_mount};
use super::disk::mirror::{self, Arrays};
use super::disk::system_disks::SystemDisks;
use super::disk::table;
use super::disk::wipe;
use super::effects::RunEffects;
use super::payload::install_files::keep_install_files;
use super::payload::node_files::{InstallLog, NodeFiles};
use super::payload::slot::SlotContent;
use super::resume::journal::Journal;
use super::resume::take_over::take_over;
use crate::plan::{FatContent, Filesystem, Partition, PartitionName, Plan, SealedPlan, Step, Target};
use base::size::ByteSize;
use formats::verity::VerityTree;
use model::release::Payload;
use outcome::{DiskTouched, disks_state};

/// Carries out the plan, which says everything that is written. After an error the disk is unchanged if nothing had been written
/// yet, and otherwise does not boot; the error says which.
pub fn execute(sealed: &SealedPlan, effects: &RunEffects<'_>) -> Result<()> {
    let (plan, texts) = (sealed.plan(), sealed.texts());
    let guard = KeptGuard::new(effects.device, plan.kept_here());
    let log = InstallLog::begin(&format!("{plan}\n{}", texts.preflight), effects.progress);
    let arrays = Arrays::new(effects.runner);
    check_programs(plan, effects, &arrays)?;
    let second = plan.mirror.as_ref().map(|mirror| (effects.open)(&mirror.disk)).transpose()?;
    let others = OtherDisks::open(plan, effects)?;
    let system = SystemDisks::new(plan, &guard, second.as_deref())?;
    system.each(|disk| other_disks::refuse_protected(plan, &disk.device, disk.target))?;
    if let Some((device, data)) = others.data(plan) {
        other_disks::refuse_protected(plan, device, &data.disk)?;
    }
    let keeper = keep::rehearse(plan, effects.device, others.kept())?;
    plan.warnings.iter().for_each(|warning| effects.progress.note("run", format!("warning: {warning}")));
    let (nodes, members, written) = (BTreeMap::new(), Vec::new(), None);
    let identity = NodeFiles::new(texts, &plan.release, &plan.cards);
    let mut run = Run {
        plan,
        effects,
        system,
        arrays,
        others,
        keeper,
        log,
        identity,
        nodes,
        written,
        members,
        begun: false,
    };
    run.steps()?;
    run.conclude();
    Ok(())
}

/// Fails if a program is missing that only some plans need: before a disk is erased for nothing.
fn check_programs(plan: &Plan, effects: &RunEffects<'_>, arrays: &Arrays<'_>) -> Result<()> {
    if plan.steps.iter().any(|step| matches!(step, Step::Unpack { .. })) {
        effects.unpacking.check(effects.runner)?;
    }
    if plan.mirror.is_some() {
        arrays.check()?;
    }
    Ok(())
}

struct Run<'r, 'a> {
    plan: &'r Plan,
    effects: &'r RunEffects<'a>,
    system: SystemDisks<'r>,
    arrays: Arrays<'r>,
    others: OtherDisks<'a>,
    keeper: Option<KeptCheck<'r>>,
    log: InstallLog,
    identity: NodeFiles,
    /// The block devices of the file systems: partitions, or arrays of them.
    nodes: BTreeMap<PartitionName, PathBuf>,
    /// The first slot that has the OS image, read back from the disk, with the image's hash tree.
    written: Option<(PartitionName, VerityTree)>,
    /// Whether the next run would continue where this one ends.
    begun: bool,
    /// The partitions of each disk of the system.
    members: Vec<BTreeMap<PartitionName, PathBuf>>,
}

impl Run<'_, '_> {
    fn steps(&mut self) -> Result<()> {
        let mut touched = DiskTouched::default();
        for step in &self.plan.steps {
            let done = self.effects.cancel.check().map_err(anyhow::Error::from).and_then(|()| {
                touched = touched.max(DiskTouched::by(step));
                self.step(step)
            });
            if self.system.committed() {
                touched = DiskTouched::Committed;
            }
            done.map_err(|error| disks_state(error, step, self.plan, (touched, self.begun)))?;
        }
        Ok(())
    }

    /// What follows the commit. The node is complete without it, so a failure here is only a warning.
    fn conclude(&mut self) {
        let RunEffects { host, progress, .. } = *self.effects;
        if let Some(variables) = host.firmware_variables() {
            firmware::enter_each(&variables, self.plan, &self.system, progress);
        }
        // The log on the node ends with the commit.
        if let Err(error) = self.store_log() {
            progress.note("run", format!("The end of the log could not be stored on the node: {error:#}"));
        }
        if let Err(error) = self.arrays.stop() {
            progress.note("run", format!("{error:#}"));
        }
        if let Some(peak) = peak_memory() {
            progress.note("run", format!("Peak memory {peak}"));
        }
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        let progress = self.effects.progress.clone();
        let id = step.id();
        match step {
            Step::VerifyMedium { payloads } => self.verify_medium(id, payloads),
            Step::WipeDisks => {
                progress.within(id, "Erasing other disks", || self.others.wipe(self.plan, self.effects))
            }
            Step::DataDisk { filesystem } => {
                progress.within(id, "Making the data disk", || self.data_disk(filesystem))
            }
            Step::Wipe => progress.within(id, "Erasing the disk", || match self.plan.kept_here() {
                Some(_) => keep::erase(self.plan, &self.system),
                None => self.system.each(|disk| {
                    wipe::wipe(&disk.device, disk.partitions, &|partition| self.plan.stays(partition.name))
                }),
            }),
            Step::Partition => progress.within(id, "Writing the partition table", || self.partition()),
            Step::Esp(content) => self.esp(id, content),
            Step::Mirror => progress.within(id, "Joining both disks", || self.mirror()),
            Step::Slot { partition, image, expanded, boot } => {
                let content = SlotContent { image, expanded: *expanded, boot };
                self.slot(id, &content, *partition)
            }
            Step::Filesystems { filesystems } => {
                progress.within(id, "Making file systems", || self.filesystems(filesystems))
            }
            Step::Images { blobs, metadata } => self.images(id, blobs, metadata.as_ref()),
            Step::Unpack { images } => {
                progress.within(id, "Unpacking the container images", || self.unpack(images))
            }
            Step::Node => progress.within(id, "Writing the node document", || self.node()),
            Step::BootCode { boot, core } => {
                progress.within(id, "Writing GRUB for BIOS", || self.boot_code(boot, core))
            }
            Step::Prove => progress.within(id, "Checking the installed disk", || self.prove()),
            Step::Commit => progress.within(id, "Making the disk bootable", || self.system.commit()),
        }
    }

    fn partition(&mut self) -> Result<()> {
        if self.plan.kept_here().is_some() {
            self.check_kept()?;
        }
        let (plan, members) = (self.plan, &mut self.members);
        self.system.each(|disk| {
            match plan.kept_here() {
                Some(_) => keep::replace_table(plan, &disk.device)?,
                None => {
                    table::write(&disk.device, disk.guid, disk.partitions)?;
                    device::barrier(&disk.device)?;
                }
            }
            table::verify(&disk.device, disk.guid, disk.partitions)?;
            members.push(self.effects.host.partition_nodes(disk.target, disk.partitions)?);
            Ok(())
        })?;
        if let [only] = &members[..] {
            self.nodes.extend(only.clone());
        }
        // The next run finds the install by the partition table, which did not exist until now.
        self.begun = self.plan.continued;
        Ok(())
    }

    fn esp(&self, id: &str, content: &FatContent) -> Result<()> {
        let RunEffects { source, cancel, progress, .. } = *self.effects;
        let place = FatPlace::esp(needed(self.plan, PartitionName::Esp)?, &self.system);
        let total = fat_volume::total(&content.files);
        let mut shown = progress.step(id, "Writing the boot files", Some(total));
        fat_volume::write(&self.system, place, content, source, &mut shown, cancel)?;
        device::barrier(&self.system)?;
        shown.done();
        Ok(())
    }

    fn boot_code(&self, boot: &Payload, core: &Payload) -> Result<()> {
        self.system.each(|disk| {
            let partition = disk.partition(PartitionName::Bios)?;
            bios::write(&disk.device, partition, boot, core, self.effects.source)
        })
    }

    fn mirror(&mut self) -> Result<()> {
        for array in self.plan.mirror.iter().flat_map(|mirror| &mirror.arrays) {
            self.effects.cancel.check()?;
            let members: Vec<_> =
                self.members.iter().filter_map(|nodes| nodes.get(&array.partition)).collect();
            let [first, second] = members[..] else {
                anyhow::bail!("there is no pair of partitions {}", array.partition.as_str());
            };
            let node = self.effects.host.array_node(array.partition)?;
            self.arrays.make(array, node.clone(), [first.clone(), second.clone()])?;
            self.nodes.insert(array.partition, node);
        }
        device::barrier(&self.system)
    }

    fn data_disk(&mut self, filesystem: &Filesystem) -> Result<()> {
        let (device, data) = self.others.data(self.plan).context("the plan has no data disk")?;
        self.nodes.extend(other_disks::make_data(device, data, self.effects.host)?);
        self.mkfs(filesystem)?;
        device::barrier(device)
    }

    /// Makes the file systems, or takes over those of an unfinished install; then writes the journal, and measures the disk that etcd
    /// gets.
    fn filesystems(&mut self, filesystems: &[Filesystem]) -> Result<()> {
        for filesystem in filesystems {
            let node = self.node_of(filesystem.partition)?;
            if !take_over(self.plan, self.effects, filesystem, &self.system, node)? {
                self.begun &= filesystem.partition != PartitionName::Config;
                self.mkfs(filesystem)?;
            }
        }
        if self.plan.mirror.is_none() {
            let journal = Journal::of(self.plan)?;
            self.mounted(PartitionName::Config, MountAccess::Write, |root| journal.write(root))?;
            device::barrier(&self.system)?;
            self.begun = true;
        }
        if self.plan.document.install.has_etcd() && !self.identity.is_shared() {
            self.mounted(PartitionName::Persistent, MountAccess::Write, |root| {
                etcd_disk::judge(self.plan, self.effects, root)
            })?;
        }
        Ok(())
    }

    fn mkfs(&self, filesystem: &Filesystem) -> Result<()> {
        self.effects.cancel.check()?;
        let uuid = needed(self.plan, filesystem.partition)?.uuid;
        let node = self.node_of(filesystem.partition)?;
        let disk = &self.disk_of(filesystem.partition).description;
        self.effects
            .host
            .make_filesystem(self.effects.runner, &NewFilesystem { filesystem, uuid, node, disk })
    }

    fn node(&mut self) -> Result<()> {
        self.begun = false;
        self.mounted(PartitionName::Config, MountAccess::Write, |root| {
            self.identity.write(root)?;
            Journal::remove(root)
        })?;
        self.keep_install_files()?;
        self.store_log()?;
        self.effects.host.complete(self.effects.runner, &self.system)?;
        device::barrier(&self.system)
    }

    /// Keeps what other machines need to be installed from this node. It works without that.
    fn keep_install_files(&self) -> Result<()> {
        let RunEffects { source, progress, .. } = *self.effects;
        let release = &self.plan.release;
        let lacking = self.mounted(PartitionName::Persistent, MountAccess::Write, |var| {
            keep_install_files(var, (&**release, release.digest()), source)
        })?;
        for lack in lacking {
            progress.note(
                "node",
                format!("The node does not keep a file for installs of other machines: {lack}"),
            );
        }
        Ok(())
    }

    /// Stores the log on a node; copies of a disk would all have that of the first.
    fn store_log(&self) -> Result<()> {
        if self.identity.is_shared() {
            return Ok(());
        }
        self.mounted(PartitionName::Persistent, MountAccess::Write, |root| self.log.store(root))
    }

    fn prove(&self) -> Result<()> {
        let esps = self.plan.steps.iter().filter_map(|step| match step {
            Step::Esp(content) => Some(&content.files),
            _ => None,
        });
        let arrays = self.plan.mirror.iter().flat_map(|mirror| &mirror.arrays);
        self.system.each(|disk| {
            table::verify(&disk.device, disk.guid, disk.partitions)?;
            for files in esps.clone() {
                let place = FatPlace::esp(disk.partition(PartitionName::Esp)?, &disk.device);
                fat_volume::verify(&disk.device, place, files)?;
            }
            let mut arrays = arrays.clone();
            arrays.try_for_each(|array| mirror::verify(&disk.device, disk.partition(array.partition)?, array))
        })?;
        if let Some((device, data)) = self.others.data(self.plan) {
            other_disks::verify_data(device, data)?;
        }
        self.check_kept()?;
        self.on_each_disk(|| {
            self.mounted(PartitionName::Config, MountAccess::Read, |root| self.identity.verify(root))
        })?;
        device::barrier(&self.system)
    }

    /// Runs `check`, which reads file systems, once for each disk of the system, with the arrays reading from that disk.
    fn on_each_disk(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let (host, made) = (self.effects.host, self.arrays.made());
        let read_from = |which| made.iter().try_for_each(|array| host.read_from(array, which));
        let mut which = 0..2;
        let checked = self.system.each(|_| {
            read_from(which.next())?;
            check()
        });
        let back = read_from(None);
        checked.and(back)
    }

    fn check_kept(&self) -> Result<()> {
        let device = self.others.kept().unwrap_or(&self.system);
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.check(device))
    }

    /// Runs `work` on the mounted file system of a partition; an error of the disk names it.
    fn mounted<T>(
        &self,
        name: PartitionName,
        access: MountAccess,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let done = with_mount(self.effects.host, self.node_of(name)?, access, work);
        done.map_err(|error| device::in_filesystem(error, name, &self.disk_of(name).description))
    }

    fn disk_of(&self, name: PartitionName) -> &Target {
        let apart = self.plan.data_disk.as_ref().filter(|_| name == PartitionName::Data);
        apart.map_or(&self.plan.disk, |data| &data.disk)
    }

    fn node_of(&self, name: PartitionName) -> Result<&Path> {
        let node = self.nodes.get(&name).map(PathBuf::as_path);
        node.with_context(|| format!("there is no node for partition {}", name.as_str()))
    }
}

fn needed(plan: &Plan, name: PartitionName) -> Result<&Partition> {
    plan.partition(name).with_context(|| format!("the plan has no partition {}", name.as_str()))
}

fn peak_memory() -> Option<ByteSize> {
    let status = base::files::read_text(Path::new("/proc/self/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok().map(|kib: u64| ByteSize::bytes(kib << 10))
}
