//! Files of an ext4 file system.
//!
//! After the kernel's `Documentation/filesystems/ext4`. The journal is not read: the files were written before the file
//! system was last unmounted.

use std::io;

use sha2::{Digest, Sha256};

use crate::bytes::{Bytes, array, hash_into, u16_at, u32_at, vector};
use crate::verdict::Hash;

#[allow(missing_debug_implementations)]
pub(crate) struct Volume<'a> {
    disk: &'a dyn Bytes,
    start: u64,
    block: u64,
    inodes_per_group: u32,
    inode_size: u64,
    descriptor_size: u64,
    descriptors: u64,
    pub(crate) label: String,
}

struct Inode {
    size: u64,
    is_directory: bool,
    /// First block in the file, number of blocks, and block on the volume; 0 for zeros.
    extents: Vec<(u64, u64, u64)>,
}

fn bad(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

impl<'a> Volume<'a> {
    pub(crate) fn open(disk: &'a dyn Bytes, start: u64) -> Option<Self> {
        const WIDE: u32 = 0x80;
        const SCATTERED_DESCRIPTORS: u32 = 0x10;
        let sb = array::<1024>(disk, start + 1024).filter(|sb| u16_at(sb, 0x38) == 0xef53)?;
        let features = u32_at(&sb, 0x60);
        let block = 1024_u64.checked_shl(u32_at(&sb, 0x18)).filter(|block| *block <= 65_536)?;
        let label: Vec<u8> = sb[0x78..0x88].iter().copied().take_while(|byte| *byte != 0).collect();
        (features & SCATTERED_DESCRIPTORS == 0).then(|| Self {
            disk,
            start,
            block,
            inodes_per_group: u32_at(&sb, 0x28),
            inode_size: u16_at(&sb, 0x58).into(),
            descriptor_size: if features & WIDE != 0 { u16_at(&sb, 0xfe).into() } else { 32 },
            descriptors: (u64::from(u32_at(&sb, 0x14)) + 1) * block,
            label: String::from_utf8_lossy(&label).into_owned(),
        })
    }

    /// Length and hash of the file at `path`, which has no leading slash.
    pub(crate) fn hash(&self, path: &str) -> io::Result<(u64, Hash)> {
        let mut inode = self.inode(2)?;
        for name in path.split('/') {
            inode = self.inode(self.look_up(&inode, name)?)?;
        }
        if inode.is_directory {
            return Err(bad("a directory"));
        }
        let mut hasher = Sha256::new();
        self.each_piece(&inode, |place, count| match place {
            0 => {
                (0..count).for_each(|_| hasher.update([0]));
                Ok(())
            }
            place => hash_into(&mut hasher, self.disk, self.start + place, count),
        })?;
        Ok((inode.size, hasher.finalize().into()))
    }

    fn look_up(&self, directory: &Inode, name: &str) -> io::Result<u32> {
        if !directory.is_directory {
            return Err(bad("not a directory"));
        }
        let mut found = None;
        self.each_piece(directory, |place, count| {
            let bytes = vector(self.disk, self.start + place, count).ok_or_else(|| bad("a hole"))?;
            let mut at = 0;
            while at + 8 <= bytes.len() {
                let (inode, length) = (u32_at(&bytes, at), usize::from(u16_at(&bytes, at + 4)));
                let entry = bytes.get(at + 8..at + 8 + usize::from(bytes[at + 6]));
                if inode != 0 && entry == Some(name.as_bytes()) {
                    found = Some(inode);
                }
                if length < 8 {
                    return Err(bad("a directory entry without length"));
                }
                at += length;
            }
            Ok(())
        })?;
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Calls `visit` with the pieces of a file in order: offset on the volume (0 for zeros) and length.
    fn each_piece(&self, inode: &Inode, mut visit: impl FnMut(u64, u64) -> io::Result<()>) -> io::Result<()> {
        let mut done = 0;
        for (first, count, place) in &inode.extents {
            let (begin, end) = (first * self.block, ((first + count) * self.block).min(inode.size));
            if begin < done || end <= begin {
                continue;
            }
            if begin > done {
                visit(0, begin - done)?;
            }
            visit(place * self.block, end - begin)?;
            done = end;
        }
        if done < inode.size { visit(0, inode.size - done) } else { Ok(()) }
    }

    fn inode(&self, number: u32) -> io::Result<Inode> {
        const EXTENTS: u32 = 0x8_0000;
        let index = number.checked_sub(1).ok_or_else(|| bad("inode 0"))?;
        let group = index.checked_div(self.inodes_per_group).ok_or_else(|| bad("no inodes"))?;
        let descriptor = self.start + self.descriptors + u64::from(group) * self.descriptor_size;
        let low = array::<4>(self.disk, descriptor + 8).ok_or_else(|| bad("no descriptor"))?;
        let high = match self.descriptor_size {
            64.. => array::<4>(self.disk, descriptor + 0x28).ok_or_else(|| bad("no descriptor"))?,
            _ => [0; 4],
        };
        let table = u64::from(u32_at(&low, 0)) | u64::from(u32_at(&high, 0)) << 32;
        let within = u64::from(index % self.inodes_per_group) * self.inode_size;
        let place = self.start + table * self.block + within;
        let inode = array::<128>(self.disk, place).ok_or_else(|| bad("no inode"))?;
        if u32_at(&inode, 0x20) & EXTENTS == 0 {
            return Err(bad("an inode without extents"));
        }
        let mut extents = Vec::new();
        self.extents(&inode[0x28..0x64], 0, &mut extents)?;
        extents.sort_unstable();
        Ok(Inode {
            size: u64::from(u32_at(&inode, 4)) | u64::from(u32_at(&inode, 0x6c)) << 32,
            is_directory: u16_at(&inode, 0) & 0xf000 == 0x4000,
            extents,
        })
    }

    fn extents(&self, node: &[u8], depth: u32, into: &mut Vec<(u64, u64, u64)>) -> io::Result<()> {
        if u16_at(node, 0) != 0xf30a || depth > 5 {
            return Err(bad("no extents"));
        }
        let count = usize::from(u16_at(node, 2));
        for entry in node[12..].chunks_exact(12).take(count) {
            let first = u64::from(u32_at(entry, 0));
            if u16_at(node, 6) == 0 {
                // A larger number means that the blocks are reserved and read as zeros.
                let length = u64::from(u16_at(entry, 4));
                let place = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
                into.push(if length > 32_768 { (first, length - 32_768, 0) } else { (first, length, place) });
            } else {
                let place = u64::from(u32_at(entry, 4)) | u64::from(u16_at(entry, 8)) << 32;
                let block = vector(self.disk, self.start + place * self.block, self.block);
                self.extents(&block.ok_or_else(|| bad("no extents"))?, depth + 1, into)?;
            }
        }
        Ok(())
    }
}
