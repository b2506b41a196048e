//! The part of a disk where legacy firmware begins: the first sector, and GRUB behind it.
//!
//! The fields that an install fills in are those of GRUB's `grub-core/boot/i386/pc/{boot,diskboot}.S`.

use crate::bytes::{Bytes, array, u16_at, u64_at, vector};
use crate::verdict::BootCode;

/// The length of the boot code in bytes; the disk's number and the partitions follow.
const CODE: usize = 440;
const SECTOR: u64 = 512;

/// `int 0x18`, by which boot code tells the firmware to try the next device (BIOS Boot Specification 1.01).
const NEXT_DEVICE: [u8; 2] = [0xcd, 0x18];

/// The effect of the first sector on legacy firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstSectorVerdict {
    /// It stops at the signature, or the code tells it to try the next device.
    Passes,
    /// It runs zeros as code, and hangs.
    Hangs,
    Starts,
}

pub(crate) fn first(disk: &dyn Bytes) -> FirstSectorVerdict {
    match array::<512>(disk, 0) {
        Some(first) if first[510..] != [0x55, 0xaa] || first.starts_with(&NEXT_DEVICE) => {
            FirstSectorVerdict::Passes
        }
        Some(first) if first[..CODE].iter().any(|byte| *byte != 0) => FirstSectorVerdict::Starts,
        Some(_) => FirstSectorVerdict::Hangs,
        None => FirstSectorVerdict::Passes,
    }
}

/// True if the first sector is that of the expected GRUB, which boots only if it finds its files.
pub(crate) fn is_ours(disk: &dyn Bytes, boot: &BootCode) -> bool {
    let Some(first) = array::<512>(disk, 0) else { return false };
    // Filled in at install: the core's place, the drive, the jump over the test for odd BIOSes.
    let same = |range: std::ops::Range<usize>| first[range.clone()] == boot.boot[range];
    same(0..0x5c) && same(0x68..CODE)
}

/// The fault of GRUB on the disk, whose core belongs at byte `place`.
pub(crate) fn missing(disk: &dyn Bytes, boot: &BootCode, place: u64) -> Option<&'static str> {
    let sector = array::<512>(disk, 0)?;
    let core = vector(disk, place, (boot.core.len() as u64).next_multiple_of(SECTOR));
    let Some(core) = core else { return Some("GRUB's core is beyond the end") };
    let rest = u64::from(u16_at(&core, 0x1fc));
    if first(disk) != FirstSectorVerdict::Starts || !is_ours(disk, boot) {
        Some("the boot sector is not GRUB's")
    } else if u64_at(&sector, 0x5c) * SECTOR != place {
        Some("the boot sector looks elsewhere for GRUB's core")
    } else if !has_active_entry(&sector) {
        Some("no entry of the first sector is active, or the protective one is")
    } else if core[..0x1f4] != boot.core[..0x1f4] || !core[0x200..].starts_with(&boot.core[0x200..]) {
        Some("GRUB's core is not whole")
    } else if u64_at(&core, 0x1f4) * SECTOR != place + SECTOR || (rest + 1) * SECTOR != core.len() as u64 {
        Some("GRUB's core looks elsewhere for its rest")
    } else {
        None
    }
}

/// True if an entry is active that is not the protective one: some legacy firmware starts nothing else, and UEFI's reference
/// implementation takes an active protective entry for none.
fn has_active_entry(sector: &[u8; 512]) -> bool {
    let active: Vec<_> = sector[446..510].chunks(16).filter(|entry| entry[0] == 0x80).collect();
    matches!(active[..], [only] if only[4] != 0xee)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_runs_what_bears_the_signature_whatever_it_is() {
        for (code, signature, expected) in [
            (&[0_u8; 3][..], [0, 0], FirstSectorVerdict::Passes),
            (&[0xeb, 0x63, 0x90], [0, 0], FirstSectorVerdict::Passes),
            (&[0; 3], [0x55, 0xaa], FirstSectorVerdict::Hangs),
            (&[0xcd, 0x18, 0xf4], [0x55, 0xaa], FirstSectorVerdict::Passes),
            (&[0xeb, 0x63, 0x90], [0x55, 0xaa], FirstSectorVerdict::Starts),
        ] {
            let mut sector = vec![0; 512];
            sector[..code.len()].copy_from_slice(code);
            sector[510..].copy_from_slice(&signature);
            assert_eq!(first(&sector), expected, "{code:x?}");
        }
    }
}
