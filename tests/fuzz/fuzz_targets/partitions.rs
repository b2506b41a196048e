//! The partition table of a disk, in both copies, with sectors of either size.
#![no_main]

use std::io;

use base::size::ByteSize;
use formats::partition_table;
use libfuzzer_sys::fuzz_target;

/// The header of a table says what its entries come to, which no fuzzer finds: both checksums are made right.
fn with_right_sums(disk: &mut [u8], header: usize, sector: usize) {
    let number = |disk: &[u8], at: usize| {
        disk.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().expect("four")))
    };
    let Some(place) = disk.get(header + 72..header + 80) else { return };
    let place = u64::from_le_bytes(place.try_into().expect("eight"));
    let (Some(count), Some(length)) = (number(disk, header + 80), number(disk, header + 84)) else { return };
    let begin = usize::try_from(place).ok().and_then(|place| place.checked_mul(sector));
    let entries = usize::try_from(u64::from(count) * u64::from(length)).ok();
    if let (Some(begin), Some(entries)) = (begin, entries)
        && let Some(bytes) = begin.checked_add(entries).and_then(|end| disk.get(begin..end))
    {
        let sum = crc32(bytes);
        disk[header + 88..header + 92].copy_from_slice(&sum.to_le_bytes());
    }
    let size = number(disk, header + 12).map_or(92, |size| size as usize);
    disk[header + 16..header + 20].fill(0);
    if let Some(bytes) = header.checked_add(size).and_then(|end| disk.get(header..end)) {
        let sum = crc32(bytes);
        disk[header + 16..header + 20].copy_from_slice(&sum.to_le_bytes());
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

fn look(disk: &[u8], sector: u64) {
    let read = |at: u64, buffer: &mut [u8]| {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let bytes = at.checked_add(buffer.len()).and_then(|end| disk.get(at..end));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    let tables = partition_table::read(&read, ByteSize::bytes(disk.len() as u64), sector);
    if let Some(table) = tables.valid() {
        for entry in &table.entries {
            let _ = entry.end();
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut disk = bytes.to_vec();
    disk.resize(disk.len().max(4 << 12), 0);
    for sector in [512, 4096] {
        look(&disk, sector as u64);
        let last = disk.len() / sector * sector - sector;
        for header in [sector, last] {
            disk[header..header + 8].copy_from_slice(b"EFI PART");
            with_right_sums(&mut disk, header, sector);
        }
        look(&disk, sector as u64);
    }
});
