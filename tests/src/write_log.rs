//! The logs that QEMU's block driver `blklogwrites` keeps, in the format of Linux's `dm-log-writes`
//! (`Documentation/admin-guide/device-mapper/log-writes.rst`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nqrust_checker::crash::Entry;

const MAGIC: u64 = 0x6a_7366_7773_6872;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// The writes that reached the disk, in order; the data is in the file itself. Writes after the last flush are left
/// out. Discarded blocks are assumed to keep their content: nothing may rely on either.
pub fn read(path: &Path) -> Result<(Vec<Entry>, File)> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut head = [0; 28];
    file.read_exact_at(&mut head, 0).context("reading the log's superblock")?;
    let word = |bytes: &[u8], index: usize| -> u64 {
        bytes[index * 8..].iter().take(8).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    ensure!((word(&head, 0), word(&head, 1)) == (MAGIC, 1), "{} is no log of writes", path.display());
    let count = word(&head, 2);
    let sector = head[24..].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let mut entries = Vec::new();
    let mut place = sector;
    for number in 0..count {
        let mut entry = [0; 32];
        file.read_exact_at(&mut entry, place)
            .with_context(|| format!("reading entry {number} of the log"))?;
        let (offset, length, flags) = (word(&entry, 0) * sector, word(&entry, 1) * sector, word(&entry, 2));
        place += sector;
        if flags & FLUSH != 0 {
            entries.push(Entry::Flush);
        }
        if flags & DISCARD != 0 {
            continue;
        }
        if length > 0 && flags & MARK == 0 {
            entries.push(Entry::Write { offset, length, at: place });
        }
        place += length;
    }
    Ok((entries, file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn writes_flushes_and_discards_are_told_apart() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        let mut sector = |words: &[u64]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.resize(512, 0);
            log.write_all(&bytes).unwrap();
        };
        sector(&[MAGIC, 1, 4, 512]);
        sector(&[8, 2, 0, 0]);
        sector(&[11]);
        sector(&[22]);
        sector(&[0, 0, FLUSH, 0]);
        sector(&[100, 50, DISCARD, 0]);
        sector(&[9, 1, 0, 0]);
        sector(&[33]);
        let (entries, _) = read(log.path()).unwrap();
        assert_eq!(
            entries,
            [
                Entry::Write { offset: 4096, length: 1024, at: 1024 },
                Entry::Flush,
                Entry::Write { offset: 4608, length: 512, at: 3584 }
            ]
        );
    }
}
