//! One run of a plan, step by step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::device::{self, BlockDevice};
use super::host::{Access, Host, with_mount};
use super::identity::{Identity, Log};
use super::keep::{self, Guard, Keeper};
use super::mirror::{self, Arrays};
use super::others::{self, Others};
use super::seed::{Seeding, each_at_once};
use super::system::System;
use super::unpack::Unpacking;
use super::{Cancel, bootcode, esp, firmware, image, table, wipe};
use crate::command::{Invocation, Runner};
use crate::config::{InstallConfig, Secret};
use crate::failure::{Class, Classify, Failure, class_of};
use crate::medium::{PayloadSource, Place, Seen, fetch_again};
use crate::plan::{Filesystem, Partition, PartitionName, Plan, Step, Target, UnpackedImage};
use crate::progress::Progress;
use crate::release::Payload;
use crate::size::ByteSize;

/// Making a file system on a slow, large disk.
const MKFS_LIMIT: Duration = Duration::from_secs(900);

/// Opens a disk of the plan for this process alone.
pub type Opener<'a> = dyn Fn(&Target) -> Result<Box<dyn BlockDevice + 'a>> + 'a;

/// What a run works with.
#[allow(missing_debug_implementations)]
pub struct Parts<'a> {
    /// The disk of the system.
    pub device: &'a dyn BlockDevice,
    /// Opens another disk that the plan writes on.
    pub open: &'a Opener<'a>,
    /// Where payloads come from.
    pub source: &'a dyn PayloadSource,
    /// Runs `mkfs.ext4`.
    pub runner: &'a dyn Runner,
    /// Partition nodes and mounts.
    pub host: &'a dyn Host,
    /// Hears of every step.
    pub progress: &'a Progress,
    /// Says when to stop.
    pub cancel: &'a Cancel,
    /// Turns the configuration into the text of the node document; passwords are hashed in it.
    pub document: &'a dyn Fn(&InstallConfig) -> Result<Secret>,
    /// Unpacks images, where the release wants that.
    pub unpacking: &'a Unpacking,
    /// What the checks of the machine said, for the log.
    pub preflight: &'a str,
}

/// Carries out the plan. After an error the disk is as it was if nothing was written yet, and otherwise does
/// not boot; the error says which.
pub fn execute(plan: &Plan, parts: &Parts<'_>) -> Result<()> {
    let guard = Guard::new(parts.device, plan.kept_here());
    let log = Log::begin(&format!("{plan}\n{}", parts.preflight), parts.progress);
    // Made before the first write: a document that cannot be made must not cost a disk.
    let document =
        (parts.document)(&plan.document).class(Class::Invalid, || "making the node document".into())?;
    if plan.steps.iter().any(|step| matches!(step, Step::Unpack { .. })) {
        parts.unpacking.check(parts.runner)?;
    }
    let arrays = Arrays::new(parts.runner);
    let second = plan.mirror.as_ref().map(|mirror| (parts.open)(&mirror.disk)).transpose()?;
    if second.is_some() {
        arrays.check()?;
    }
    let others = Others::open(plan, parts)?;
    let system = System::new(plan, &guard, second.as_deref())?;
    system.each(|disk| others::spare(plan, &disk.device, disk.target))?;
    if let Some((device, data)) = others.data(plan) {
        others::spare(plan, device, &data.disk)?;
    }
    let keeper = keeper(plan, parts.device, &others)?;
    plan.warnings.iter().for_each(|warning| parts.progress.note("run", format!("Warning: {warning}")));
    let (seen, nodes, members) = (Seen::default(), BTreeMap::new(), Vec::new());
    let identity = Identity::new(document, &plan.release);
    let mut run = Run { plan, parts, system, arrays, others, keeper, log, identity, seen, nodes, members };
    let mut touched = Touched::default();
    for step in &plan.steps {
        let done = parts.cancel.check().map_err(anyhow::Error::from).and_then(|()| {
            touched = touched.max(Touched::by(step));
            run.step(step)
        });
        if run.system.committed() {
            touched = Touched::Committed;
        }
        done.map_err(|error| told(error, step, plan, touched))?;
    }
    run.enter_firmware();
    run.keep_log();
    if let Err(error) = run.arrays.stop() {
        parts.progress.note("run", format!("{error:#}"));
    }
    if let Some(peak) = peak_memory() {
        parts.progress.note("run", format!("Peak memory {peak}"));
    }
    Ok(())
}

/// Looks at what the plan keeps, and rehearses the keeping. Nothing is written.
fn keeper<'r>(plan: &'r Plan, device: &dyn BlockDevice, others: &Others<'_>) -> Result<Option<Keeper<'r>>> {
    let looked = match (&plan.kept, others.kept()) {
        (None, _) => return Ok(None),
        (Some(kept), Some(apart)) => Keeper::apart(kept, apart),
        (Some(kept), None) => Keeper::rehearse(plan, kept, device),
    };
    looked.map(Some)
}

/// How far the writes of a run have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Touched {
    #[default]
    Nothing,
    Others,
    System,
    /// The commit of one disk.
    Committed,
}

impl Touched {
    fn by(step: &Step) -> Self {
        match step {
            Step::VerifyMedium { .. } => Self::Nothing,
            Step::WipeDisks => Self::Others,
            _ => Self::System,
        }
    }
}

/// Says what state the failure leaves the disks in.
fn told(error: anyhow::Error, step: &Step, plan: &Plan, touched: Touched) -> anyhow::Error {
    let names = |disks: Vec<&Target>| {
        disks.iter().map(|disk| disk.path.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    let wiped: Vec<_> = plan.wiped.iter().map(|wiped| &wiped.disk).collect();
    let system: Vec<_> =
        [&plan.disk].into_iter().chain(plan.mirror.iter().map(|mirror| &mirror.disk)).collect();
    let state = match touched {
        Touched::Nothing => {
            let data = plan.data_disk.iter().map(|data| &data.disk);
            let all: Vec<_> = system.into_iter().chain(data).chain(wiped).collect();
            format!("Nothing was written to {}.", names(all))
        }
        Touched::Others => {
            format!("{} may be erased by now; nothing was written to {}.", names(wiped), names(system))
        }
        Touched::System => {
            let kept = if plan.kept.is_some() { " What install.keep names is as it was." } else { "" };
            let are = if system.len() == 1 { "is" } else { "are" };
            let names = names(system);
            format!("{names} {are} not bootable now; starting the install again does it over.{kept}")
        }
        Touched::Committed => format!(
            "The node starts from {} now, and from no other disk; starting the install again does it over.",
            plan.disk.path.display()
        ),
    };
    let (class, what) = (class_of(&error), format!("installing, step {}", step.id()));
    let source = error.reallocate_into_boxed_dyn_error_without_backtrace();
    Failure::new(class, what).because(source).hint(state).into()
}

struct Run<'r, 'a> {
    plan: &'r Plan,
    parts: &'r Parts<'a>,
    system: System<'r>,
    arrays: Arrays<'r>,
    others: Others<'a>,
    keeper: Option<Keeper<'r>>,
    log: Log,
    identity: Identity,
    seen: Seen,
    /// Where file systems are: partitions, or arrays of them.
    nodes: BTreeMap<PartitionName, PathBuf>,
    /// The partitions of each disk of the system.
    members: Vec<BTreeMap<PartitionName, PathBuf>>,
}

impl Run<'_, '_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        let progress = self.parts.progress.clone();
        let id = step.id();
        match step {
            Step::VerifyMedium { payloads } => self.verify_medium(id, payloads),
            Step::WipeDisks => {
                progress.within(id, "Erasing other disks", || self.others.wipe(self.plan, self.parts))
            }
            Step::DataDisk { filesystem } => {
                progress.within(id, "Making the data disk", || self.data_disk(filesystem))
            }
            Step::Wipe => progress.within(id, "Erasing the disk", || match self.plan.kept_here() {
                Some(_) => keep::erase(self.plan, &self.system),
                None => self.system.each(|disk| wipe::wipe(&disk.device, disk.partitions)),
            }),
            Step::Partition => progress.within(id, "Writing the partition table", || self.partition()),
            Step::Esp { volume_id, epoch, files } => {
                let partition = needed(self.plan, PartitionName::Esp)?;
                let mut shown = progress.step(id, "Writing the boot files", Some(esp::total(files)));
                let Parts { source, cancel, .. } = *self.parts;
                esp::write(&self.system, partition, (*volume_id, *epoch), files, source, &mut shown, cancel)?;
                device::barrier(&self.system)?;
                shown.done();
                Ok(())
            }
            Step::Mirror => progress.within(id, "Joining both disks", || self.mirror()),
            Step::Image { payload, partition } => self.image(id, payload, *partition),
            Step::Filesystems { filesystems } => progress
                .within(id, "Making file systems", || filesystems.iter().try_for_each(|fs| self.mkfs(fs))),
            Step::Images { blobs, metadata } => self.images(id, blobs, metadata.as_ref()),
            Step::Unpack { images } => {
                progress.within(id, "Unpacking the container images", || self.unpack(images))
            }
            Step::Node => progress.within(id, "Writing the node document", || self.node()),
            Step::BootCode { boot, core } => progress.within(id, "Writing GRUB for BIOS", || {
                self.system.each(|disk| {
                    let partition = disk.partition(PartitionName::Bios)?;
                    bootcode::write(&disk.device, partition, boot, core, self.parts.source)
                })
            }),
            Step::Prove => progress.within(id, "Checking the installed disk", || self.prove()),
            Step::Commit => progress.within(id, "Making the disk bootable", || self.system.commit()),
        }
    }

    /// Hashes what is on this machine; what is on a server is hashed on its way, and asked for now.
    fn verify_medium(&mut self, id: &str, payloads: &[Payload]) -> Result<()> {
        let Parts { source, cancel, progress, .. } = *self.parts;
        let (here, away): (Vec<_>, Vec<_>) =
            payloads.iter().partition(|payload| source.place(payload) == Some(Place::Here));
        let total = here.iter().map(|payload| payload.size).sum();
        let mut shown = progress.step(id, format!("Checking {}", source.describe()), Some(total));
        for payload in here {
            cancel.check()?;
            let reader = shown.reader(source.open(payload)?);
            let learned = self.seen.learn(reader, payload, source.describe());
            learned.with_context(|| format!("checking {}", payload.path))?;
        }
        let away = Mutex::new(away.into_iter());
        let next = || away.lock().unwrap_or_else(PoisonError::into_inner).next();
        each_at_once(next, |payload, _| {
            cancel.check()?;
            source
                .probe(payload)
                .with_context(|| format!("asking for {}", self.plan.release.describe(payload)))
        })?;
        shown.done();
        Ok(())
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
            members.push(self.parts.host.partition_nodes(disk.target, disk.partitions)?);
            Ok(())
        })?;
        if let [only] = &members[..] {
            self.nodes.extend(only.clone());
        }
        Ok(())
    }

    fn mirror(&mut self) -> Result<()> {
        for array in self.plan.mirror.iter().flat_map(|mirror| &mirror.arrays) {
            self.parts.cancel.check()?;
            let members: Vec<_> =
                self.members.iter().filter_map(|nodes| nodes.get(&array.partition)).collect();
            let [first, second] = members[..] else {
                anyhow::bail!("there is no pair of partitions {}", array.partition.as_str());
            };
            let node = self.parts.host.array_node(array.partition)?;
            self.arrays.make(array, node.clone(), [first.clone(), second.clone()])?;
            self.nodes.insert(array.partition, node);
        }
        device::barrier(&self.system)
    }

    fn data_disk(&mut self, filesystem: &Filesystem) -> Result<()> {
        let (device, data) = self.others.data(self.plan).context("the plan has no data disk")?;
        self.nodes.extend(others::make_data(device, data, self.parts.host)?);
        self.mkfs(filesystem)?;
        device::barrier(device)
    }

    fn image(&self, id: &str, payload: &Payload, name: PartitionName) -> Result<()> {
        let Parts { source, cancel, progress, .. } = *self.parts;
        let partition = needed(self.plan, name)?;
        let begun = Instant::now();
        let mut shown = progress.step(id, "Writing the OS image", Some(payload.size));
        let mut write = || {
            shown.back_to(0);
            // What the disk keeps of it is hashed below, whatever was seen here.
            let reader = self.seen.verified(source.open(payload)?, payload, source.describe());
            image::write(&self.system, partition, payload, reader, &mut shown, cancel)
        };
        match source.place(payload) {
            Some(Place::Network) => fetch_again(write, |error| {
                progress.note(id, format!("Fetching the OS image again: {error:#}"));
            }),
            _ => write(),
        }?;
        device::barrier(&self.system)?;
        shown.done();
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = ByteSize::bytes(payload.size.saturating_mul(1000) / millis);
        progress.note(id, format!("OS image written and flushed at {rate}/s"));
        self.system.each(|disk| {
            let mut shown = progress.step("read-back", "Reading the OS image back", Some(payload.size));
            image::read_back(&disk.device, disk.partition(name)?, payload, source, &mut shown, cancel)?;
            shown.done();
            Ok(())
        })
    }

    fn mkfs(&self, filesystem: &Filesystem) -> Result<()> {
        self.parts.cancel.check()?;
        let uuid = needed(self.plan, filesystem.partition)?.uuid.to_string();
        let node = self.node_of(filesystem.partition)?;
        let disk = &self.disk_of(filesystem.partition).description;
        // Zeroing inode tables is left to the kernel of the running node: it takes minutes on a large disk.
        let make = Invocation::new("mkfs.ext4")
            .args(["-q", "-F", "-b", "4096", "-L", filesystem.label, "-U", &uuid])
            .args(["-E", "lazy_itable_init=1,lazy_journal_init=1"])
            .arg(node)
            .limit(MKFS_LIMIT);
        let what = || {
            format!(
                "making a file system on {} ({}) of {disk}",
                node.display(),
                filesystem.partition.as_str()
            )
        };
        match self.parts.runner.run(&make) {
            // What a program's exit status means only its caller knows.
            Err(error) if class_of(&error) == Class::Unexpected => Err(Failure::new(Class::DiskIo, what())
                .because(anyhow::anyhow!("{error:#}"))
                .hint(device::WORN)
                .into()),
            other => other.map(drop).with_context(what),
        }
    }

    fn images(&self, id: &str, blobs: &[Payload], metadata: Option<&Payload>) -> Result<()> {
        let Parts { source, cancel, progress, .. } = *self.parts;
        let seeding = Seeding { source, cancel, release: &self.plan.release, seen: &self.seen };
        let total = blobs.iter().chain(metadata).map(|payload| payload.size).sum();
        let mut shown = progress.step(id, "Storing the container images", Some(total));
        self.mounted(PartitionName::Persistent, Access::Write, |root| {
            seeding.seed(root, blobs, metadata, &mut shown)
        })?;
        shown.done();
        self.on_each_disk(|| {
            let what = "Reading the container images back";
            let mut shown = progress.step("images-read-back", what, Some(total));
            self.mounted(PartitionName::Persistent, Access::Read, |root| {
                seeding.read_back(root, blobs, metadata, &mut shown)
            })?;
            shown.done();
            Ok(())
        })
    }

    fn unpack(&self, images: &[UnpackedImage]) -> Result<()> {
        let Parts { unpacking, progress, cancel, .. } = *self.parts;
        let containerd = &self.plan.release.containerd;
        self.mounted(PartitionName::Persistent, Access::Write, |root| {
            unpacking.unpack(root, containerd, images, progress, cancel)
        })
    }

    fn node(&self) -> Result<()> {
        self.mounted(PartitionName::Config, Access::Write, |root| self.identity.write(root))?;
        self.mounted(PartitionName::Persistent, Access::Write, |root| self.log.store(root))?;
        device::barrier(&self.system)
    }

    fn prove(&self) -> Result<()> {
        let esps = self.plan.steps.iter().filter_map(|step| match step {
            Step::Esp { files, .. } => Some(files),
            _ => None,
        });
        let arrays = self.plan.mirror.iter().flat_map(|mirror| &mirror.arrays);
        self.system.each(|disk| {
            table::verify(&disk.device, disk.guid, disk.partitions)?;
            for files in esps.clone() {
                esp::verify(&disk.device, disk.partition(PartitionName::Esp)?, files)?;
            }
            let mut arrays = arrays.clone();
            arrays.try_for_each(|array| mirror::verify(&disk.device, disk.partition(array.partition)?, array))
        })?;
        if let Some((device, data)) = self.others.data(self.plan) {
            others::verify_data(device, data)?;
        }
        self.check_kept()?;
        self.on_each_disk(|| {
            self.mounted(PartitionName::Config, Access::Read, |root| self.identity.verify(root))
        })?;
        device::barrier(&self.system)
    }

    /// Does `check`, which reads file systems, so that it reads of each disk of the system.
    fn on_each_disk(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let (host, made) = (self.parts.host, self.arrays.made());
        let read_from = |which| made.iter().try_for_each(|array| host.read_from(array, which));
        let mut which = 0..2;
        let checked = self.system.each(|_| {
            read_from(which.next())?;
            check()
        });
        let back = read_from(None);
        checked.and(back)
    }

    /// Whether what is kept is as it was.
    fn check_kept(&self) -> Result<()> {
        let device = self.others.kept().unwrap_or(&self.system);
        self.keeper.as_ref().map_or(Ok(()), |keeper| keeper.check(device))
    }

    /// Gives the disk an entry in the firmware's boot menu. The fallback path starts it too, so that trouble here is
    /// told and no more.
    fn enter_firmware(&self) {
        let Some(variables) = self.parts.host.firmware_variables() else { return };
        let Plan { release, erased, mirror, .. } = self.plan;
        let erased = erased.iter().chain(mirror.iter().flat_map(|mirror| &mirror.erased));
        let gone: Vec<_> = erased.filter_map(|part| Some(part.entry?.uuid)).collect();
        // Each entry goes before those that are there, and the first disk shall be the first.
        for disk in self.system.disks().iter().rev() {
            let path = disk.target.path.display();
            let entered = disk
                .partition(PartitionName::Esp)
                .and_then(|esp| firmware::enter(&variables, &release.name, (esp, disk.target.sector), &gone));
            let told = match entered {
                Ok(()) if disk.target.name == self.plan.disk.name => {
                    format!("The firmware starts {path} first, as {}", release.name)
                }
                Ok(()) => {
                    format!("The firmware starts {path} where the first disk is gone, as {}", release.name)
                }
                Err(error) => format!("The firmware has no entry for {path}: {error:#}"),
            };
            self.parts.progress.note("run", told);
        }
    }

    /// The log on the node ends with the commit. The node is complete without its end, so that trouble here
    /// is told and no more.
    fn keep_log(&self) {
        let stored = self.mounted(PartitionName::Persistent, Access::Write, |root| self.log.store(root));
        if let Err(error) = stored {
            self.parts.progress.note("run", format!("The end of the log is not on the node: {error:#}"));
        }
    }

    /// Does `work` on the mounted file system of a partition; trouble with the disk names it.
    fn mounted<T>(
        &self,
        name: PartitionName,
        access: Access,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let done = with_mount(self.parts.host, self.node_of(name)?, access, work);
        done.map_err(|error| device::in_filesystem(error, name, &self.disk_of(name).description))
    }

    /// The disk that a partition is on.
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

/// The most memory that this process has had at once.
fn peak_memory() -> Option<ByteSize> {
    let status = crate::files::read_text(Path::new("/proc/self/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok().map(|kib: u64| ByteSize::bytes(kib << 10))
}
