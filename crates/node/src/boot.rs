//! `installer boot`: makes the read-only image at `/sysroot` a node, in the initrd, before the real system starts: the persistent
//! partition, the configuration, a new `/etc`, and the node document applied to it. The recovery system gets the same without any data:
//! its `/var` is in memory, and nothing that is damaged stops it.
//!
//! A unit runs it once; a failure ends the boot with its message.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::apply;
use super::pending_reset::PendingReset;
use base::failure::{Class, Classify, Failure};
use base::files::{self, Root};
use cluster::kept_version::boot::mount_current;
use cluster::tokens;
use machine::installed_node::IDENTITY;
use machine::machine_id::MachineId;
use machine::mount::{MountSource, Mounter};
use machine::multipath;
use machine::node_files::write;
use machine::paths::{CONFIG, DATA, DEFAULTS, DOCUMENT, KEPT, PERSISTENT, below};
use machine::seed;
use model::boot::{BootParameters, BootVolume, Slot};
use model::config::{self, Distribution, InstallConfig};

const FACTORY: &str = "/usr/share/factory/var";

const RESET_UNDER_WAY: &str = "a reset of this node has begun and is not complete";

/// The directories that a boot works on; tests have their own.
#[derive(Debug)]
pub struct BootRoots<'a> {
    pub root: &'a Path,
    /// A directory in memory for the changes to `/etc`.
    pub run: &'a Path,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BootOutcome {
    pub outcome: apply::ApplyOutcome,
    /// Failures that do not stop the boot.
    pub notes: Vec<String>,
}

/// Mounts what the command line names and applies the node document. Returns the result, or `None` on a live or netboot system,
/// where there is nothing to do.
pub fn boot(places: &BootRoots<'_>, cmdline: &str, machine: &mut dyn Mounter) -> Result<Option<BootOutcome>> {
    let Some(installed) = BootParameters::parse(cmdline)? else { return Ok(None) };
    if installed.slot == Slot::Recovery {
        return boot_recovery(places, &installed, machine).map(Some);
    }
    let root = places.root;
    mount_ext4(machine, &installed.config, &below(root, CONFIG), true)?;
    match PendingReset::read(root) {
        // A file system that the recovery system has begun to erase is not mounted before it is made anew.
        Some(pending) if pending.is_under_way() => {
            return Err(Failure::new(Class::Hardware, RESET_UNDER_WAY)
                .hint("The recovery system goes on with it at the next start.")
                .into());
        }
        // All steps are done, and the power failed before the request was removed; or none has begun, and starting a slot cancels it.
        Some(_) => PendingReset::clear(root)?,
        None => {}
    }
    mount_ext4(machine, &installed.persistent, &below(root, "/var"), false)?;
    fill_var(root)?;
    let mut notes = mount_current(root, machine)?;
    MachineId::give(&below(root, DOCUMENT))?;
    let tree = Root::open(root)?;
    if let Some(data) = &installed.data {
        let target = root.join(tree.make_directory(DATA)?);
        mount_ext4(machine, data, &target, false)?;
    }
    mount_etc(places, machine)?;
    name_own_disks(&tree, &installed)?;
    for directory in PERSISTENT {
        keep(root, &tree, directory, machine)?;
    }
    let document = below(root, DOCUMENT);
    if !document.exists() && below(root, DEFAULTS).exists() {
        // The defaults alone are not applied: they would start a cluster before anybody has said what this node becomes.
        notes.push("This node has no document yet: its first start takes or asks for one.".to_owned());
        return Ok(Some(BootOutcome { outcome: apply::ApplyOutcome::default(), notes }));
    }
    notes.extend(forget_foreign_tokens(&document));
    let usable = config::load_applicable(&document, &IDENTITY).context("applying the node document")?;
    notes.extend(keep_further(root, &tree, &usable.config, machine)?);
    let outcome = apply::apply_usable(&usable, &document, root).context("applying the node document")?;
    Ok(Some(BootOutcome { outcome, notes }))
}

/// Removes the token of servers from the document of an agent; returns a note about it. A failure does not stop the boot.
fn forget_foreign_tokens(document: &Path) -> Option<String> {
    match tokens::forget_foreign(document) {
        Ok(false) => None,
        Ok(true) => Some("The token of servers was removed from the document of this worker.".to_owned()),
        Err(error) => Some(format!("the token of servers stays in the document of this worker: {error:#}")),
    }
}

fn fill_var(root: &Path) -> Result<()> {
    seed::copy_missing(&below(root, FACTORY), &below(root, "/var"))
        .class(Class::DiskIo, || "filling /var from the image".to_owned())
}

/// The recovery system has the network, the accounts and the keys of the node document, and mounts nothing else of the node. Damage is
/// only a note: the recovery system is there to repair it.
fn boot_recovery(
    places: &BootRoots<'_>,
    installed: &BootParameters,
    machine: &mut dyn Mounter,
) -> Result<BootOutcome> {
    let root = places.root;
    machine.mount(&MountSource::Memory, &below(root, "/var"))?;
    fill_var(root)?;
    let mut notes = Vec::new();
    if let Err(error) = mount_ext4(machine, &installed.config, &below(root, CONFIG), true) {
        notes.push(format!("the configuration cannot be mounted: {error:#}"));
        machine.mount(&MountSource::Memory, &below(root, CONFIG))?;
    }
    mount_etc(places, machine)?;
    let tree = Root::open(root)?;
    name_own_disks(&tree, installed)?;
    for directory in PERSISTENT {
        keep(root, &tree, directory, machine)?;
    }
    let document = below(root, DOCUMENT);
    notes.extend(document.exists().then(|| forget_foreign_tokens(&document)).flatten());
    let applied = match document.exists() {
        // Whichever node it is, it has accounts and a network here.
        true => config::load_applicable(&document, &[])
            .and_then(|usable| apply::apply_usable(&usable, &document, root))
            .map_err(|error| format!("{error:#}")),
        false => Err("this node has no document".to_owned()),
    };
    let outcome = applied.unwrap_or_else(|why| {
        notes.push(format!("nobody can log in here, because the node document is not applied: {why}"));
        apply::ApplyOutcome::default()
    });
    Ok(BootOutcome { outcome, notes })
}

fn mount_ext4(machine: &mut dyn Mounter, volume: &BootVolume, target: &Path, plain: bool) -> Result<()> {
    let device = volume.device();
    machine.wait_for(&device)?;
    machine.mount(&MountSource::Ext4 { device, plain }, target)
}

/// `/etc` is the image's, with changes that are lost when the machine stops.
fn mount_etc(places: &BootRoots<'_>, machine: &mut dyn Mounter) -> Result<()> {
    let etc = below(places.root, "/etc");
    let base = places.run.join("nqrust/etc");
    // Only root may read below the overlay; the overlay itself takes its mode from `upper`.
    files::make_directory(&base, 0o700)?;
    let tree = Root::open(&base)?;
    let upper = base.join(tree.make_directory("upper")?);
    let work = base.join(tree.make_directory("work")?);
    machine.mount(&MountSource::Overlay { lower: etc.clone(), upper, work }, &etc)
}

/// Tells multipathd of the node which disks the node is on, as far as they have several paths.
fn name_own_disks(tree: &Root, installed: &BootParameters) -> Result<()> {
    multipath::own_disks(&installed.multipath).iter().try_for_each(|file| write(tree, file).map(drop))
}

/// Mounts a kept directory over the image's.
fn keep(root: &Path, tree: &Root, directory: &str, machine: &mut dyn Mounter) -> Result<()> {
    let lacks = || format!("finding {directory}, which the image should have");
    let target = root.join(tree.make_directory(directory).with_context(lacks)?);
    let kept = kept_directory(root, directory);
    if !kept.exists() {
        let what = || format!("filling {} from the image", kept.display());
        let mode = fs::metadata(&target).with_context(what)?.permissions().mode();
        seed::copy_whole(&target, &kept, None, mode).class(Class::DiskIo, what)?;
    }
    machine.mount(&MountSource::Bind(kept), &target)
}

/// Directories of `/etc` that are always kept if the image has them: the iSCSI name of the node, by which storage knows it, and the
/// network files that pods of RKE2 write.
fn lasting(root: &Path, distribution: Distribution) -> Vec<&'static str> {
    let networks = (distribution == Distribution::Rke2).then_some("/etc/cni");
    let directories = ["/etc/iscsi"].into_iter().chain(networks);
    directories.filter(|path| below(root, path).is_dir()).collect()
}

/// Mounts the [`lasting`] directories and those of `os.persistent_state_paths`. A directory that the image lacks in a read-only part
/// cannot be made: that is only a note, so that the node starts.
fn keep_further(
    root: &Path,
    tree: &Root,
    config: &InstallConfig,
    machine: &mut dyn Mounter,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let lasting = lasting(root, config.kubernetes.distribution());
    for path in &lasting {
        keep(root, tree, path, machine)?;
    }
    for path in &config.os.persistent_state_paths {
        let lasts = |tree: &str| Path::new(&**path).starts_with(tree);
        if lasting.contains(&&**path) {
            continue;
        }
        if PERSISTENT.iter().any(|tree| lasts(tree)) || lasts("/var") {
            continue;
        }
        match tree.make_directory(&**path) {
            Ok(_) => keep(root, tree, path, machine)?,
            Err(error) => notes.push(format!("{path} is not kept: {error:#}")),
        }
    }
    Ok(notes)
}

fn kept_directory(root: &Path, directory: &str) -> PathBuf {
    below(root, KEPT).join(directory.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::image;
    use crate::pending_reset::{ResetLevel, ResetStep};
    use base::failure::class_of;

    const CMDLINE: &str = "root=x nqrust.slot=a nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
        nqrust.persistent=PARTUUID=0A0B0C0D-0000-4000-8000-000000000007 \
        nqrust.data=PARTUUID=0a0b0c0d-0000-4000-8000-000000000008";

    /// Records its calls; fails at the mount whose target ends with this text.
    #[derive(Default)]
    struct Fake {
        told: Vec<String>,
        failing: Option<&'static str>,
        root: PathBuf,
    }

    impl Mounter for Fake {
        fn wait_for(&mut self, device: &Path) -> Result<()> {
            self.told.push(format!("wait {}", device.file_name().unwrap().to_string_lossy()));
            Ok(())
        }

        fn mount(&mut self, source: &MountSource, target: &Path) -> Result<()> {
            assert!(target.exists(), "{}", target.display());
            let target = format!("/{}", target.strip_prefix(&self.root).unwrap().display());
            let kind = match source {
                MountSource::Ext4 { plain: true, .. } => "ext4 plain",
                MountSource::Ext4 { .. } => "ext4",
                MountSource::Memory => "memory",
                MountSource::Bind(from) => {
                    assert!(from.exists());
                    "bind"
                }
                MountSource::Overlay { upper, work, .. } => {
                    assert!(upper.is_dir() && work.is_dir());
                    "overlay"
                }
            };
            let told = format!("{kind} {target}");
            if self.failing.is_some_and(|failing| failing == target || failing == told) {
                return Err(Failure::new(Class::DiskIo, format!("mounting at {target}")).into());
            }
            self.told.push(told);
            Ok(())
        }
    }

    fn run(root: &Path, cmdline: &str, fake: &mut Fake) -> Result<Option<BootOutcome>> {
        fake.root = root.to_owned();
        let memory = tempfile::tempdir().unwrap();
        boot(&BootRoots { root, run: memory.path() }, cmdline, fake)
    }

    /// The image's root, with a document where the configuration partition would be mounted.
    fn root() -> tempfile::TempDir {
        let root = image();
        for directory in ["var", "oem", "home", "opt", "srv", "root", "usr/share/factory/var/lib/seeded"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::set_permissions(root.path().join("root"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(root.path().join("root/.bashrc"), "image").unwrap();
        fs::write(root.path().join("oem/node.yaml"), "os: {hostname: booted}\n").unwrap();
        root
    }

    #[test]
    fn everything_is_mounted_in_order_and_the_document_is_applied_last() {
        let (root, mut fake) = (root(), Fake::default());
        let outcome = run(root.path(), CMDLINE, &mut fake).unwrap().unwrap().outcome;
        assert_eq!(
            fake.told,
            [
                "wait 0a0b0c0d-0000-4000-8000-000000000003",
                "ext4 plain /oem",
                "wait 0a0b0c0d-0000-4000-8000-000000000007",
                "ext4 /var",
                "wait 0a0b0c0d-0000-4000-8000-000000000008",
                "ext4 /var/lib/harvester/defaultdisk",
                "overlay /etc",
                "bind /home",
                "bind /root",
                "bind /opt",
                "bind /srv",
            ]
        );
        assert!(outcome.written.contains(&"etc/hostname".to_owned()));
        assert_eq!(fs::read_to_string(root.path().join("etc/hostname")).unwrap(), "booted\n");
        assert!(root.path().join("var/lib/seeded").is_dir());
    }

    #[test]
    fn multipathd_is_told_which_disks_the_node_is_on_in_each_slot() {
        for slot in ["a", "recovery"] {
            let root = root();
            let files = || {
                ["wwids", "conf.d/nqrust.conf"].map(|name| {
                    fs::read_to_string(root.path().join("etc/multipath").join(name)).unwrap_or_default()
                })
            };
            let line = CMDLINE.replace("slot=a", &format!("slot={slot}"));
            run(root.path(), &line, &mut Fake::default()).unwrap();
            assert_eq!(files(), ["", ""]);
            run(root.path(), &format!("{line} nqrust.multipath=3600c0ff0"), &mut Fake::default()).unwrap();
            let [wwids, maps] = files();
            assert!(wwids.ends_with("/3600c0ff0/\n"), "{wwids}");
            assert!(maps.contains("alias \"3600c0ff0\""), "{maps}");
        }
    }

    #[test]
    fn kept_directories_are_filled_once_and_keep_their_modes() {
        let root = root();
        run(root.path(), CMDLINE, &mut Fake::default()).unwrap();
        let kept = kept_directory(root.path(), "/root");
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::remove_file(kept.join(".bashrc")).unwrap();
        run(root.path(), CMDLINE, &mut Fake::default()).unwrap();
        assert!(!kept.join(".bashrc").exists(), "what the user removed stays removed");
    }

    #[test]
    fn directories_of_the_document_are_kept_too() {
        let (root, mut fake) = (root(), Fake::default());
        let document =
            "os: {persistent_state_paths: [/etc/tool, /data/a, /var/lib/x, /home/y, /usr.d, /file]}\n";
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        fs::create_dir_all(root.path().join("usr.d")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let boot = run(root.path(), CMDLINE, &mut fake).unwrap().unwrap();
        let binds: Vec<_> =
            fake.told.iter().filter(|told| told.starts_with("bind")).skip(PERSISTENT.len()).collect();
        assert_eq!(binds, ["bind /etc/tool", "bind /data/a", "bind /usr.d"]);
        let note =
            "/file is not kept: /file is a file, not a directory: move it away, or choose another path";
        assert_eq!(boot.notes, [note]);
    }

    #[test]
    fn the_name_of_a_node_for_iscsi_lasts_whatever_list_a_document_has() {
        for (paths, distribution, kept) in [
            ("[]", "rke2", ["/etc/iscsi", "/etc/cni"].as_slice()),
            ("[]", "kubeadm", &["/etc/iscsi"]),
            ("[/etc/iscsi, /etc/tool]", "k3s", &["/etc/iscsi", "/etc/tool"]),
        ] {
            let (root, mut fake) = (root(), Fake::default());
            for directory in ["etc/iscsi", "etc/cni"] {
                fs::create_dir_all(root.path().join(directory)).unwrap();
            }
            let document = format!(
                "install: {{mode: install}}\nos: {{persistent_state_paths: {paths}}}\n\
                 kubernetes: {{distribution: {distribution}}}\n"
            );
            fs::write(root.path().join("oem/node.yaml"), document).unwrap();
            run(root.path(), CMDLINE, &mut fake).unwrap();
            let binds: Vec<_> = fake.told.iter().filter_map(|told| told.strip_prefix("bind ")).collect();
            assert_eq!(binds[PERSISTENT.len()..], *kept, "{distribution}");
        }
    }

    #[test]
    fn a_copied_disk_gets_a_machine_id_of_its_own_and_waits_for_its_document() {
        let root = root();
        let oem = |name: &str| root.path().join("oem").join(name);
        let id = || fs::read_to_string(oem("machine-id")).unwrap();
        fs::remove_file(oem("node.yaml")).unwrap();
        assert!(
            run(root.path(), CMDLINE, &mut Fake::default()).is_err(),
            "a document that was lost is an error"
        );
        fs::write(oem("defaults.yaml"), "os: {hostname: default}\n").unwrap();
        let boot = run(root.path(), CMDLINE, &mut Fake::default()).unwrap().unwrap();
        assert!(boot.notes[0].contains("no document yet") && boot.outcome.written.is_empty(), "{boot:?}");
        assert!(!root.path().join("etc/hostname").exists());
        let first = id();
        assert!(first.trim_end().parse::<MachineId>().is_ok(), "{first}");
        fs::write(oem("node.yaml"), "os: {hostname: told}\n").unwrap();
        let boot = run(root.path(), CMDLINE, &mut Fake::default()).unwrap().unwrap();
        assert!(boot.outcome.written.contains(&"etc/hostname".to_owned()), "{boot:?}");
        assert_eq!(id(), first, "it stays");
        assert_eq!(fs::read_to_string(root.path().join("etc/machine-id")).unwrap(), first);
    }

    #[test]
    fn a_live_system_is_left_alone() {
        let (root, mut fake) = (root(), Fake::default());
        assert_eq!(run(root.path(), "root=live:x nqrust.release=y", &mut fake).unwrap(), None);
        assert!(fake.told.is_empty());
    }

    fn recovery() -> String {
        CMDLINE.replace("slot=a", "slot=recovery")
    }

    #[test]
    fn the_recovery_system_has_the_document_and_no_data() {
        let (root, mut fake) = (root(), Fake::default());
        let outcome = run(root.path(), &recovery(), &mut fake).unwrap().unwrap();
        let told = [
            "memory /var",
            "wait 0a0b0c0d-0000-4000-8000-000000000003",
            "ext4 plain /oem",
            "overlay /etc",
            "bind /home",
            "bind /root",
            "bind /opt",
            "bind /srv",
        ];
        assert_eq!(fake.told, told);
        assert!(outcome.notes.is_empty(), "{outcome:?}");
        assert_eq!(fs::read_to_string(root.path().join("etc/hostname")).unwrap(), "booted\n");
        assert!(root.path().join("var/lib/seeded").is_dir());
    }

    #[test]
    fn nothing_that_is_damaged_stops_the_recovery_system() {
        for (document, failing, told) in [
            (Some("os: [\n"), None, "nobody can log in here"),
            (None, None, "no document"),
            (Some("os: {hostname: x}\n"), Some("ext4 plain /oem"), "the configuration cannot be mounted"),
        ] {
            let root = root();
            fs::remove_file(root.path().join("oem/node.yaml")).unwrap();
            if let Some(text) = document {
                fs::write(root.path().join("oem/node.yaml"), text).unwrap();
            }
            let mut fake = Fake { failing, ..Fake::default() };
            let notes = run(root.path(), &recovery(), &mut fake).unwrap().unwrap().notes;
            assert!(notes[0].contains(told), "{notes:?}");
            assert_eq!(fake.told.contains(&"memory /oem".to_owned()), failing.is_some());
        }
    }

    #[test]
    fn a_reset_that_has_begun_keeps_a_slot_from_starting_until_it_is_complete() {
        let root = root();
        let mut pending = PendingReset::new(ResetLevel::State);
        pending.write(root.path()).unwrap();
        run(root.path(), CMDLINE, &mut Fake::default()).unwrap();
        assert_eq!(PendingReset::read(root.path()), None, "it had not begun, and a slot was started");
        pending.begin();
        pending.write(root.path()).unwrap();
        let mut fake = Fake::default();
        let error = run(root.path(), CMDLINE, &mut fake).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(
            !fake.told.contains(&"ext4 /var".to_owned()),
            "what is erased is not mounted: {:?}",
            fake.told
        );
        run(root.path(), &recovery(), &mut Fake::default()).unwrap();
        pending.has_done(ResetStep::Persistent);
        pending.write(root.path()).unwrap();
        run(root.path(), CMDLINE, &mut Fake::default()).unwrap();
        assert_eq!(PendingReset::read(root.path()), None, "it is complete");
    }

    #[test]
    fn a_failed_mount_ends_the_boot_before_anything_is_applied() {
        for failing in ["/var", "/oem", "/etc", "/home"] {
            let root = root();
            let error = run(root.path(), CMDLINE, &mut Fake { failing: Some(failing), ..Fake::default() })
                .unwrap_err();
            assert_eq!(class_of(&error), Class::DiskIo);
            assert!(!root.path().join("etc/hostname").exists(), "{failing}");
        }
    }

    #[test]
    fn a_document_with_mistakes_is_applied_without_them() {
        let root = root();
        let text = "os: {hostname: kept, hostnam: x, users: [{name: root, password: correct-horse-battery}], ntp_servers: 5}\n\
                    system_settings: {additional-ca: pem}\n";
        fs::write(root.path().join("oem/node.yaml"), text).unwrap();
        for cmdline in [CMDLINE.to_owned(), recovery()] {
            let boot = run(root.path(), &cmdline, &mut Fake::default()).unwrap().unwrap();
            assert_eq!(fs::read_to_string(root.path().join("etc/hostname")).unwrap(), "kept\n");
            for (mistake, warning) in [
                "os.hostnam: ",
                "os.users[0].name: ",
                "os.ntp_servers[0]: ",
                "system_settings.additional-ca: ",
            ]
            .iter()
            .zip(&boot.outcome.warnings)
            {
                assert!(warning.contains(mistake) && warning.contains("/oem/node.yaml:"), "{warning}");
            }
            let accounts = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
            assert_eq!(accounts.lines().filter(|line| line.starts_with("root:")).count(), 1, "{accounts}");
        }
    }

    #[test]
    fn a_document_that_does_not_say_which_node_it_is_starts_only_the_recovery_system() {
        let root = root();
        let text = "os: {hostname: kept}\ninstall: {role: juggler}\n";
        fs::write(root.path().join("oem/node.yaml"), text).unwrap();
        let error = run(root.path(), CMDLINE, &mut Fake::default()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let boot = run(root.path(), &recovery(), &mut Fake::default()).unwrap().unwrap();
        assert!(boot.outcome.warnings[0].contains("install.role"), "{boot:?}");
        assert_eq!(fs::read_to_string(root.path().join("etc/hostname")).unwrap(), "kept\n");
    }
}
