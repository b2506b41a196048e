//! Hints for authors of image definitions, which have one form for everything.

use document::dialect::Dialect;

use super::shape::shape;

/// Keys of other builders, and other names of keys, with the place of the same in a definition.
const MEANT: &[(&str, &str)] = &[
    ("arch", "architecture"),
    ("platform", "architecture"),
    ("archs", "architectures"),
    ("arches", "architectures"),
    ("platforms", "architectures"),
    ("from", "extends"),
    ("parent", "extends"),
    ("inherits", "extends"),
    ("kernel_parameters", "kernel.arguments"),
    ("kernel_arguments", "kernel.arguments"),
    ("kernel_args", "kernel.arguments"),
    ("cmdline", "kernel.arguments"),
    ("packages", "base.debian.include"),
    ("package_list", "base.debian.include"),
    ("distro", "packages.suite"),
    ("release", "packages.suite"),
    ("repositories", "packages.mirrors"),
    ("sources", "packages.mirrors"),
    ("container_images", "images.preload"),
    ("overlay", "overlays.rootfs"),
    ("files", "overlays.rootfs"),
    ("formats", "outputs"),
    ("output", "outputs"),
    ("config", "install_config"),
    ("root_size", "disk.size"),
    ("disk_size", "disk.size"),
    ("helm", "charts"),
];

/// Words of other programs, each with the word for it here.
const SYNONYMS: &[(&str, &str)] = &[
    ("iso", "full"),
    ("raw", "disk-raw"),
    ("qcow", "disk-qcow2"),
    ("qcow2", "disk-qcow2"),
    ("pxe", "netboot"),
    ("kubernetes", "kubeadm"),
    ("k8s", "kubeadm"),
    ("x86_64", "amd64"),
    ("x86-64", "amd64"),
    ("aarch64", "arm64"),
];

/// The reader's rules for an image definition.
#[derive(Debug)]
pub(super) struct DefinitionDialect;

impl Dialect for DefinitionDialect {
    fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
        SYNONYMS
    }

    fn place(&self, name: &str) -> Option<String> {
        let named = MEANT.iter().find(|(other, _)| *other == name).map(|(_, place)| (*place).to_owned());
        named.or_else(|| shape().places(name).into_iter().next())
    }
}
