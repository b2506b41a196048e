//! Requests of the builder to itself in the sandbox. Written as JSON to a file that the child reads, see `sandbox`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::repository::PackageRepository;
use crate::images::containerd_version::NodeContainerd;
use crate::packages::PackageList;
use model::architecture::Architecture;
use model::kubernetes::{KubernetesVersion, UpstreamImages};

/// One piece of work in the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepRequest {
    pub work: StepWork,
    /// The architecture of the machines that the outputs are for.
    pub architecture: Architecture,
    /// The directory for outputs; exists and is empty.
    pub out: PathBuf,
    /// The directory for unpacked trees; exists.
    pub scratch: PathBuf,
    /// The time stamp of all files that are made, in seconds since 1970.
    pub epoch: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// Asks apt which packages, in which versions, satisfy each list; writes `resolved.json`.
    Resolve {
        /// Debian's name of the release, such as `trixie`.
        suite: String,
        /// As for `mmdebstrap`.
        mirrors: Vec<String>,
        wanted: Vec<PackageList>,
        /// The packages of firmware among them; with any, the mirrors of the suite gain the component that has them.
        firmware: Vec<String>,
        /// Packages in files, beside those of the mirrors.
        files: PackageRepository,
    },
    /// Puts a root file system together from a local repository; writes `base.tar`.
    Bootstrap {
        /// Debian's name of the release.
        suite: String,
        repository: PackageRepository,
        include: Vec<String>,
    },
    /// Extracts packages without installing them; writes `layer.tar`.
    Extract {
        /// Debian's name of the release.
        suite: String,
        repository: PackageRepository,
        /// Packages to extract, with their dependencies.
        include: Vec<String>,
    },
    /// Puts the tree together in which modules are built and signed; writes `tools.tar`.
    ModuleTools {
        /// Debian's name of the release.
        suite: String,
        repository: PackageRepository,
        include: Vec<String>,
    },
    /// Makes the modules of an extension; writes [`super::EXTENSION_OUTPUT`] and what is laid over the OS image and the initrd.
    Extension(Box<ExtensionSource>),
    /// Makes `base.tar` from a source other than Debian packages, and writes the time of its files to [`super::EPOCH_OUTPUT`]: `epoch` in
    /// seconds since 1970, or else that of the newest file of the source.
    Import { source: BaseSource, epoch: Option<u64> },
    /// Writes digest and time of a directory that is a base to [`super::SURVEY_OUTPUT`].
    Survey(PathBuf),
    /// Makes `vmlinuz`, `initrd`, `kernel-release` and `loaders/` from `base.tar`.
    Kernel {
        /// The path of `base.tar`.
        base: PathBuf,
        /// Directories laid over the tree before dracut runs.
        overlays: Vec<PathBuf>,
    },
    /// Lays out the files of the Kubernetes distribution for the OS image, in [`super::OVERLAY_OUTPUT`].
    Distribution(Box<DistributionSource>),
    /// Asks this kubeadm for the images of its release; writes [`super::IMAGE_NAMES_OUTPUT`].
    ImageNames(PathBuf, KubernetesVersion),
    /// Makes `rootfs.squashfs` from `base.tar`.
    Rootfs(RootfsSource),
    /// Makes containerd's metadata for an image store, with the base's own containerd.
    Metadata(MetadataSource),
}

/// Where a base comes from. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BaseSource {
    /// An OCI layout (directory or tar archive), and the name of its image.
    Oci(PathBuf, Option<String>),
    Archive(PathBuf),
    Directory(PathBuf),
}

impl BaseSource {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Oci(path, _) | Self::Archive(path) | Self::Directory(path) => path,
        }
    }
}

/// An extension, and what its modules are built with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExtensionSource {
    /// The name of the extension, that of a file.
    pub name: String,
    pub files: ModuleFiles,
    /// The release of the kernel of the base, as `uname -r` prints it.
    pub kernel: String,
    /// The path of `tools.tar`; none where nothing is compiled or signed.
    pub tools: Option<PathBuf>,
    /// True if the initrd gets the modules too.
    pub initrd: bool,
    /// The modules that are loaded at every start.
    pub load: Vec<String>,
    pub signer: Option<ModuleSigner>,
    /// The file for the output of a compiler that fails.
    pub log: PathBuf,
}

/// Where the modules come from. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleFiles {
    /// The name of a package in the tools.
    Dkms(String),
    /// A directory of sources.
    Directory(PathBuf),
    /// A module, or a directory of modules.
    Ready(PathBuf),
}

/// The files of the key that signs modules. Paths are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModuleSigner {
    pub key: PathBuf,
    pub certificate: PathBuf,
}

/// The files of a Kubernetes distribution's release.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DistributionSource {
    pub version: KubernetesVersion,
    /// RKE2's archive of an installation, K3s's executable, or the programs of upstream Kubernetes.
    pub programs: Vec<PathBuf>,
    /// The layers of RKE2's runtime image, lowest first.
    pub runtime: Vec<PathBuf>,
    /// The images of upstream Kubernetes that nodes ask for by name.
    pub images: Option<UpstreamImages>,
}

/// The contents of the OS image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RootfsSource {
    /// The path of `base.tar`.
    pub base: PathBuf,
    /// Directories laid over it, in this order.
    pub overlays: Vec<PathBuf>,
    /// The installer, a static executable.
    pub installer: PathBuf,
    pub identity: ProductIdentity,
    /// Of zstd.
    pub level: u32,
    /// An OS image that was made in the same way: what both have is not compressed again.
    pub earlier: Option<PathBuf>,
}

/// The product in `/etc/os-release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProductIdentity {
    pub id: String,
    pub name: String,
    pub version: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetadataSource {
    /// The base, a tar archive.
    pub base: PathBuf,
    /// The outputs of the image store: `store/` and `images.json`.
    pub store: PathBuf,
    pub node: NodeContainerd,
}
