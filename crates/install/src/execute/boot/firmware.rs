//! The entry of an installed disk among the firmware's boot options (UEFI 2.10, 3.1).
//!
//! Firmware starts the disk without it, by the path of the default loader; the entry gives the disk its name and the
//! first place. So a failure here is only a warning.
//!
//! The kernel shows each variable of the firmware as a file: four bytes of attributes, then the value
//! (Documentation/filesystems/efivarfs.rst). The variables written here are not protected against it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use uuid::Uuid;

use crate::execute::disk::system_disks::SystemDisks;
use crate::plan::{Partition, PartitionName, Plan, SectorSize};
use base::command::{Invocation, Runner};
use base::files::{read_at_most, removed};
use base::progress::Progress;
use model::architecture::Architecture;

/// The vendor GUID of the specification's own variables (EFI_GLOBAL_VARIABLE).
const GLOBAL_VENDOR: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Non-volatile, with access by boot services and at run time.
const ATTRIBUTES: u32 = 7;

/// LOAD_OPTION_ACTIVE: the firmware tries this entry.
const ACTIVE: u32 = 1;

/// The loader that firmware starts from a disk without an entry; the entry names the same file.
fn loader() -> String {
    format!("\\{}", Architecture::of_this_program().loaders().shim.replace('/', "\\"))
}

/// No variable that is read here is longer.
const VARIABLE_BYTES_MAX: u64 = 64 << 10;

/// Types and lengths of parts of a device path (UEFI 2.10, 10.3).
const HARD_DRIVE: [u8; 4] = [4, 1, 42, 0];
const FILE_PATH: [u8; 2] = [4, 4];
const END: [u8; 4] = [0x7f, 0xff, 4, 0];

/// Puts an entry called `title` for the EFI system partition `esp` before all others. Entries of that title for the
/// partitions `gone`, or for `esp`, are removed.
fn enter(
    variables: &Path,
    title: &str,
    (esp, sector): (&Partition, SectorSize),
    gone: &[Uuid],
) -> Result<()> {
    let replaced = |partition| partition == esp.uuid || gone.contains(&partition);
    put_entry(variables, title, (esp, sector), replaced, |_| 0)
}

/// Puts an entry called `title` for `esp` in place of those of that title whose partition is `replaced`. `place` is where it comes in the
/// order, from the partitions that the others of that title lead to; all others have none there.
fn put_entry(
    variables: &Path,
    title: &str,
    (esp, sector): (&Partition, SectorSize),
    replaced: impl Fn(Uuid) -> bool,
    place: impl FnOnce(&[Option<Uuid>]) -> usize,
) -> Result<()> {
    let variables = Variables(variables);
    let leads_to =
        |value: &Vec<u8>| LoadOption::parse(value).filter(|option| option.title == title)?.partition;
    let (old, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
        variables.options()?.into_iter().partition(|(_, value)| leads_to(value).is_some_and(&replaced));
    let free = (0..=u16::MAX).find(|number| !kept.contains_key(number));
    let number = free.context("the firmware has no free number for a boot entry")?;
    variables.write(&name(number), &load_option(title, esp, sector))?;
    let order = variables.order()?.into_iter();
    let mut order: Vec<_> = order.filter(|other| *other != number && !old.contains_key(other)).collect();
    let partitions: Vec<_> = order.iter().map(|other| kept.get(other).and_then(leads_to)).collect();
    order.insert(place(&partitions), number);
    let order: Vec<u8> = order.into_iter().flat_map(u16::to_le_bytes).collect();
    variables.write("BootOrder", &order)?;
    old.keys().filter(|other| **other != number).try_for_each(|other| variables.remove(&name(*other)))
}

/// Gives each disk of the system an entry. The fallback path starts them too, so a failure is only a warning.
pub(crate) fn enter_each(variables: &Path, plan: &Plan, system: &SystemDisks<'_>, progress: &Progress) {
    let Plan { release, erased, mirror, .. } = plan;
    let erased = erased.iter().chain(mirror.iter().flat_map(|mirror| &mirror.erased));
    let gone: Vec<_> = erased.filter_map(|part| Some(part.entry?.uuid)).collect();
    // Each entry is put before the existing ones, and the first disk comes out first.
    for disk in system.disks().iter().rev() {
        let path = disk.target.path.display();
        let entered = disk
            .partition(PartitionName::Esp)
            .and_then(|esp| enter(variables, &release.name, (esp, disk.target.sector), &gone));
        let told = match entered {
            Ok(()) if disk.target.name == plan.disk.name => {
                format!("The firmware starts {path} first, as {}", release.name)
            }
            Ok(()) => format!("The firmware starts {path} if the first disk is missing, as {}", release.name),
            Err(error) => format!("The firmware has no entry for {path}: {error:#}"),
        };
        progress.note("run", told);
    }
}

/// Puts an entry called `title` for the EFI system partition `esp` behind the entry of the partition `after`, or at the end. Entries of
/// that title for `esp`, and for partitions that are not `present` in this machine, are removed.
pub(crate) fn enter_behind(
    variables: &Path,
    title: &str,
    (esp, sector): (&Partition, SectorSize),
    after: Uuid,
    present: &[Uuid],
) -> Result<()> {
    let replaced = |partition| partition == esp.uuid || !present.contains(&partition);
    put_entry(variables, title, (esp, sector), replaced, |others| {
        others.iter().position(|other| *other == Some(after)).map_or(others.len(), |place| place + 1)
    })
}

/// Makes the firmware start the loader on `esp` at the next start only. The order of its entries stays; if the firmware has lost
/// the entry of `esp`, one called `title` is added at the end.
pub(crate) fn start_next(
    variables: &Path,
    title: &str,
    (esp, sector): (&Partition, SectorSize),
) -> Result<u16> {
    let variables = Variables(variables);
    let options = variables.options()?;
    let leads_there = |value: &[u8]| {
        LoadOption::parse(value)
            .is_some_and(|option| option.title == title && option.partition == Some(esp.uuid))
    };
    let known = options.iter().find(|(_, value)| leads_there(value)).map(|(number, _)| *number);
    let number = match known {
        Some(number) => number,
        None => {
            let free = (0..=u16::MAX).find(|number| !options.contains_key(number));
            let number = free.context("the firmware has no free number for a boot entry")?;
            variables.write(&name(number), &load_option(title, esp, sector))?;
            let order = variables.order()?.into_iter().filter(|other| *other != number).chain([number]);
            variables.write("BootOrder", &order.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())?;
            number
        }
    };
    variables.write("BootNext", &number.to_le_bytes())?;
    let kept = variables.read("BootNext")?;
    ensure!(kept == number.to_le_bytes(), "the firmware does not store its variable BootNext");
    Ok(number)
}

/// A variable of this product: the firmware was asked to start a node at this moment (seconds since 1970). It shows that the
/// firmware started the medium again instead.
const START_REQUEST: &str = "NqrustStart-5a0f0c1e-7d5c-4c59-9b41-3f6ad7c1f0b2";

/// After this many seconds, the medium was started again on purpose.
const SOON_SECONDS: u64 = 15 * 60;

/// Notes in the firmware that it was asked to start the node at `now`; returns whether it had been asked just before, and had
/// started something else.
pub(crate) fn was_told(variables: &Path, now: u64, runner: &dyn Runner) -> Result<bool> {
    let path = variables.join(START_REQUEST);
    let before = match read_at_most(&path, VARIABLE_BYTES_MAX) {
        Ok(bytes) => bytes.get(4..12).and_then(|moment| moment.try_into().ok()).map(u64::from_le_bytes),
        Err(_) => None,
    };
    if path.exists() {
        // The kernel protects variables that it does not know; an error here shows in the removal.
        let _ = runner.run(&Invocation::new("chattr").arg("-i").arg(&path));
        fs::remove_file(&path)
            .with_context(|| format!("removing the firmware's variable {START_REQUEST}"))?;
    }
    if before.is_some_and(|before| now.checked_sub(before).is_some_and(|passed| passed < SOON_SECONDS)) {
        return Ok(true);
    }
    let bytes = [ATTRIBUTES.to_le_bytes().as_slice(), &now.to_le_bytes()].concat();
    fs::write(&path, bytes).with_context(|| format!("writing the firmware's variable {START_REQUEST}"))?;
    Ok(false)
}

fn name(number: u16) -> String {
    format!("Boot{number:04X}")
}

struct Variables<'a>(&'a Path);

impl Variables<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-{GLOBAL_VENDOR}"))
    }

    /// The value of each `Boot####`, by its number.
    fn options(&self) -> Result<BTreeMap<u16, Vec<u8>>> {
        let mut options = BTreeMap::new();
        for entry in fs::read_dir(self.0).with_context(|| format!("listing {}", self.0.display()))? {
            let entry = entry?.file_name();
            let digits =
                entry.to_str().and_then(|name| name.strip_prefix("Boot")?.strip_suffix(GLOBAL_VENDOR));
            let digits =
                digits.and_then(|digits| digits.strip_suffix('-')).filter(|digits| digits.len() == 4);
            if let Some(number) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
                // A variable that cannot be read still occupies its number.
                options.insert(number, self.read(&name(number)).unwrap_or_default());
            }
        }
        Ok(options)
    }

    fn order(&self) -> Result<Vec<u16>> {
        if !self.path("BootOrder").exists() {
            return Ok(Vec::new());
        }
        let order = self.read("BootOrder")?;
        Ok(order.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect())
    }

    /// The value, without the attributes.
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = read_at_most(&self.path(name), VARIABLE_BYTES_MAX)?;
        bytes.drain(..bytes.len().min(4));
        Ok(bytes)
    }

    /// The kernel takes a value in one call.
    fn write(&self, name: &str, value: &[u8]) -> Result<()> {
        let mut bytes = ATTRIBUTES.to_le_bytes().to_vec();
        bytes.extend_from_slice(value);
        fs::write(self.path(name), bytes).with_context(|| format!("writing the firmware's variable {name}"))
    }

    fn remove(&self, name: &str) -> Result<()> {
        removed(fs::remove_file(self.path(name)))
            .with_context(|| format!("removing the firmware's variable {name}"))
    }
}

/// The parts of a boot option that identify its owner.
#[derive(Debug, PartialEq, Eq)]
struct LoadOption {
    title: String,
    /// PARTUUID of the partition with the loader, if that is on a GUID partition table.
    partition: Option<Uuid>,
}

impl LoadOption {
    /// Reads an `EFI_LOAD_OPTION` (UEFI 2.10, 3.1.3).
    fn parse(value: &[u8]) -> Option<Self> {
        let units: Vec<_> =
            value.get(6..)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let length = units.iter().position(|unit| *unit == 0)?;
        let title = String::from_utf16_lossy(&units[..length]);
        let path = value.get(6 + 2 * (length + 1)..)?;
        // The GUID lies behind number, start and size; the last byte says that it is one.
        let drive = path.get(..42).filter(|drive| drive.starts_with(&HARD_DRIVE) && drive[41] == 2);
        let guid = drive.and_then(|drive| drive[24..40].try_into().ok());
        Some(Self { title, partition: guid.map(Uuid::from_bytes_le) })
    }
}

/// An `EFI_LOAD_OPTION` for the loader on a partition.
fn load_option(title: &str, esp: &Partition, sector: SectorSize) -> Vec<u8> {
    let wide = |text: &str| text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut path = HARD_DRIVE.to_vec();
    path.extend(esp.number.to_le_bytes());
    path.extend((esp.start.get() / sector.bytes()).to_le_bytes());
    path.extend((esp.size.get() / sector.bytes()).to_le_bytes());
    path.extend(esp.uuid.to_bytes_le());
    // A GUID partition table, and so a GUID.
    path.extend([2, 2]);
    let loader = wide(&loader());
    path.extend(FILE_PATH);
    path.extend(length(4 + loader.len()));
    path.extend(loader);
    path.extend(END);
    let mut option = ACTIVE.to_le_bytes().to_vec();
    option.extend(length(path.len()));
    option.extend(wide(title));
    option.extend(path);
    option
}

/// A length in two bytes. The structures written here are about a hundred bytes long.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PartitionName;
    use base::size::ByteSize;

    const TITLE: &str = "NQRust Hypervisor";
    const OLD: Uuid = uuid::uuid!("11111111-2222-4333-8444-555555555555");
    const OTHER: Uuid = uuid::uuid!("66666666-2222-4333-8444-555555555555");

    fn esp(uuid: Uuid) -> Partition {
        Partition {
            number: 2,
            name: PartitionName::Esp,
            uuid,
            start: ByteSize::mib(2),
            size: ByteSize::mib(512),
        }
    }

    const NEW: Uuid = uuid::uuid!("00112233-4455-6677-8899-aabbccddeeff");

    /// A firmware with these entries, tried in their order.
    fn firmware(entries: &[(u16, &str, Uuid)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let variables = Variables(directory.path());
        for (number, title, uuid) in entries {
            variables.write(&name(*number), &load_option(title, &esp(*uuid), SectorSize::B512)).unwrap();
        }
        let order: Vec<u8> = entries.iter().flat_map(|(number, ..)| number.to_le_bytes()).collect();
        variables.write("BootOrder", &order).unwrap();
        directory
    }

    /// The entries in the order in which they are tried.
    fn tried(directory: &tempfile::TempDir) -> Vec<(u16, String, Option<Uuid>)> {
        let variables = Variables(directory.path());
        let options = variables.options().unwrap();
        let order = variables.order().unwrap();
        assert_eq!(options.len(), order.len(), "{order:?}");
        let entry = |number: u16| {
            let LoadOption { title, partition } = LoadOption::parse(&options[&number]).unwrap();
            (number, title, partition)
        };
        order.into_iter().map(entry).collect()
    }

    #[test]
    fn an_entry_is_as_the_specification_says() {
        let option = load_option("N", &esp(NEW), SectorSize::B4096);
        let path = 42 + 4 + 2 * (loader().len() + 1) + 4;
        assert_eq!(option[..10], [1, 0, 0, 0, u8::try_from(path).unwrap(), 0, b'N', 0, 0, 0]);
        let drive = &option[10..52];
        assert_eq!(drive[..8], [4, 1, 42, 0, 2, 0, 0, 0]);
        assert_eq!(drive[8..16], 512_u64.to_le_bytes());
        assert_eq!(drive[16..24], (128_u64 << 10).to_le_bytes());
        assert_eq!(drive[24..32], [0x33, 0x22, 0x11, 0, 0x55, 0x44, 0x77, 0x66]);
        assert_eq!(drive[40..], [2, 2]);
        assert!(option.ends_with(&[b'I', 0, 0, 0, 0x7f, 0xff, 4, 0]) && option.len() == 10 + path);
    }

    #[test]
    fn the_new_entry_comes_first_and_those_of_erased_partitions_go() {
        let firmware = firmware(&[
            (0, "Network", OTHER),
            (1, TITLE, OLD),
            (3, TITLE, OTHER),
            (4, "another system", OLD),
        ]);
        for _ in 0..2 {
            enter(firmware.path(), TITLE, (&esp(NEW), SectorSize::B512), &[OLD]).unwrap();
            assert_eq!(
                tried(&firmware),
                [
                    (1, TITLE.into(), Some(NEW)),
                    (0, "Network".into(), Some(OTHER)),
                    (3, TITLE.into(), Some(OTHER)),
                    (4, "another system".into(), Some(OLD)),
                ]
            );
        }
    }

    #[test]
    fn the_entry_of_a_new_disk_comes_behind_that_of_the_other_one_and_those_of_absent_disks_go() {
        let (source, lost) = (uuid::uuid!("99999999-2222-4333-8444-555555555555"), OLD);
        let firmware = firmware(&[
            (0, "Network", OTHER),
            (1, TITLE, source),
            (2, TITLE, lost),
            (3, "another system", lost),
            (4, TITLE, OTHER),
        ]);
        for _ in 0..2 {
            enter_behind(firmware.path(), TITLE, (&esp(NEW), SectorSize::B512), source, &[source, OTHER])
                .unwrap();
            let order: Vec<_> =
                tried(&firmware).into_iter().map(|(number, _, part)| (number, part)).collect();
            let expected = [(0, OTHER), (1, source), (2, NEW), (3, lost), (4, OTHER)];
            assert_eq!(order, expected.map(|(number, part)| (number, Some(part))));
        }
        let directory = tempfile::tempdir().unwrap();
        enter_behind(directory.path(), TITLE, (&esp(NEW), SectorSize::B512), source, &[]).unwrap();
        assert_eq!(tried(&directory), [(0, TITLE.into(), Some(NEW))]);
    }

    #[test]
    fn a_firmware_without_entries_gets_its_first() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(format!("BootCurrent-{GLOBAL_VENDOR}")), [6, 0, 0, 0, 1, 0]).unwrap();
        enter(directory.path(), TITLE, (&esp(NEW), SectorSize::B512), &[]).unwrap();
        assert_eq!(tried(&directory), [(0, TITLE.into(), Some(NEW))]);
        let order = fs::read(directory.path().join(format!("BootOrder-{GLOBAL_VENDOR}"))).unwrap();
        assert_eq!(order, [7, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_next_start_is_that_of_the_disk_and_the_order_of_the_entries_stays() {
        let firmware = firmware(&[(0, "Network", OTHER), (1, "CD", OLD), (7, TITLE, NEW)]);
        let before = tried(&firmware);
        let disk = esp(NEW);
        let number = start_next(firmware.path(), TITLE, (&disk, SectorSize::B512)).unwrap();
        let next = || fs::read(firmware.path().join(format!("BootNext-{GLOBAL_VENDOR}"))).unwrap();
        assert_eq!((number, next()), (7, vec![7, 0, 0, 0, 7, 0]));
        assert_eq!(tried(&firmware), before);
    }

    #[test]
    fn a_firmware_that_has_forgotten_the_disk_gets_its_entry_behind_all_others() {
        let firmware = firmware(&[(0, "Network", OTHER), (1, TITLE, OTHER)]);
        let disk = esp(NEW);
        assert_eq!(start_next(firmware.path(), TITLE, (&disk, SectorSize::B512)).unwrap(), 2);
        assert_eq!(start_next(firmware.path(), TITLE, (&disk, SectorSize::B512)).unwrap(), 2);
        let numbers: Vec<_> =
            tried(&firmware).into_iter().map(|(number, _, partition)| (number, partition)).collect();
        assert_eq!(numbers, [(0, Some(OTHER)), (1, Some(OTHER)), (2, Some(NEW))]);
    }

    #[test]
    fn a_firmware_that_started_the_medium_again_is_not_told_a_second_time() {
        let directory = tempfile::tempdir().unwrap();
        let told = |now| was_told(directory.path(), now, &base::command::SystemRunner).unwrap();
        assert!(!told(1_000_000));
        assert!(told(1_000_100), "it came back at once");
        assert!(!told(1_000_200), "and is told again after that");
        assert!(!told(1_000_200 + SOON_SECONDS), "a node that ran for a while is another matter");
        assert!(!told(500), "a clock that went backwards tells nothing");
    }

    proptest::proptest! {
        #[test]
        fn no_value_of_a_firmware_makes_the_reader_fall(value in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = LoadOption::parse(&value);
        }
    }
}
