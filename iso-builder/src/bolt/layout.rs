//! Numbers of the file format that reader and writer share.

/// The page size that the writer uses. bbolt reads any page size and takes it from the meta page.
pub(super) const PAGE_SIZE: usize = 4096;
/// Number, flags, count of elements, count of overflow pages.
pub(super) const PAGE_HEADER: usize = 16;
/// One element of a branch page, and one of a leaf page.
pub(super) const ELEMENT: usize = 16;
/// Root page and sequence of a bucket, in front of an inline page.
pub(super) const BUCKET_HEADER: usize = 16;

pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;

/// Flag of a leaf element whose value is a bucket.
pub(super) const BUCKET_LEAF: u32 = 0x01;

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const VERSION: u32 = 2;
/// Length of a meta page's content up to its checksum.
pub(super) const META_SUMMED: usize = 56;

/// bbolt's limits, `MaxKeySize` and `MaxValueSize`.
pub(super) const MAX_KEY: usize = 32_768;
pub(super) const MAX_VALUE: usize = (1 << 31) - 2;

/// The checksum of meta pages: FNV-1a, 64 bits.
pub(super) fn fnv64a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_has_the_published_values() {
        assert_eq!(fnv64a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
