use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use super::*;
use base::size::ByteSize;
use testing::specimens::{Specimen, UUID};

const MIB: u64 = 1 << 20;

fn disk() -> Specimen {
    Specimen::new(128 * MIB, 512)
}

fn content(specimen: &Specimen, partitions: &[Range<u64>]) -> Vec<Signature> {
    let sector = u32::try_from(specimen.sector).unwrap();
    let window = Window::whole(specimen.file.try_clone().unwrap());
    let volume = ProbedVolume::new(&window, ByteSize::bytes(specimen.size), sector).unwrap();
    let content = ProbedContent::of_disk(&volume, partitions);
    assert!(content.trouble.is_none(), "{:?}", content.trouble);
    content.signatures
}

fn kinds(specimen: &Specimen) -> Vec<SignatureKind> {
    content(specimen, &[]).into_iter().map(|found| found.kind).collect()
}

/// What blkid, which every Linux has, says: type, label and identity.
fn judge(specimen: &Specimen) -> [Option<String>; 3] {
    let output = Command::new("blkid").args(["-p", "-o", "export"]).arg(&specimen.path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |keys: &[&str]| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| keys.contains(name)).map(|(_, value)| value.replace('\\', ""))
    };
    [field(&["TYPE", "PTTYPE"]), field(&["LABEL"]), field(&["UUID", "PTUUID"])]
}

/// A format, how it is made, and what is found: kind, label, identity.
type Case =
    (&'static str, SignatureKind, fn(&Specimen) -> &Specimen, Option<&'static str>, Option<&'static str>);

const OWN: Option<&str> = Some("0d6f3c9a-54b1-4a0e-9a57-1c2d3e4f5061");

/// The names in the first column are those of blkid.
const CASES: [Case; 25] = [
    ("ext4", SignatureKind::Ext4, |s| s.ext4("data one"), Some("data one"), OWN),
    (
        "ext2",
        SignatureKind::Ext2,
        |s| s.run("mkfs.ext4", &["-q", "-F", "-t", "ext2", "-U", &UUID.to_string()]),
        None,
        OWN,
    ),
    (
        "ext3",
        SignatureKind::Ext3,
        |s| s.run("mkfs.ext4", &["-q", "-F", "-t", "ext3", "-U", &UUID.to_string()]),
        None,
        OWN,
    ),
    ("xfs", SignatureKind::Xfs, |s| s.xfs("scratch"), Some("scratch"), OWN),
    ("btrfs", SignatureKind::Btrfs, |s| s.btrfs("pool"), Some("pool"), OWN),
    ("vfat", SignatureKind::Vfat, |s| s.vfat("STICK"), Some("STICK"), Some("ABCD-1234")),
    ("exfat", SignatureKind::Exfat, |s| s.exfat("Camera"), Some("Camera"), Some("ABCD-1234")),
    ("ntfs", SignatureKind::Ntfs, |s| s.ntfs(), None, Some("123456789ABCDEF0")),
    (
        "swap",
        SignatureKind::Swap,
        |s| s.run("mkswap", &["-L", "spare", "-U", OWN.unwrap()]),
        Some("spare"),
        OWN,
    ),
    (
        "LVM2_member",
        SignatureKind::LvmVolume,
        |s| s.lvm(None),
        None,
        Some("abcdef-GHIJ-KLMN-OPQR-STUV-WXYZ-012345"),
    ),
    (
        "LVM2_member",
        SignatureKind::LvmVolume,
        |s| s.lvm(Some("vg-old.1")),
        Some("vg-old.1"),
        Some("abcdef-GHIJ-KLMN-OPQR-STUV-WXYZ-012345"),
    ),
    ("linux_raid_member", SignatureKind::MdMember, |s| s.md1(0, "node1:0"), Some("node1:0"), OWN),
    ("linux_raid_member", SignatureKind::MdMember, |s| s.md1(4096, "node1:0"), Some("node1:0"), OWN),
    (
        "linux_raid_member",
        SignatureKind::MdMember,
        |s| s.md1(s.md10_place(), "node1:0"),
        Some("node1:0"),
        OWN,
    ),
    ("linux_raid_member", SignatureKind::MdMember, |s| s.md090(), None, OWN),
    ("crypto_LUKS", SignatureKind::Luks1, |s| s.luks(1, "aes"), None, OWN),
    ("crypto_LUKS", SignatureKind::Luks2, |s| s.luks(2, "vault"), Some("vault"), OWN),
    ("crypto_LUKS", SignatureKind::Luks2, |s| s.luks2_second("vault"), Some("vault"), OWN),
    (
        "zfs_member",
        SignatureKind::ZfsMember,
        |s| s.zfs("tank", true),
        Some("tank"),
        Some("1234567890123456789"),
    ),
    (
        "zfs_member",
        SignatureKind::ZfsMember,
        |s| s.zfs("tank", false),
        Some("tank"),
        Some("1234567890123456789"),
    ),
    ("ceph_bluestore", SignatureKind::CephBluestore, |s| s.ceph(), None, OWN),
    (
        "ddf_raid_member",
        SignatureKind::DdfMember,
        |s| s.ddf(),
        None,
        Some("44656c6c2020202030313233343536373839414243444546"),
    ),
    ("isw_raid_member", SignatureKind::ImsmMember, |s| s.imsm(), None, Some("11223344")),
    ("drbd", SignatureKind::Drbd, |s| s.drbd(), None, Some("123456789abcdef")),
    ("gpt", SignatureKind::Gpt, |s| s.gpt(&[(MIB, MIB, "one")]), None, OWN),
];

#[test]
fn each_format_is_found_by_name_and_identity() {
    for (name, kind, make, label, uuid) in CASES {
        let specimen = disk();
        make(&specimen);
        let found = content(&specimen, &[]);
        let [only] = &found[..] else { panic!("{name}: {found:?}") };
        assert_eq!((only.kind, only.label.as_deref()), (kind, label), "{name}");
        assert_eq!(only.uuid.as_deref(), uuid, "{name}");
    }
}

#[test]
fn the_judge_that_every_linux_has_says_the_same() {
    let mut differences = Vec::new();
    for (name, _, make, label, uuid) in CASES {
        let specimen = disk();
        make(&specimen);
        let [kind, its_label, its_uuid] = judge(&specimen);
        let mut compare = |what, its: Option<String>, ours: Option<&str>| {
            if its.as_deref() != ours {
                differences.push(format!("{name}: {what} {its:?}, not {ours:?}"));
            }
        };
        compare("kind", kind, Some(name));
        // blkid knows no names of volume groups, and shows some identities in a form of its own.
        if name != "LVM2_member" {
            compare("label", its_label, label);
        }
        if !["ddf_raid_member", "isw_raid_member", "ceph_bluestore"].contains(&name) {
            compare("uuid", its_uuid, uuid);
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn formats_that_only_have_a_mark_are_found_and_each_but_once() {
    let specimen = disk();
    assert_eq!(kinds(&specimen), []);
    for (kind, offset, mark) in marks::MARKS {
        let specimen = disk();
        specimen.put(offset, mark);
        assert_eq!(kinds(&specimen), [kind], "{kind:?} at {offset}");
    }
}

#[test]
fn images_of_media_are_found_beside_their_tables() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "text").unwrap();
    let make = |program: &str, args: &[&str]| {
        let output = Command::new(program).current_dir(&directory).args(args).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        let specimen = disk();
        specimen.put(0, &std::fs::read(directory.path().join("image")).unwrap());
        specimen
    };
    let squashfs = make("mksquashfs", &["file", "image", "-quiet", "-no-progress"]);
    let iso = make("xorriso", &["-as", "mkisofs", "-V", "CIDATA", "-o", "image", "file"]);
    let [image] = &content(&iso, &[])[..] else { panic!("{:?}", kinds(&iso)) };
    assert_eq!((image.kind, image.label.as_deref()), (SignatureKind::Iso9660, Some("CIDATA")));
    assert_eq!(image.uuid, judge(&iso)[2]);
    assert_eq!(kinds(&squashfs), [SignatureKind::Squashfs]);
    iso.gpt(&[(MIB, MIB, "one")]);
    assert_eq!(kinds(&iso), [SignatureKind::Gpt, SignatureKind::Iso9660]);
}

#[test]
fn what_is_left_of_a_partition_table_is_told() {
    type Change = fn(&Specimen) -> &Specimen;
    let cases: [(&[SignatureKind], Change); 16] = [
        (&[SignatureKind::GptEmpty], |s| s.gpt(&[])),
        (&[SignatureKind::GptPrimaryDamaged], |s| s.gpt(&[(MIB, MIB, "one")]).damage(true)),
        (&[SignatureKind::GptBackupDamaged], |s| s.gpt(&[(MIB, MIB, "one")]).damage(false)),
        (&[SignatureKind::GptLost], |s| s.gpt(&[(MIB, MIB, "one")]).damage(true).damage(false)),
        // A changed entry with the old checksum.
        (&[SignatureKind::GptPrimaryDamaged], |s| s.gpt(&[(MIB, MIB, "one")]).put(2 * s.sector + 200, &[7])),
        // Nothing but the protective boot sector.
        (&[SignatureKind::GptLost], |s| s.mbr(&[(0xee, 1, 1000)])),
        (&[SignatureKind::GptOtherSectors], |s| s.gpt_for(4608 - s.sector, &[(MIB, MIB, "one")])),
        (&[SignatureKind::Mbr], |s| s.mbr(&[(0x83, 2048, 1000)])),
        (&[SignatureKind::MbrEmpty], |s| s.mbr(&[])),
        // An MBR table over a GPT, as old programs write it.
        (&[SignatureKind::Gpt, SignatureKind::Mbr], |s| {
            s.gpt(&[(MIB, MIB, "one")]).mbr(&[(0x07, 2048, 1000)])
        }),
        // Boot code with something else at the place of a table.
        (&[], |s| s.put(446, &[0x33; 64]).put(510, &[0x55, 0xaa])),
        (&[SignatureKind::SunLabel], |s| s.put(0, b"SUN 36G").put(508, &[0xda, 0xbe]).put(510, &sun(s))),
        (&[SignatureKind::BsdLabel], |s| {
            s.put(512, &[0x57, 0x45, 0x56, 0x82]).put(644, &[0x57, 0x45, 0x56, 0x82])
        }),
        (&[SignatureKind::AppleMap], |s| s.put(0, b"ER").put(512, b"PM\0\0")),
        // FAT on the whole disk ends like a table, and is none.
        (&[SignatureKind::Vfat], |s| s.vfat("STICK")),
        // A table that claims more entries than possible.
        (&[SignatureKind::GptLost], |s| s.put(s.sector, b"EFI PART").put(s.sector + 80, &[0xff; 8])),
    ];
    for sector in [512, 4096] {
        for (number, (expected, make)) in cases.iter().enumerate() {
            let specimen = Specimen::new(128 * MIB, sector);
            make(&specimen);
            assert_eq!(kinds(&specimen), *expected, "case {number}, sectors of {sector}");
        }
    }
}

/// The word that makes a Sun label add up.
fn sun(specimen: &Specimen) -> [u8; 2] {
    let mut sector = [0; 512];
    FileExt::read_exact_at(&specimen.file, &mut sector, 0).unwrap();
    sector.chunks(2).fold([0, 0], |sum, word| [sum[0] ^ word[0], sum[1] ^ word[1]])
}

#[test]
fn the_tables_made_here_satisfy_other_programs() {
    let specimen = disk();
    specimen.gpt(&[(MIB, MIB, "one"), (2 * MIB, 8 * MIB, "two")]);
    let output = Command::new("sgdisk").arg("-v").arg(&specimen.path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("No problems found"), "{text}");
}

#[test]
fn a_disk_that_grew_has_no_second_table_at_its_end() {
    let specimen = disk();
    specimen.gpt(&[(MIB, MIB, "one")]);
    specimen.file.set_len(256 * MIB).unwrap();
    let grown = Specimen { size: 256 * MIB, ..specimen };
    assert_eq!(kinds(&grown), [SignatureKind::GptBackupDamaged]);
}

#[test]
fn what_lies_in_a_partition_is_not_the_disks() {
    let specimen = disk();
    let end = specimen.size - 20 * 1024;
    // A RAID member in the last partition ends where one on the whole disk would.
    specimen.gpt(&[(MIB, end - MIB, "raid")]).md090();
    assert_eq!(kinds(&specimen), [SignatureKind::Gpt, SignatureKind::MdMember]);
    let partition = MIB..end;
    let [table] = &content(&specimen, std::slice::from_ref(&partition))[..] else { panic!("one table") };
    assert_eq!(table.kind, SignatureKind::Gpt);
}

#[test]
fn a_place_that_cannot_be_read_is_trouble_and_the_rest_is_told() {
    struct Torn<'a>(&'a File);
    impl ReadAt for Torn<'_> {
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            match offset + buffer.len() as u64 > 100 * MIB {
                true => Err(io::Error::from_raw_os_error(5)),
                false => FileExt::read_exact_at(self.0, buffer, offset),
            }
        }
    }
    let specimen = disk();
    specimen.luks(2, "vault");
    let torn = Torn(&specimen.file);
    let volume = ProbedVolume::new(&torn, ByteSize::bytes(specimen.size), 512).unwrap();
    let content = ProbedContent::of_disk(&volume, &[]);
    assert_eq!(content.signatures.len(), 1);
    assert_eq!(content.trouble.unwrap().raw_os_error(), Some(5));
}

#[test]
fn a_volume_of_any_size_and_content_is_read_without_a_panic() {
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    // Noise follows the magic bytes.
    let marks: Vec<(u64, Vec<u8>)> = vec![
        (512, b"EFI PART".to_vec()),
        (512, b"LABELONE\x01\0\0\0\0\0\0\0....\x20\0\0\0LVM2 001".to_vec()),
        (16 << 10, vec![1, 1]),
        (3, b"EXFAT   ".to_vec()),
        (1024 + 0x38, vec![0x53, 0xef]),
        (32 << 10, b"\x01CD001".to_vec()),
    ];
    let input = (0u64..3 * MIB, 0..marks.len(), any::<u64>(), prop::bool::ANY);
    let check = |(size, mark, seed, wide): (u64, usize, u64, bool)| {
        let mut state = seed | 1;
        let mut noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(usize::try_from(size).unwrap())
        .collect();
        let (offset, mark) = &marks[mark];
        let place = usize::try_from(*offset).unwrap();
        if let Some(to) = noise.get_mut(place..place + mark.len()) {
            to.copy_from_slice(mark);
        }
        struct Memory(Vec<u8>);
        impl ReadAt for Memory {
            fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
                let start = usize::try_from(offset).unwrap();
                let bytes = self.0.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(bytes);
                Ok(())
            }
        }
        let memory = Memory(noise);
        let volume =
            ProbedVolume::new(&memory, ByteSize::bytes(size), if wide { 4096 } else { 512 }).unwrap();
        let content = ProbedContent::of_disk(&volume, &[]);
        prop_assert!(content.trouble.is_none(), "read beyond the end: {:?}", content.trouble);
        ProbedContent::of_partition(&volume);
        Ok(())
    };
    TestRunner::new(Config { cases: 48, ..Config::default() }).run(&input, check).unwrap();
}
