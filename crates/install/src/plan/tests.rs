use super::*;
use base::failure::{class_of, render};
use base::size::ByteSize;
use machine::inventory::{Disk, Holder, HolderKind, Signature, SignatureKind};
use model::config::Role;
use model::config::disk::Transport;
use model::config::{Distribution, Install, Profile};
use model::release::{Containerd, Payload, Purpose};

mod cards;
mod corpus;
mod disks;
mod hints;
mod keep;
mod mirror;
mod raid_set;
mod recorded;
mod takedown;

pub(crate) use testing::release::{contents, release};

pub(crate) const GUID: Uuid = uuid::uuid!("6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90");

pub(crate) fn disk(name: &str, size: ByteSize) -> Disk {
    Disk {
        name: name.into(),
        path: format!("/dev/{name}").into(),
        size,
        logical_sector: 512,
        physical_sector: 512,
        rotational: false,
        removable: false,
        read_only: false,
        optical: false,
        transport: Transport::Virtio,
        model: Some("QEMU HARDDISK".into()),
        serial: Some(format!("serial-{name}")),
        wwn: None,
        links: vec![format!("/dev/disk/by-id/virtio-serial-{name}").into()],
        boot_medium: false,
        namespace: None,
        remote: None,
        paths: vec![],
        holders: vec![],
        signatures: vec![],
        unread: None,
        partitions: vec![],
    }
}

pub(crate) fn trial() -> InstallConfig {
    let install = Install { profile: Profile::Trial, automatic: true, ..Install::default() };
    InstallConfig { install, ..InstallConfig::default() }
}

pub(crate) fn ext4(label: &str) -> Signature {
    Signature { kind: SignatureKind::Ext4, label: Some(label.into()), uuid: None, offset: 1080 }
}

pub(crate) fn mounted(node: &str, point: &str) -> Holder {
    Holder { on: node.into(), kind: HolderKind::Mount, name: Some(point.into()), device: None }
}

/// A partition that is on the disk already.
pub(crate) fn found(disk: &str, number: u64, name: Option<&str>, label: Option<&str>) -> FoundPartition {
    FoundPartition {
        name: format!("{disk}{number}"),
        path: format!("/dev/{disk}{number}").into(),
        start: ByteSize::gib(number),
        size: ByteSize::gib(1),
        entry: None,
        label: name.map(Into::into),
        signatures: label.map(ext4).into_iter().collect(),
        links: vec![format!("/dev/disk/by-id/virtio-serial-{disk}-part{number}").into()],
    }
}

fn machine(disks: &[Disk]) -> Inventory {
    Inventory { disks: disks.to_vec(), ..Inventory::default() }
}

fn try_plan(config: &InstallConfig, disks: &[Disk]) -> Result<Plan> {
    plan(config, &machine(disks), &release().into(), GUID)
}

fn refusal(config: &InstallConfig, disks: &[Disk]) -> (Class, String) {
    let error = try_plan(config, disks).unwrap_err();
    (class_of(&error), render(&error))
}

#[test]
fn the_text_says_what_is_erased_and_what_is_made() {
    let mut disk = disk("vda", ByteSize::gib(16));
    disk.partitions.push(FoundPartition {
        name: "vda1".into(),
        path: "/dev/vda1".into(),
        start: ByteSize::mib(1),
        size: ByteSize::gib(15),
        entry: None,
        label: Some("old data".into()),
        signatures: vec![],
        links: vec![],
    });
    let text = try_plan(&trial(), &[disk]).unwrap().to_string();
    golden("trial.txt", &text);
}

#[test]
fn the_boot_menu_of_a_node_is_as_written_here() {
    let plan = try_plan(&trial(), &[disk("vda", ByteSize::gib(16))]).unwrap();
    let files = plan.steps.iter().find_map(|step| match step {
        Step::Esp(content) => Some(&content.files),
        _ => None,
    });
    let file = files.unwrap().iter().find(|file| file.path == "grub/grub.cfg").unwrap();
    let PlannedContent::Text(text) = &file.content else { panic!("grub.cfg is text") };
    golden("grub.cfg", text);
    let file = files.unwrap().iter().find(|file| file.path == "grub/node.cfg").unwrap();
    let PlannedContent::Text(text) = &file.content else { panic!("node.cfg is text") };
    golden("node.cfg", text);
}

#[test]
fn a_boot_password_shuts_editor_and_command_line_but_no_entry_and_is_not_printed_with_the_plan() {
    use testing::documents::HASH;
    let mut config = trial();
    config.os.boot_password = Some(HASH.parse().unwrap());
    let plan = try_plan(&config, &[disk("vda", ByteSize::gib(16))]).unwrap();
    let Some(Step::Esp(written)) = plan.steps.iter().find(|step| matches!(step, Step::Esp(_))) else {
        panic!("{plan}")
    };
    let content = |path: &str| &written.files.iter().find(|file| file.path == path).unwrap().content;
    let PlannedContent::Text(menu) = content("grub/grub.cfg") else { panic!("grub.cfg is text") };
    let head = "set superusers=\"root\"\nexport superusers\nsource ($root)/grub/password.cfg\n";
    assert!(menu.starts_with(head), "{menu}");
    let entries: Vec<_> = menu.lines().filter(|line| line.trim_start().starts_with("menuentry ")).collect();
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry.contains(" --unrestricted {")), "{menu}");
    let PlannedContent::Secret(password) = content("grub/password.cfg") else { panic!("it is a secret") };
    assert_eq!(password.expose(), format!("password_pbkdf2 root {HASH}\n"));
    for shown in [serde_json::to_string(&plan).unwrap(), plan.to_string(), format!("{plan:?}")] {
        assert!(!shown.contains("grub.pbkdf2"), "{shown}");
    }
    // Without a password the menu is open.
    let open = try_plan(&trial(), &[disk("vda", ByteSize::gib(16))]).unwrap();
    assert!(!serde_json::to_string(&open).unwrap().contains("superusers"));
}

#[test]
fn the_addresses_of_cards_that_are_named_are_part_of_the_plan() {
    let mut config = trial();
    config.install.management_interface =
        serde_json::from_value(serde_json::json!({ "interfaces": [{ "name": "ens3" }] })).unwrap();
    let nic = machine::inventory::Nic {
        name: "ens3".into(),
        mac: "52:54:00:00:00:03".into(),
        carrier: None,
        speed: None,
        driver: None,
        temporary_mac: false,
    };
    let inventory =
        Inventory { disks: vec![disk("vda", ByteSize::gib(16))], nics: vec![nic], ..Inventory::default() };
    let plan = plan(&config, &inventory, &release().into(), GUID).unwrap();
    assert_eq!(plan.cards.address("ens3").unwrap().to_string(), "52:54:00:00:00:03");
    assert_eq!(serde_json::to_value(&plan).unwrap()["cards"]["ens3"], "52:54:00:00:00:03");
}

/// Compares with a file of the golden directory; `UPDATE_GOLDEN=1` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{}", path.display());
}

#[test]
fn json_holds_everything_but_the_node_document() {
    let mut config = trial();
    config.token = Some(model::config::Secret::new("do-not-tell"));
    let plan = try_plan(&config, &[disk("vda", ByteSize::gib(16))]).unwrap();
    let json = serde_json::to_value(&plan).unwrap();
    assert!(!json.to_string().contains("do-not-tell") && !format!("{plan}").contains("do-not-tell"));
    assert_eq!(json["steps"][4]["step"], "slot");
    assert_eq!(json["steps"][4]["image"]["path"], "live/rootfs.squashfs");
    assert_eq!(json["partitions"][3]["name"], "root-a");
}

#[test]
fn the_only_disk_is_chosen_and_the_boot_medium_is_none() {
    let mut stick = disk("sda", ByteSize::gib(32));
    stick.boot_medium = true;
    let plan = try_plan(&trial(), &[stick, disk("vda", ByteSize::gib(16))]).unwrap();
    assert_eq!(plan.disk.name, "vda");
}

#[test]
fn a_removable_disk_is_chosen_only_with_its_serial_number() {
    let mut stick = disk("sda", ByteSize::gib(32));
    stick.removable = true;
    let (class, text) = refusal(&trial(), std::slice::from_ref(&stick));
    assert!(
        class == Class::Hardware && text.contains("no disk to install on") && text.contains("/dev/sda"),
        "{text}"
    );
    let disks = [stick, disk("vda", ByteSize::gib(16))];
    assert_eq!(try_plan(&trial(), &disks).unwrap().disk.name, "vda");
    let mut config = trial();
    config.install.device = "/dev/sda".parse().ok();
    assert!(refusal(&config, &disks).1.contains("is removable"));
    config.install.device = "/dev/disk/by-id/virtio-serial-sda".parse().ok();
    assert_eq!(try_plan(&config, &disks).unwrap().disk.name, "sda");
}

#[test]
fn a_link_names_a_disk() {
    let mut config = trial();
    config.install.device = "/dev/disk/by-id/virtio-serial-vdb".parse().ok();
    let disks = [disk("vda", ByteSize::gib(16)), disk("vdb", ByteSize::gib(16))];
    assert_eq!(try_plan(&config, &disks).unwrap().disk.name, "vdb");
}

#[test]
fn two_disks_and_no_choice_list_both() {
    let disks = [disk("vda", ByteSize::gib(16)), disk("vdb", ByteSize::gib(20))];
    let (class, text) = refusal(&trial(), &disks);
    assert_eq!(class, Class::Hardware);
    assert!(text.contains("/dev/vda: 16 GiB, model QEMU HARDDISK, serial serial-vda"), "{text}");
    assert!(text.contains("/dev/vdb: 20 GiB") && text.contains("install.device"), "{text}");
}

#[test]
fn a_disk_that_will_not_do_is_refused_with_the_reason() {
    type Change = fn(&mut Disk, &mut InstallConfig);
    let cases: [(&str, Class, Change); 7] = [
        ("there is no disk /dev/vdz", Class::Hardware, |_, c| c.install.device = "/dev/vdz".parse().ok()),
        ("holds the medium", Class::Hardware, |d, c| {
            d.boot_medium = true;
            c.install.device = "/dev/vda".parse().ok();
        }),
        ("is read-only", Class::Hardware, |d, c| {
            d.read_only = true;
            c.install.device = "/dev/vda".parse().ok();
        }),
        ("is mounted at /mnt", Class::Hardware, |d, _| {
            d.holders = vec![mounted("/dev/vda1", "/mnt")];
        }),
        ("has 8 GiB, and 10 GiB are needed", Class::Hardware, |d, _| d.size = ByteSize::gib(8)),
        ("sectors of 520 bytes", Class::Hardware, |d, _| d.logical_sector = 520),
        ("smaller than the least", Class::Invalid, |_, c| {
            c.install.persistent_partition_size = Some(ByteSize::gib(1));
        }),
    ];
    for (told, class, change) in cases {
        let (mut config, mut disk) = (trial(), disk("vda", ByteSize::gib(16)));
        change(&mut disk, &mut config);
        let (found, text) = refusal(&config, &[disk]);
        assert_eq!(found, class, "{text}");
        assert!(text.contains(told), "{text}");
    }
}

#[test]
fn each_role_gets_its_images_and_a_blob_comes_once() {
    let blobs = |config: &InstallConfig| {
        let plan = try_plan(config, &[disk("vda", ByteSize::gib(16))]).unwrap();
        let step = plan.steps.into_iter().find_map(|step| match step {
            Step::Images { blobs, .. } => Some(blobs),
            _ => None,
        });
        step.unwrap().into_iter().map(|p| p.path.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(blobs(&trial()), ["one", "two"]);
    let mut witness = trial();
    witness.install.mode = Mode::Join;
    witness.install.role = Role::Witness;
    assert_eq!(blobs(&witness), ["one", "two", "witness"]);
    let plan = try_plan(&witness, &[disk("vda", ByteSize::gib(16))]).unwrap();
    assert!(plan.partition(PartitionName::Data).is_none());
}

#[test]
fn an_os_image_larger_than_a_slot_is_refused() {
    let inventory = machine(&[disk("vda", ByteSize::gib(16))]);
    // A slot of the trial profile has 1856 MiB for both forms.
    let fits = |compressed: ByteSize, expanded: ByteSize| {
        let mut release = release();
        release.expanded.size = expanded.get();
        let rootfs = release.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Rootfs);
        rootfs.unwrap().size = compressed.get();
        plan(&trial(), &inventory, &release.into(), GUID).map(drop).map_err(|error| render(&error))
    };
    assert_eq!(fits(ByteSize::mib(400), ByteSize::mib(1430)), Ok(()));
    for (compressed, expanded) in [(400, 1450), (1850, 10), (10, 1850)] {
        let told = fits(ByteSize::mib(compressed), ByteSize::mib(expanded)).unwrap_err();
        let said = "the OS image, expanded and compressed, (1.8 GiB) does not fit a slot (1.8 GiB)";
        assert!(told.contains(said), "{told}");
    }
    let told = fits(ByteSize::mib(400), ByteSize::bytes(u64::MAX)).unwrap_err();
    assert!(told.contains("does not fit a slot"), "{told}");
}

#[test]
fn a_node_of_another_distribution_than_the_medium_brings_is_refused() {
    let inventory = machine(&[disk("vda", ByteSize::gib(64))]);
    for brought in Distribution::ALL {
        // The containerd of RKE2 and K3s tells them; that of kubeadm is the OS image's.
        let containerd = Containerd { root: brought.containerd_root().to_owned(), unpack: false };
        let distribution = (brought == Distribution::Kubeadm).then_some(brought);
        let release = model::release::Release { containerd, distribution, ..release() }.into();
        for wanted in Distribution::ALL {
            let mut config = trial();
            config.kubernetes.distribution = Some(wanted);
            let planned = plan(&config, &inventory, &release, GUID);
            assert_eq!(planned.is_ok(), brought == wanted, "{brought:?} {wanted:?}");
            let Err(error) = planned else { continue };
            let (class, text) = (class_of(&error), render(&error));
            assert_eq!(class, Class::Invalid);
            assert!(text.contains(&format!("kubernetes.distribution: {}", brought.name())), "{text}");
            config.install.mode = Mode::Install;
            assert!(plan(&config, &inventory, &release, GUID).is_ok(), "it joins nothing");
        }
    }
}

#[test]
fn a_disk_of_4096_byte_sectors_gets_no_bios_boot_code() {
    let mut disk = disk("vda", ByteSize::gib(16));
    disk.logical_sector = 4096;
    let plan = try_plan(&trial(), &[disk]).unwrap();
    assert!(!plan.steps.iter().any(|step| step.id() == "boot-code"));
}

#[test]
fn a_node_that_pulls_its_images_gets_none() {
    let mut config = trial();
    config.install.images = Some(Images::Defer);
    let plan = try_plan(&config, &[disk("vda", ByteSize::gib(16))]).unwrap();
    let images = |payload: &Payload| payload.path.starts_with("images/");
    for step in &plan.steps {
        match step {
            Step::VerifyMedium { payloads } => assert!(!payloads.iter().any(images)),
            Step::Images { blobs, metadata } => assert!(blobs.is_empty() && metadata.is_none()),
            _ => {}
        }
    }
    assert!(plan.to_string().contains("the node pulls them when it runs (deferred)"));
}

#[test]
fn images_are_unpacked_where_the_release_wants_it_and_there_are_some() {
    let mut release = release();
    release.containerd.unpack = true;
    let release = release.into();
    let unpacked = |config: &InstallConfig| {
        let plan = plan(config, &machine(&[disk("vda", ByteSize::gib(16))]), &release, GUID).unwrap();
        let ids: Vec<_> = plan.steps.iter().map(Step::id).collect();
        let place = ids.iter().position(|id| *id == "unpack")?;
        assert_eq!((ids[place - 1], ids[place + 1]), ("images", "node"));
        Some(plan)
    };
    let plan = unpacked(&trial()).unwrap();
    assert!(plan.to_string().contains("unpack 1 container images, with the containerd of this system"));
    let mut config = trial();
    config.install.images = Some(Images::Defer);
    assert!(unpacked(&config).is_none());
}

#[test]
fn references_are_told_and_not_followed() {
    let mut config = trial();
    config.token_file = "/run/token".parse().ok();
    config.os.ssh_authorized_keys = vec!["github:me".parse().unwrap()];
    let plan = try_plan(&config, &[disk("vda", ByteSize::gib(16))]).unwrap();
    let text = plan.to_string();
    assert!(
        text.contains("and not now\n  token  from /run/token\n  os.ssh_authorized_keys  from https://"),
        "{text}"
    );
    assert_eq!(serde_json::to_value(&plan).unwrap()["fetched"][0]["from"], "/run/token");
}

#[test]
fn what_the_node_does_with_its_machine_is_in_the_plan() {
    let mut config = trial();
    let inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], ..Inventory::default() };
    let planned = |config: &InstallConfig| plan(config, &inventory, &release().into(), GUID).unwrap();
    let plain = planned(&config);
    assert!(!plain.to_string().contains("The machine, at each start"));
    assert!(serde_json::to_value(&plain).unwrap().get("host").is_none());
    let text = "os: {host: {huge_pages: [{size: 2M, count: 512}], passthrough: [3b:00.0], sriov: [{name: ens5, functions: 8}], \
                cpu: {governor: performance}, nested_virtualization: true}}";
    config.os.host = model::config::parse(text, "node.yaml").unwrap().os.host;
    let plan = planned(&config);
    let expected = "\nThe machine, at each start of the node\n\
                    \x20 huge pages   512 of 2M, 1 GiB of memory\n\
                    \x20 passthrough  3b:00.0\n\
                    \x20 SR-IOV       ens5, 8 virtual functions\n\
                    \x20 governor     performance\n\
                    \x20 nested       on\n\
                    \x20 kernel       hugepagesz=2M hugepages=512 intel_iommu=on iommu=pt\n";
    assert!(plan.to_string().contains(expected), "{plan}");
    assert!(PlanReview(&plan).to_string().contains(expected));
    assert_eq!(serde_json::to_value(&plan).unwrap()["host"]["cpu"]["governor"], "performance");
}
