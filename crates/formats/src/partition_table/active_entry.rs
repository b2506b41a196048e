//! The active entry beside the protective one, for legacy firmware that starts only disks with one.
//!
//! UEFI ignores the status byte of an MBR, but EDK2 does not accept an active protective entry (UEFI 2.10, 5.2.3). So the
//! second entry is active and empty: no program takes it for a partition.

/// Where the entry is in the first sector: the second of four.
const ACTIVE_ENTRY_OFFSET: usize = 462;

/// Status 0x80, type 0, one sector.
const ACTIVE_ENTRY: [u8; 16] = {
    let mut entry = [0; 16];
    let (status, first, last, sectors) = (0, 2, 6, 12);
    (entry[status], entry[first], entry[last], entry[sectors]) = (0x80, 1, 1, 1);
    entry
};

/// Puts the active entry into `sector`, the first one of a disk. A sector that is too short stays as it is.
pub fn put_active_entry(sector: &mut [u8]) {
    if let Some(place) = sector.get_mut(ACTIVE_ENTRY_OFFSET..ACTIVE_ENTRY_OFFSET + ACTIVE_ENTRY.len()) {
        place.copy_from_slice(&ACTIVE_ENTRY);
    }
}
