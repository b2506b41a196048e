//! Extended attributes: each set of names and values is there once.

use std::collections::HashMap;

use crate::squashfs::metadata::{IndexedTable, Table, reference};
use crate::squashfs::xattrs::AttributeTables;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Attribute {
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// The namespaces that the format knows, by their numbers.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// About the host, not about the file.
const LEFT_OUT: &[u8] = b"security.selinux";

/// Whether an image has the attribute of this name.
pub(super) fn is_kept(name: &[u8]) -> bool {
    name != LEFT_OUT && split(name).is_some()
}

/// The number of the namespace, and the rest of the name.
fn split(name: &[u8]) -> Option<(u16, &[u8])> {
    (0..).zip(PREFIXES).find_map(|(number, prefix)| Some((number, name.strip_prefix(prefix)?)))
}

/// The sets of all files.
#[derive(Default)]
pub(super) struct AttributeSets {
    values: Vec<u8>,
    sets: Vec<u8>,
    known: HashMap<Vec<Attribute>, u32>,
}

impl AttributeSets {
    /// The number of the set with these attributes; none for no attribute.
    pub(super) fn add(&mut self, attributes: &[Attribute]) -> Option<u32> {
        if attributes.is_empty() {
            return None;
        }
        if let Some(number) = self.known.get(attributes) {
            return Some(*number);
        }
        self.sets.extend(reference(self.values.len()).to_le_bytes());
        self.sets.extend(length_of(attributes.len()).to_le_bytes());
        // As mksquashfs counts them: whole names with a zero behind each, and values.
        let size = attributes.iter().map(|attribute| attribute.name.len() + 1 + attribute.value.len()).sum();
        self.sets.extend(length_of(size).to_le_bytes());
        for Attribute { name, value } in attributes {
            let Some((namespace, name)) = split(name) else { continue };
            self.values.extend(namespace.to_le_bytes());
            // At most 255, which is XATTR_NAME_MAX.
            self.values.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
            self.values.extend(name);
            self.values.extend(length_of(value.len()).to_le_bytes());
            self.values.extend(value);
        }
        let number = length_of(self.known.len());
        self.known.insert(attributes.to_vec(), number);
        Some(number)
    }

    pub(super) fn tables(self) -> Option<AttributeTables> {
        let sets = IndexedTable { first: 0, bytes: self.sets };
        (!sets.bytes.is_empty()).then(|| AttributeTables { values: Table::of(self.values), sets })
    }
}

/// Of something that is in memory several times less often than 32 bits can count.
fn length_of(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
