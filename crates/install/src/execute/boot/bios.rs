//! GRUB for BIOS: the core in its partition, the boot sector in front of it.
//!
//! This does what GRUB's own set-up does with an embedding area: it fills in the addresses that GRUB cannot know when it is
//! built. Offsets are those of GRUB's `include/grub/i386/pc/boot.h`, `grub-core/boot/i386/pc`.

use std::io::Read;

use anyhow::Result;

use crate::execute::disk::boot_code::CODE_END;
use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::Partition;
use base::failure::{Class, Failure};
use formats::partition_table::active_entry::put_active_entry;
use medium::payload_sources::{PayloadSource, VerifyingReader};
use model::release::Payload;

const SECTOR: usize = 512;

const BOOT_CODE: &str = "boot code";

/// Boot sector: where the core begins, u64.
const KERNEL_SECTOR: usize = 0x5c;
/// Boot sector: BIOS number of the drive; 0xff uses the one that the BIOS passes.
const BOOT_DRIVE: usize = 0x64;
/// Boot sector: a jump over a test for BIOSes that pass a wrong drive; without the jump the test is made, which is right for hard
/// disks.
const DRIVE_CHECK: usize = 0x66;
/// Core: the first entry of the block list, which grows downwards from the end of the first sector.
const LIST_START: usize = 0x1f4;
const LIST_LENGTH: usize = 0x1fc;
const LIST_SEGMENT: usize = 0x1fe;
/// Core: the entry after the first, whose length of zero ends the list.
const LIST_NEXT_LENGTH: usize = LIST_LENGTH - 12;
/// The core is loaded to 0x8000; its second sector to 0x8200.
const SEGMENT: u16 = 0x0820;

/// Writes the core, then the boot sector, each followed by a barrier and read back.
pub(crate) fn write(
    device: &dyn BlockDevice,
    partition: &Partition,
    boot: &Payload,
    core: &Payload,
    source: &dyn PayloadSource,
) -> Result<()> {
    let first = partition.start.get() / SECTOR as u64;
    let core = patch_core(fetch(core, source)?, first)?;
    device::write_checked(device, partition.start.get(), &core, BOOT_CODE)?;
    let mut sector = AlignedBuffer::new(SECTOR);
    device::read(device, 0, &mut sector)?;
    patch_boot(&fetch(boot, source)?, first, &mut sector)?;
    device::write_checked(device, 0, &sector, BOOT_CODE)
}

fn fetch(payload: &Payload, source: &dyn PayloadSource) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    VerifyingReader::new(source.open(payload)?, payload, source.describe()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Fills the block list of GRUB's core, which will begin at sector `first`. Returns whole sectors.
fn patch_core(mut core: Vec<u8>, first: u64) -> Result<Vec<u8>> {
    core.resize(core.len().next_multiple_of(SECTOR), 0);
    let rest = u16::try_from(core.len() / SECTOR - 1).unwrap_or(0);
    if rest == 0 || core[LIST_NEXT_LENGTH..LIST_NEXT_LENGTH + 2] != [0, 0] {
        return Err(not_grub("core.img"));
    }
    core[LIST_START..LIST_START + 8].copy_from_slice(&(first + 1).to_le_bytes());
    core[LIST_LENGTH..LIST_LENGTH + 2].copy_from_slice(&rest.to_le_bytes());
    core[LIST_SEGMENT..SECTOR].copy_from_slice(&SEGMENT.to_le_bytes());
    Ok(core)
}

/// Puts the code of GRUB's boot sector into `sector`, the first of the disk, and keeps its protective entry. Some firmware starts
/// only a disk with an active entry, so the disk gets one together with the code that it starts.
fn patch_boot(boot: &[u8], first: u64, sector: &mut [u8]) -> Result<()> {
    if boot.len() != SECTOR || sector.len() != SECTOR {
        return Err(not_grub("boot.img"));
    }
    sector[..CODE_END].copy_from_slice(&boot[..CODE_END]);
    sector[KERNEL_SECTOR..KERNEL_SECTOR + 8].copy_from_slice(&first.to_le_bytes());
    sector[BOOT_DRIVE] = 0xff;
    sector[DRIVE_CHECK..DRIVE_CHECK + 2].fill(0x90);
    put_active_entry(sector);
    Ok(())
}

fn not_grub(name: &str) -> anyhow::Error {
    Failure::new(Class::Verification, format!("{name} on this medium is not GRUB's for hard disks")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_learns_where_its_rest_lies() {
        let core = patch_core(vec![0; 1300], 2048).unwrap();
        assert_eq!(core.len(), 1536);
        assert_eq!(core[0x1f4..0x200], [1, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 8]);
        assert!(patch_core(vec![0; 512], 2048).is_err());
    }

    #[test]
    fn the_boot_sector_keeps_the_protective_partition_and_gets_an_active_entry() {
        let mut sector = vec![0xaa; SECTOR];
        patch_boot(&[0x11; SECTOR], 2048, &mut sector).unwrap();
        assert_eq!(sector[KERNEL_SECTOR..KERNEL_SECTOR + 8], 2048_u64.to_le_bytes());
        assert_eq!(sector[0x64..0x68], [0xff, 0x11, 0x90, 0x90]);
        assert!(sector[..0x5c].iter().all(|byte| *byte == 0x11));
        assert_eq!(sector[462..478], [0x80, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert!(sector[440..462].iter().chain(&sector[478..]).all(|byte| *byte == 0xaa));
    }
}
