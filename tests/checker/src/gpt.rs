//! Partition tables as firmware reads them (UEFI 2.10, chapter 5).

use crate::bytes::{Bytes, array, u32_at, u64_at, vector};

/// The type of an EFI system partition, in the byte order on the disk.
const ESP: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];

/// One valid copy of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) guid: [u8; 16],
    pub(crate) entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: [u8; 16],
    pub(crate) name: String,
    /// In bytes.
    pub(crate) start: u64,
    /// In bytes.
    pub(crate) size: u64,
}

impl Entry {
    pub(crate) fn is_esp(&self) -> bool {
        self.kind == ESP
    }
}

/// Both copies; none if invalid. Without a protective MBR there is no GPT: UEFI's reference implementation reads it
/// first, and so does Linux.
pub(crate) fn tables(disk: &dyn Bytes, sector: u64) -> [Option<Table>; 2] {
    if !is_protected(disk) {
        return [None, None];
    }
    let last = disk.length() / sector - 1;
    [table(disk, sector, 1), table(disk, sector, last)]
}

fn is_protected(disk: &dyn Bytes) -> bool {
    let Some(first) = array::<512>(disk, 0) else { return false };
    let protective = |entry: &[u8]| entry[0] == 0 && entry[4] == 0xee && u32_at(entry, 8) == 1;
    first[510..] == [0x55, 0xaa] && first[446..510].chunks(16).any(protective)
}

/// The offsets of MBR partitions, in bytes.
pub(crate) fn mbr(disk: &dyn Bytes, sector: u64) -> Vec<u64> {
    let Some(first) = array::<512>(disk, 0).filter(|first| first[510..] == [0x55, 0xaa]) else {
        return Vec::new();
    };
    let used = first[446..510].chunks(16).filter(|entry| !matches!(entry[4], 0 | 0xee));
    used.map(|entry| u64::from(u32_at(entry, 8)) * sector).collect()
}

fn table(disk: &dyn Bytes, sector: u64, lba: u64) -> Option<Table> {
    let header = vector(disk, lba * sector, sector)?;
    let length = u32_at(&header, 12) as usize;
    if header[..8] != *b"EFI PART" || !(92..=header.len()).contains(&length) || u64_at(&header, 24) != lba {
        return None;
    }
    let mut summed = header[..length].to_vec();
    summed[16..20].fill(0);
    if crc32(&summed) != u32_at(&header, 16) {
        return None;
    }
    let (count, size) = (u32_at(&header, 80), u32_at(&header, 84));
    let entries = vector(disk, u64_at(&header, 72) * sector, u64::from(count) * u64::from(size))?;
    if size < 128 || crc32(&entries) != u32_at(&header, 88) {
        return None;
    }
    let used = entries.chunks(size as usize).filter(|entry| entry[..16] != [0; 16]);
    let entries = used.map(|bytes| entry(bytes, sector)).collect();
    Some(Table { guid: header[56..72].try_into().ok()?, entries })
}

fn entry(bytes: &[u8], sector: u64) -> Entry {
    let units = bytes[56..128].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let name: Vec<_> = units.take_while(|unit| *unit != 0).collect();
    let mut kind = [0; 16];
    kind.copy_from_slice(&bytes[..16]);
    let (first, last) = (u64_at(bytes, 32), u64_at(bytes, 40));
    Entry {
        kind,
        name: String::from_utf16_lossy(&name),
        start: first.saturating_mul(sector),
        size: (last + 1).saturating_sub(first).saturating_mul(sector),
    }
}

/// The CRC-32 of UEFI tables, which is that of Ethernet.
fn crc32(bytes: &[u8]) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(u32::try_from(byte).unwrap_or(0), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    });
    !bytes.iter().fold(u32::MAX, |crc, byte| (crc >> 8) ^ table[(crc as u8 ^ byte) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
