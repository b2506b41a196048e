//! The files that every base needs: a table of files, each with the package of Debian that has it.
//!
//! What is missing is reported as a whole. Three things are compared with the table: the packages that a definition names, the
//! packages that its lock file has, and the files of a base. Files of the definition's overlays count in each case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::failure::{Class, Failure};
use model::architecture::Architecture;
use model::config::Distribution;

use crate::definition::Definition;
use crate::kubernetes::system::NEEDED_FILES;

/// The directories of programs, for systems with and without a merged /usr.
const PROGRAM_DIRECTORIES: [&str; 6] =
    ["usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/sbin"];

/// One requirement of a base.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    /// The files, all of which are needed.
    files: &'static [NeededFile],
    /// Packages of Debian that have them, the usual one first. A `*` at the end stands for any rest.
    packages: &'static [&'static str],
    /// Packages that depend on one of `packages`, so that a definition need not name it; `*` where every base of Debian has one.
    dependents: &'static [&'static str],
    condition: Condition,
}

#[derive(Clone, Copy, Debug)]
enum NeededFile {
    /// In one of the directories of programs.
    Program(&'static str),
    /// One of these paths.
    OneOf(&'static [&'static str]),
    /// A path that has this beginning and this end.
    Between(&'static str, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    /// For images of this architecture.
    On(Architecture),
    /// Where container images are on the media, whose metadata the base's own containerd writes.
    Images,
    /// Where containerd of the base runs the node's containers.
    Containers,
}

use Architecture::{Amd64, Arm64};
use Condition::{Always, Containers, Images, On};
use NeededFile::{Between, OneOf, Program};

const fn need(
    condition: Condition,
    files: &'static [NeededFile],
    packages: &'static [&'static str],
    dependents: &'static [&'static str],
) -> Requirement {
    Requirement { files, packages, dependents, condition }
}

const KERNEL: &[NeededFile] =
    &[Between("boot/vmlinuz-", ""), Between("usr/lib/modules/", "/modules.builtin")];

/// Beside the programs, these are the files that `boot::loaders` takes from the base and that dracut needs for our initrd.
const REQUIREMENTS: &[Requirement] = &[
    need(On(Amd64), KERNEL, &["linux-image-amd64", "linux-image-*"], &[]),
    need(On(Arm64), KERNEL, &["linux-image-arm64", "linux-image-*"], &[]),
    need(Always, &[Program("dracut")], &["dracut"], &["dracut-live", "dracut-network"]),
    need(
        Always,
        &[Between("usr/lib/dracut/modules.d/", "dmsquash-live/module-setup.sh")],
        &["dracut-live"],
        &[],
    ),
    need(
        Always,
        &[Between("usr/lib/dracut/modules.d/", "livenet/module-setup.sh")],
        &["dracut-network", "dracut-live"],
        &[],
    ),
    need(Always, &[Program("curl")], &["curl"], &[]),
    need(
        Always,
        &[OneOf(&["usr/lib/systemd/systemd", "lib/systemd/systemd"])],
        &["systemd"],
        &["systemd-sysv"],
    ),
    need(Always, &[Program("init")], &["systemd-sysv"], &[]),
    need(Always, &[Program("udevadm")], &["udev"], &["dracut", "dracut-live", "dracut-network"]),
    need(
        Always,
        &[OneOf(&["usr/bin/dbus-daemon", "usr/bin/dbus-broker-launch"])],
        &["dbus", "dbus-daemon", "dbus-broker"],
        &["network-manager", "libpam-systemd"],
    ),
    need(Always, &[Program("dmsetup")], &["dmsetup"], &["dracut", "dracut-live", "dracut-network"]),
    need(Always, &[Program("modprobe"), Program("depmod")], &["kmod"], &["linux-image-*", "dracut"]),
    need(Always, &[Program("login")], &["login"], &[]),
    need(Always, &[Program("chpasswd")], &["passwd"], &["openssh-server", "adduser"]),
    need(Always, &[Program("partx"), Program("agetty")], &["util-linux"], &["*"]),
    need(Always, &[Program("mount"), Program("losetup")], &["mount"], &["systemd"]),
    need(Always, &[Program("mkfs.ext4"), Program("e2fsck"), Program("resize2fs")], &["e2fsprogs"], &["*"]),
    need(Always, &[Program("mdadm")], &["mdadm"], &[]),
    need(
        On(Amd64),
        &[OneOf(&["usr/lib/shim/shimx64.efi.signed", "usr/lib/shim/shimx64.efi.signed.latest"])],
        &["shim-signed"],
        &[],
    ),
    need(
        On(Amd64),
        &[OneOf(&["usr/lib/shim/mmx64.efi.signed", "usr/lib/shim/mmx64.efi"])],
        &["shim-helpers-amd64-signed"],
        &["shim-signed"],
    ),
    need(
        On(Amd64),
        &[OneOf(&["usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"])],
        &["grub-efi-amd64-signed"],
        &["grub-efi-amd64"],
    ),
    need(
        On(Amd64),
        &[OneOf(&["usr/lib/grub/i386-pc/boot.img"]), OneOf(&["usr/lib/grub/i386-pc/boot_hybrid.img"])],
        &["grub-pc-bin"],
        &["grub-pc"],
    ),
    need(
        On(Amd64),
        &[Program("grub-mkimage")],
        &["grub-common"],
        &["grub-pc-bin", "grub-pc", "grub-efi-amd64-signed"],
    ),
    need(
        On(Arm64),
        &[OneOf(&["usr/lib/shim/shimaa64.efi.signed", "usr/lib/shim/shimaa64.efi.signed.latest"])],
        &["shim-signed"],
        &[],
    ),
    need(
        On(Arm64),
        &[OneOf(&["usr/lib/shim/mmaa64.efi.signed", "usr/lib/shim/mmaa64.efi"])],
        &["shim-helpers-arm64-signed"],
        &["shim-signed"],
    ),
    need(
        On(Arm64),
        &[OneOf(&["usr/lib/grub/arm64-efi-signed/grubaa64.efi.signed"])],
        &["grub-efi-arm64-signed"],
        &["grub-efi-arm64"],
    ),
    need(Always, &[Program("nmcli")], &["network-manager"], &[]),
    need(Always, &[Program("ip")], &["iproute2"], &["ifupdown"]),
    need(Always, &[Program("sshd")], &["openssh-server"], &["ssh"]),
    need(Always, &[Program("ssh-keygen")], &["openssh-client"], &["openssh-server", "ssh"]),
    need(Images, &[Program("containerd"), Program("ctr")], &["containerd", "containerd.io"], &["docker.io"]),
    need(Containers, &[Program("runc")], &["runc", "containerd.io"], &["containerd", "docker.io"]),
];

/// The packages and files of a base, compared with what a definition needs.
#[derive(Debug)]
pub struct BaseContents<'a> {
    pub definition: &'a Definition,
    /// The paths of the definition's overlays, relative to their roots.
    pub overlays: &'a BTreeSet<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingPackage {
    package: &'static str,
    file: String,
}

/// Everything that a base lacks.
#[derive(Debug)]
pub struct MissingParts(BTreeSet<MissingPackage>);

impl BaseContents<'_> {
    /// The missing parts of a base that has only the packages of these names.
    #[must_use]
    pub fn lacks_packages(&self, names: &BTreeSet<&str>) -> MissingParts {
        self.missing(&|need| any_fits(need.packages, names), &|package| names.contains(package))
    }

    /// The packages that a list does not name, and that no package of the list is known to depend on.
    #[must_use]
    pub fn lacks_names(&self, include: &[String]) -> MissingParts {
        let names: BTreeSet<_> =
            include.iter().map(|name| name.split(['=', '/', ':']).next().unwrap_or(name)).collect();
        self.missing(
            &|need| any_fits(need.packages, &names) || any_fits(need.dependents, &names),
            &|package| names.contains(package),
        )
    }

    /// The missing parts of a base with these files, by their paths relative to its root.
    #[must_use]
    pub fn lacks_files(&self, paths: &BTreeSet<PathBuf>) -> MissingParts {
        let is_there = |file: &NeededFile| file.is_in(paths) || file.is_in(self.overlays);
        let mut missing = self.missing(&|need| need.files.iter().all(is_there), &|_| false);
        // The package of a program may be present without a file that Kubernetes calls.
        for (file, package) in self.of_kubernetes() {
            if needed_file(file, paths) || needed_file(file, self.overlays) {
                missing.0.retain(|known| known.file != file);
            } else {
                missing.0.insert(MissingPackage { package, file: file.to_owned() });
            }
        }
        let is_configuration =
            |path: &PathBuf| path.to_str().is_some_and(|path| path.starts_with("boot/config-"));
        if self.runs_kubeadm() && !paths.iter().any(is_configuration) {
            let package = match self.definition.architecture {
                Amd64 => "linux-image-amd64",
                Arm64 => "linux-image-arm64",
            };
            missing.0.insert(MissingPackage { package, file: "boot/config-RELEASE".into() });
        }
        missing
    }

    fn missing(
        &self,
        is_there: &dyn Fn(&Requirement) -> bool,
        is_named: &dyn Fn(&str) -> bool,
    ) -> MissingParts {
        let mut missing = BTreeSet::new();
        for need in REQUIREMENTS.iter().filter(|need| self.applies(need.condition)) {
            let gone = || need.files.iter().filter(|file| !file.is_in(self.overlays));
            if !is_there(need) && gone().next().is_some() {
                let package = need.packages[0];
                missing.extend(gone().map(|file| MissingPackage { package, file: file.shown() }));
            }
        }
        let of_kubernetes = self.of_kubernetes().filter(|(file, package)| {
            let known = REQUIREMENTS.iter().find(|need| need.packages.contains(package));
            !is_named(package)
                && known.is_none_or(|need| !is_there(need))
                && !needed_file(file, self.overlays)
        });
        missing
            .extend(of_kubernetes.map(|(file, package)| MissingPackage { package, file: file.to_owned() }));
        MissingParts(missing)
    }

    fn applies(&self, condition: Condition) -> bool {
        let Definition { images, kubernetes, manifests, charts, .. } = self.definition;
        let of_base = kubernetes.as_ref().is_none_or(|spec| spec.distribution == Distribution::Kubeadm);
        match condition {
            Always => true,
            On(architecture) => self.definition.architecture == architecture,
            Images => {
                !images.preload.is_empty()
                    || kubernetes.is_some()
                    || !manifests.is_empty()
                    || !charts.is_empty()
            }
            Containers => of_base && self.applies(Images),
        }
    }

    fn runs_kubeadm(&self) -> bool {
        let kubernetes = self.definition.kubernetes.as_ref();
        kubernetes.is_some_and(|spec| spec.distribution == Distribution::Kubeadm)
    }

    /// The files that nodes of kubeadm start, each with its package. Releases of RKE2 and K3s bring theirs.
    fn of_kubernetes(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        NEEDED_FILES.into_iter().filter(|_| self.runs_kubeadm())
    }
}

impl NeededFile {
    fn is_in(&self, paths: &BTreeSet<PathBuf>) -> bool {
        match self {
            Program(name) => needed_file(name, paths),
            OneOf(places) => places.iter().any(|place| paths.contains(Path::new(place))),
            Between(start, end) => paths
                .iter()
                .filter_map(|path| path.to_str())
                .any(|path| path.len() > start.len() && path.starts_with(start) && path.ends_with(end)),
        }
    }

    fn shown(&self) -> String {
        match self {
            Program(name) => (*name).to_owned(),
            OneOf(places) => places[0].to_owned(),
            Between(start, end) => format!("{start}*{end}"),
        }
    }
}

/// True if a file is there: a path, or a name in a directory of programs.
fn needed_file(file: &str, paths: &BTreeSet<PathBuf>) -> bool {
    if file.contains('/') {
        return paths.contains(Path::new(file));
    }
    PROGRAM_DIRECTORIES.iter().any(|directory| paths.contains(&Path::new(directory).join(file)))
}

fn any_fits(patterns: &[&str], names: &BTreeSet<&str>) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => names.iter().any(|name| name.starts_with(start)),
        None => names.contains(pattern),
    })
}

impl MissingParts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packages of Debian that have what is missing.
    #[must_use]
    pub fn packages(&self) -> Vec<&'static str> {
        let packages: BTreeSet<_> = self.0.iter().map(|missing| missing.package).collect();
        packages.into_iter().collect()
    }

    /// # Errors
    /// [`Class::Invalid`] with everything that is missing, unless nothing is. `lacking` says what lacks it, such as `the base
    /// lacks`.
    pub fn refuse(&self, lacking: &str) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let files = self.0.iter().map(|missing| missing.file.as_str()).collect::<Vec<_>>().join(", ");
        Err(Failure::new(Class::Invalid, format!("{lacking} what a node needs"))
            .because(anyhow!("it has no {files}"))
            .hint(format!("Add these packages of Debian to the base: {}", self.packages().join(", ")))
            .into())
    }
}

/// The files of a base that has everything, by their paths relative to its root.
#[cfg(test)]
pub(crate) fn whole_base(definition: &Definition) -> BTreeSet<PathBuf> {
    let none = BTreeSet::new();
    let contents = BaseContents { definition, overlays: &none };
    let mut paths: BTreeSet<PathBuf> = ["boot/config-6.12.1-amd64".into()].into();
    let needs = REQUIREMENTS.iter().filter(|need| match need.condition {
        On(architecture) => architecture == definition.architecture,
        _ => true,
    });
    for (index, file) in needs.flat_map(|need| need.files).enumerate() {
        paths.insert(match file {
            Program(name) => Path::new(PROGRAM_DIRECTORIES[index % PROGRAM_DIRECTORIES.len()]).join(name),
            OneOf(places) => places[places.len() - 1].into(),
            Between(start, end) => format!("{start}6.12.1-amd64{end}").into(),
        });
    }
    let of_kubernetes = contents.of_kubernetes().map(|(file, _)| match file.contains('/') {
        true => PathBuf::from(file),
        false => Path::new("usr/sbin").join(file),
    });
    paths.extend(of_kubernetes);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(further: &str) -> Definition {
        let text =
            format!("{{id: a, name: A, version: '1', base: {{debian: {{include: [dash]}}}}{further}}}");
        serde_saphyr::from_str(&text).unwrap()
    }

    const KUBEADM: &str = ", kubernetes: {distribution: kubeadm, version: v1.37.2}";

    fn without(paths: &BTreeSet<PathBuf>, gone: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().filter(|path| !gone.iter().any(|name| path.ends_with(name))).cloned().collect()
    }

    #[test]
    fn a_base_has_all_programs_wherever_they_are_and_everything_it_lacks_is_named_with_its_package() {
        let (definition, overlays) = (definition(KUBEADM), BTreeSet::new());
        let contents = BaseContents { definition: &definition, overlays: &overlays };
        let whole = whole_base(&definition);
        contents.lacks_files(&whole).refuse("the base lacks").unwrap();
        let told = |gone: &[&str]| {
            base::failure::render(
                &contents.lacks_files(&without(&whole, gone)).refuse("the base lacks").unwrap_err(),
            )
        };
        let text = told(&["nft", "cni/bridge", "shimx64.efi.signed.latest", "mdadm"]);
        assert!(
            text.contains("it has no usr/lib/cni/bridge, mdadm, nft, usr/lib/shim/shimx64.efi.signed"),
            "{text}"
        );
        assert!(text.contains("containernetworking-plugins, mdadm, nftables, shim-signed"), "{text}");
        assert!(told(&["config-6.12.1-amd64"]).contains("boot/config-RELEASE"));
        // iproute2 has a program of this name, too.
        let mut other = without(&whole, &["cni/bridge"]);
        other.insert("usr/sbin/bridge".into());
        assert!(!contents.lacks_files(&other).is_empty());
    }

    #[test]
    fn each_architecture_has_its_own_kernel_and_loaders_and_arm64_none_for_bios() {
        let packages = |architecture: &str| {
            let definition = definition(&format!(", architecture: {architecture}"));
            let overlays = BTreeSet::new();
            BaseContents { definition: &definition, overlays: &overlays }.lacks_names(&[]).packages()
        };
        let (amd64, arm64) = (packages("amd64"), packages("arm64"));
        for package in ["linux-image", "shim-helpers", "grub-efi"] {
            let own = |found: &[&str], name: &str| {
                found.iter().filter(|found| found.starts_with(package) && found.contains(name)).count()
            };
            assert_eq!((own(&amd64, "amd64"), own(&amd64, "arm64")), (1, 0), "{amd64:?}");
            assert_eq!((own(&arm64, "amd64"), own(&arm64, "arm64")), (0, 1), "{arm64:?}");
        }
        for package in ["grub-pc-bin", "grub-common"] {
            assert!(amd64.contains(&package) && !arm64.contains(&package), "{package}");
        }
        assert!(arm64.contains(&"shim-signed") && arm64.contains(&"mdadm"), "{arm64:?}");
    }

    #[test]
    fn what_an_overlay_brings_is_not_missing_whatever_it_is_compared_with() {
        let definition = definition(KUBEADM);
        let overlays = whole_base(&definition);
        let contents = BaseContents { definition: &definition, overlays: &overlays };
        assert!(contents.lacks_packages(&BTreeSet::new()).is_empty());
        assert!(contents.lacks_names(&[]).is_empty());
        let only_configuration = ["boot/config-6.12.1-amd64".into()].into();
        assert!(contents.lacks_files(&only_configuration).is_empty());
    }

    #[test]
    fn names_that_bring_others_and_other_names_for_the_same_thing_are_enough() {
        let (definition, overlays) = (definition(", images: {preload: [{image: a.b/c:1}]}"), BTreeSet::new());
        let contents = BaseContents { definition: &definition, overlays: &overlays };
        let named = |names: &[&str]| {
            contents.lacks_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).packages()
        };
        let enough = [
            "linux-image-cloud-amd64",
            "dracut-live",
            "dracut-network=1.2",
            "systemd-sysv",
            "network-manager",
            "curl",
            "mdadm",
            "shim-signed",
            "grub-efi-amd64-signed/trixie",
            "grub-pc",
            "iproute2",
            "openssh-server",
            "login",
            "mount",
            "docker.io",
        ];
        assert_eq!(named(&enough), [""; 0]);
        assert_eq!(named(&enough[..enough.len() - 1]), ["containerd", "runc"]);
        let packages = ["docker.io", "containerd", "runc"].into();
        assert!(!contents.lacks_packages(&packages).packages().contains(&"containerd"));
        assert!(contents.lacks_packages(&packages).packages().contains(&"udev"));
    }

    #[test]
    fn containerd_is_needed_where_there_are_images_only() {
        let overlays = BTreeSet::new();
        let lacks = |further: &str| {
            let definition = definition(further);
            let contents = BaseContents { definition: &definition, overlays: &overlays };
            let gone = contents.lacks_names(&[]).packages();
            (gone.contains(&"containerd"), gone.contains(&"runc"), gone.contains(&"nftables"))
        };
        assert_eq!(lacks(""), (false, false, false));
        assert_eq!(lacks(", images: {preload: [{image: a.b/c:1}]}"), (true, true, false));
        assert_eq!(lacks(KUBEADM), (true, true, true));
        assert_eq!(
            lacks(", kubernetes: {distribution: rke2, version: v1.33.1+rke2r1}"),
            (true, false, false)
        );
    }
}
