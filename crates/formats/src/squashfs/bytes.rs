//! Little-endian numbers at places that are not trusted.

use super::error::{ExpandError, ExpandResult};

pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> ExpandResult<[u8; N]> {
    at.checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .and_then(|found| found.try_into().ok())
        .ok_or(ExpandError::Damaged("something reaches beyond the end of its table"))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> ExpandResult<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> ExpandResult<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> ExpandResult<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Replaces the bytes at `at`.
pub(super) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) -> ExpandResult<()> {
    let place = at.checked_add(N).and_then(|end| bytes.get_mut(at..end));
    place
        .ok_or(ExpandError::Damaged("something reaches beyond the end of its table"))?
        .copy_from_slice(&value);
    Ok(())
}

/// A number as the 32 bits in which the format keeps it.
pub(super) fn narrow(value: u64) -> ExpandResult<u32> {
    u32::try_from(value).map_err(|_| {
        ExpandError::Unsupported("something would be beyond the 4 GiB that its record can tell".into())
    })
}
