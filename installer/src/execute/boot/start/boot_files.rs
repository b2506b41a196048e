//! What a node's boot loader would load from its disk, which is only read.

use std::ffi::CString;
use std::fs::File;

use anyhow::{Context, Result, ensure};

use crate::execute::boot::read_volume::FatReader;
use crate::installed::NodePlace;
use crate::plan::{BOOT_VOLUME_BYTES, SlotGeometry};
use model::boot::grub::SLOT_FILE;
use model::boot::{Slot, loader, parameter};

/// COMMAND_LINE_SIZE of x86.
const COMMAND_LINE_BYTES: usize = 2048;

/// Kernel, initrd and command line of a node.
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
        // Without it, the slots that load are good.
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
        let line = line(&node, &slot_cfg, start.slot)
            .with_context(|| format!("grub/node.cfg starts no slot {}", start.slot))?;
        ensure!(line.len() < COMMAND_LINE_BYTES, "the kernel's command line has {} bytes", line.len());
        Ok(Self {
            slot: start.slot,
            kernel: volume.file("vmlinuz")?,
            initrd: volume.file("initrd")?,
            line: CString::new(line).context("the kernel's command line contains a zero byte")?,
        })
    }
}

/// The command line of a slot as GRUB hands it to the kernel: that of `node.cfg`, with the variables of the script filled in.
fn line(node: &str, slot_cfg: &str, slot: Slot) -> Option<String> {
    let lines = || node.lines().map(str::trim_start);
    let arguments = lines().find_map(|line| line.strip_prefix("linux (bt)/vmlinuz "))?;
    let test = format!("[ $1 = {slot} ]; then set nq_root=");
    // The recovery system's comes last, without a test.
    let root = lines()
        .find_map(|line| Some(line.split_once(&test)?.1))
        .or_else(|| lines().find_map(|line| line.strip_prefix("else set nq_root=")))?;
    let own = lines_of(slot_cfg, "set slot_words=").and_then(words).unwrap_or_default().concat();
    let mut all = Vec::new();
    for word in words(arguments)? {
        match word.as_str() {
            "$nq_words" => all.push(format!("{}={slot}", parameter::SLOT)),
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
    use crate::inventory::Inventory;
    use crate::plan::tests::{GUID, disk, release, trial};
    use crate::plan::{EspContent, Step};
    use base::size::ByteSize;

    /// `node.cfg` and `slot.cfg` of an install with these kernel arguments.
    fn texts(arguments: &str) -> [String; 2] {
        let mut config = trial();
        config.os.additional_kernel_arguments = arguments.parse().ok();
        let inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], nics: vec![] };
        let plan = crate::plan::plan(&config, &inventory, &release(), GUID).unwrap();
        let files = plan.steps.iter().flat_map(|step| match step {
            Step::Esp(content) | Step::Slot { boot: content, .. } => content.files.clone(),
            _ => vec![],
        });
        let files: Vec<_> = files.collect();
        ["grub/node.cfg", SLOT_FILE].map(|path| {
            match &files.iter().find(|file| file.path == path).unwrap().content {
                EspContent::Text(text) => text.clone(),
                other => panic!("{other:?}"),
            }
        })
    }

    #[test]
    fn the_kernel_gets_the_line_that_the_boot_loader_of_the_node_gives_it() {
        let [node, slot_cfg] = texts("intel_iommu=on \"dyndbg=file a.c +p\"");
        let roots = [Slot::A, Slot::B, Slot::Recovery].map(|slot| {
            let line = line(&node, &slot_cfg, slot).unwrap();
            assert!(line.contains(&format!(" nqrust.slot={slot} quiet ")), "{line}");
            assert!(!line.contains('$'), "{line}");
            assert!(line.ends_with(" intel_iommu=on \"dyndbg=file a.c +p\""), "{line}");
            line.split(' ').next().unwrap().to_owned()
        });
        assert!(roots.iter().all(|root| root.starts_with("root=PARTUUID=")), "{roots:?}");
        assert!(roots[0] != roots[1] && roots[1] != roots[2], "{roots:?}");
    }
}
