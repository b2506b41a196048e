//! What legacy firmware begins with: the first sector, and GRUB behind it.
//!
//! The fields that an install fills in are those of GRUB's `grub-core/boot/i386/pc/{boot,diskboot}.S`.

use crate::bytes::{Bytes, array, u16_at, u64_at, vector};
use crate::verdict::BootCode;

/// Code ends here; the disk's number and the partitions follow.
const CODE: usize = 440;
const SECTOR: u64 = 512;

/// Whether legacy firmware starts what is in the first sector.
pub(crate) fn starts(disk: &dyn Bytes) -> bool {
    let first = array::<512>(disk, 0);
    first.is_some_and(|first| first[510..] == [0x55, 0xaa] && first[..CODE].iter().any(|byte| *byte != 0))
}

/// Whether the first sector is that of the GRUB that is to be there. It goes on only where it finds its files.
pub(crate) fn is_ours(disk: &dyn Bytes, boot: &BootCode) -> bool {
    let Some(first) = array::<512>(disk, 0) else { return false };
    // Filled in: where the core is, which drive, the jump over the test for odd BIOSes.
    let same = |range: std::ops::Range<usize>| first[range.clone()] == boot.boot[range];
    same(0..0x5c) && same(0x68..CODE)
}

/// What is wrong with GRUB on the disk, whose core belongs at byte `place`.
pub(crate) fn missing(disk: &dyn Bytes, boot: &BootCode, place: u64) -> Option<&'static str> {
    let first = array::<512>(disk, 0)?;
    let core = vector(disk, place, (boot.core.len() as u64).next_multiple_of(SECTOR));
    let Some(core) = core else { return Some("GRUB's core is beyond the end") };
    let rest = u64::from(u16_at(&core, 0x1fc));
    if !starts(disk) || !is_ours(disk, boot) {
        Some("the boot sector is not GRUB's")
    } else if u64_at(&first, 0x5c) * SECTOR != place {
        Some("the boot sector looks elsewhere for GRUB's core")
    } else if core[..0x1f4] != boot.core[..0x1f4] || !core[0x200..].starts_with(&boot.core[0x200..]) {
        Some("GRUB's core is not whole")
    } else if u64_at(&core, 0x1f4) * SECTOR != place + SECTOR || (rest + 1) * SECTOR != core.len() as u64 {
        Some("GRUB's core looks elsewhere for its rest")
    } else {
        None
    }
}
