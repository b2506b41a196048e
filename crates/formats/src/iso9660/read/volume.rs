//! The primary volume descriptor: what the image says about itself (ECMA-119, 8.4).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset as UtcOffset;

use super::error::{Error, Result};
use super::record::Record;
use super::source::read_exactly;
use crate::iso9660::address::{BLOCK_SIZE, Block, Extent, Source};
use crate::iso9660::ecma119::{DESCRIPTORS, DIRECTORY, PRIMARY, TERMINATOR};

/// Real images have three or four descriptors.
const MAX_DESCRIPTORS: u32 = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDescriptor {
    /// The volume identifier, without the spaces that fill it up.
    pub id: String,
    /// When the volume was made, if it says so.
    pub created: Option<Timestamp>,
    /// Length of the file system in bytes. The image may be longer (padding, partition table at the end), but
    /// not shorter.
    pub size: u64,
    pub(super) root: Extent,
}

impl VolumeDescriptor {
    pub(super) fn read(source: &impl Source, image_length: u64) -> Result<Self> {
        for index in 0..MAX_DESCRIPTORS {
            let at = Block(DESCRIPTORS.0 + index).offset();
            let bytes = match read_exactly(source, image_length, at, BLOCK_SIZE) {
                Err(Error::Truncated { .. }) if index == 0 => return Err(Error::NotIso),
                other => other?,
            };
            match (&bytes[1..6], bytes[0]) {
                (b"CD001", PRIMARY) => return Self::parse(&bytes),
                (b"CD001", TERMINATOR) => return Err(Error::Damaged("it has no primary volume descriptor")),
                (b"CD001", _) => {}
                _ if index == 0 => return Err(Error::NotIso),
                _ => return Err(Error::Damaged("its volume descriptors are garbled")),
            }
        }
        Err(Error::Damaged("its volume descriptors do not end"))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let block_size = u16::from_le_bytes([bytes[128], bytes[129]]);
        if u32::from(block_size) != BLOCK_SIZE {
            return Err(Error::Unsupported("its blocks are not of 2048 bytes"));
        }
        let root = Record::parse(&bytes[156..190])?;
        if !root.is(DIRECTORY) {
            return Err(Error::Damaged("its root is not a directory"));
        }
        let blocks = u32::from_le_bytes([bytes[80], bytes[81], bytes[82], bytes[83]]);
        Ok(Self {
            id: String::from_utf8_lossy(&bytes[40..72]).trim_end_matches([' ', '\0']).to_owned(),
            created: created(&bytes[813..830]),
            size: u64::from(blocks) * u64::from(BLOCK_SIZE),
            root: root.extent,
        })
    }
}

/// Sixteen digits (year to hundredth of a second) and the distance from UTC in quarters of an hour
/// (ECMA-119, 8.4.26.1). All zero means not given; nonsense is treated the same, since nothing depends on it.
fn created(bytes: &[u8]) -> Option<Timestamp> {
    let (digits, zone) = (bytes.get(..16)?, bytes.get(16)?);
    let number = |from: usize, to: usize| -> Option<i16> {
        digits[from..to]
            .iter()
            .try_fold(0, |sum: i16, digit| digit.is_ascii_digit().then(|| sum * 10 + i16::from(digit - b'0')))
    };
    let small = |from: usize| number(from, from + 2).and_then(|value| i8::try_from(value).ok());
    let hundredths = i32::from(number(14, 16)?);
    let local = DateTime::new(
        number(0, 4)?,
        small(4)?,
        small(6)?,
        small(8)?,
        small(10)?,
        small(12)?,
        hundredths * 10_000_000,
    );
    let offset = UtcOffset::from_seconds(i32::from(zone.cast_signed()) * 15 * 60);
    offset.ok()?.to_timestamp(local.ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_time_counts_its_zone_in_quarters_of_an_hour() {
        for (text, zone, expected) in [
            (b"2024022912304550", 0, Some("2024-02-29T12:30:45.5Z")),
            (b"2024022912304500", 8, Some("2024-02-29T10:30:45Z")),
            (b"2024022912304500", -2, Some("2024-02-29T13:00:45Z")),
            (b"0000000000000000", 0, None),
            (b"2024139912304500", 0, None),
            (b"yesterday, noon.", 0, None),
        ] {
            let mut bytes = text.to_vec();
            bytes.push(i8::cast_unsigned(zone));
            let expected = expected.map(|time| time.parse::<Timestamp>().unwrap());
            assert_eq!(created(&bytes), expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
