//! Formats that are recognized by magic bytes alone, without name or identity: an install would destroy them as well.

use super::signature::{Signature, SignatureKind};
use super::volume::ProbedVolume;

/// Kind, byte from the start, and the bytes there; each from the kernel's header of that format, or the format's published
/// description.
pub(super) const MARKS: [(SignatureKind, u64, &[u8]); 19] = [
    // Documentation/filesystems/f2fs.rst, include/linux/f2fs_fs.h.
    (SignatureKind::F2fs, 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    // fs/erofs/erofs_fs.h.
    (SignatureKind::Erofs, 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    // fs/jfs/jfs_superblock.h.
    (SignatureKind::Jfs, 32 << 10, b"JFS1"),
    // fs/reiserfs/reiserfs.h, formats 3.6 and with a journal elsewhere.
    (SignatureKind::Reiserfs, (64 << 10) + 52, b"ReIsEr2Fs"),
    (SignatureKind::Reiserfs, (64 << 10) + 52, b"ReIsEr3Fs"),
    // fs/ocfs2/ocfs2_fs.h: the superblock is block 2, of 512 to 4096 bytes.
    (SignatureKind::Ocfs2, 1 << 10, b"OCFSV2"),
    (SignatureKind::Ocfs2, 2 << 10, b"OCFSV2"),
    (SignatureKind::Ocfs2, 4 << 10, b"OCFSV2"),
    (SignatureKind::Ocfs2, 8 << 10, b"OCFSV2"),
    // include/uapi/linux/gfs2_ondisk.h: magic, and a header of type superblock.
    (SignatureKind::Gfs2, 64 << 10, &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1]),
    // Apple File System Reference, nx_superblock_t.
    (SignatureKind::Apfs, 32, b"NXSB"),
    // Apple, Technical Note 1150.
    (SignatureKind::HfsPlus, 1024, b"H+\0\x04"),
    (SignatureKind::HfsPlus, 1024, b"HX\0\x05"),
    // fs/bcachefs/bcachefs_format.h.
    (
        SignatureKind::Bcachefs,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    // drivers/md/bcache/bcache_ondisk.h.
    (
        SignatureKind::Bcache,
        4096 + 24,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    // Stratis Software Design, static header.
    (SignatureKind::Stratis, 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    // oracleasm, kernel/asmdisk.c.
    (SignatureKind::OracleAsm, 32, b"ORCLDISK"),
    // drivers/mtd/ubi/ubi-media.h.
    (SignatureKind::UbiVolume, 0, b"UBI#"),
    // ECMA-167, 2/9: a volume recognition sequence that names it.
    (SignatureKind::Udf, (32 << 10) + 2048 + 1, b"NSR0"),
];

pub(super) fn probe(volume: &ProbedVolume<'_>) -> std::io::Result<Vec<Signature>> {
    let mut found = Vec::new();
    for (kind, offset, mark) in MARKS {
        if volume.at(offset, mark.len())?.has(0, mark) {
            found.push(Signature::new(kind, offset));
        }
    }
    Ok(found)
}
