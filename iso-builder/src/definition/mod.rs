//! The image definition: what the builder makes media from. Paths are relative to the definition's file.
//!
//! A definition may build on others: [`chain`] reads all of their texts, and [`extend`] makes one document of them, which
//! [`show`] prints. It is read as install configurations are: [`read`] compares the document with the [`shape`] of the types
//! here and the [`formats`] of its texts, and [`rules`] check how values fit together. Of a definition with [`variants`] each is a
//! document of its own, and [`choice`] says which of them a command is about. [`spellings`] are forms that definitions
//! may have and configurations may not; [`dialect`] has the words of other builders.

mod architectures;
mod chain;
mod choice;
mod dialect;
mod extend;
mod firmware;
mod formats;
mod outputs;
mod profile;
mod read;
mod restriction;
mod rules;
mod shape;
mod show;
mod spellings;
#[cfg(test)]
mod tests;
mod variants;

use std::path::PathBuf;

use model::architecture::Architecture;
use model::config::registries::Registries;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::extensions::{ExtensionSpec, tools};
use crate::images::{Images, Runtime};
use crate::kubernetes::Kubernetes;
use crate::packages::{PackageList, plain_name};
use crate::signing::spec::TrustSpec;
use crate::workloads::spec::{ChartSpec, ManifestSpec};

pub use chain::ExtendedDefinition;
pub use choice::ImageChoice;
pub use firmware::FirmwareChoice;
pub use outputs::{DiskSpec, OutputKind};
pub use profile::Profile;
#[cfg(test)]
pub(crate) use read::mistakes_of_form;
pub use read::{LoadedDefinition, show};
pub use shape::published_schema;
pub use show::{ShownDefinition, ShownExtension};

/// The whole definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Short name of the product, the first part of every output's name: lower-case letters, digits, `-`.
    pub id: String,
    /// The product's name for people, shown in menus.
    pub name: String,
    /// The product's version: letters, digits, `.`, `-`, `+`, `~`.
    pub version: String,
    /// Debian's name of the architecture.
    #[serde(default)]
    pub architecture: Architecture,
    /// Several architectures, in place of `architecture`: a build makes the outputs of each, in a directory with its name, and each
    /// has a lock file of its own, `DEFINITION.ARCHITECTURE.lock`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub architectures: Vec<Architecture>,
    /// How hard to compress.
    #[serde(default)]
    pub profile: Profile,
    /// The time of all files of the media, in seconds since 1970. Without this key that of the newest package or file of the base, so that
    /// the same inputs give the same bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Where Debian packages come from, for the base and for container images made of packages.
    #[serde(default)]
    pub packages: PackageSource,
    /// What the OS image is made from.
    pub base: Base,
    /// Directories laid over the OS image and over the tree that the initrd is made from.
    #[serde(default)]
    pub overlays: Overlays,
    /// The kernel of live and installed boots.
    #[serde(default)]
    pub kernel: Kernel,
    /// Kernel modules that the kernel of the base lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<ExtensionSpec>,
    /// How registries of container images are asked during the build, in the form of `registries.yaml` of RKE2 and K3s.
    /// Paths are relative to the definition.
    #[serde(default, skip_serializing_if = "Registries::is_empty")]
    pub registries: Registries,
    /// Container images.
    #[serde(default)]
    pub images: Images,
    /// The Kubernetes distribution that the OS image brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// Kubernetes manifests that the first server of a cluster applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<ManifestSpec>,
    /// Helm charts that the first server of a cluster installs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<ChartSpec>,
    /// An install configuration to embed in the media. With `install.automatic: true` the media install
    /// without a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_config: Option<PathBuf>,
    /// A part of an install configuration that every install of this image begins with. Every other source of
    /// a configuration is stronger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_defaults: Option<PathBuf>,
    /// Whose releases the nodes take.
    #[serde(default, skip_serializing_if = "TrustSpec::is_default")]
    pub trust: TrustSpec,
    /// The outputs of a build. Disks are only made where they are named here, or by `--only`.
    #[serde(default = "outputs::media")]
    pub outputs: Vec<OutputKind>,
    /// The disk of `disk-raw` and `disk-qcow2`.
    #[serde(default)]
    pub disk: DiskSpec,
}

impl Definition {
    /// The definition for one architecture: without the packages of others and the restrictions of those that stay, and with its name
    /// where the definition leaves a place for it.
    fn for_architecture(mut self, architecture: Architecture) -> Self {
        self.architecture = architecture;
        if let Some(kubernetes) = &mut self.kubernetes {
            kubernetes.artifacts =
                kubernetes.artifacts.take().map(|place| place.for_architecture(architecture));
        }
        if let Base::Debian(base) = &mut self.base {
            base.include.retain(|package| restriction::counts_for(package, architecture));
            for package in &mut base.include {
                package.truncate(restriction::name(package).len());
            }
        }
        self
    }

    /// The architecture by which outputs and lock file are told from those of others of the same definition; none where the definition
    /// has the key `architecture`, or neither.
    #[must_use]
    pub fn own_architecture(&self) -> Option<Architecture> {
        (!self.architectures.is_empty()).then_some(self.architecture)
    }

    /// The packages of its firmware, if its base is made of Debian packages.
    #[must_use]
    pub fn firmware_packages(&self) -> Vec<String> {
        match &self.base {
            Base::Debian(base) => {
                let named: Vec<_> = base.include.iter().map(|name| plain_name(name)).collect();
                let mut packages = base.firmware.packages(&self.packages.suite, self.architecture);
                // The list may name another version of one.
                packages.retain(|package| !named.contains(&plain_name(package)));
                packages
            }
            _ => Vec::new(),
        }
    }

    /// The packages that a base of Debian packages names: those of its list, and its firmware.
    #[must_use]
    pub fn base_packages(&self) -> Vec<String> {
        match &self.base {
            Base::Debian(base) => base.include.iter().cloned().chain(self.firmware_packages()).collect(),
            _ => Vec::new(),
        }
    }

    /// What a base of Debian packages asks for.
    #[must_use]
    pub fn base_list(&self) -> Option<PackageList> {
        let is_debian = matches!(self.base, Base::Debian(_));
        is_debian.then(|| PackageList { essential: true, include: self.base_packages() })
    }

    /// The files of packages, and the files and directories of extensions with the certificate that their modules are signed for.
    pub fn local_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let extensions = self.extensions.iter().filter_map(ExtensionSpec::path);
        self.packages.files.iter().chain(extensions).chain(&self.kernel.module_certificate)
    }

    /// The packages of the tree in which modules of extensions are built and signed; none where nothing is.
    #[must_use]
    pub fn module_tools(&self) -> Option<PackageList> {
        let base = match &self.base {
            Base::Debian(base) => &base.include[..],
            _ => &[],
        };
        tools::packages(&self.extensions, base, self.kernel.module_certificate.is_some())
    }

    /// Whose containerd runs on the nodes: that of the Kubernetes distribution which the OS image brings, or else what
    /// `images.runtime` says.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        match &self.kubernetes {
            Some(kubernetes) => kubernetes.distribution.into(),
            None => self.images.runtime.unwrap_or_default(),
        }
    }
}

/// Where Debian packages come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PackageSource {
    /// Debian's name of the release.
    pub suite: String,
    /// Lines as in sources.list(5), with http:// or https:// URLs. Empty means the mirrors that the host itself uses for this release, or
    /// else the default of `mmdebstrap`.
    pub mirrors: Vec<String>,
    /// Files of Debian packages (`.deb`). They are to be had as from one more mirror, and count before those of others: a list names
    /// the package, such as `base.debian.include`, and what it depends on follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
}

impl Default for PackageSource {
    fn default() -> Self {
        Self { suite: "trixie".into(), mirrors: Vec::new(), files: Vec::new() }
    }
}

/// What the OS image is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Debian packages, put together by `mmdebstrap`.
    Debian(DebianBase),
    /// An image in an OCI layout directory, or in an archive of one.
    Oci(OciBase),
    /// A tar archive of a root file system, with any compression that `tar` knows.
    Archive(PathBase),
    /// A directory that holds a root file system.
    Directory(PathBase),
}

/// A base made of Debian packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DebianBase {
    /// Packages to install besides the essential ones; what they depend on follows, what they recommend
    /// does not. `NAME [amd64]` counts for this architecture only, `NAME [!amd64]` for all others.
    pub include: Vec<String>,
    /// The firmware of drivers and processors: `servers` (network cards, storage controllers, microcode), `all` (Wi-Fi, graphics and
    /// sound too), `none`, or a list of these and of packages. It comes from `non-free-firmware` of the mirrors of the suite, which
    /// need not name that component.
    #[serde(default)]
    pub firmware: FirmwareChoice,
}

/// A base taken from an OCI image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OciBase {
    /// The layout: a directory, or a tar archive of one.
    pub path: PathBuf,
    /// Which image of the layout, by its `org.opencontainers.image.ref.name`; needed when there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A base taken from a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathBase {
    /// The archive or directory.
    pub path: PathBuf,
}

/// Directories laid over the base, later ones over earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Overlays {
    /// Over the OS image.
    pub rootfs: Vec<PathBuf>,
    /// Over the tree in which dracut makes the initrd: dracut modules and configuration.
    pub initrd: Vec<PathBuf>,
}

/// The kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kernel {
    /// Arguments added to every boot, live and installed.
    pub arguments: Vec<String>,
    /// The certificate (X.509, PEM or DER) of the key that signs the modules of `extensions`, for machines with Secure Boot. The OS
    /// image has it, so that a machine can enroll it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_certificate: Option<PathBuf>,
}
