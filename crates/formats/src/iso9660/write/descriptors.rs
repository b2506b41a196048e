//! Volume descriptors (ECMA-119, 8) and the boot catalog that one of them points to (El Torito 1.0; UEFI 2.10,
//! 13.3.2.1).

use jiff::civil::DateTime;

use super::records::{self, both, both_short};
use super::view::{PathTables, VolumeView};
use crate::iso9660::address::{BLOCK_SIZE, Block, Extent};
use crate::iso9660::ecma119::{PRIMARY, TERMINATOR};

const BLOCK: usize = BLOCK_SIZE as usize;

/// The blocks that El Torito reads of the image for BIOS: four sectors of 512 bytes; GRUB loads the rest itself.
const BIOS_SECTORS: u16 = 4;
const BIOS: u8 = 0;
const UEFI: u8 = 0xEF;
const BOOTABLE: u8 = 0x88;

/// The primary volume descriptor of one view.
pub(super) fn primary(
    volume: &str,
    preparer: &str,
    view: &VolumeView<'_>,
    tables: &PathTables,
    time: DateTime,
) -> Vec<u8> {
    let mut bytes = head(PRIMARY);
    bytes.push(0);
    bytes.extend(text("", 32));
    bytes.extend(text(volume, 32));
    bytes.extend([0; 8]);
    bytes.extend(both(view.blocks()));
    bytes.extend([0; 32]);
    bytes.extend(both_short(1));
    bytes.extend(both_short(1));
    bytes.extend([0x00, 0x08, 0x08, 0x00]); // 2048 in both orders
    bytes.extend(both(tables.length));
    bytes.extend(view.address(tables.little).0.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(view.address(tables.big).0.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(records::root(view.directory(0), time));
    bytes.extend(text("", 128)); // volume set
    bytes.extend(text("", 128)); // publisher
    bytes.extend(text(preparer, 128)); // data preparer
    bytes.extend(text("", 128)); // application
    bytes.extend(text("", 3 * 37)); // files with copyright, abstract, bibliography
    bytes.extend(long_time(Some(time))); // made
    bytes.extend(long_time(Some(time))); // changed
    bytes.extend(long_time(None)); // never expires
    bytes.extend(long_time(None)); // effective at once
    bytes.push(1);
    bytes.resize(BLOCK, 0);
    bytes
}

/// The descriptor that tells firmware where the boot catalog is.
pub(super) fn boot(catalog: Block) -> Vec<u8> {
    let mut bytes = head(0);
    bytes.extend_from_slice(b"EL TORITO SPECIFICATION");
    bytes.resize(71, 0);
    bytes.extend(catalog.0.to_le_bytes());
    bytes.resize(BLOCK, 0);
    bytes
}

/// The descriptor that ends the list.
pub(super) fn terminator() -> Vec<u8> {
    let mut bytes = head(TERMINATOR);
    bytes.resize(BLOCK, 0);
    bytes
}

/// The boot catalog: `bios` for BIOS where the image has boot code for it, the EFI system partition `esp` for UEFI, neither
/// emulating a disk. Without a BIOS, the entry of UEFI is the first, which needs no section of its own.
pub(super) fn catalog(bios: Option<Block>, esp: Extent) -> Vec<u8> {
    let mut validation = [0; 32];
    validation[0] = 1;
    validation[1] = if bios.is_some() { BIOS } else { UEFI };
    validation[30..].copy_from_slice(&[0x55, 0xAA]);
    let sum = validation
        .chunks(2)
        .fold(0_u16, |sum, word| sum.wrapping_add(u16::from_le_bytes([word[0], word[1]])));
    validation[28..30].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    // The field counts sectors of 512 bytes; where it is too small for the image, 0 stands for all of it.
    let sectors = u16::try_from(esp.length.div_ceil(512)).unwrap_or(0);
    let mut bytes = validation.to_vec();
    if let Some(bios) = bios {
        bytes.extend(boot_entry(bios, BIOS_SECTORS));
        let mut section = [0; 32];
        section[..4].copy_from_slice(&[0x91, UEFI, 1, 0]);
        bytes.extend(section);
    }
    bytes.extend(boot_entry(esp.start, sectors));
    bytes.resize(BLOCK, 0);
    bytes
}

fn boot_entry(start: Block, sectors: u16) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = BOOTABLE;
    bytes[6..8].copy_from_slice(&sectors.to_le_bytes());
    bytes[8..12].copy_from_slice(&start.0.to_le_bytes());
    bytes
}

fn head(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(b"CD001\x01");
    bytes
}

/// Text in a field of `length` bytes, filled up with spaces.
fn text(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(length, b' ');
    bytes
}

/// Year to hundredth of a second in digits, and the distance from UTC, which is none (ECMA-119, 8.4.26.1).
fn long_time(time: Option<DateTime>) -> [u8; 17] {
    let mut bytes = [b'0'; 17];
    bytes[16] = 0;
    if let Some(time) = time {
        let digits = time.strftime("%Y%m%d%H%M%S").to_string();
        for (place, digit) in bytes.iter_mut().zip(digits.bytes()) {
            *place = digit;
        }
    }
    bytes
}
