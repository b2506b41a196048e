//! Repairs the first entries of new directories.
//!
//! `fatfs` 0.3 gives `.` and `..` long-name entries of their own. The specification wants the two as the first
//! entries of a directory, short names alone (Microsoft FAT specification 1.03, section 6.5); `fsck.vfat` takes
//! the others for damage. It also gives the root as a parent its cluster number instead of 0.

use std::io::{self, Read, Seek, SeekFrom, Write};

const ENTRY: usize = 32;
const LONG_NAME: u8 = 0x0f;
const DIRECTORY: u8 = 0x10;
const DELETED: u8 = 0xe5;
/// Cluster numbers have 28 bits; this and larger numbers end a chain.
const CHAIN_END: u32 = 0x0fff_fff7;

/// The layout of a FAT32 volume.
struct Geometry {
    fat: u64,
    data: u64,
    cluster: u64,
    root: u32,
}

impl Geometry {
    fn read(device: &mut (impl Read + Seek)) -> io::Result<Self> {
        let mut boot = [0; 48];
        device.seek(SeekFrom::Start(0))?;
        device.read_exact(&mut boot)?;
        let sector = u64::from(half(&boot, 11));
        let fat = u64::from(half(&boot, 14)) * sector;
        let data = fat + u64::from(boot[16]) * u64::from(word(&boot, 36)) * sector;
        Ok(Self { fat, data, cluster: u64::from(boot[13]) * sector, root: word(&boot, 44) })
    }

    fn offset(&self, cluster: u32) -> u64 {
        self.data + u64::from(cluster).saturating_sub(2) * self.cluster
    }
}

/// Repairs every directory below the root of the FAT32 volume on `device`.
pub(super) fn repair(device: &mut (impl Read + Write + Seek)) -> io::Result<()> {
    let geometry = Geometry::read(device)?;
    // Directories to repair, each with whether the root is its parent.
    let mut open = vec![(geometry.root, false)];
    while let Some((first, below_root)) = open.pop() {
        let is_root = first == geometry.root;
        if !is_root {
            repair_directory(device, geometry.offset(first), below_root)?;
        }
        let mut cluster = first;
        while (2..CHAIN_END).contains(&cluster) {
            let mut bytes = vec![0; usize::try_from(geometry.cluster).map_err(io::Error::other)?];
            device.seek(SeekFrom::Start(geometry.offset(cluster)))?;
            device.read_exact(&mut bytes)?;
            let found = bytes.chunks_exact(ENTRY).filter_map(subdirectory);
            open.extend(found.map(|cluster| (cluster, is_root)));
            let mut next = [0; 4];
            device.seek(SeekFrom::Start(geometry.fat + u64::from(cluster) * 4))?;
            device.read_exact(&mut next)?;
            cluster = u32::from_le_bytes(next) & 0x0fff_ffff;
        }
    }
    device.flush()
}

/// The first cluster of the directory that `entry` stands for.
fn subdirectory(entry: &[u8]) -> Option<u32> {
    let own = matches!(entry[0], b'.' | DELETED | 0);
    let directory = entry[11] != LONG_NAME && entry[11] & DIRECTORY != 0;
    (directory && !own).then(|| u32::from(half(entry, 20)) << 16 | u32::from(half(entry, 26)))
}

fn repair_directory(
    device: &mut (impl Read + Write + Seek),
    offset: u64,
    below_root: bool,
) -> io::Result<()> {
    let mut head = [0; 4 * ENTRY];
    device.seek(SeekFrom::Start(offset))?;
    device.read_exact(&mut head)?;
    if head[11] != LONG_NAME || head[ENTRY] != b'.' || head[2 * ENTRY + 11] != LONG_NAME {
        return Ok(());
    }
    head.copy_within(ENTRY..2 * ENTRY, 0);
    head.copy_within(3 * ENTRY..4 * ENTRY, ENTRY);
    head[2 * ENTRY..].fill(0);
    if below_root {
        // The root as a parent has the number 0, wherever it begins.
        head[ENTRY + 20..ENTRY + 22].fill(0);
        head[ENTRY + 26..ENTRY + 28].fill(0);
    }
    (head[2 * ENTRY], head[3 * ENTRY]) = (DELETED, DELETED);
    device.seek(SeekFrom::Start(offset))?;
    device.write_all(&head)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

#[cfg(test)]
mod tests {
    use crate::fat::{FatFile, FatKind, FatVolume, MINIMUM, write_volume};
    use base::command::{Invocation, Runner, SystemRunner};

    #[test]
    fn a_new_volume_is_clean_to_fsck() {
        for sector in [512, 4096] {
            let mut volume = tempfile::NamedTempFile::new().unwrap();
            volume.as_file().set_len(MINIMUM.get()).unwrap();
            let paths = ["EFI/BOOT/BOOTX64.EFI", "EFI/debian/grub.cfg", "a/b/c/d", "a/b/a long name.text"];
            let files = paths.map(|path| FatFile::new(path, path.as_bytes())).into_iter().collect();
            let identity =
                FatVolume { label: "ESP", id: 7, sector, epoch: 1_700_000_000, kind: FatKind::Fat32 };
            write_volume(volume.as_file_mut(), identity, files).unwrap();
            let check = Invocation::new("sh").args(["-c", "fsck.vfat -n -v \"$0\" >&2"]).arg(volume.path());
            SystemRunner.run(&check).unwrap();
        }
    }
}
