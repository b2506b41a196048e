//! The files that a node's boot loader would load, read from its disk.

use std::ffi::CString;
use std::fs::File;

use anyhow::{Context, Result, ensure};

use crate::execute::boot::read_volume::FatReader;
use crate::installed::NodePlace;
use crate::plan::{BOOT_VOLUME_BYTES, SlotGeometry};
use model::boot::crash::COMMAND_LINE_BYTES;
use model::boot::grub::{HOST_FILE, INITRD_FILE, KERNEL_FILE, NETWORK_DISKS_FILE, SLOT_FILE, host_words};
use model::boot::{Slot, loader, parameter};

#[derive(Debug)]
pub(super) struct BootFiles {
    pub(super) slot: Slot,
    pub(super) kernel: Vec<u8>,
    pub(super) initrd: Vec<u8>,
    pub(super) line: CString,
}

impl BootFiles {
    /// Reads the files of the slot that is to start. The start is not counted: a boot that does not come from the firmware is
    /// never reported as good either.
    pub(super) fn read(disk: &File, place: &NodePlace) -> Result<Self> {
        let esp = FatReader::new(disk, place.esp.start.get(), place.esp.size.get());
        // Without a record, every slot that loads counts as good.
        let record = esp.file("grub/grubenv").unwrap_or_default();
        let node = String::from_utf8(esp.file("grub/node.cfg")?).context("grub/node.cfg is not text")?;
        let volume = |slot: Slot| {
            let (_, partition) = place.slots.iter().find(|(known, _)| *known == slot)?;
            let start = SlotGeometry::of(partition).boot.get();
            Some(FatReader::new(disk, start, BOOT_VOLUME_BYTES.get()))
        };
        let loads = |slot| volume(slot).is_some_and(|volume| volume.file(SLOT_FILE).is_ok());
        let start = loader::decide(&record, loads, true).start.context("no slot can be started")?;
        let volume = volume(start.slot).context("the slot has no partition")?;
        let slot_cfg = String::from_utf8_lossy(&volume.file(SLOT_FILE)?).into_owned();
        let host = esp.file(HOST_FILE).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let line = line(&node, &host.unwrap_or_default(), &slot_cfg, start.slot)
            .with_context(|| format!("grub/node.cfg starts no slot {}", start.slot))?;
        ensure!(line.len() < COMMAND_LINE_BYTES, "the kernel's command line has {} bytes", line.len());
        Ok(Self {
            slot: start.slot,
            kernel: volume.file(KERNEL_FILE)?,
            initrd: initrd(volume.file(INITRD_FILE)?, esp.file(NETWORK_DISKS_FILE).ok().as_deref()),
            line: CString::new(line).context("the kernel's command line contains a zero byte")?,
        })
    }
}

/// The initrd of a slot, and the archive of a node whose disks are reached over the network after it, as GRUB hands them to the kernel:
/// each begins at a multiple of four bytes.
fn initrd(mut of_slot: Vec<u8>, disks: Option<&[u8]>) -> Vec<u8> {
    if let Some(disks) = disks {
        of_slot.resize(of_slot.len().next_multiple_of(4), 0);
        of_slot.extend_from_slice(disks);
    }
    of_slot
}

/// The command line of a slot as GRUB hands it to the kernel: that of `node.cfg`, with the variables of the script filled in.
/// `host` is the text of `host.cfg`.
fn line(node: &str, host: &str, slot_cfg: &str, slot: Slot) -> Option<String> {
    let lines = || node.lines().map(str::trim_start);
    let arguments = lines().find_map(|line| line.strip_prefix("linux (bt)/vmlinuz "))?;
    let test = format!("[ $1 = {slot} ]; then set nq_root=");
    // The recovery system's comes last, without a test.
    let root = lines()
        .find_map(|line| Some(line.split_once(&test)?.1))
        .or_else(|| lines().find_map(|line| line.strip_prefix("else set nq_root=")))?;
    let root = root.split(';').next()?;
    let own = lines_of(slot_cfg, "set slot_words=").and_then(words).unwrap_or_default().concat();
    let mut all = Vec::new();
    for word in words(arguments)? {
        match word.as_str() {
            "$nq_words" => all.push(format!("{}={slot}", parameter::SLOT)),
            // The recovery system is without them.
            "$nq_own" if slot == Slot::Recovery => {}
            "$nq_own" => all.extend(host_words(host).unwrap_or_default()),
            "$slot_words" => all.extend(own.split_whitespace().map(str::to_owned)),
            other => all.push(quoted(&other.replace("$nq_root", root))),
        }
    }
    Some(all.join(" "))
}

/// The rest of the first line that begins so.
fn lines_of<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(beginning))
}

/// The words of a line whose only quotes are single ones; `None` if a quote is not closed (GRUB manual, "Quoting").
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(letters.next()?),
            ' ' | '\t' => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// A word as GRUB writes it into the kernel's command line (`grub_create_loader_cmdline`).
fn quoted(word: &str) -> String {
    let escaped: String = word
        .chars()
        .flat_map(|letter| matches!(letter, '\\' | '\'' | '"').then_some('\\').into_iter().chain([letter]))
        .collect();
    if word.contains(' ') { format!("\"{escaped}\"") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{GUID, disk, release, trial};
    use crate::plan::{Partition, PartitionName, PlannedContent, Step};
    use base::size::ByteSize;
    use formats::fat::{DeviceRegion, FatFile, FatKind, FatVolume, MINIMUM, write_volume};
    use machine::inventory::Inventory;
    use model::boot::record::{BootRecord, UpdateSlot};

    /// `node.cfg`, `slot.cfg` and `host.cfg` of an install with these kernel arguments, on a host with isolated processors.
    fn texts(arguments: &str) -> [String; 3] {
        let mut config = trial();
        config.os.host.cpu.isolated = "2-7".parse().ok();
        config.os.additional_kernel_arguments = arguments.parse().ok();
        let inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], ..Inventory::default() };
        let plan = crate::plan::plan(&config, &inventory, &release().into(), GUID).unwrap();
        let files = plan.steps.iter().flat_map(|step| match step {
            Step::Esp(content) | Step::Slot { boot: content, .. } => content.files.clone(),
            _ => vec![],
        });
        let files: Vec<_> = files.collect();
        ["grub/node.cfg", SLOT_FILE, HOST_FILE].map(|path| {
            match &files.iter().find(|file| file.path == path).unwrap().content {
                PlannedContent::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            }
        })
    }

    #[test]
    fn the_archive_of_disks_over_the_network_follows_the_initrd_of_the_slot() {
        assert_eq!(initrd(b"abcde".to_vec(), None), b"abcde");
        assert_eq!(initrd(b"abcde".to_vec(), Some(b"070701")), [&b"abcde\0\0\0"[..], b"070701"].concat());
    }

    #[test]
    fn the_kernel_gets_the_line_that_the_boot_loader_of_the_node_gives_it() {
        let [node, slot_cfg, host] = texts("intel_iommu=on \"dyndbg=file a.c +p\"");
        let roots = [Slot::A, Slot::B, Slot::Recovery].map(|slot| {
            let line = line(&node, &host, &slot_cfg, slot).unwrap();
            assert!(line.contains(&format!(" nqrust.slot={slot} quiet ")), "{line}");
            assert!(!line.contains('$'), "{line}");
            let isolated = " quiet isolcpus=2-7 nohz_full=2-7 rcu_nocbs=2-7 multipath=off ";
            assert_eq!(line.contains(isolated), slot != Slot::Recovery, "{line}");
            assert!(line.ends_with(" intel_iommu=on \"dyndbg=file a.c +p\""), "{line}");
            line.split(' ').next().unwrap().to_owned()
        });
        assert!(roots.iter().all(|root| root.starts_with("root=PARTUUID=")), "{roots:?}");
        assert!(roots[0] != roots[1] && roots[1] != roots[2], "{roots:?}");
    }

    /// A disk with an EFI system partition that holds these files, and boot volumes of slots with these.
    fn node(esp: &[(&str, &str)], slots: &[(Slot, &[(&str, &str)])]) -> (File, NodePlace) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 << 30).unwrap();
        let write = |start: ByteSize, size: ByteSize, files: &[(&str, &str)]| {
            let mut part = DeviceRegion::new(&file, start.get(), size.get());
            let volume = FatVolume { label: "TEST", id: 7, sector: 512, epoch: 0, kind: FatKind::Fat32 };
            let files = files.iter().map(|(path, text)| FatFile::new(*path, text.as_bytes())).collect();
            write_volume(&mut part, volume, files).unwrap();
        };
        let partition =
            |number: u32, name, start, size| Partition { number, name, uuid: uuid::Uuid::nil(), start, size };
        let place = NodePlace {
            disk: "/dev/vda".into(),
            description: "a test disk".into(),
            sector: crate::plan::SectorSize::B512,
            esp: partition(2, PartitionName::Esp, ByteSize::mib(2), MINIMUM),
            slots: (0..)
                .zip(Slot::ALL)
                .map(|(place, slot)| {
                    let start = ByteSize::mib(300 + place * 330);
                    (slot, partition(4, slot.into(), start, ByteSize::mib(330)))
                })
                .collect(),
            config: ByteSize::mib(1),
        };
        write(place.esp.start, place.esp.size, esp);
        for (slot, files) in slots {
            let (_, partition) = place.slots.iter().find(|(known, _)| known == slot).unwrap();
            write(SlotGeometry::of(partition).boot, BOOT_VOLUME_BYTES, files);
        }
        (file, place)
    }

    #[test]
    fn the_files_are_those_of_the_slot_that_would_start() {
        let [node_cfg, slot_cfg, host] = texts("");
        let files = |record: &BootRecord, slots: &[(Slot, &[(&str, &str)])]| {
            let record = String::from_utf8(record.to_block().to_vec()).unwrap();
            let esp = [
                ("grub/node.cfg", node_cfg.as_str()),
                ("grub/grubenv", record.as_str()),
                (HOST_FILE, host.as_str()),
            ];
            let (disk, place) = node(&esp, slots);
            BootFiles::read(&disk, &place).unwrap()
        };
        let a = [(SLOT_FILE, slot_cfg.as_str()), (KERNEL_FILE, "kernel a"), (INITRD_FILE, "initrd a")];
        let b = [(SLOT_FILE, slot_cfg.as_str()), (KERNEL_FILE, "kernel b"), (INITRD_FILE, "initrd b")];
        let read = files(&BootRecord::installed(), &[(Slot::A, &a)]);
        assert_eq!((read.slot, &*read.kernel, &*read.initrd), (Slot::A, &b"kernel a"[..], &b"initrd a"[..]));
        let chosen = BootRecord { order: UpdateSlot::B, ..BootRecord::default() };
        assert_eq!(files(&chosen, &[(Slot::A, &a)]).slot, Slot::A, "there is no slot b");
        let read = files(&chosen, &[(Slot::A, &a), (Slot::B, &b)]);
        assert_eq!((read.slot, &*read.kernel), (Slot::B, &b"kernel b"[..]));
        assert!(read.line.to_str().unwrap().contains("nqrust.slot=b quiet isolcpus=2-7 "), "{read:?}");
    }

    #[test]
    fn a_disk_without_them_is_an_error_that_names_what_is_missing() {
        let [_, slot_cfg, _] = texts("");
        let slot: &[(&str, &str)] = &[(SLOT_FILE, &slot_cfg)];
        let error = |esp: &[(&str, &str)], slots: &[(Slot, &[(&str, &str)])]| {
            let (disk, place) = node(esp, slots);
            format!("{:#}", BootFiles::read(&disk, &place).unwrap_err())
        };
        let text = error(&[("grub/node.cfg", "set timeout=5\n")], &[(Slot::A, slot)]);
        assert!(text.contains("starts no slot a"), "{text}");
        let text = error(&[("grub/node.cfg", "set timeout=5\n")], &[]);
        assert!(text.contains("no slot can be started"), "{text}");
        let text = error(&[], &[(Slot::A, slot)]);
        assert!(text.contains("reading grub/node.cfg"), "{text}");
        let (_, place) = node(&[], &[]);
        let empty = tempfile::tempfile().unwrap();
        empty.set_len(8 << 20).unwrap();
        assert!(BootFiles::read(&empty, &place).is_err());
    }
}
