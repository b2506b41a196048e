//! A corpus of disks: each is scanned, and what is found and the plan's result are in one golden file.

use std::fmt::Write;

use super::*;
use machine::inventory::Roots;
use model::config::Wipe;
use testing::machine::MachineTree;
use testing::specimens::Specimen;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A partition as the kernel sees it: MiB of its start and length, its name in the table, and its content.
type Part = (u64, u64, &'static str, fn(&Specimen) -> &Specimen);

struct Case {
    name: &'static str,
    size: u64,
    sector: u64,
    make: fn(&Specimen) -> &Specimen,
    parts: &'static [Part],
}

const fn case(name: &'static str, make: fn(&Specimen) -> &Specimen) -> Case {
    Case { name, size: 16 * GIB, sector: 512, make, parts: &[] }
}

/// A disk with sectors of 4096 bytes.
const fn wide(name: &'static str, make: fn(&Specimen) -> &Specimen) -> Case {
    Case { sector: 4096, ..case(name, make) }
}

const fn sized(name: &'static str, size: u64, sector: u64) -> Case {
    Case { size, sector, ..case(name, |s| s) }
}

const fn parted(name: &'static str, make: fn(&Specimen) -> &Specimen, parts: &'static [Part]) -> Case {
    Case { parts, ..case(name, make) }
}

const HOME: &[Part] = &[(1, 1024, "home", |s| s.ext4("photos")), (1025, 512, "", |s| s.run("mkswap", &[]))];

const CORPUS: [Case; 45] = [
    sized("empty", 16 * GIB, 512),
    sized("empty, 4096", 16 * GIB, 4096),
    sized("tiny", 64 * MIB, 512),
    sized("a little too small", 10 * GIB - 512, 512),
    sized("3 TiB", 3 << 40, 512),
    sized("20 TiB", 20 << 40, 512),
    sized("20 TiB, 4096", 20 << 40, 4096),
    sized("sectors of 520 bytes", 16 * GIB, 520),
    parted("GPT", |s| s.gpt(&[(MIB, GIB, "home"), (GIB + MIB, 512 * MIB, "")]), HOME),
    Case {
        sector: 4096,
        ..parted("GPT, 4096", |s| s.gpt(&[(MIB, GIB, "home"), (GIB + MIB, 512 * MIB, "")]), HOME)
    },
    parted("GPT by sgdisk", |s| s.run("sgdisk", &["-n1:2048:+1G", "-c1:home", "-n2:0:+512M"]), HOME),
    case("GPT without partitions", |s| s.gpt(&[])),
    case("GPT, first copy damaged", |s| s.gpt(&[(MIB, GIB, "home")]).damage(true)),
    parted(
        "GPT, second copy damaged",
        |s| s.gpt(&[(MIB, GIB, "home"), (GIB + MIB, 512 * MIB, "")]).damage(false),
        HOME,
    ),
    case("GPT, both copies damaged", |s| s.gpt(&[(MIB, GIB, "home")]).damage(true).damage(false)),
    case("protective MBR and no GPT", |s| s.mbr(&[(0xee, 1, u32::MAX)])),
    wide("GPT for 512 on 4096", |s| s.gpt_for(512, &[(MIB, GIB, "home")])),
    case("GPT for 4096 on 512", |s| s.gpt_for(4096, &[(MIB, GIB, "home")])),
    parted("MBR with Windows", |s| s.mbr(&[(7, 2048, 2_097_152)]), &[(1, 1024, "", |s| s.ntfs())]),
    case("MBR without partitions", |s| s.mbr(&[])),
    parted(
        "MBR over a GPT",
        |s| s.gpt(&[(MIB, GIB, "home")]).mbr(&[(0x83, 2048, 2_097_152)]),
        &[(1, 1024, "", |s| s)],
    ),
    case("BSD label", |s| s.put(512, &[0x57, 0x45, 0x56, 0x82]).put(644, &[0x57, 0x45, 0x56, 0x82])),
    case("Apple map", |s| s.put(0, b"ER").put(512, b"PM\0\0")),
    case("LVM, in a group", |s| s.lvm(Some("vg-old"))),
    case("LVM, in no group", |s| s.lvm(None)),
    parted(
        "LVM in a partition",
        |s| s.gpt(&[(MIB, GIB, "pv")]),
        &[(1, 1024, "pv", |s| s.lvm(Some("vg-old")))],
    ),
    case("md 0.90", |s| s.md090()),
    case("md 1.0", |s| s.md1(s.md10_place(), "old:0")),
    case("md 1.1", |s| s.md1(0, "old:0")),
    case("md 1.2", |s| s.md1(4096, "old:0")),
    case("DDF", |s| s.ddf()),
    wide("Intel RAID, 4096", |s| s.imsm()),
    case("ZFS", |s| s.zfs("tank", true)),
    case("ZFS, start overwritten by a GPT", |s| s.zfs("tank", false).gpt(&[])),
    case("LUKS1", |s| s.luks(1, "aes")),
    case("LUKS2, start overwritten", |s| s.luks2_second("vault")),
    case("VMFS", |s| s.vmfs("datastore1")),
    case("Ceph", |s| s.ceph()),
    case("DRBD", |s| s.drbd()),
    case("XFS on the whole disk", |s| s.xfs("scratch")),
    case("Btrfs on the whole disk", |s| s.btrfs("pool")),
    parted(
        "Harvester's system",
        |s| s.gpt(&[(MIB, 64 * MIB, "COS_GRUB"), (65 * MIB, 50 * MIB, "oem")]),
        &[(1, 64, "COS_GRUB", |s| s.vfat("COS_GRUB")), (65, 50, "oem", |s| s.ext4("COS_OEM"))],
    ),
    case("Harvester's data", |s| s.ext4("HARV_LH_DEFAULT")),
    parted(
        "this product's system",
        |s| s.gpt(&[(MIB, 64 * MIB, "config"), (65 * MIB, 64 * MIB, "persistent")]),
        &[(1, 64, "config", |s| s.ext4("NQ_CONFIG")), (65, 64, "persistent", |s| s.ext4("NQ_PERSISTENT"))],
    ),
    case("a file system under a table of the old kind", |s| {
        s.ext4("HARV_LH_DEFAULT").mbr(&[(0x83, 2048, 2_097_152)])
    }),
];

fn scan(machine: &MachineTree) -> Inventory {
    Inventory::scan(&Roots::below(machine.path())).unwrap()
}

fn machine(case: &Case) -> Inventory {
    let machine = MachineTree::new("");
    add(&machine, case, "sda", "8:0");
    scan(&machine)
}

fn add(machine: &MachineTree, case: &Case, name: &str, number: &str) {
    machine.disk(name, number, ByteSize::bytes(case.size));
    machine.file(&format!("sys/block/{name}/queue/logical_block_size"), &case.sector.to_string());
    let specimen = Specimen::new(case.size, if case.sector == 4096 { 4096 } else { 512 });
    (case.make)(&specimen);
    machine.node(name, specimen);
    for (number, (start, size, label, make)) in (1..).zip(case.parts) {
        let (part, size) = (format!("{name}{number}"), ByteSize::mib(*size));
        machine.placed(name, &part, &format!("8:{number}"), ByteSize::mib(*start), size);
        machine.content(&part, size, *make);
        if !label.is_empty() {
            machine.file(&format!("sys/block/{name}/{part}/uevent"), &format!("PARTNAME={label}\n"));
        }
    }
}

/// What a plan with this `wipe` says of the disks: what is lost, or why there is no plan.
fn outcome(inventory: &Inventory, wipe: Wipe) -> String {
    let mut config = trial();
    config.install.wipe = wipe;
    match plan(&config, inventory, &release().into(), GUID) {
        Ok(plan) => {
            let text = plan.to_string();
            let lost: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("  lost    ")).collect();
            let end = plan.all_partitions().map(Partition::end).max().unwrap();
            let lost = if lost.is_empty() { String::new() } else { format!("; lost: {}", lost.join("; ")) };
            format!("planned, {} partitions, the last up to {end}{lost}", plan.partitions.len())
        }
        Err(error) => format!("refused: {error:#}"),
    }
}

/// Whether `install.wipe_all_disks` wipes it if it is not the install's own.
fn wiped_with_all(case: &Case) -> bool {
    let machine = MachineTree::new("");
    add(&machine, case, "sda", "8:0");
    machine.disk("sdb", "8:16", ByteSize::gib(16));
    let mut config = trial();
    config.install.device = "/dev/sdb".parse().ok();
    config.install.wipe_all_disks = true;
    let plan = plan(&config, &scan(&machine), &release().into(), GUID).unwrap();
    plan.wiped.iter().any(|wiped| wiped.disk.name == "sda")
}

#[test]
fn each_disk_of_the_corpus_is_told_and_planned_as_written_here() {
    let mut text = String::new();
    for case in &CORPUS {
        let inventory = machine(case);
        let [disk] = &inventory.disks[..] else { panic!("{}: {:?}", case.name, inventory.disks) };
        assert_eq!(disk.unread, None, "{}", case.name);
        let found: Vec<_> =
            disk.signatures.iter().map(|found| format!("{found} at {}", found.offset)).collect();
        writeln!(text, "{}", case.name).unwrap();
        writeln!(text, "  found  {}", if found.is_empty() { "nothing".into() } else { found.join("; ") })
            .unwrap();
        let [selected, none] = [Wipe::Selected, Wipe::None].map(|wipe| outcome(&inventory, wipe));
        writeln!(text, "  plan   {selected}").unwrap();
        if none != selected {
            let content = disk.signatures.iter().filter(|found| found.kind.holds_content());
            let content =
                content.map(ToString::to_string).chain(disk.partitions.iter().map(|part| part.describe()));
            let unnamed: Vec<_> = content.filter(|content| !none.contains(content)).collect();
            assert!(unnamed.is_empty(), "{}: {unnamed:?} not in {none}", case.name);
            writeln!(text, "  spare  {}, with each of these named", none.rsplit_once(": ").unwrap().0)
                .unwrap();
        }
        if wiped_with_all(case) {
            writeln!(text, "  other  wiped by install.wipe_all_disks").unwrap();
        }
    }
    golden("corpus.txt", &text);
}

#[test]
fn two_identical_disks_are_not_chosen_from() {
    let machine = MachineTree::new("");
    for (name, number) in [("sda", "8:0"), ("sdb", "8:16")] {
        add(&machine, &case("twin", |s| s.gpt(&[(MIB, GIB, "home")])), name, number);
        machine.file(&format!("sys/block/{name}/device/model"), "DISK\n");
    }
    let told = |config: &InstallConfig, inventory: &Inventory| {
        render(&plan(config, inventory, &release().into(), GUID).unwrap_err())
    };
    let inventory = scan(&machine);
    // A copy of a disk has its table's identity too.
    assert_eq!(inventory.disks[0].signatures, inventory.disks[1].signatures);
    let text = told(&trial(), &inventory);
    assert!(text.contains("2 disks match") && text.contains("detach all but one"), "{text}");
    let mut config = trial();
    config.install.device = serde_json::from_value(serde_json::json!({ "model": "DISK" })).ok();
    let text = told(&config, &inventory);
    assert!(text.contains("2 disks meet the clauses") && text.contains("detach all but one"), "{text}");
    // Their ports distinguish them.
    machine.link("dev/disk/by-path/pci-0-ata-1", "../../sda");
    machine.link("dev/disk/by-path/pci-0-ata-2", "../../sdb");
    let text = told(&config, &scan(&machine));
    assert!(text.contains("such as by_path: pci-0-ata-1."), "{text}");
}

#[test]
fn a_disk_that_cannot_be_looked_at_is_not_taken_for_empty() {
    let machine = MachineTree::new("");
    machine.disk("sda", "8:0", ByteSize::gib(16));
    let inventory = scan(&machine);
    let plan = plan(&trial(), &inventory, &release().into(), GUID).unwrap();
    assert!(plan.warnings[0].contains("/dev/sda may hold more than is listed here"), "{:?}", plan.warnings);
    let text = outcome(&inventory, Wipe::None);
    assert!(text.contains("what is on /dev/sda is not known, and install.wipe is none"), "{text}");
}
