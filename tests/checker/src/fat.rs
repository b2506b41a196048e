//! FAT volumes: what firmware recognizes as one, and the files of a FAT32 volume.
//!
//! After Microsoft's "FAT32 File System Specification" (1.03), which UEFI refers to.

use std::collections::BTreeMap;
use std::io;

use sha2::{Digest, Sha256};

use crate::bytes::{Bytes, array, hash_into, u16_at, u32_at, vector};
use crate::verdict::Hash;

#[allow(missing_debug_implementations)]
pub(crate) struct Volume<'a> {
    disk: &'a dyn Bytes,
    /// The first file allocation table, of a FAT32 volume.
    table: Vec<u8>,
    /// The offset of cluster 2.
    data: u64,
    cluster: u64,
    root: u32,
}

/// True if there is the boot sector of a FAT volume of any kind at `start`: then firmware looks into it.
pub(crate) fn is_fat(disk: &dyn Bytes, start: u64) -> bool {
    array::<512>(disk, start).is_some_and(|sector| is_boot_sector(&sector))
}

fn is_boot_sector(sector: &[u8; 512]) -> bool {
    let per_cluster = sector[13];
    let total = u32_at(sector, 32).max(u16_at(sector, 19).into());
    sector[510..] == [0x55, 0xaa]
        && matches!(sector[0], 0xeb | 0xe9)
        && matches!(u16_at(sector, 11), 512 | 1024 | 2048 | 4096)
        && per_cluster.is_power_of_two()
        && u16_at(sector, 14) > 0
        && matches!(sector[16], 1 | 2)
        && matches!(sector[21], 0xf0 | 0xf8..)
        && total > 0
}

impl<'a> Volume<'a> {
    pub(crate) fn open(disk: &'a dyn Bytes, start: u64) -> Option<Self> {
        let sector = array::<512>(disk, start).filter(is_boot_sector)?;
        let bytes = u64::from(u16_at(&sector, 11));
        // A length of 16 bits means an older FAT.
        let per_table =
            u64::from(u32_at(&sector, 36)).checked_mul(bytes).filter(|_| u16_at(&sector, 22) == 0)?;
        let tables = start + u64::from(u16_at(&sector, 14)) * bytes;
        Some(Self {
            disk,
            table: vector(disk, tables, per_table)?,
            data: tables + u64::from(sector[16]) * per_table,
            cluster: u64::from(sector[13]) * bytes,
            root: u32_at(&sector, 44),
        })
    }

    /// Every file by its path, in lower case, with its length and its hash.
    pub(crate) fn files(&self) -> io::Result<BTreeMap<String, (u64, Hash)>> {
        let mut files = BTreeMap::new();
        self.directory(self.root, "", 0, &mut files)?;
        Ok(files)
    }

    fn directory(
        &self,
        first: u32,
        path: &str,
        depth: u32,
        files: &mut BTreeMap<String, (u64, Hash)>,
    ) -> io::Result<()> {
        if depth > 8 {
            return Err(io::Error::other("directories without end"));
        }
        let mut bytes = Vec::new();
        for cluster in self.chain(first)? {
            let here = vector(self.disk, self.place(cluster), self.cluster);
            bytes.extend(here.ok_or_else(|| io::Error::other("a directory beyond the end"))?);
        }
        let mut long = String::new();
        for entry in bytes.chunks(32).take_while(|entry| entry[0] != 0) {
            match (entry[0], entry[11]) {
                (0xe5, _) => long.clear(),
                (_, 0x0f) => long = part_of_long_name(entry) + &long,
                (_, attributes) => {
                    let name = if long.is_empty() { short_name(entry) } else { std::mem::take(&mut long) };
                    let first = u32::from(u16_at(entry, 20)) << 16 | u32::from(u16_at(entry, 26));
                    let path = format!("{path}{}", name.to_lowercase());
                    // Volume labels, the directory itself, and its parent.
                    if attributes & 0x08 != 0 || matches!(name.as_str(), "." | "..") {
                    } else if attributes & 0x10 != 0 {
                        self.directory(first, &format!("{path}/"), depth + 1, files)?;
                    } else {
                        let length = u32_at(entry, 28).into();
                        files.insert(path, (length, self.hash(first, length)?));
                    }
                }
            }
        }
        Ok(())
    }

    fn hash(&self, first: u32, length: u64) -> io::Result<Hash> {
        let (mut hasher, mut left) = (Sha256::new(), length);
        for cluster in self.chain(first)? {
            let count = left.min(self.cluster);
            hash_into(&mut hasher, self.disk, self.place(cluster), count)?;
            left -= count;
        }
        match left {
            0 => Ok(hasher.finalize().into()),
            _ => Err(io::Error::other("a file is longer than its clusters")),
        }
    }

    fn place(&self, cluster: u32) -> u64 {
        self.data + u64::from(cluster - 2) * self.cluster
    }

    /// The clusters from `first` on; none for an empty file.
    fn chain(&self, first: u32) -> io::Result<Vec<u32>> {
        let mut chain = Vec::new();
        let mut next = first;
        while (2..0x0fff_fff8).contains(&next) {
            if chain.len() >= self.table.len() / 4 {
                return Err(io::Error::other("clusters in a circle"));
            }
            chain.push(next);
            let at = next as usize * 4;
            let entry =
                self.table.get(at..at + 4).ok_or_else(|| io::Error::other("a cluster beyond the end"))?;
            next = u32_at(entry, 0) & 0x0fff_ffff;
        }
        match (first, next) {
            (0, _) | (_, 0x0fff_fff8..) => Ok(chain),
            _ => Err(io::Error::other("clusters without an end")),
        }
    }
}

fn short_name(entry: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (name, extension) = (text(&entry[..8]), text(&entry[8..11]));
    if extension.is_empty() { name } else { format!("{name}.{extension}") }
}

fn part_of_long_name(entry: &[u8]) -> String {
    let units = [1..11, 14..26, 28..32].into_iter().flat_map(|range| entry[range].chunks(2));
    let units = units.map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let units: Vec<_> = units.take_while(|unit| !matches!(unit, 0 | 0xffff)).collect();
    String::from_utf16_lossy(&units)
}
