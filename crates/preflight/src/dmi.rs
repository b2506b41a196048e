//! How much memory is installed, from the firmware's tables (SMBIOS 3.7, sections 6 and 7).
//!
//! The tables are read from the kernel's copy in `/sys/firmware/dmi/tables/DMI`; no program is run.

use base::size::ByteSize;

/// A memory module (7.18) and a range of addresses that modules fill (7.20).
const MODULE: u8 = 17;
const RANGE: u8 = 19;
const END: u8 = 127;

/// The memory in the table: all modules, or if it lists none, all ranges.
pub(super) fn memory(table: &[u8]) -> Option<ByteSize> {
    let structures = structures(table);
    let sum = |kind: u8, size: fn(&[u8]) -> Option<u64>| {
        let sizes = structures.iter().filter(|found| found.first() == Some(&kind)).filter_map(|s| size(s));
        sizes.fold(0_u64, u64::saturating_add)
    };
    [sum(MODULE, module), sum(RANGE, range)].into_iter().find(|sum| *sum > 0).map(ByteSize::bytes)
}

/// The formatted part of each structure. A truncated table ends where it is cut.
fn structures(mut table: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let [kind, length, ..] = *table
        && kind != END
        && length >= 4
        && let Some((formatted, rest)) = table.split_at_checked(length.into())
    {
        found.push(formatted);
        // Its strings follow, and two zeros end them even where there are none.
        let strings = rest.windows(2).position(|pair| pair == [0, 0]);
        table = strings.and_then(|end| rest.get(end + 2..)).unwrap_or_default();
    }
    found
}

/// The size of a module in bytes; `None` for an empty or unknown one.
fn module(structure: &[u8]) -> Option<u64> {
    match u64::from(u16::from_le_bytes(field(structure, 0x0c)?)) {
        0 | 0xffff => None,
        0x7fff => Some(u64::from(u32::from_le_bytes(field(structure, 0x1c)?) & 0x7fff_ffff) << 20),
        kib if kib & 0x8000 != 0 => Some((kib & 0x7fff) << 10),
        mib => Some(mib << 20),
    }
}

/// The length of a range in bytes; both ends are part of it.
fn range(structure: &[u8]) -> Option<u64> {
    let kib = |offset| field(structure, offset).map(u32::from_le_bytes);
    match (kib(0x04)?, kib(0x08)?) {
        (u32::MAX, u32::MAX) => {
            let bytes = |offset| field(structure, offset).map(u64::from_le_bytes);
            bytes(0x17)?.checked_sub(bytes(0x0f)?)?.checked_add(1)
        }
        (start, end) => Some((u64::from(end.checked_sub(start)?) + 1) << 10),
    }
}

fn field<const N: usize>(structure: &[u8], offset: usize) -> Option<[u8; N]> {
    structure.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A structure with a string and its terminator.
    fn structure(kind: u8, length: u8, fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; length.into()];
        (bytes[0], bytes[1]) = (kind, length);
        for (offset, value) in fields {
            bytes[*offset..offset + value.len()].copy_from_slice(value);
        }
        bytes.extend(b"DIMM 0\0\0");
        bytes
    }

    /// A table of modules with these sizes in MiB.
    pub(crate) fn table(modules: &[u16]) -> Vec<u8> {
        let mut table = structure(1, 27, &[]);
        for mib in modules {
            table.extend(structure(MODULE, 40, &[(0x0c, &mib.to_le_bytes())]));
        }
        table.extend(structure(END, 4, &[]));
        table
    }

    #[test]
    fn modules_are_added_up_in_every_unit() {
        assert_eq!(memory(&table(&[16384, 16384, 0, 0xffff])), Some(ByteSize::gib(32)));
        let large = structure(
            MODULE,
            40,
            &[(0x0c, &0x7fff_u16.to_le_bytes()), (0x1c, &(64_u32 << 10).to_le_bytes())],
        );
        assert_eq!(memory(&large), Some(ByteSize::gib(64)));
        assert_eq!(memory(&table(&[0x8000 | 512])), Some(ByteSize::bytes(512 << 10)));
    }

    #[test]
    fn ranges_count_where_there_are_no_modules() {
        let small =
            structure(RANGE, 31, &[(0x04, &0_u32.to_le_bytes()), (0x08, &0x3f_ffff_u32.to_le_bytes())]);
        assert_eq!(memory(&small), Some(ByteSize::gib(4)));
        let (start, end) = ((1_u64 << 40).to_le_bytes(), ((2_u64 << 40) - 1).to_le_bytes());
        let large = [(0x04, &[0xff; 8][..]), (0x0f, &start), (0x17, &end)];
        assert_eq!(memory(&structure(RANGE, 31, &large)), Some(ByteSize::gib(1024)));
        assert_eq!(memory(&[table(&[4096]), small].concat()), Some(ByteSize::gib(4)), "not both");
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_table_is_read_as_far_as_it_goes(cut in 0_usize..200, noise: Vec<u8>) {
            let table = table(&[1024, 1024]);
            let found = memory(&table[..cut.min(table.len())]);
            proptest::prop_assert!(found.is_none_or(|found| found <= ByteSize::gib(2)));
            let _ = memory(&noise);
        }
    }
}
