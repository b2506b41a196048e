//! The steps of an install.

use serde::Serialize;

use super::labels;
use super::layout::PartitionName;
use base::digest::Digest;
use model::config::Secret;
use model::config::diagnostic::HIDDEN;
use model::release::{ExpandedImage, Payload};

/// One step. Its name in JSON is the id of its progress events.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Step {
    /// Hash every payload that the medium holds, ask the server for the others.
    VerifyMedium {
        payloads: Vec<Payload>,
    },
    /// Erase the signatures on other disks.
    WipeDisks,
    /// Make the disk unbootable, and its new partitions empty.
    Wipe,
    Partition,
    /// Write the partition table and the file system of the disk for data.
    DataDisk {
        filesystem: Filesystem,
    },
    /// Write the EFI system partition, with its first sector held back.
    Esp(FatContent),
    /// Write a slot and read it back: the OS image in its expanded form, its hash tree, and the boot volume.
    Slot {
        partition: PartitionName,
        image: Payload,
        expanded: ExpandedImage,
        boot: FatContent,
    },
    /// Join the partitions of two disks into arrays.
    Mirror,
    Filesystems {
        filesystems: Vec<Filesystem>,
    },
    /// Put the container images into containerd's store.
    Images {
        blobs: Vec<Payload>,
        metadata: Option<Payload>,
    },
    /// Unpack images of that store into snapshots by containerd.
    Unpack {
        images: Vec<UnpackedImage>,
    },
    /// Write the node document, the log, and the files of the release that only installs need.
    Node,
    /// Write GRUB for BIOS.
    BootCode {
        boot: Payload,
        core: Payload,
    },
    /// Check everything again.
    Prove,
    /// Write the sector that makes the disk bootable.
    Commit,
}

impl Step {
    /// The stable id of the step, which is also that of its progress events.
    #[must_use]
    pub fn id(&self) -> &'static str {
        match self {
            Self::VerifyMedium { .. } => "verify-medium",
            Self::WipeDisks => "wipe-disks",
            Self::Wipe => "wipe",
            Self::Partition => "partition",
            Self::DataDisk { .. } => "data-disk",
            Self::Esp(_) => "esp",
            Self::Slot { partition: PartitionName::Recovery, .. } => "recovery",
            Self::Slot { .. } => "image",
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

#[derive(Clone, Debug, Serialize)]
pub struct FatContent {
    pub volume_id: u32,
    /// The time of every file, in seconds since 1970.
    pub epoch: u64,
    pub files: Vec<PlannedFile>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedFile {
    /// From the root of the volume, without a leading slash.
    pub path: String,
    pub content: PlannedContent,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlannedContent {
    /// From the medium.
    Payload(Payload),
    Text(String),
    /// Rendered by the plan, and not printed with it.
    #[serde(serialize_with = "hidden")]
    Secret(Secret),
}

fn hidden<S: serde::Serializer>(_: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(HIDDEN)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnpackedImage {
    pub name: String,
    /// Of its manifest or index.
    pub digest: Digest,
}

/// A file system that an install makes, and a reset makes anew.
#[derive(Clone, Debug, Serialize)]
pub struct Filesystem {
    pub partition: PartitionName,
    pub label: &'static str,
}

impl Filesystem {
    /// That of a partition; none where there is something else.
    #[must_use]
    pub fn of(partition: PartitionName) -> Option<Self> {
        let label = match partition {
            PartitionName::Config => labels::CONFIG,
            PartitionName::Persistent => labels::PERSISTENT,
            PartitionName::Data => labels::DATA,
            _ => return None,
        };
        Some(Self { partition, label })
    }
}
