//! The steps of an install, and what each of them is told.

use serde::Serialize;

use super::layout::PartitionName;
use base::digest::Digest;
use model::config::Secret;
use model::config::diagnostic::HIDDEN;
use model::release::Payload;

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
