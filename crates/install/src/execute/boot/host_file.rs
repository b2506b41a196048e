//! The kernel arguments that follow from `os.host`, kept for the boot loader on the EFI system partitions of a node: one sector,
//! written in place.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::record::{open_placed, write};
use base::failure::{Class, Classify};
use model::boot::grub::{HOST_FILE, HOST_FILE_BYTES, host_cfg};

/// Sets the arguments on every EFI system partition, device nodes, for the next start. A partition that has them is not written.
/// Returns whether one was written.
///
/// # Errors
/// [`Class::DiskIo`] for the first partition on which they cannot be written; the others are written all the same.
pub fn change_host_words(esps: &[PathBuf], words: &[String]) -> Result<bool> {
    let text = host_cfg(words);
    let mut changed = false;
    let mut failed = None;
    for esp in esps {
        let what = || format!("changing the kernel arguments on {}", esp.display());
        match change(esp, &text).class(Class::DiskIo, what) {
            Ok(written) => changed |= written,
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    failed.map_or(Ok(changed), Err)
}

fn change(esp: &Path, text: &str) -> Result<bool> {
    let (disk, (old, place)) = open_placed(esp, HOST_FILE)?;
    ensure!(old.len() == HOST_FILE_BYTES, "{HOST_FILE} has {} bytes, not {HOST_FILE_BYTES}", old.len());
    ensure!(text.len() == HOST_FILE_BYTES, "the kernel arguments have {} bytes", text.trim_end().len());
    if old == text.as_bytes() {
        return Ok(false);
    }
    write(&disk, place, &old, text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::esp_with;
    use super::*;
    use base::failure::class_of;
    use std::fs;

    /// An EFI system partition with this content of the file between others.
    fn esp(directory: &Path, name: &str, content: &[u8]) -> PathBuf {
        let files = [("node.cfg", &[b'n'; 700][..]), ("host.cfg", content), ("grubenv", &[b'#'; 1024])];
        esp_with(directory, name, &files)
    }

    fn content(esp: &Path) -> String {
        let file = fs::File::open(esp).unwrap();
        let reader = super::super::read_volume::FatReader::new(&file, 0, 8 << 20);
        assert_eq!(reader.file("grub/node.cfg").unwrap(), [b'n'; 700]);
        assert_eq!(reader.file("grub/grubenv").unwrap(), [b'#'; 1024]);
        String::from_utf8(reader.file(HOST_FILE).unwrap()).unwrap()
    }

    #[test]
    fn every_disk_gets_the_arguments_once() {
        let directory = tempfile::tempdir().unwrap();
        let esps = ["first", "second"].map(|name| esp(directory.path(), name, host_cfg(&[]).as_bytes()));
        let words = ["isolcpus=2-7".to_owned(), "iommu=pt".to_owned()];
        assert!(change_host_words(&esps, &words).unwrap());
        esps.iter().for_each(|esp| assert_eq!(content(esp), host_cfg(&words)));
        assert!(!change_host_words(&esps, &words).unwrap(), "nothing is written twice");
        assert!(change_host_words(&esps, &[]).unwrap());
        esps.iter().for_each(|esp| assert_eq!(content(esp), host_cfg(&[])));
    }

    #[test]
    fn a_file_of_another_length_is_left_alone_and_the_other_disk_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let odd = esp(directory.path(), "odd", b"set nq_host=\n");
        let whole = esp(directory.path(), "whole", host_cfg(&[]).as_bytes());
        let words = ["iommu=pt".to_owned()];
        let error = change_host_words(&[odd.clone(), whole.clone()], &words).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(format!("{error:#}").contains("grub/host.cfg has 13 bytes, not 512"), "{error:#}");
        assert_eq!((content(&odd), content(&whole)), ("set nq_host=\n".to_owned(), host_cfg(&words)));
        assert!(change_host_words(&[directory.path().join("gone")], &words).is_err());
    }
}
