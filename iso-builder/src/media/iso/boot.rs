//! What makes an ISO start from a USB stick, and what GRUB's images need to know about where they lie.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use anyhow::{Result, ensure};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::partition::Partition;
use gpt::partition_types::{self, Type};
use uuid::Uuid;

use super::layout::{Layout, PARTITION};
use crate::iso9660::Block;

/// USB sticks have sectors of 512 bytes.
const SECTOR: u64 = 512;
/// Code and the number it needs; the rest of the sector is the partition table.
const BOOT_CODE: usize = 440;
/// Where GRUB's boot sector has the number of the sector from which it goes on (`boot_hybrid.S` of GRUB).
const HYBRID_TARGET: usize = 0x1B0;
/// Where GRUB's El Torito image has the number of the sector from which it loads the rest (`cdboot.S` of GRUB).
const ELTORITO_TARGET: usize = 2548;
/// The volume descriptor, as the boot information table names it.
const DESCRIPTOR: u32 = 16;
/// A partition that must not be removed (UEFI 2.10, 5.3.3) and, by Microsoft's meaning of the bit, is read-only.
const READ_ONLY: u64 = 1 << 60 | 1;

/// Writes into an El Torito image of GRUB where on the ISO it lies: a boot information table (the convention of
/// mkisofs that `cdboot.S` uses) and the address of what its first sectors load.
pub(super) fn patch_eltorito(image: &mut [u8], start: Block) -> Result<()> {
    ensure!(image.len() > ELTORITO_TARGET + 8, "GRUB's El Torito image is too short");
    let target = u64::from(start.0) * 4 + 5;
    image[ELTORITO_TARGET..ELTORITO_TARGET + 8].copy_from_slice(&target.to_le_bytes());
    let sum = image[64..].chunks(4).fold(0_u32, |sum, word| {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        sum.wrapping_add(u32::from_le_bytes(bytes))
    });
    let table = [DESCRIPTOR, start.0, u32::try_from(image.len())?, sum];
    image[8..64].fill(0);
    for (number, value) in table.iter().enumerate() {
        image[8 + 4 * number..12 + 4 * number].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// The first sector: GRUB's boot sector, sent to the El Torito image at `eltorito`, and a protective partition table.
///
/// Some firmware starts a stick only where an entry of the table is active; the second, empty entry is.
pub(super) fn first_sector(hybrid: &[u8], eltorito: Block, size: u64) -> Result<[u8; 512]> {
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

/// Writes both copies of the GUID partition table: the files as partition 1, the EFI system partition as 2.
pub(super) fn write_table(iso: &mut File, layout: &Layout, guid: Uuid) -> Result<()> {
    let esp = layout.esp.start.offset().0;
    let files = (PARTITION.offset().0, esp);
    let esp = (esp, esp + u64::from(layout.esp.length));
    let partition = |name: &str, kind: Type, (start, end): (u64, u64), flags| Partition {
        part_type_guid: kind,
        part_guid: Uuid::new_v5(&guid, name.as_bytes()),
        first_lba: start / SECTOR,
        last_lba: end / SECTOR - 1,
        flags,
        name: name.to_owned(),
    };
    let partitions = BTreeMap::from([
        (1, partition("ISO9660", partition_types::BASIC, files, READ_ONLY)),
        (2, partition("ESP", partition_types::EFI, esp, 0)),
    ]);
    let config = GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).writable(true);
    let mut table = config.create_from_device(&mut *iso, Some(guid))?;
    table.update_partitions(partitions)?;
    table.write()?.flush()?;
    Ok(())
}
