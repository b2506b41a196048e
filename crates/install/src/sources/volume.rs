//! A configuration on a volume of its own: a stick, a CD or a virtual disk, recognised by the label of its file system.
//!
//! Which devices have a label is taken from udev's records, one file for each device below `/run/udev/data`: of several devices
//! with one label `/dev/disk/by-label` has only one (udev(7), `SYMLINK`). A label in capitals suits FAT, which has no others and
//! no more than eleven characters.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use base::cancellation;
use base::failure::{Class, Classify, Failure};
use base::files;
use model::config::sources::{Document, SourceKind};
use model::machine::{Identity, Nodes};

/// The label of a volume that is only for this purpose.
const OWN: &str = "NQRUST-CONFIG";
/// Its form for FAT, whose labels have at most eleven characters.
const OWN_ON_FAT: &str = "NQRUST-CONF";
/// Labels of the volumes that cloud-init reads too (its data source NoCloud).
const SHARED: [&str; 2] = ["cidata", "CIDATA"];
/// The errors of mount(2) for a device with another file system, and for a file system that the kernel does not know.
const NO_NEWS: [Errno; 2] = [Errno::EINVAL, Errno::ENODEV];
/// Names of the document, one of which a volume has.
const NAMES: [&str; 2] = ["install.yaml", "config.yaml"];
/// A directory with a document for each of many machines.
const NODES: &str = "nodes";
const USER_DATA: &str = "user-data";
/// Keys that a document of ours has and one for cloud-init has not.
const MARKS: [&str; 3] = ["install", "os", "scheme_version"];

#[derive(Clone, Debug)]
pub struct VolumeRoots {
    pub udev: PathBuf,
    /// Links from device numbers to devices.
    pub numbers: PathBuf,
    pub labels: PathBuf,
}

impl Default for VolumeRoots {
    fn default() -> Self {
        Self {
            udev: "/run/udev/data".into(),
            numbers: "/sys/dev/block".into(),
            labels: "/dev/disk/by-label".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelledVolume {
    pub device: PathBuf,
    pub label: String,
}

/// A document, and if it is one of many, which one and why.
#[derive(Debug)]
pub struct FoundDocument {
    pub document: Document,
    /// For people.
    pub chosen: Option<String>,
}

/// The document of the only volume that has one; `None` if no volume has the label. `identity` is called only if a volume has
/// configurations for several machines.
pub fn read(roots: &VolumeRoots, identity: &mut dyn FnMut() -> Identity) -> Result<Option<FoundDocument>> {
    choose(&find(roots), |volume| mounted(volume, |root| document(volume, root, identity)))
}

#[must_use]
pub fn find(roots: &VolumeRoots) -> BTreeSet<LabelledVolume> {
    let mut found = BTreeSet::new();
    for label in SHARED.iter().chain([&OWN, &OWN_ON_FAT]) {
        let volume = |device| LabelledVolume { device, label: (*label).to_owned() };
        let line = format!("S:disk/by-label/{label}");
        let records = fs::read_dir(&roots.udev).into_iter().flatten().flatten();
        for record in records {
            let name = record.file_name().to_string_lossy().into_owned();
            let Some(number) = name.strip_prefix('b') else { continue };
            let text = files::read_text(&record.path()).unwrap_or_default();
            let device = fs::read_link(roots.numbers.join(number)).ok();
            let device = device.as_deref().and_then(Path::file_name).map(|name| Path::new("/dev").join(name));
            if text.lines().any(|entry| entry == line) {
                found.extend(device.map(volume));
            }
        }
        // The format of udev's records is internal; its links are a public interface.
        let link = roots.labels.join(label);
        if let Ok(device) = fs::read_link(&link)
            && let Some(name) = device.file_name()
        {
            found.insert(volume(Path::new("/dev").join(name)));
        }
    }
    found
}

/// Reads every volume; two documents are an error.
fn choose(
    volumes: &BTreeSet<LabelledVolume>,
    mut read: impl FnMut(&LabelledVolume) -> Result<Option<FoundDocument>>,
) -> Result<Option<FoundDocument>> {
    let mut chosen: Option<(&LabelledVolume, FoundDocument)> = None;
    for volume in volumes {
        let Some(document) = read(volume)? else { continue };
        if let Some((first, _)) = &chosen {
            let (one, other) = (first.device.display(), volume.device.display());
            let what = format!("{one} and {other} both have a configuration for this machine");
            return Err(Failure::new(Class::Invalid, what)
                .hint(format!(
                    "Unplug one of them; `{OWN}`, `{OWN_ON_FAT}` and `cidata` are labels for one volume only."
                ))
                .into());
        }
        chosen = Some((volume, document));
    }
    Ok(chosen.map(|(_, document)| document))
}

fn mounted<T>(volume: &LabelledVolume, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let what = || format!("reading the volume {} ({})", volume.label, volume.device.display());
    // A signal leaves nothing mounted.
    let _whole = cancellation::hold();
    let directory = tempfile::tempdir().class(Class::DiskIo, what)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    // A journal would be replayed, which is a write, even on a read-only mount.
    let kinds = [("ext4", Some("noload")), ("iso9660", None), ("vfat", None)];
    let mut last: Option<Errno> = None;
    for (kind, options) in kinds {
        match mount(Some(&volume.device), directory.path(), Some(kind), flags, options) {
            Ok(()) => {
                let result = work(directory.path()).class(Class::DiskIo, what);
                // No other process holds it: it is unmounted now, or as soon as the kernel can.
                let gone = umount2(directory.path(), MntFlags::MNT_DETACH).class(Class::DiskIo, what);
                return result.and_then(|result| gone.map(|()| result));
            }
            // Another kind of file system is not worth reporting while a further one may fail for a real reason.
            Err(error) => last = last.filter(|last| !NO_NEWS.contains(last)).or(Some(error)),
        }
    }
    let failure = Failure::new(Class::DiskIo, what()).hint(
        "It must be readable, with ext4, ISO 9660 or FAT on it. Unplug it if it is not for this machine.",
    );
    Err(match last {
        Some(error) if !NO_NEWS.contains(&error) => failure.because(error),
        _ => failure.because(anyhow::anyhow!("it has none of the file systems ext4, ISO 9660 and FAT")),
    }
    .into())
}

/// The document on the volume that is mounted at `root`.
fn document(
    volume: &LabelledVolume,
    root: &Path,
    identity: &mut dyn FnMut() -> Identity,
) -> Result<Option<FoundDocument>> {
    let present: Vec<_> = NAMES.into_iter().filter(|name| root.join(name).exists()).collect();
    let many = root.join(NODES).is_dir();
    let found = |file: &str, text: String| {
        let document = Document::yaml(SourceKind::Volume, format!("{}:/{file}", volume.label), text);
        Ok(Some(FoundDocument { document, chosen: None }))
    };
    let own = [OWN, OWN_ON_FAT].contains(&&*volume.label);
    match present.as_slice() {
        [file] if !many => found(file, files::read_text(&root.join(file))?),
        [] if many => of_many(volume, root, &identity()),
        [] if own => Err(nothing_for_this_machine(
            volume,
            "there is neither install.yaml nor config.yaml nor nodes in its root \
                directory",
        )),
        [] if root.join(USER_DATA).exists() => {
            let text = files::read_text(&root.join(USER_DATA))?;
            if ours(&text) { found(USER_DATA, text) } else { Ok(None) }
        }
        [] => Ok(None),
        several => {
            let several: Vec<_> = several.iter().copied().chain(many.then_some(NODES)).collect();
            let what = format!("the volume {} has more than one of {}", volume.label, several.join(", "));
            Err(Failure::new(Class::Invalid, what).hint("Keep one of them.").into())
        }
    }
}

/// The document for this machine on a volume that has one for each of many.
fn of_many(volume: &LabelledVolume, root: &Path, identity: &Identity) -> Result<Option<FoundDocument>> {
    let directory = root.join(NODES);
    let place = format!("{}:/{NODES}", volume.label);
    let nodes = Nodes::open(&directory).class(Class::Invalid, || format!("reading {place}"))?;
    let Some(chosen) = nodes.choose(identity)? else {
        return Err(nothing_for_this_machine(
            volume,
            &format!("nothing in {NODES} is for this machine, which has {identity}"),
        ));
    };
    let text = files::read_text(&directory.join(chosen.file))?;
    let document = Document::yaml(SourceKind::Volume, format!("{place}/{}", chosen.file), text);
    Ok(Some(FoundDocument { document, chosen: Some(chosen.to_string()) }))
}

/// An error if a volume that is only for this purpose has nothing for this machine.
fn nothing_for_this_machine(volume: &LabelledVolume, why: &str) -> anyhow::Error {
    let what = format!("the volume {} ({}) has no configuration", volume.label, volume.device.display());
    Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("{why}"))
        .hint("Put the configuration there, or unplug the volume.")
        .into()
}

/// Whether user data is a document of ours and not one for cloud-init: by its top-level keys, so that a document with a mistake
/// further down is recognised too. Its first line, `#cloud-config`, is a comment in YAML.
fn ours(text: &str) -> bool {
    let top = text.lines().filter_map(|line| line.split_once(':')).map(|(key, _)| key);
    top.map(model::config::shape::snake).any(|key| MARKS.contains(&key.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::os::unix::fs::symlink;

    fn volume(label: &str, device: &str) -> LabelledVolume {
        LabelledVolume { device: device.into(), label: label.into() }
    }

    fn found(label: &str, files: &[(&str, &str)]) -> Result<Option<FoundDocument>> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            files::write_atomically(&directory.path().join(name), text.as_bytes(), 0o600).unwrap();
        }
        let identity = Identity { serial: Some("CZ12".into()), ..Identity::default() };
        document(&volume(label, "/dev/sdz"), directory.path(), &mut || identity.clone())
    }

    fn reading(label: &str, files: &[(&str, &str)]) -> Result<Option<Document>> {
        found(label, files).map(|found| found.map(|found| found.document))
    }

    #[test]
    fn a_volume_for_many_machines_gives_each_its_own_document() {
        for label in [OWN, OWN_ON_FAT, "cidata"] {
            let own = found(label, &[("nodes/serial-cz12.yaml", "os: {}"), ("nodes/default.yaml", "")]);
            let own = own.unwrap().unwrap();
            assert_eq!(own.document.name(), format!("{label}:/nodes/serial-cz12.yaml"));
            assert_eq!(own.chosen.unwrap(), "serial-cz12.yaml, because this machine has serial:cz12");
            let error = found(label, &[("nodes/serial-other.yaml", "")]).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid);
            assert!(
                format!("{error:#}").contains("nothing in nodes is for this machine, which has serial:CZ12")
            );
        }
        let error = found(OWN, &[("nodes/serial-cz12.yaml", ""), ("install.yaml", "")]).unwrap_err();
        assert!(error.to_string().contains("more than one of install.yaml, nodes"), "{error}");
        let error = found(OWN, &[("nodes/serial-cz12.yaml", ""), ("nodes/serial-CZ12.yml", "")]).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
    }

    #[test]
    fn every_device_with_a_label_is_found_not_only_the_one_that_has_the_link() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let roots = VolumeRoots { udev: path("udev"), numbers: path("numbers"), labels: path("labels") };
        assert!(find(&roots).is_empty());
        for root in [&roots.udev, &roots.numbers, &roots.labels] {
            fs::create_dir(root).unwrap();
        }
        for (number, name, label) in
            [("8:1", "sda1", OWN), ("8:17", "sdb1", OWN_ON_FAT), ("8:33", "sdc1", "other")]
        {
            fs::write(roots.udev.join(format!("b{number}")), format!("S:disk/by-label/{label}\nE:X=1\n"))
                .unwrap();
            symlink(format!("../../devices/pci/block/{name}"), roots.numbers.join(number)).unwrap();
        }
        fs::write(roots.udev.join("c4:64"), format!("S:disk/by-label/{OWN}\n")).unwrap();
        symlink("../../sda1", roots.labels.join(OWN)).unwrap();
        symlink("../../sr0", roots.labels.join("cidata")).unwrap();
        let expected =
            [volume(OWN, "/dev/sda1"), volume(OWN_ON_FAT, "/dev/sdb1"), volume("cidata", "/dev/sr0")];
        assert_eq!(find(&roots), BTreeSet::from(expected));
    }

    #[test]
    fn two_volumes_with_a_configuration_are_refused() {
        let volumes = BTreeSet::from([volume(OWN, "/dev/sda1"), volume("cidata", "/dev/sdb1")]);
        let document = |_: &LabelledVolume| {
            Ok(Some(FoundDocument { document: Document::yaml(SourceKind::Volume, "x", ""), chosen: None }))
        };
        let error = choose(&volumes, document).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(error.to_string().contains("/dev/sda1") && error.to_string().contains("/dev/sdb1"));
        let one = |volume: &LabelledVolume| if volume.label == OWN { document(volume) } else { Ok(None) };
        assert!(choose(&volumes, one).unwrap().is_some());
        assert!(choose(&BTreeSet::new(), document).unwrap().is_none());
    }

    #[test]
    fn a_volume_of_our_own_must_have_a_document_and_only_one() {
        for files in [&[][..], &[("install.yaml", ""), ("config.yaml", "")], &[("user-data", "install: {}")]]
        {
            assert_eq!(class_of(&reading(OWN, files).unwrap_err()), Class::Invalid, "{files:?}");
        }
        let found = reading(OWN, &[("config.yaml", "os: {}")]).unwrap().unwrap();
        assert_eq!((found.kind(), found.name()), (SourceKind::Volume, "NQRUST-CONFIG:/config.yaml"));
    }

    #[test]
    fn user_data_for_cloud_init_is_left_to_it() {
        for (text, is_ours) in [
            ("#cloud-config\ninstall:\n  automatic: true\n", true),
            ("schemeVersion: 1\n", true),
            ("os:\n  hostnam: x\n", true),
            ("#cloud-config\nusers:\n  - name: x\n", false),
            ("#!/bin/sh\necho install: now\n", false),
            ("", false),
        ] {
            let found = reading("cidata", &[("user-data", text), ("meta-data", "")]).unwrap();
            assert_eq!(found.is_some(), is_ours, "{text}");
        }
        assert!(reading("CIDATA", &[]).unwrap().is_none());
        let found = reading("cidata", &[("user-data", "install: {}"), ("install.yaml", "os: {}")]);
        assert_eq!(found.unwrap().unwrap().name(), "cidata:/install.yaml");
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_an_error_about_a_disk() {
        let error = mounted(&volume(OWN, "/nonexistent/device"), |_| Ok(())).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(error.to_string().contains("/nonexistent/device"), "{error}");
    }
}
