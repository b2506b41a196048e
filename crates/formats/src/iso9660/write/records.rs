//! Directories as bytes: directory records with Rock Ridge entries, and path tables (ECMA-119, 9.1 and 9.4;
//! SUSP 1.12; RRIP 1.12).

use jiff::civil::DateTime;

use super::tree::{EntryTarget, Tree};
use super::view::VolumeView;
use crate::iso9660::address::{BLOCK_SIZE, Extent};
use crate::iso9660::ecma119::{CONTINUED, DIRECTORY};

/// Everybody may read everything, nobody may write.
const DIRECTORY_MODE: u32 = 0o040_555;
const FILE_MODE: u32 = 0o100_444;

/// The identifier of the extension, for readers of the root directory (RRIP 1.12, 4.3).
const EXTENSION: [&[u8]; 3] = [
    b"RRIP_1991A",
    b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS",
    b"PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME \
      DESCRIPTOR FOR CONTACT INFORMATION.",
];

/// A number in both byte orders (ECMA-119, 7.3.3).
pub(super) fn both(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// A short number in both byte orders (ECMA-119, 7.2.3).
pub(super) fn both_short(number: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (number.to_le_bytes(), number.to_be_bytes());
    [a, b, c, d]
}

/// The root directory's record in a volume descriptor.
pub(super) fn root(extent: Extent, time: DateTime) -> Vec<u8> {
    record(&[0], extent, DIRECTORY, time, &[])
}

/// The block that says that there is Rock Ridge; the root directory's first record points here.
pub(super) fn extension() -> Vec<u8> {
    let lengths = EXTENSION.map(|text| u8::try_from(text.len()).unwrap_or(u8::MAX));
    let mut data = lengths.to_vec();
    data.push(1);
    data.extend(EXTENSION.concat());
    entry(*b"ER", &data)
}

/// One directory of `tree` as `view` addresses it, in whole blocks.
pub(super) fn directory(tree: &Tree, index: usize, view: &VolumeView<'_>, time: DateTime) -> Vec<u8> {
    let directory = &tree.directories[index];
    let common = |index: usize| {
        let links = 2 + tree.directories[index].subdirectories();
        attributes(DIRECTORY_MODE, links, time)
    };
    let mut own = common(index);
    if index == 0 {
        // Readers learn here that there are entries at all, and where the extension is named.
        let marked = [entry(*b"SP", &[0xBE, 0xEF, 0]), own, continuation(view)].concat();
        own = marked;
    }
    let mut blocks = Blocks::default();
    blocks.push(&record(&[0], view.directory(index), DIRECTORY, time, &own));
    let parent = directory.parent;
    blocks.push(&record(&[1], view.directory(parent), DIRECTORY, time, &common(parent)));
    for child in &directory.children {
        let mut name = vec![0];
        name.extend_from_slice(child.name.as_bytes());
        let name = entry(*b"NM", &name);
        match child.target {
            EntryTarget::Directory(below) => {
                let system_use = [common(below), name].concat();
                blocks.push(&record(&child.identifier, view.directory(below), DIRECTORY, time, &system_use));
            }
            EntryTarget::File(file) => {
                let system_use = [attributes(FILE_MODE, 1, time), name].concat();
                let extents = view.file(file);
                for (number, extent) in extents.iter().enumerate() {
                    let flags = if number + 1 < extents.len() { CONTINUED } else { 0 };
                    blocks.push(&record(&child.identifier, *extent, flags, time, &system_use));
                }
            }
        }
    }
    blocks.finish()
}

/// The path table; `address` writes a block's number in one of the two byte orders, `short` a directory's.
pub(super) fn path_table(
    tree: &Tree,
    view: &VolumeView<'_>,
    address: fn(u32) -> [u8; 4],
    short: fn(u16) -> [u8; 2],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, directory) in tree.directories.iter().enumerate() {
        bytes.push(u8::try_from(directory.identifier.len()).unwrap_or(u8::MAX));
        bytes.push(0);
        bytes.extend(address(view.directory(index).start.0));
        bytes.extend(short(u16::try_from(directory.parent + 1).unwrap_or(u16::MAX)));
        bytes.extend_from_slice(&directory.identifier);
        bytes.resize(bytes.len().next_multiple_of(2), 0);
    }
    bytes
}

/// Records one after the other; none crosses the border of a block.
#[derive(Default)]
struct Blocks(Vec<u8>);

impl Blocks {
    fn push(&mut self, record: &[u8]) {
        let block = BLOCK_SIZE as usize;
        if self.0.len() % block + record.len() > block {
            self.0.resize(self.0.len().next_multiple_of(block), 0);
        }
        self.0.extend_from_slice(record);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(BLOCK_SIZE as usize), 0);
        self.0
    }
}

fn record(identifier: &[u8], extent: Extent, flags: u8, time: DateTime, system_use: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both(extent.start.0));
    bytes.extend(both(extent.length));
    bytes.extend(short_time(time));
    bytes.extend([flags, 0, 0]);
    bytes.extend(both_short(1));
    bytes.push(u8::try_from(identifier.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(identifier);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes.extend_from_slice(system_use);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    debug_assert!(bytes.len() <= 254, "the tree refuses longer names");
    bytes[0] = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    bytes
}

/// A system use entry: two letters, the length of the whole, version 1, data.
fn entry(signature: [u8; 2], data: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.push(u8::try_from(4 + data.len()).unwrap_or(u8::MAX));
    bytes.push(1);
    bytes.extend_from_slice(data);
    bytes
}

/// `PX` and `TF`: mode, links, owner 0, group 0; times of the content, of the last reading, of the attributes.
fn attributes(mode: u32, links: usize, time: DateTime) -> Vec<u8> {
    let links = u32::try_from(links).unwrap_or(u32::MAX);
    let posix = [both(mode), both(links), both(0), both(0)].concat();
    let mut times = vec![0b0000_1110];
    times.extend(short_time(time).repeat(3));
    [entry(*b"PX", &posix), entry(*b"TF", &times)].concat()
}

/// `CE`: where [`extension`] is.
fn continuation(view: &VolumeView<'_>) -> Vec<u8> {
    let length = u32::try_from(extension().len()).unwrap_or(u32::MAX);
    entry(*b"CE", &[both(view.extension().0), both(0), both(length)].concat())
}

/// Year since 1900 to second, and the distance from UTC, which is none (ECMA-119, 9.1.5).
fn short_time(time: DateTime) -> [u8; 7] {
    let year = u8::try_from(i32::from(time.year()) - 1900).unwrap_or(u8::MAX);
    let rest = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
    let [month, day, hour, minute, second] = rest.map(i8::unsigned_abs);
    [year, month, day, hour, minute, second, 0]
}
