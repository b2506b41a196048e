//! Numbers and times in the encoding of Go's libraries, which containerd's database uses.

/// A time in UTC as Go's `time.Time.MarshalBinary` writes it: version 1, seconds since the year 1 and nanoseconds,
/// big-endian, and -1 for UTC. `epoch` is in seconds since 1970.
pub(super) fn time(epoch: u64) -> Vec<u8> {
    const YEAR_1_TO_1970: u64 = 62_135_596_800;
    let mut bytes = vec![1];
    bytes.extend(epoch.saturating_add(YEAR_1_TO_1970).to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend((-1_i16).to_be_bytes());
    bytes
}

/// A number as Go's `binary.PutVarint` writes it: zigzag, seven bits a byte.
pub(super) fn varint(bytes: &[u8]) -> Option<i64> {
    let mut number: u64 = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let shift = u32::try_from(index).ok()?.checked_mul(7).filter(|shift| *shift < 64)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (index + 1 == bytes.len())
                .then_some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_time_has_the_form_of_go() {
        // The result of `time.Unix(0, 0).UTC().MarshalBinary()`.
        let expected = [1, 0, 0, 0, 0x0e, 0x77, 0x91, 0xf7, 0, 0, 0, 0, 0, 0xff, 0xff];
        assert_eq!(time(0), expected);
    }

    #[test]
    fn numbers_are_read_as_go_writes_them() {
        for (bytes, number) in [(&[6][..], 3), (&[5], -3), (&[0x80, 0x03], 192), (&[0xb6, 0x05], 347)] {
            assert_eq!(varint(bytes), Some(number));
        }
        for bytes in [&[][..], &[0x80], &[6, 0], &[0x80; 11]] {
            assert_eq!(varint(bytes), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_number_or_not(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = varint(&bytes);
        }
    }
}
