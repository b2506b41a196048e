//! What makes an ISO start from a USB stick, and what GRUB's images need to know about where they lie.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

use anyhow::{Context, Result, ensure};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::partition::Partition;
use gpt::partition_types::{self, Type};
use uuid::Uuid;

use super::layout::PARTITION;
use base::digest::Digest;
use base::size::ByteSize;
use formats::iso9660::address::{Block, Extent};

/// USB sticks have sectors of 512 bytes.
pub(super) const SECTOR: u64 = 512;
/// Code and the number it needs; the rest of the sector is the partition table.
const BOOT_CODE: usize = 440;
/// Sectors of a copy of the GUID partition table: header, and 128 entries of 128 bytes.
const TABLE_SECTORS: u64 = 33;
/// Where GRUB's boot sector has the number of the sector from which it goes on (`boot_hybrid.S` of GRUB).
const HYBRID_TARGET: usize = 0x1B0;
/// Where GRUB's El Torito image has the number of the sector from which it loads the rest (`cdboot.S` of GRUB).
const ELTORITO_TARGET: usize = 2548;
/// Where its boot information table is.
const BOOT_INFORMATION: std::ops::Range<usize> = 8..64;
/// The volume descriptor, as the boot information table names it.
const DESCRIPTOR: u32 = 16;
/// A partition that must not be removed (UEFI 2.10, 5.3.3) and, by Microsoft's meaning of the bit, is read-only.
const READ_ONLY: u64 = 1 << 60 | 1;

/// Digest of GRUB's boot sector for sticks without the address that [`first_sector`] writes into it.
pub fn boot_sector_digest(hybrid: &[u8]) -> Result<Digest> {
    let mut code = hybrid.get(..BOOT_CODE).context("GRUB's hybrid boot sector is too short")?.to_vec();
    code[HYBRID_TARGET..HYBRID_TARGET + 8].fill(0);
    Ok(Digest::of(&code))
}

/// Digest of GRUB's El Torito image without what [`patch_eltorito`] writes into it.
pub fn eltorito_digest(image: &[u8]) -> Result<Digest> {
    ensure!(image.len() > ELTORITO_TARGET + 8, "GRUB's El Torito image is too short");
    let mut image = image.to_vec();
    image[BOOT_INFORMATION].fill(0);
    image[ELTORITO_TARGET..ELTORITO_TARGET + 8].fill(0);
    Ok(Digest::of(&image))
}

/// Writes into an El Torito image of GRUB where on the ISO it lies: a boot information table (the convention of
/// mkisofs that `cdboot.S` uses) and the address of what its first sectors load.
pub fn patch_eltorito(image: &mut [u8], start: Block) -> Result<()> {
    ensure!(image.len() > ELTORITO_TARGET + 8, "GRUB's El Torito image is too short");
    let target = u64::from(start.0) * 4 + 5;
    image[ELTORITO_TARGET..ELTORITO_TARGET + 8].copy_from_slice(&target.to_le_bytes());
    let sum = image[64..].chunks(4).fold(0_u32, |sum, word| {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        sum.wrapping_add(u32::from_le_bytes(bytes))
    });
    let table = [DESCRIPTOR, start.0, u32::try_from(image.len())?, sum];
    image[BOOT_INFORMATION].fill(0);
    for (number, value) in table.iter().enumerate() {
        image[8 + 4 * number..12 + 4 * number].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// The first sector: GRUB's boot sector, sent to the El Torito image at `eltorito`, and a protective partition table.
///
/// Some firmware starts a stick only where an entry of the table is active; the second, empty entry is.
pub fn first_sector(hybrid: &[u8], eltorito: Block, size: u64) -> Result<[u8; 512]> {
    ensure!(hybrid.len() >= BOOT_CODE, "GRUB's hybrid boot sector is too short");
    let mut sector = [0; 512];
    sector[..BOOT_CODE].copy_from_slice(&hybrid[..BOOT_CODE]);
    let target = u64::from(eltorito.0) * 4 + 4;
    sector[HYBRID_TARGET..HYBRID_TARGET + 8].copy_from_slice(&target.to_le_bytes());
    let sectors = u32::try_from(size / SECTOR - 1).unwrap_or(u32::MAX);
    // Cylinders, heads and sectors are those that UEFI prescribes (UEFI 2.10, 5.2.3).
    let protective = table_entry(0x00, [0x00, 0x02, 0x00], 0xEE, [0xFF, 0xFF, 0xFF], 1, sectors);
    let active = table_entry(0x80, [0x00, 0x01, 0x00], 0x00, [0x00, 0x01, 0x00], 0, 1);
    sector[446..462].copy_from_slice(&protective);
    sector[462..478].copy_from_slice(&active);
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    Ok(sector)
}

/// An entry of the partition table: status, first place, type, last place, first sector, number of sectors.
fn table_entry(status: u8, first: [u8; 3], kind: u8, last: [u8; 3], start: u32, sectors: u32) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[0] = status;
    entry[1..4].copy_from_slice(&first);
    entry[4] = kind;
    entry[5..8].copy_from_slice(&last);
    entry[8..12].copy_from_slice(&start.to_le_bytes());
    entry[12..].copy_from_slice(&sectors.to_le_bytes());
    entry
}

/// Both copies of the GUID partition table, with the files as partition 1 and the EFI system partition as 2: the one
/// behind the boot sector, and the one at the end of an ISO of `size`.
pub(super) fn partition_tables(esp: Extent, size: ByteSize, guid: Uuid) -> Result<[Vec<u8>; 2]> {
    let start = esp.start.offset().0;
    let files = (PARTITION.offset().0, start);
    let esp = (start, start + u64::from(esp.length));
    let partition = |name: &str, kind: Type, (start, end): (u64, u64), flags| Partition {
        part_type_guid: kind,
        part_guid: Uuid::new_v5(&guid, name.as_bytes()),
        first_lba: start / SECTOR,
        last_lba: (end / SECTOR).saturating_sub(1),
        flags,
        name: name.to_owned(),
    };
    let partitions = BTreeMap::from([
        (1, partition("ISO9660", partition_types::BASIC, files, READ_ONLY)),
        (2, partition("ESP", partition_types::EFI, esp, 0)),
    ]);
    let config = GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).writable(true);
    let mut ends = Ends::new(size.get());
    let mut table = config.create_from_device(&mut ends, Some(guid)).context("making a partition table")?;
    table.update_partitions(partitions).context("making a partition table")?;
    table.write().context("making a partition table")?;
    let Ends { mut head, tail, .. } = ends;
    head.drain(..usize::try_from(SECTOR)?);
    Ok([head, tail])
}

/// A device of which only the two ends are kept, where the copies of a partition table are. Between them it is zero.
#[derive(Debug)]
struct Ends {
    size: u64,
    position: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn new(size: u64) -> Self {
        let table = usize::try_from(TABLE_SECTORS * SECTOR).unwrap_or_default();
        let sector = usize::try_from(SECTOR).unwrap_or_default();
        Self { size, position: 0, head: vec![0; sector + table], tail: vec![0; table] }
    }

    /// What is kept from the current position on; or how many bytes there are up to the next that are.
    fn here(&mut self) -> Result<&mut [u8], u64> {
        let tail = self.size.saturating_sub(self.tail.len() as u64);
        let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let (head, position) = (self.head.len() as u64, self.position);
        match position {
            _ if position >= self.size => Err(0),
            _ if position >= tail => Ok(&mut self.tail[inside(position - tail)..]),
            _ if position < head => Ok(&mut self.head[inside(position)..]),
            _ => Err(tail - position),
        }
    }
}

impl Read for Ends {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.here() {
            Ok(bytes) => {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                count
            }
            Err(gap) => {
                let count = usize::try_from(gap).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(0);
                count
            }
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for Ends {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let here = self.here().map_err(|_| io::Error::other("a partition table outside of its place"))?;
        let count = here.len().min(bytes.len());
        here[..count].copy_from_slice(&bytes[..count]);
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Ends {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.size.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
