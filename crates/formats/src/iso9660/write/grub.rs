//! Patches GRUB's El Torito image for BIOS and its boot sector for USB sticks with their addresses on the ISO.

use anyhow::{Context, Result, ensure};

use super::partition_tables::SECTOR;
use crate::iso9660::address::Block;
use crate::iso9660::ecma119::DESCRIPTORS;
use crate::partition_table::active_entry::put_active_entry;
use base::digest::Digest;

/// The length of the code and its address; the rest of the sector is the partition table.
pub const BOOT_CODE: usize = 440;
/// Where GRUB's boot sector has the number of the sector from which it goes on (`boot_hybrid.S` of GRUB).
const HYBRID_TARGET: usize = 0x1B0;
/// Where GRUB's El Torito image has the number of the sector from which it loads the rest (`cdboot.S` of GRUB).
const ELTORITO_TARGET: usize = 2548;
/// Where its boot information table is.
const BOOT_INFORMATION: std::ops::Range<usize> = 8..64;
/// Digest of GRUB's boot sector for sticks without the address that [`first_sector`] writes into it.
pub fn boot_sector_digest(hybrid: &[u8]) -> Result<Digest> {
    Ok(Digest::of(&bare_boot_sector(hybrid)?))
}

/// GRUB's boot sector for sticks, or the first sector of an ISO, as it is on no ISO in particular.
pub fn bare_boot_sector(hybrid: &[u8]) -> Result<Vec<u8>> {
    let mut code = hybrid.get(..BOOT_CODE).context("GRUB's hybrid boot sector is too short")?.to_vec();
    code[HYBRID_TARGET..HYBRID_TARGET + 8].fill(0);
    Ok(code)
}

/// Digest of GRUB's El Torito image without what [`patch_eltorito`] writes into it.
pub fn eltorito_digest(image: &[u8]) -> Result<Digest> {
    Ok(Digest::of(&bare_eltorito(image)?))
}

/// An El Torito image of GRUB, also one from an ISO, as it is on no ISO in particular.
pub fn bare_eltorito(image: &[u8]) -> Result<Vec<u8>> {
    ensure!(image.len() > ELTORITO_TARGET + 8, "GRUB's El Torito image is too short");
    let mut image = image.to_vec();
    image[BOOT_INFORMATION].fill(0);
    image[ELTORITO_TARGET..ELTORITO_TARGET + 8].fill(0);
    Ok(image)
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
    let table = [DESCRIPTORS.0, start.0, u32::try_from(image.len())?, sum];
    image[BOOT_INFORMATION].fill(0);
    for (number, value) in table.iter().enumerate() {
        image[8 + 4 * number..12 + 4 * number].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// The first sector: GRUB's boot sector, sent to the El Torito image at `eltorito`, and a protective partition table.
///
/// Some firmware starts a stick only where an entry of the table is active.
pub fn first_sector(hybrid: &[u8], eltorito: Block, size: u64) -> Result<[u8; 512]> {
    ensure!(hybrid.len() >= BOOT_CODE, "GRUB's hybrid boot sector is too short");
    let mut sector = plain_first_sector(size);
    sector[..BOOT_CODE].copy_from_slice(&hybrid[..BOOT_CODE]);
    let target = u64::from(eltorito.0) * 4 + 4;
    sector[HYBRID_TARGET..HYBRID_TARGET + 8].copy_from_slice(&target.to_le_bytes());
    put_active_entry(&mut sector);
    Ok(sector)
}

/// The first sector of an image of `size` bytes that no BIOS starts: a protective partition table alone.
#[must_use]
pub fn plain_first_sector(size: u64) -> [u8; 512] {
    let mut sector = [0; 512];
    let sectors = u32::try_from(size / SECTOR - 1).unwrap_or(u32::MAX);
    // Cylinders, heads and sectors are those that UEFI prescribes (UEFI 2.10, 5.2.3).
    let protective = table_entry(0x00, [0x00, 0x02, 0x00], 0xEE, [0xFF, 0xFF, 0xFF], 1, sectors);
    sector[446..462].copy_from_slice(&protective);
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
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
