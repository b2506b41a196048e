//! What a node's boot loader would load from its EFI system partition, which is only read.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};

use crate::plan::Partition;

/// No file that is read here is longer.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// COMMAND_LINE_SIZE of x86.
const COMMAND_LINE_BYTES: usize = 2048;

/// Kernel, initrd and command line of a node.
#[derive(Debug)]
pub(super) struct BootFiles {
    pub(super) slot: char,
    pub(super) kernel: Vec<u8>,
    pub(super) initrd: Vec<u8>,
    pub(super) line: CString,
}

impl BootFiles {
    /// Reads the files of the slot that is to start, from the partition `esp` of `disk`.
    pub(super) fn read(disk: &File, esp: &Partition) -> Result<Self> {
        let part = DiskPart { disk, start: esp.start.get(), length: esp.size.get(), position: 0 };
        let volume =
            fatfs::FileSystem::new(part, fatfs::FsOptions::new()).context("opening its file system")?;
        let file = |path: &str| -> Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let opened = volume
                .root_dir()
                .open_file(path)
                .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
            opened.with_context(|| format!("reading {path}"))?;
            Ok(bytes)
        };
        let grub_cfg = String::from_utf8(file("grub/grub.cfg")?).context("grub/grub.cfg is not text")?;
        // Without it, the entry of slot a is the default.
        let environment = file("grub/grubenv").unwrap_or_default();
        let slot = match default(&String::from_utf8_lossy(&environment)) {
            'b' if file("nqrust/b/vmlinuz").is_ok() => 'b',
            _ => 'a',
        };
        let line = line(&grub_cfg, slot).with_context(|| format!("grub/grub.cfg starts no slot {slot}"))?;
        ensure!(line.len() < COMMAND_LINE_BYTES, "the kernel's command line has {} bytes", line.len());
        Ok(Self {
            slot,
            kernel: file(&format!("nqrust/{slot}/vmlinuz"))?,
            initrd: file(&format!("nqrust/{slot}/initrd"))?,
            line: CString::new(line).context("the kernel's command line contains a zero byte")?,
        })
    }
}

fn default(environment: &str) -> char {
    let named = environment.lines().find_map(|line| line.strip_prefix("nqrust_default="));
    if named == Some("b") { 'b' } else { 'a' }
}

/// The command line of a slot in a `grub.cfg` of ours, as GRUB hands it to the kernel.
fn line(grub_cfg: &str, slot: char) -> Option<String> {
    let kernel = format!("($root)/nqrust/{slot}/vmlinuz");
    let arguments = grub_cfg.lines().find_map(|line| {
        let rest = line.trim_start().strip_prefix("linux ")?.trim_start();
        rest.strip_prefix(kernel.as_str())?.strip_prefix(' ')
    })?;
    let words: Vec<_> = words(arguments)?.iter().map(|word| quoted(word)).collect();
    Some(words.join(" "))
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

/// A read-only stream of a part of a disk.
struct DiskPart<'a> {
    disk: &'a File,
    start: u64,
    length: u64,
    position: u64,
}

impl Read for DiskPart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.length.saturating_sub(self.position);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.disk.read_at(&mut buffer[..wanted], self.start + self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for DiskPart<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for DiskPart<'_> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.position = formats::fat::seek_to(target, self.position, self.length)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PartitionName;
    use base::size::ByteSize;
    use formats::fat::{FatFile, FatKind, FatVolume, MINIMUM, write_volume};

    /// A `grub.cfg` with an entry for each slot, as nodes have that keep their kernels on the EFI system partition.
    fn grub_cfg(arguments: &str) -> String {
        let entry = |slot| {
            format!(
                "menuentry 'NQRust (slot {slot})' {{\n\
                 \x20 linux ($root)/nqrust/{slot}/vmlinuz root=PARTUUID=1 nqrust.slot={slot} ro {arguments}\n\
                 \x20 initrd ($root)/nqrust/{slot}/initrd\n\
                 }}\n"
            )
        };
        entry('a') + &entry('b')
    }

    /// A disk whose EFI system partition holds these files, and that partition.
    fn esp(files: &[(&str, &str)]) -> (File, Partition) {
        let file = tempfile::tempfile().unwrap();
        let start = ByteSize::mib(2);
        file.set_len((start + MINIMUM).get()).unwrap();
        let volume = FatVolume { label: "ESP", id: 7, sector: 512, epoch: 0, kind: FatKind::Fat32 };
        let files = files.iter().map(|(path, text)| FatFile::new(*path, text.as_bytes())).collect();
        let mut image = tempfile::tempfile().unwrap();
        image.set_len(MINIMUM.get()).unwrap();
        write_volume(&mut image, volume, files).unwrap();
        image.rewind().unwrap();
        let mut bytes = Vec::new();
        image.read_to_end(&mut bytes).unwrap();
        file.write_all_at(&bytes, start.get()).unwrap();
        let uuid = uuid::Uuid::nil();
        (file, Partition { number: 2, name: PartitionName::Esp, uuid, start, size: MINIMUM })
    }

    #[test]
    fn the_kernel_gets_the_line_that_the_boot_loader_of_the_node_gives_it() {
        let text = grub_cfg("intel_iommu=on 'dyndbg=file a.c +p'");
        let line = line(&text, 'a').unwrap();
        assert!(line.starts_with("root=PARTUUID="), "{line}");
        assert!(line.contains(" nqrust.slot=a ") && !line.contains("($root)"), "{line}");
        assert!(line.ends_with(" intel_iommu=on \"dyndbg=file a.c +p\""), "{line}");
        assert!(super::line(&text, 'b').unwrap().contains(" nqrust.slot=b "));
    }

    #[test]
    fn the_files_are_those_of_the_slot_that_would_start() {
        let grub_cfg = grub_cfg("");
        let files = |environment, more: &[(&'static str, &'static str)]| {
            let mut files = vec![
                ("grub/grub.cfg", grub_cfg.as_str()),
                ("grub/grubenv", environment),
                ("nqrust/a/vmlinuz", "kernel a"),
                ("nqrust/a/initrd", "initrd a"),
            ];
            files.extend(more);
            let (disk, esp) = esp(&files);
            BootFiles::read(&disk, &esp).unwrap()
        };
        let read = files("# GRUB Environment Block\n####", &[]);
        assert_eq!((read.slot, &*read.kernel, &*read.initrd), ('a', &b"kernel a"[..], &b"initrd a"[..]));
        let chosen = "# GRUB Environment Block\nnqrust_default=b\n###";
        assert_eq!(files(chosen, &[]).slot, 'a', "there is no slot b");
        let read = files(chosen, &[("nqrust/b/vmlinuz", "kernel b"), ("nqrust/b/initrd", "initrd b")]);
        assert_eq!((read.slot, &*read.kernel), ('b', &b"kernel b"[..]));
        assert!(read.line.to_str().unwrap().contains("nqrust.slot=b"));
    }

    #[test]
    fn a_partition_without_them_is_an_error_that_names_what_is_missing() {
        let (disk, partition) = esp(&[("grub/grub.cfg", "set timeout=5\n")]);
        let error = format!("{:#}", BootFiles::read(&disk, &partition).unwrap_err());
        assert!(error.contains("starts no slot a"), "{error}");
        let empty = tempfile::tempfile().unwrap();
        empty.set_len(8 << 20).unwrap();
        assert!(BootFiles::read(&empty, &partition).is_err());
    }
}
