//! The steps of an install, from the roles of the disks and the new layout.

use anyhow::{Context, Result};

use super::boot::{self, Volumes};
use super::disk_roles::DiskRoles;
use super::layout::{PartitionName, SectorSize};
use super::mirror::Array;
use super::new_layout::NewLayout;
use super::payloads::{BiosPayloads, NeededPayloads, unpacked};
use super::slot::SlotGeometry;
use super::step::{FatContent, Filesystem, PlannedContent, PlannedFile, Step};
use base::failure::{Class, Failure};
use formats::initrd;
use machine::inventory::Nic;
use machine::network_disks::document_access;
use model::architecture::Architecture;
use model::boot::BootVolume;
use model::boot::crash::COMMAND_LINE_BYTES;
use model::boot::grub::{
    HOST_FILE, INITRD_FILE, KERNEL_FILE, NETWORK_DISKS_FILE, SLOT_FILE, host_cfg, slot_cfg,
};
use model::boot::record::BootRecord;
use model::config::{InstallConfig, Secret};
use model::network_disks::ACCESS_FILE;
use model::release::{MANIFEST, Payload, SIGNATURES};
use model::release_manifest::ReleaseManifest;

/// The steps of an install in their order.
///
/// # Errors
/// The layout lacks a partition that the boot loader must name.
pub(super) fn steps(
    config: &InstallConfig,
    release: &ReleaseManifest,
    nics: &[Nic],
    (roles, layout): (&DiskRoles<'_>, &NewLayout),
    needed: &NeededPayloads,
) -> Result<Vec<Step>> {
    use PartitionName::{Config, Data, Persistent, Recovery, RootA};
    let mut filesystems: Vec<_> = [Config, Persistent].into_iter().filter_map(Filesystem::of).collect();
    let data = layout.partition(Data).filter(|_| roles.kept.is_none()).and_then(|_| Filesystem::of(Data));
    // A FAT volume's serial number has 32 bits; the first bytes of the disk's identity distinguish disks.
    let volumes = volumes(roles, layout)?;
    require_short_line(config, release, &volumes)?;
    let (volume_id, ..) = layout.disk_guid.as_fields();
    let geometry = layout.partition(RootA).map(SlotGeometry::of).context("the layout has no slot a")?;
    let mut steps = vec![Step::VerifyMedium { payloads: needed.all() }];
    if !roles.wiped.is_empty() {
        steps.push(Step::WipeDisks);
    }
    steps.extend([Step::Wipe, Step::Partition]);
    // An error of the second disk shows before the long work on the first.
    match layout.data_disk {
        Some(_) => steps.extend(data.map(|filesystem| Step::DataDisk { filesystem })),
        None => filesystems.extend(data),
    }
    steps.extend([
        Step::Esp(FatContent {
            volume_id,
            epoch: release.epoch,
            files: esp(release.architecture, config, &volumes, geometry, needed, volume_id)
                .into_iter()
                .chain(network_disks_file(config, nics, roles)?)
                .collect(),
        }),
        slot(release, needed, RootA),
        slot(release, needed, Recovery),
    ]);
    // After the image, which is written to both disks alike; its array finds it there.
    if layout.mirror.is_some() {
        steps.push(Step::Mirror);
    }
    steps.extend([
        Step::Filesystems { filesystems },
        Step::Images { blobs: needed.blobs.clone(), metadata: needed.metadata.clone() },
    ]);
    if release.containerd.unpack && !needed.blobs.is_empty() {
        steps.push(Step::Unpack { images: unpacked(release, config.install.own_role()) });
    }
    steps.extend([Step::Node, Step::Prove]);
    // Just before the commit: a BIOS that finds GRUB's boot sector stays with it, and does not go on to the medium, even if GRUB
    // finds nothing to start. It is read back where it is written. BIOS cannot start from sectors of 4096 bytes, and GRUB's boot
    // sector counts in 512.
    if let Some(BiosPayloads { boot, core }) = &needed.bios
        && roles.target.sector == SectorSize::B512
    {
        steps.push(Step::BootCode { boot: boot.clone(), core: core.clone() });
    }
    steps.push(Step::Commit);
    Ok(steps)
}

/// Refuses a node whose kernel would lose the end of its command line.
fn require_short_line(config: &InstallConfig, release: &ReleaseManifest, volumes: &Volumes) -> Result<()> {
    let length = boot::longest_line(release.architecture, volumes, config, &release.kernel_arguments);
    if length < COMMAND_LINE_BYTES {
        return Ok(());
    }
    let most = COMMAND_LINE_BYTES - 1;
    let what = format!("the kernel's command line would have {length} bytes, and kernels read {most}");
    Err(Failure::new(Class::Invalid, what)
        .hint("Shorten os.additional_kernel_arguments, or set less in os.host.")
        .into())
}

/// The archive with which the initrd reaches the disks of the document. Those of the firmware it finds itself.
fn network_disks_file(
    config: &InstallConfig,
    nics: &[Nic],
    roles: &DiskRoles<'_>,
) -> Result<Option<PlannedFile>, Failure> {
    let [system, data] = roles.chosen.remote_targets();
    let access = document_access(config, nics)?.for_node(&system, &data);
    if !roles.network_disks.any() || (access.is_empty() && access.cards.is_empty()) {
        return Ok(None);
    }
    let archive = initrd::private_archive(ACCESS_FILE, &base::encode::json_line(&access));
    // It is text: JSON, and names and numbers with zeros between them.
    let text = String::from_utf8_lossy(&archive).into_owned();
    let content = PlannedContent::Secret(Secret::new(text));
    Ok(Some(PlannedFile { path: NETWORK_DISKS_FILE.into(), content }))
}

/// The file systems and arrays for the kernel command line.
fn volumes(roles: &DiskRoles<'_>, layout: &NewLayout) -> Result<Volumes> {
    let arrays: &[Array] = layout.mirror.as_ref().map_or(&[], |mirror| &mirror.arrays);
    let find = |name| {
        let array =
            arrays.iter().find(|array| array.partition == name).map(|array| BootVolume::Array(array.uuid));
        array.or_else(|| layout.partition(name).map(|partition| BootVolume::Partition(partition.uuid)))
    };
    let needed = |name: PartitionName| {
        find(name).ok_or_else(|| anyhow::anyhow!("the layout has no partition {}", name.as_str()))
    };
    Ok(Volumes {
        root_a: needed(PartitionName::RootA)?,
        root_b: needed(PartitionName::RootB)?,
        recovery: needed(PartitionName::Recovery)?,
        config: needed(PartitionName::Config)?,
        persistent: needed(PartitionName::Persistent)?,
        data: find(PartitionName::Data).or(roles.kept.as_ref().map(|kept| BootVolume::Partition(kept.uuid))),
        arrays: arrays.iter().map(|array| array.uuid).collect(),
        multipath: roles.multipath.clone(),
        network_disks: roles.network_disks,
    })
}

/// One slot with all that belongs to the release.
fn slot(release: &ReleaseManifest, needed: &NeededPayloads, partition: PartitionName) -> Step {
    Step::Slot {
        partition,
        image: needed.rootfs.clone(),
        expanded: release.expanded,
        boot: boot_volume(release, &needed.kernel, &needed.initrd),
    }
}

/// The boot volume of a slot with this release.
pub(crate) fn boot_volume(release: &ReleaseManifest, kernel: &Payload, initrd: &Payload) -> FatContent {
    let payload = |path: &str, payload: &Payload| PlannedFile {
        path: path.into(),
        content: PlannedContent::Payload(payload.clone()),
    };
    let text =
        |path: &str, text: String| PlannedFile { path: path.into(), content: PlannedContent::Text(text) };
    let title = format!("{} {}", release.name, release.version);
    // Both are text: otherwise they were refused before.
    let document = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut files = vec![
        text(SLOT_FILE, slot_cfg(&title, &release.kernel_arguments)),
        text(MANIFEST, document(release.bytes())),
    ];
    files.extend(release.signatures().map(|signatures| text(SIGNATURES, document(signatures))));
    files.extend([payload(KERNEL_FILE, kernel), payload(INITRD_FILE, initrd)]);
    // The same release gives the same volume.
    let volume_id = u32::from_be_bytes(release.expanded.root_hash.first_bytes());
    FatContent { volume_id, epoch: release.epoch, files }
}

/// The files of the EFI system partition.
fn esp(
    architecture: Architecture,
    config: &InstallConfig,
    volumes: &Volumes,
    geometry: SlotGeometry,
    needed: &NeededPayloads,
    volume_id: u32,
) -> Vec<PlannedFile> {
    let text =
        |path: &str, text: String| PlannedFile { path: path.into(), content: PlannedContent::Text(text) };
    let payload = |path: &str, payload: &Payload| PlannedFile {
        path: path.into(),
        content: PlannedContent::Payload(payload.clone()),
    };
    let loaders = architecture.loaders();
    let mut files = vec![payload(loaders.shim, &needed.shim), payload(loaders.grub, &needed.grub)];
    files.extend(needed.mok_manager.iter().map(|manager| payload(loaders.mok_manager, manager)));
    files.push(text("EFI/debian/grub.cfg", boot::stub(volume_id)));
    files.push(text("grub/grub.cfg", boot::grub_cfg(config, geometry)));
    files.push(text("grub/node.cfg", boot::node_cfg(architecture, volumes, config)));
    files.push(text(HOST_FILE, host_cfg(&config.os.host_words(architecture))));
    files.extend(config.os.boot_password.as_ref().map(|password| PlannedFile {
        path: boot::PASSWORD.into(),
        content: PlannedContent::Secret(Secret::new(password.grub_command())),
    }));
    let record = BootRecord::installed().to_block();
    files.push(text("grub/grubenv", String::from_utf8_lossy(&record).into_owned()));
    files
}
