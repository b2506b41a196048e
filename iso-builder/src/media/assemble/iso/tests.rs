//! ISOs written here and read by other programs: our own reader, `xorriso`, `sgdisk`.

use std::io::Read;

use base::command::{Invocation, Runner, SystemRunner};
use formats::iso9660::write::PARTITION;
use proptest::prelude::*;

use super::*;
use formats::iso9660::{self, EntryKind};

const EPOCH: u64 = 1_709_209_845;

/// An ISO of small files, with their contents.
struct Sample {
    directory: tempfile::TempDir,
    files: Vec<(String, Vec<u8>)>,
}

impl Sample {
    fn new(files: Vec<(String, Vec<u8>)>) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), files }
    }

    fn usual() -> Self {
        let mut files = vec![
            ("release.json".to_owned(), b"{}".to_vec()),
            ("empty".to_owned(), Vec::new()),
            (".nqrust/mark".to_owned(), Vec::new()),
            ("blocks.bin".to_owned(), (0..70_000_u32).map(|n| (n % 251) as u8).collect()),
            ("boot/grub/grub.cfg".to_owned(), b"menu".to_vec()),
        ];
        files.extend((0..100).map(|n| (format!("images/{n:064x}"), format!("blob {n}").into_bytes())));
        Self::new(files)
    }

    fn iso(&self) -> IsoParts {
        let write = |name: &str, bytes: &[u8]| {
            let path = self.directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let sources = self.files.iter().enumerate();
        let files = sources
            .map(|(number, (path, bytes))| (path.clone(), write(&format!("source-{number}"), bytes)))
            .collect();
        IsoParts {
            volume: "SAMPLE_1".into(),
            guid: uuid::uuid!("11111111-2222-3333-4444-555555555555"),
            epoch: EPOCH,
            files,
            bios: Some(BiosBootFiles {
                eltorito: write("eltorito", &[0xE1; 190_000]),
                hybrid: write("hybrid", &[0x90; 512]),
            }),
            esp: write("esp", &[0xEF; 1 << 20]),
        }
    }

    fn write(&self) -> PathBuf {
        let output = self.directory.path().join("output.iso");
        self.iso().write(&output, &output, "iso", &Progress::silent()).unwrap();
        output
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = SystemRunner.run(&Invocation::new(program).args(args.iter().copied())).unwrap();
    String::from_utf8_lossy(&output).into_owned()
}

fn assert_holds(iso: &iso9660::Iso<impl iso9660::Source + 'static>, files: &[(String, Vec<u8>)]) {
    let found: Vec<_> = iso.walk().collect::<iso9660::Result<Vec<_>>>().unwrap();
    let mut found: Vec<_> =
        found.into_iter().filter(|(_, entry)| entry.kind == EntryKind::File).map(|(path, _)| path).collect();
    let mut expected: Vec<_> = files.iter().map(|(path, _)| path.clone()).collect();
    expected.push(ELTORITO.to_owned());
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for (path, bytes) in files {
        let mut content = Vec::new();
        iso.open_file(path).unwrap().read_to_end(&mut content).unwrap();
        assert_eq!(&content, bytes, "{path}");
    }
}

#[test]
fn the_whole_device_and_partition_1_show_the_same_files() {
    let sample = Sample::usual();
    let bytes = fs::read(sample.write()).unwrap();
    let partition = bytes[usize::try_from(PARTITION.offset().0).unwrap()..].to_vec();
    for image in [bytes, partition] {
        let iso = iso9660::Iso::open(image).unwrap();
        assert_holds(&iso, &sample.files);
        assert_eq!((iso.volume().id.as_str(), iso.missing()), ("SAMPLE_1", 0));
        assert_eq!(iso.volume().size, iso.length());
        assert_eq!(iso.volume().created.unwrap().as_second(), i64::try_from(EPOCH).unwrap());
    }
}

#[test]
fn xorriso_finds_the_same_files_and_both_boot_images() {
    let sample = Sample::usual();
    let path = sample.write();
    let (iso, out) = (path.to_str().unwrap(), sample.directory.path().join("out"));
    run("xorriso", &["-osirrox", "on", "-indev", iso, "-extract", "/", out.to_str().unwrap()]);
    for (path, bytes) in &sample.files {
        assert_eq!(&fs::read(out.join(path)).unwrap(), bytes, "{path}");
    }
    let listing = run("xorriso", &["-indev", iso, "-find", "/", "-exec", "lsdl"]);
    let line = listing.lines().find(|line| line.ends_with("'/boot/grub/grub.cfg'")).unwrap();
    assert!(line.starts_with("-r--r--r--    1 0        0               4 Feb 29  2024"), "{line}");
    assert!(listing.contains("dr-xr-xr-x"), "{listing}");

    let boot = run("xorriso", &["-indev", iso, "-report_el_torito", "plain"]);
    assert!(boot.contains("BIOS  y   none  0x0000  0x00      4"), "{boot}");
    assert!(boot.contains("UEFI  y   none  0x0000  0x00   2048"), "{boot}");
    assert!(
        boot.contains("/boot/grub/eltorito.img") && boot.contains("boot-info-table grub2-boot-info"),
        "{boot}"
    );
    let area = run("xorriso", &["-indev", iso, "-report_system_area", "plain"]);
    for fact in ["protective-msdos-label grub2-mbr", "GPT", "Partition offset   : 16", "2   0x80  0x00"] {
        assert!(area.contains(fact), "{fact}: {area}");
    }
}

#[test]
fn both_copies_of_the_partition_table_are_sound() {
    let sample = Sample::usual();
    let path = sample.write();
    let report = run("sgdisk", &["--verify", path.to_str().unwrap()]);
    assert!(report.contains("No problems found"), "{report}");
    let table = run("sfdisk", &["--dump", path.to_str().unwrap()]);
    assert!(table.contains("label-id: 11111111-2222-3333-4444-555555555555"), "{table}");
    assert!(table.contains("start=          64") && table.contains("C12A7328-F81F-11D2-BA4B-00A0C93EC93B"));
}

#[test]
fn the_boot_sector_and_the_boot_image_know_their_places() {
    let sample = Sample::usual();
    let bytes = fs::read(sample.write()).unwrap();
    let iso = iso9660::Iso::open(bytes.clone()).unwrap();
    let start = iso.entry(ELTORITO).unwrap().extents[0].start;
    let at = usize::try_from(start.offset().0).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(number(0x1B0), u64::from(start.0) * 4 + 4);
    assert_eq!(number(at + 2548), u64::from(start.0) * 4 + 5);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let image = &bytes[at..at + 190_000];
    let sum = image[64..].chunks(4).fold(0_u32, |sum, word| {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        sum.wrapping_add(u32::from_le_bytes(bytes))
    });
    assert_eq!([word(at + 8), word(at + 12), word(at + 16), word(at + 20)], [16, start.0, 190_000, sum]);
}

#[test]
fn a_file_above_four_gibibytes_is_whole() {
    const SIZE: u64 = (4 << 30) + 12_345;
    let sample = Sample::usual();
    let mut iso = sample.iso();
    let large = sample.directory.path().join("large");
    let file = File::create(&large).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"tail", SIZE - 4).unwrap();
    iso.files.insert(1, ("large".into(), large));
    let output = sample.directory.path().join("output.iso");
    iso.write(&output, &output, "iso", &Progress::silent()).unwrap();
    let iso = iso9660::Iso::open(File::open(&output).unwrap()).unwrap();
    let entry = iso.entry("large").unwrap();
    assert_eq!((entry.extents.len(), entry.size()), (2, SIZE));
    let last = entry.extents[1];
    let mut end = [0; 4];
    let tail = last.start.offset().0 + u64::from(last.length) - 4;
    File::open(&output).unwrap().read_exact_at(&mut end, tail).unwrap();
    assert_eq!(&end, b"tail");
    let (mut reader, mut piece, mut read) = (iso.open_file("large").unwrap(), vec![0; 4 << 20], 0);
    loop {
        match reader.read(&mut piece).unwrap() {
            0 => break,
            count => (read, end) = (read + count as u64, piece[count - 4..count].try_into().unwrap()),
        }
    }
    assert_eq!((read, &end), (SIZE, b"tail"), "the reader goes on in the second extent");
    let mut after = String::new();
    iso.open_file("boot/grub/grub.cfg").unwrap().read_to_string(&mut after).unwrap();
    assert_eq!(after, "menu");
    let lsdl = run("xorriso", &["-indev", output.to_str().unwrap(), "-lsdl", "/large"]);
    assert!(lsdl.contains(&SIZE.to_string()), "{lsdl}");
}

#[test]
fn a_source_that_is_not_there_leaves_nothing_behind() {
    let sample = Sample::usual();
    let mut iso = sample.iso();
    iso.bios.as_mut().unwrap().hybrid = "nowhere".into();
    let output = sample.directory.path().join("output.iso");
    let error = iso.write(&output, &output, "iso", &Progress::silent()).unwrap_err();
    assert!(base::failure::render(&error).contains("nowhere"), "{error:#}");
    assert!(!output.exists());
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let error = check_space(&directory.path().join("x.iso"), ByteSize::gib(1 << 30)).unwrap_err();
    assert_eq!(base::failure::class_of(&error), Class::DiskIo);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_is_written_is_read_again(
        files in proptest::collection::btree_map(
            "([a-zA-Z0-9_.-]{1,40}/){0,4}[a-zA-Z0-9_. äß-]{1,60}",
            proptest::collection::vec(any::<u8>(), 0..5000),
            1..40,
        ),
    ) {
        let sample = Sample::new(files.into_iter().collect());
        let output = sample.directory.path().join("output.iso");
        // Fails if names collide, or a file has the name of a directory.
        prop_assume!(sample.iso().write(&output, &output, "iso", &Progress::silent()).is_ok());
        let bytes = fs::read(output).unwrap();
        assert_holds(&iso9660::Iso::open(bytes[32_768..].to_vec()).unwrap(), &sample.files);
        assert_holds(&iso9660::Iso::open(bytes).unwrap(), &sample.files);
    }
}
