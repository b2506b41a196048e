//! From configuration, inventory and release manifest to a plan: a pure function.
//!
//! A [`Plan`] holds everything that the executor needs and is its only input; it prints as text ([`render`])
//! and as JSON. Neither form holds the node document, which may hold secrets.

mod boot;
mod choose;
mod disks;
mod keep;
pub mod layout;
mod mirror;
mod payloads;
mod render;
mod takedown;

use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use uuid::Uuid;

pub use boot::files_of_slot_a;
pub(crate) use choose::{blocking, system as choose_disk};
pub use disks::{DataDisk, WipedDisk};
pub use keep::Kept;
pub(crate) use keep::LABEL as DATA_LABEL;
pub use layout::{Partition, PartitionName, SectorSize};
pub use mirror::{Array, Mirror};
pub(crate) use payloads::images_of;
pub(crate) use render::Losses;
pub(crate) use takedown::describe as describe_holder;

use crate::cards::Remembered;
use crate::inventory::{Disk, FoundPartition, Holder, Inventory, Signature};
use crate::resolve::Reference;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::size::ByteSize;
use boot::Volumes;
use layout::{LayoutError, Wish};
use model::boot::{Slot, Volume};
use model::config::diagnostic::HIDDEN;
use model::config::sizes::PartitionSizes;
use model::config::{Images, InstallConfig, Mode, Role, Secret};
use model::release::{Payload, Release};
use payloads::Needed;

/// What an install will do.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Product name and version.
    pub product: String,
    /// What the node becomes in its cluster.
    pub role: Role,
    /// Whether it begins a cluster.
    pub mode: Mode,
    /// The disk of the system.
    pub disk: Target,
    /// What is on it now, and is lost.
    pub erased: Vec<FoundPartition>,
    /// GUID of the new partition table.
    pub disk_guid: Uuid,
    /// Whether the disk holds an unfinished install of the same content, which this one continues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
    /// The new partitions.
    pub partitions: Vec<Partition>,
    /// The second disk of the system, where that is mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// The disk of the data, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_disk: Option<DataDisk>,
    /// The data that stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// Other disks that are wiped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wiped: Vec<WipedDisk>,
    /// What holds these disks, and is taken down before they are opened, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taken_down: Vec<Holder>,
    /// What the configuration asks for and does not get, each a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The hardware addresses of the network cards that the configuration names, which the node remembers.
    #[serde(skip_serializing_if = "Remembered::is_empty")]
    pub cards: Remembered,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What is fetched before the plan is made for an install.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fetched: Vec<Reference>,
    /// What happens to the machine afterwards, if the caller of the install asks for that.
    pub finish: Finish,
    /// What the node keeps as its node document.
    #[serde(skip)]
    pub document: Box<InstallConfig>,
    /// The release manifest, kept on the node.
    #[serde(skip)]
    pub release: Box<Release>,
}

/// A disk to write on.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Its node.
    pub path: PathBuf,
    /// The kernel's name.
    pub name: String,
    /// Its length.
    pub size: ByteSize,
    /// Its sectors.
    pub sector: SectorSize,
    /// Size, model and serial number in one line.
    pub description: String,
    /// What is on it now outside its partitions, and is lost.
    pub signatures: Vec<Signature>,
}

/// One step. Its name in JSON is the id of its progress events.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Step {
    /// Hash every payload that the medium holds, ask the server for the others.
    VerifyMedium { payloads: Vec<Payload> },
    /// Make what is on other disks unfindable.
    WipeDisks,
    /// Make what is on the disk unbootable, and its places empty.
    Wipe,
    /// Write the partition table.
    Partition,
    /// Write the partition table and the file system of the disk for data.
    DataDisk { filesystem: Filesystem },
    /// Write the EFI system partition, its first sector held back.
    Esp { volume_id: u32, epoch: u64, files: Vec<EspFile> },
    /// Stream the OS image to a partition and read it back.
    Image { payload: Payload, partition: PartitionName },
    /// Join the partitions of two disks into arrays.
    Mirror,
    /// Make file systems.
    Filesystems { filesystems: Vec<Filesystem> },
    /// Put the container images into containerd's store.
    Images { blobs: Vec<Payload>, metadata: Option<Payload> },
    /// Let a containerd unpack images of that store into snapshots.
    Unpack { images: Vec<UnpackedImage> },
    /// Write the node document and the log.
    Node,
    /// Write GRUB for BIOS.
    BootCode { boot: Payload, core: Payload },
    /// Check everything once more.
    Prove,
    /// Write the sector that makes the disk bootable.
    Commit,
}

impl Step {
    /// The stable id of the step, that of its progress events.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self {
            Self::VerifyMedium { .. } => "verify-medium",
            Self::WipeDisks => "wipe-disks",
            Self::Wipe => "wipe",
            Self::Partition => "partition",
            Self::DataDisk { .. } => "data-disk",
            Self::Esp { .. } => "esp",
            Self::Image { .. } => "image",
            Self::Mirror => "mirror",
            Self::Filesystems { .. } => "filesystems",
            Self::Images { .. } => "images",
            Self::Unpack { .. } => "unpack",
            Self::Node => "node",
            Self::BootCode { .. } => "boot-code",
            Self::Prove => "prove",
            Self::Commit => "commit",
        }
    }
}

/// One file of the EFI system partition.
#[derive(Clone, Debug, Serialize)]
pub struct EspFile {
    /// Path from its root, without a leading slash.
    pub path: String,
    /// Where the content comes from.
    pub content: EspContent,
}

/// The content of a file of the EFI system partition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EspContent {
    /// From the medium.
    Payload(Payload),
    /// Rendered by the plan.
    Text(String),
    /// Rendered by the plan, and not shown with it.
    #[serde(serialize_with = "hidden")]
    Secret(Secret),
}

fn hidden<S: serde::Serializer>(_: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(HIDDEN)
}

/// An image to unpack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnpackedImage {
    /// Its name; it may have others.
    pub name: String,
    /// The digest of its manifest or index.
    pub digest: Digest,
}

/// An ext4 file system; its UUID is the partition's.
#[derive(Clone, Debug, Serialize)]
pub struct Filesystem {
    /// On which partition.
    pub partition: PartitionName,
    /// Its label.
    pub label: &'static str,
}

/// What happens to the machine after an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// It restarts.
    Reboot,
    /// It goes off.
    Poweroff,
}

impl Plan {
    /// Every disk that has a part in it.
    pub fn disks(&self) -> impl Iterator<Item = &Target> {
        let second = self.mirror.as_ref().map(|mirror| &mirror.disk);
        let data = self.data_disk.as_ref().map(|data| &data.disk);
        let kept = self.kept.as_ref().map(|kept| &kept.disk);
        let wiped = self.wiped.iter().map(|wiped| &wiped.disk);
        [Some(&self.disk), second, data, kept].into_iter().flatten().chain(wiped)
    }

    /// The partition of that name, on whichever disk. Absent only for `data`: on a witness, and where it is kept on
    /// another disk.
    #[must_use]
    pub fn partition(&self, name: PartitionName) -> Option<&Partition> {
        self.all_partitions().find(|partition| partition.name == name)
    }

    /// Whether what is in the partition of that name stays, as the beginning of this install, as far as it is whole.
    #[must_use]
    pub fn stays(&self, name: PartitionName) -> bool {
        use PartitionName::{Config, Persistent, RootA};
        self.continued && matches!(name, Config | RootA | Persistent)
    }

    /// The new partitions of all disks.
    fn all_partitions(&self) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().chain(self.data_disk.iter().flat_map(|data| &data.partitions))
    }
}

/// Makes the plan. `disk_guid` becomes the identity of the new partition table; everything else follows from
/// the arguments.
///
/// # Errors
/// A [`Failure`]: [`Class::Hardware`] where the machine does not fit, [`Class::Invalid`] where the
/// configuration asks for what cannot be, [`Class::Verification`] where the manifest is not whole.
pub fn plan(
    config: &InstallConfig,
    inventory: &Inventory,
    release: &Release,
    disk_guid: Uuid,
) -> Result<Plan> {
    let install = &config.install;
    if release.architecture != "amd64" {
        let what = format!("this medium is for {}, and this machine is amd64", release.architecture);
        return Err(Failure::new(Class::Hardware, what).into());
    }
    check_distribution(config, release)?;
    let role = install.own_role();
    let Chosen { system: disk, data, twin } = Chosen::of(config, inventory)?;
    let target = disks::target(disk)?;
    let chosen: Vec<_> = [disk].into_iter().chain(twin).chain(data).collect();
    let kept = keep::find(install, role, inventory, disk, data)?;
    let kept_here = kept.as_ref().filter(|_| data.is_none());
    let changed: Vec<_> = [disk].into_iter().chain(twin).chain(data.filter(|_| kept.is_none())).collect();
    disks::spare(install, &changed)?;
    let (wiped, mut warnings) = disks::wiped(install, inventory, &chosen)?;
    let held = disks::also(inventory, &changed, &wiped);
    let taken_down = takedown::order(install, inventory, &held, kept.as_ref())?;
    warnings.extend(disks::without_effect(install, disk, data));
    warnings.extend(disks::unread(chosen.iter().copied()));
    let sizes = PartitionSizes::of(install.profile);
    let wish = Wish {
        disk: twin.map_or(disk.size, |twin| twin.size.min(disk.size)),
        sector: target.sector,
        sizes,
        persistent: install.persistent_partition_size.filter(|_| data.is_none()),
        data: role != Role::Witness && data.is_none(),
    };
    let arranged = match kept_here {
        Some(kept) => layout::arrange_before(wish, kept.stays(), disk_guid),
        None => layout::arrange(wish, disk_guid),
    };
    let partitions = arranged.map_err(|error| refuse(disk, error, choose::SYSTEM))?;
    let stays = |part: &&FoundPartition| kept_here.is_none_or(|kept| kept.partition != **part);
    let erased = disk.partitions.iter().filter(stays).cloned().collect();
    let mirror = twin.map(|twin| mirror::arrange(twin, wish, disk_guid)).transpose()?;
    let data_disk = data.filter(|_| kept.is_none());
    let data_disk = data_disk.map(|data| disks::arrange(data, sizes, disk_guid)).transpose()?;
    let needed = Needed::of(release, role, install.images() == Images::Preload)?;
    match &mirror {
        Some(_) => needed.fit(&mirror::within_arrays(&partitions))?,
        None => needed.fit(&partitions)?,
    }
    let mut plan = Plan {
        product: format!("{} {}", release.name, release.version),
        role,
        mode: install.mode,
        disk: target,
        erased,
        disk_guid,
        continued: false,
        partitions,
        mirror,
        data_disk,
        kept,
        wiped,
        taken_down,
        warnings,
        cards: Remembered::default().after(config, &inventory.nics),
        steps: Vec::new(),
        fetched: crate::resolve::references(config),
        finish: if install.poweroff { Finish::Poweroff } else { Finish::Reboot },
        document: Box::new(config.clone()),
        release: Box::new(release.clone()),
    };
    plan.steps = steps(&plan, &needed)?;
    Ok(plan)
}

/// The disks that an install is for.
struct Chosen<'a> {
    system: &'a Disk,
    /// That of the data, where it is another one.
    data: Option<&'a Disk>,
    /// The second one of the system.
    twin: Option<&'a Disk>,
}

impl<'a> Chosen<'a> {
    fn of(config: &InstallConfig, inventory: &'a Inventory) -> Result<Self, Failure> {
        let install = &config.install;
        let system = choose::system(inventory, install.device.as_ref(), install.data_disk.as_ref())?;
        let data = disks::data_disk(install, install.own_role(), inventory, system)?;
        let twin = mirror::disk(install, inventory, system, data)?;
        Ok(Self { system, data, twin })
    }
}

/// The disks that an install writes the node to: those of the system, and that of the data unless it is kept as it is.
/// Disks that are only wiped are not among them.
///
/// # Errors
/// That of [`plan`] where the configuration does not choose.
pub fn written_disks<'a>(config: &InstallConfig, inventory: &'a Inventory) -> Result<Vec<&'a Disk>, Failure> {
    let Chosen { system, data, twin } = Chosen::of(config, inventory)?;
    let data = data.filter(|_| config.install.keep.is_empty());
    Ok([system].into_iter().chain(twin).chain(data).collect())
}

/// Refuses a node that shall run another distribution than the medium brings. A medium whose images are for the OS image's
/// own containerd brings none.
fn check_distribution(config: &InstallConfig, release: &Release) -> Result<(), Failure> {
    let Some(brought) = release.containerd.distribution() else { return Ok(()) };
    let wanted = config.kubernetes.distribution;
    if config.install.mode == Mode::Install || brought == wanted {
        return Ok(());
    }
    let (brought, wanted) = (brought.name(), wanted.name());
    let what = format!("this medium brings {brought}, and the node shall run {wanted}");
    Err(Failure::new(Class::Invalid, what)
        .hint(format!("Set kubernetes.distribution: {brought}, or take a medium with {wanted}.")))
}

fn describe(disk: &Disk) -> String {
    format!("{} does not fit", disk.describe())
}

fn refuse(disk: &Disk, error: LayoutError, key: &str) -> Failure {
    let (class, hint) = match &error {
        LayoutError::Disk { .. } => (
            Class::Hardware,
            format!(
                "Choose a larger disk with {key}. For tests and trials, install.profile: trial asks for less."
            ),
        ),
        LayoutError::NoRoomBefore { .. } | LayoutError::NoRoomForTable { .. } => (
            Class::Hardware,
            format!(
                "Install the system on another disk and keep this one: {key} for that one, {} for this one. \
                 Or save the data, and install without install.keep.",
                choose::DATA
            ),
        ),
        _ => (Class::Invalid, "Change install.persistent_partition_size, or leave it out.".into()),
    };
    Failure::new(class, describe(disk)).because(error).hint(hint)
}

/// The steps of a plan that has everything else.
fn steps(plan: &Plan, needed: &Needed) -> Result<Vec<Step>> {
    use PartitionName::{Config, Data, Persistent, RootA};
    let filesystem = |partition, label| Filesystem { partition, label };
    let mut filesystems = vec![filesystem(Config, "NQ_CONFIG"), filesystem(Persistent, "NQ_PERSISTENT")];
    let data = plan.partition(Data).filter(|_| plan.kept.is_none()).map(|_| filesystem(Data, DATA_LABEL));
    // A FAT volume's number is short; the first bytes of the disk's identity tell disks apart.
    let (volume_id, ..) = plan.disk_guid.as_fields();
    let mut steps = vec![Step::VerifyMedium { payloads: needed.all() }];
    if !plan.wiped.is_empty() {
        steps.push(Step::WipeDisks);
    }
    steps.extend([Step::Wipe, Step::Partition]);
    // Trouble with the second disk shows before the long work on the first.
    match plan.data_disk {
        Some(_) => steps.extend(data.map(|filesystem| Step::DataDisk { filesystem })),
        None => filesystems.extend(data),
    }
    steps.extend([
        Step::Esp { volume_id, epoch: plan.release.epoch, files: esp(plan, needed, volume_id)? },
        Step::Image { payload: needed.rootfs.clone(), partition: RootA },
    ]);
    // After the image, which is written to both disks as they are; its array finds it there.
    if plan.mirror.is_some() {
        steps.push(Step::Mirror);
    }
    steps.extend([
        Step::Filesystems { filesystems },
        Step::Images { blobs: needed.blobs.clone(), metadata: needed.metadata.clone() },
    ]);
    if plan.release.containerd.unpack && !needed.blobs.is_empty() {
        steps.push(Step::Unpack { images: payloads::unpacked(&plan.release, plan.role) });
    }
    steps.extend([Step::Node, Step::Prove]);
    // Just before the commit: a BIOS that finds GRUB's boot sector stays with it, and does not go on to the medium, even
    // while GRUB finds nothing to start. It is read back where it is written.
    // BIOS cannot start from sectors of 4096 bytes, and GRUB's boot sector counts in 512.
    if plan.disk.sector == SectorSize::B512 {
        steps.push(Step::BootCode { boot: needed.boot.clone(), core: needed.core.clone() });
    }
    steps.push(Step::Commit);
    Ok(steps)
}

/// Where the kernel finds what it needs.
fn volumes(plan: &Plan) -> Result<Volumes> {
    let arrays: &[Array] = plan.mirror.as_ref().map_or(&[], |mirror| &mirror.arrays);
    let find = |name| {
        let array =
            arrays.iter().find(|array| array.partition == name).map(|array| Volume::Array(array.uuid));
        array.or_else(|| plan.partition(name).map(|partition| Volume::Partition(partition.uuid)))
    };
    let needed = |name: PartitionName| {
        find(name).ok_or_else(|| anyhow::anyhow!("the layout has no partition {}", name.as_str()))
    };
    Ok(Volumes {
        root_a: needed(PartitionName::RootA)?,
        root_b: needed(PartitionName::RootB)?,
        config: needed(PartitionName::Config)?,
        persistent: needed(PartitionName::Persistent)?,
        data: find(PartitionName::Data).or(plan.kept.as_ref().map(|kept| Volume::Partition(kept.uuid))),
        arrays: arrays.iter().map(|array| array.uuid).collect(),
    })
}

fn esp(plan: &Plan, needed: &Needed, volume_id: u32) -> Result<Vec<EspFile>> {
    let (config, release) = (&plan.document, &plan.release);
    let volumes = volumes(plan)?;
    let line = |slot: Slot| boot::command_line(slot, &volumes, &release.kernel_arguments, config);
    let text = |path: &str, text: String| EspFile { path: path.into(), content: EspContent::Text(text) };
    let payload = |path: &str, payload: &Payload| EspFile {
        path: path.into(),
        content: EspContent::Payload(payload.clone()),
    };
    let mut files = vec![payload("EFI/BOOT/BOOTX64.EFI", &needed.shim)];
    files.push(payload("EFI/BOOT/grubx64.efi", &needed.grub));
    files.extend(needed.mok_manager.iter().map(|manager| payload("EFI/BOOT/mmx64.efi", manager)));
    files.push(text("EFI/debian/grub.cfg", boot::stub(volume_id)));
    files.push(text("grub/grub.cfg", boot::grub_cfg(release, config, line)));
    files.extend(config.os.boot_password.as_ref().map(|password| EspFile {
        path: boot::PASSWORD.into(),
        content: EspContent::Secret(Secret::new(password.grub_command())),
    }));
    files.push(text("grub/grubenv", boot::environment()));
    files.push(payload("nqrust/a/vmlinuz", &needed.kernel));
    files.push(payload("nqrust/a/initrd", &needed.initrd));
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests;
