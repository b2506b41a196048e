//! What the builder asks of itself in the sandbox. Written as JSON to a file that the child reads, see `sandbox`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repository::PackageRepository;
use crate::images::containerd_version::NodeContainerd;
use crate::kubernetes::Version;
use crate::packages::PackageList;

/// One piece of work in the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRequest {
    /// What to do.
    pub work: StepWork,
    /// Where outputs go; exists and is empty.
    pub out: PathBuf,
    /// Where trees may be unpacked; exists.
    pub scratch: PathBuf,
    /// The time stamp of everything made.
    pub epoch: u64,
}

/// The kinds of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// Asks apt which packages, in which versions, satisfy each list; writes `resolved.json`.
    Resolve {
        /// Debian's name of the release.
        suite: String,
        /// Mirrors, as for `mmdebstrap`.
        mirrors: Vec<String>,
        /// The lists.
        wanted: Vec<PackageList>,
    },
    /// Puts a root file system together from a local repository; writes `base.tar`.
    Bootstrap {
        /// Debian's name of the release.
        suite: String,
        /// The packages: files named as in their repository, with their digests' files to link to.
        repository: PackageRepository,
        /// Packages to include.
        include: Vec<String>,
    },
    /// Extracts packages without installing them; writes `layer.tar`.
    Extract {
        /// Debian's name of the release.
        suite: String,
        /// The packages.
        repository: PackageRepository,
        /// Packages to extract, with what they depend on.
        include: Vec<String>,
    },
    /// Makes `base.tar` from another source than Debian packages.
    Import(BaseSource),
    /// Writes the digest of a directory that a base is made from, to [`super::SURVEY`].
    Survey(PathBuf),
    /// Makes `vmlinuz`, `initrd`, `kernel-release` and `loaders/` from `base.tar`.
    Kernel {
        /// The base.
        base: PathBuf,
        /// Directories laid over the tree before dracut runs.
        overlays: Vec<PathBuf>,
    },
    /// Lays out what a release of the Kubernetes distribution brings to the OS image, to [`super::OVERLAY`].
    Distribution(DistributionSource),
    /// Makes `rootfs.squashfs` from `base.tar`.
    Rootfs(RootfsSource),
    /// Makes containerd's metadata for an image store, with the base's own containerd.
    Metadata(MetadataSource),
}

/// Where a base comes from. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseSource {
    /// An OCI layout (directory or tar archive), and which of its images.
    Oci(PathBuf, Option<String>),
    /// A tar archive.
    Archive(PathBuf),
    /// A directory.
    Directory(PathBuf),
}

impl BaseSource {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Oci(path, _) | Self::Archive(path) | Self::Directory(path) => path,
        }
    }
}

/// A release.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DistributionSource {
    /// Which.
    pub version: Version,
    /// RKE2's archive of an installation, or K3s's executable.
    pub program: PathBuf,
    /// The layers of RKE2's runtime image, lowest first.
    pub runtime: Vec<PathBuf>,
}

/// What goes into the OS image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RootfsSource {
    /// The base.
    pub base: PathBuf,
    /// Directories laid over it.
    pub overlays: Vec<PathBuf>,
    /// The installer, a static executable.
    pub installer: PathBuf,
    /// Who this is.
    pub identity: ProductIdentity,
    /// Compression level of zstd.
    pub level: u32,
}

/// The product in `/etc/os-release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductIdentity {
    /// Short name.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Version.
    pub version: String,
}

/// From what the metadata is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetadataSource {
    /// The base, a tar archive.
    pub base: PathBuf,
    /// The outputs of the image store: `store/` and `images.json`.
    pub store: PathBuf,
    /// The architecture as Go calls it.
    pub architecture: String,
    /// Who reads it.
    pub node: NodeContainerd,
}
