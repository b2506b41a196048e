//! What the OS image can drive: the modules of its kernel, and the firmware that is there for them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use formats::kernel_modules::{self, ModuleInfo};
use formats::module_signature::SignerId;
use model::architecture::Architecture;
use model::hardware::{CoveredModule, HardwareCoverage, NamingScheme, OutsideModule};
use walkdir::WalkDir;

use super::request::StepRequest;
use super::tree::Tree;
use super::within::within;

/// A [`HardwareCoverage`] that knows nothing of the initrd.
pub const COVERAGE_OUTPUT: &str = "rootfs.hardware.json";

/// Where the kernel looks for firmware, the first before the second (Documentation/driver-api/firmware/fw_search_path.rst).
const FIRMWARE: [&str; 2] = ["usr/lib/firmware/updates", "usr/lib/firmware"];
/// The ends of packed files of firmware.
const PACKED: [&str; 2] = [".xz", ".zst"];
/// Where an image names modules to load (modules-load.d(5)).
const MODULES_LOAD: [&str; 2] = ["usr/lib/modules-load.d", "etc/modules-load.d"];
/// The library of systemd's programs, with the version in its name.
const SYSTEMD: &str = "libsystemd-shared-";

/// Writes what the finished tree of the OS image with the kernel `kernel` can drive.
pub(super) fn survey(request: &StepRequest, tree: &Tree, kernel: &str) -> Result<()> {
    let coverage = coverage(request.architecture, tree, kernel)?;
    fs::write(request.out.join(COVERAGE_OUTPUT), coverage.to_bytes())
        .context("writing what the OS image can drive")
}

fn coverage(architecture: Architecture, tree: &Tree, kernel: &str) -> Result<HardwareCoverage> {
    let modules = within(tree.root(), &Path::new("usr/lib/modules").join(kernel))?;
    let outside = outside(tree, &modules)?;
    let modules = kernel_modules::read_all(&modules).context("reading the modules of the kernel")?;
    let systemd = systemd(tree)?;
    let module = |(name, info): (String, ModuleInfo)| {
        let ModuleInfo { built_in, aliases, firmware } = info;
        let outside = outside.get(&name).copied();
        CoveredModule { name, built_in, initrd: false, aliases, firmware, outside }
    };
    Ok(HardwareCoverage {
        architecture,
        kernel: kernel.to_owned(),
        systemd,
        naming_scheme: systemd.filter(|_| is_debian(tree)).and_then(NamingScheme::of_systemd),
        kexec_file: kexec_file(tree, kernel),
        modules: modules.into_iter().map(module).collect(),
        firmware: firmware(tree)?,
        // What the initrd brings is not known yet.
        ..HardwareCoverage::default()
    })
}

/// What a tree with the kernel `kernel`, which `fill` makes in a directory, can drive.
#[cfg(test)]
pub(crate) fn coverage_of(kernel: &str, fill: impl FnOnce(&Path)) -> HardwareCoverage {
    let scratch = tempfile::tempdir().unwrap();
    let tree = Tree::empty(scratch.path()).unwrap();
    fill(tree.root());
    coverage(Architecture::Amd64, &tree, kernel).unwrap()
}

/// Whether the kernel takes another one from files, by its configuration beside its modules; none without that.
fn kexec_file(tree: &Tree, kernel: &str) -> Option<bool> {
    let configuration = tree.path("usr/lib/modules").join(kernel).join("config");
    let text = fs::read_to_string(configuration).ok()?;
    Some(text.lines().any(|line| line == "CONFIG_KEXEC_FILE=y"))
}

/// The modules that are not of the kernel's own packages, whose are in `kernel`: how they are signed, and whether a file of
/// modules-load.d(5) names them. A packed one counts as unsigned.
fn outside(tree: &Tree, modules: &Path) -> Result<BTreeMap<String, OutsideModule>> {
    let paths = kernel_modules::paths(modules).context("listing the modules of the kernel")?;
    let paths = paths.into_iter().filter(|(_, path)| !path.starts_with(modules.join("kernel")));
    let loaded = loaded(tree)?;
    let read = |(name, path): (String, PathBuf)| {
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let signer = SignerId::of_module(&bytes).map(|id| id.0);
        let loaded = loaded.contains(&name);
        Ok((name, OutsideModule { loaded, signer }))
    };
    paths.map(read).collect()
}

/// The modules that the image loads at every start.
fn loaded(tree: &Tree) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for directory in MODULES_LOAD {
        let directory = within(tree.root(), Path::new(directory))?;
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
            if path.extension().is_some_and(|end| end == "conf") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
                names.extend(lines.filter(|line| !line.is_empty()).map(kernel_modules::kernel_name));
            }
        }
    }
    Ok(names)
}

/// The files of firmware, as drivers ask for them.
fn firmware(tree: &Tree) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for directory in FIRMWARE {
        let directory = within(tree.root(), Path::new(directory))?;
        if !directory.is_dir() {
            continue;
        }
        for entry in WalkDir::new(&directory) {
            let entry = entry.context("reading the firmware")?;
            let Some(name) = entry.path().strip_prefix(&directory).ok().and_then(Path::to_str) else {
                continue;
            };
            if !entry.file_type().is_dir() && !name.starts_with("updates/") {
                found.insert(PACKED.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned());
            }
        }
    }
    Ok(found)
}

/// The version of systemd, by the name of a library that all of its programs load.
fn systemd(tree: &Tree) -> Result<Option<u32>> {
    let library = within(tree.root(), Path::new("usr/lib"))?;
    let below = WalkDir::new(library).min_depth(2).max_depth(3).sort_by_file_name();
    let versions = below.into_iter().flatten().filter_map(|entry| {
        let name = entry.file_name().to_str()?.strip_prefix(SYSTEMD)?;
        name.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    });
    Ok(versions.max())
}

/// Whether the base is Debian, whose udev names cards by the latest scheme that it knows. Others choose an older one when they build
/// systemd, which no file of the image tells.
fn is_debian(tree: &Tree) -> bool {
    let text = fs::read_to_string(tree.path("usr/lib/os-release")).unwrap_or_default();
    text.lines().any(|line| line.trim_end() == "ID=debian")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::hardware::{DeviceInUse, HardwareInUse, NamedModules, judge};
    use std::os::unix::fs::symlink;

    #[test]
    fn the_firmware_is_listed_as_drivers_ask_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        assert_eq!(firmware(&tree).unwrap(), BTreeSet::new());
        for file in ["bnx2x/a.fw.xz", "bnx2x/b.fw.zst", "c.fw", "updates/d/e.fw"] {
            let path = tree.path("usr/lib/firmware").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink("a.fw.xz", tree.path("usr/lib/firmware/bnx2x/link.fw.xz")).unwrap();
        let found: Vec<_> = firmware(&tree).unwrap().into_iter().collect();
        assert_eq!(found, ["bnx2x/a.fw", "bnx2x/b.fw", "bnx2x/link.fw", "c.fw", "d/e.fw"]);
    }

    #[test]
    fn the_image_is_covered_by_the_modules_of_its_kernel_and_one_without_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        fs::create_dir_all(tree.path("usr/lib")).unwrap();
        testing::kernel::module_tree(&tree.path("usr/lib/modules/6.1.0"));
        let covered = coverage(Architecture::Amd64, &tree, "6.1.0").unwrap();
        let names: Vec<_> = covered.modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["ahci", "bnx2x", "megaraid_sas", "packed", "virtio_net"]);
        assert!(covered.module("bnx2x").unwrap().firmware.contains("bnx2x/bnx2x-e2-7.13.15.0.fw"));
        assert_eq!((covered.systemd, covered.naming_scheme), (None, None));
        assert_eq!(coverage(Architecture::Amd64, &tree, "6.1.0").unwrap().to_bytes(), covered.to_bytes());
        assert!(coverage(Architecture::Amd64, &tree, "6.2.0").unwrap().modules.is_empty());
    }

    #[test]
    fn a_kernel_that_cannot_load_another_one_is_known_by_its_configuration() {
        let of = |configuration: Option<&str>| {
            let covered = coverage_of("6.1.0", |root| {
                fs::create_dir_all(root.join("usr/lib")).unwrap();
                testing::kernel::module_tree(&root.join("usr/lib/modules/6.1.0"));
                if let Some(text) = configuration {
                    fs::write(root.join("usr/lib/modules/6.1.0/config"), text).unwrap();
                }
            });
            covered.kexec_file
        };
        assert_eq!(of(None), None);
        assert_eq!(of(Some("CONFIG_KEXEC=y\nCONFIG_KEXEC_FILE=y\n")), Some(true));
        assert_eq!(of(Some("CONFIG_KEXEC=y\n# CONFIG_KEXEC_FILE is not set\n")), Some(false));
    }

    #[test]
    fn modules_of_extensions_say_how_they_are_signed_and_whether_they_are_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        let put = |path: &str, text: &str| {
            let path = tree.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fs::create_dir_all(tree.path("usr/lib")).unwrap();
        testing::kernel::module_tree(&tree.path("usr/lib/modules/6.1.0"));
        put("usr/lib/modules/6.1.0/kernel/drivers/own.ko", "x");
        for name in ["acme-net", "idle"] {
            put(&format!("usr/lib/modules/6.1.0/updates/{name}.ko"), "x");
        }
        put("usr/lib/modules-load.d/acme.conf", "# of the extension\nacme-net\n\n");
        put("usr/lib/modules-load.d/README", "idle\n");
        let covered = coverage(Architecture::Amd64, &tree, "6.1.0").unwrap();
        let outside = |name: &str| covered.module(name).unwrap().outside;
        assert_eq!(outside("acme_net"), Some(OutsideModule { loaded: true, signer: None }));
        assert_eq!(outside("idle"), Some(OutsideModule::default()));
        assert_eq!(outside("own"), None);
    }

    #[test]
    fn a_node_whose_card_is_driven_by_an_extension_does_not_take_a_release_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        let kernel = tree.path("usr/lib/modules/6.1.0");
        fs::create_dir_all(&kernel).unwrap();
        testing::kernel::module_tree(&kernel);
        let without = coverage(Architecture::Amd64, &tree, "6.1.0").unwrap();
        // As depmod leaves a module of an extension.
        fs::create_dir(kernel.join("updates")).unwrap();
        fs::write(kernel.join("updates/acme-net.ko"), testing::kernel::module(&[("license", "GPL")]))
            .unwrap();
        let aliases = fs::read_to_string(kernel.join("modules.alias")).unwrap();
        fs::write(kernel.join("modules.alias"), aliases + "alias pci:v0000ACE0d00000001sv* acme_net\n")
            .unwrap();
        let with = coverage(Architecture::Amd64, &tree, "6.1.0").unwrap();
        let card = DeviceInUse {
            bus: "pci".into(),
            address: "0000:01:00.0".into(),
            modalias: "pci:v0000ACE0d00000001sv0001".into(),
            driver: "acme_net".into(),
            module: Some("acme_net".into()),
            claimed: true,
            used_by: vec!["ens1".into()],
            ..DeviceInUse::default()
        };
        let machine = HardwareInUse { devices: vec![card], ..HardwareInUse::default() };
        let named = NamedModules { loaded: vec!["acme-net".into()], ..NamedModules::default() };
        assert_eq!(judge(&machine, &named, &with), []);
        let lost = judge(&machine, &named, &without);
        let lost: Vec<_> = lost.iter().map(|lost| (lost.to_string(), lost.problem.hint())).collect();
        assert_eq!(lost[0].0, "pci 0000:01:00.0 (ens1) has the driver acme_net now and would have none");
        assert!(lost[0].1.contains("with the extension that brings it"));
        assert!(
            lost[1].0.contains("names the module acme-net, which the kernel would not have"),
            "{}",
            lost[1].0
        );
    }

    #[test]
    fn the_version_of_systemd_is_that_of_its_library_wherever_a_base_has_it() {
        for (path, expected) in [
            ("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-257.so", Some(257)),
            ("usr/lib/systemd/libsystemd-shared-255.4-1.fc40.so", Some(255)),
            ("usr/lib/systemd/other.so", None),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let tree = Tree::empty(directory.path()).unwrap();
            fs::create_dir_all(tree.path(path).parent().unwrap()).unwrap();
            fs::write(tree.path(path), "x").unwrap();
            assert_eq!(systemd(&tree).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn only_the_udev_of_debian_is_known_to_take_the_latest_scheme() {
        for (text, expected) in
            [("NAME=x\nID=debian\nIMAGE_ID=a\n", true), ("ID=ubuntu\nID_LIKE=debian\n", false), ("", false)]
        {
            let directory = tempfile::tempdir().unwrap();
            let tree = Tree::empty(directory.path()).unwrap();
            fs::create_dir_all(tree.path("usr/lib")).unwrap();
            fs::write(tree.path("usr/lib/os-release"), text).unwrap();
            assert_eq!(is_debian(&tree), expected, "{text}");
        }
    }
}
