//! File systems of Microsoft, which begin with a boot sector: FAT, exFAT, NTFS, ReFS, and BitLocker in their place.
//!
//! Microsoft's FAT specification (fatgen103), exFAT specification, and MS-FSCC. They end with the same signature as an MBR, so a
//! boot sector that is one of these holds no table.

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let sector = volume.at(0, 512)?;
    let serial = |offset| {
        let serial = sector.le32(offset);
        Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)).filter(|_| serial != 0)
    };
    if sector.has(3, b"-FVE-FS-") {
        return Ok(Some(Signature::new(SignatureKind::Bitlocker, 3)));
    }
    if sector.has(3, b"\0\0\0\0\0ReFS") || sector.has(3, b"ReFS\0\0\0\0") {
        return Ok(Some(Signature::new(SignatureKind::Refs, 3)));
    }
    if sector.has(3, b"NTFS    ") {
        let uuid = Some(format!("{:016X}", sector.le64(0x48)));
        return Ok(Some(Signature::new(SignatureKind::Ntfs, 3).uuid(uuid)));
    }
    if sector.has(3, b"EXFAT   ") {
        let found = Signature::new(SignatureKind::Exfat, 3).uuid(serial(0x64));
        return Ok(Some(found.label(exfat_label(volume, &sector)?)));
    }
    let Some(wide) = fat(&sector) else { return Ok(None) };
    // FAT32 has its own fields between the common ones and these.
    let at = if wide { 0x43 } else { 0x27 };
    let named = |label: &String| label != "NO NAME";
    let label = fat_label(volume, &sector)?.or_else(|| sector.text(at + 4, 11).filter(named));
    Ok(Some(Signature::new(SignatureKind::Vfat, at as u64 + 15).label(label).uuid(serial(at))))
}

/// The label is an entry of its own in the root directory; some programs do not change the copy in the boot sector.
fn fat_label(volume: &ProbedVolume<'_>, sector: &Bytes) -> std::io::Result<Option<String>> {
    const VOLUME_ID: u8 = 0x08;
    let each = u64::from(sector.le16(0x0b));
    let (short, long) = (u64::from(sector.le16(0x16)), u64::from(sector.le32(0x24)));
    let tables = u64::from(sector.u8(0x10)) * if short == 0 { long } else { short };
    // The root directory follows the tables, of FAT32 in one of the clusters there, which count from two.
    let cluster = if short == 0 { u64::from(sector.le32(0x2c)).saturating_sub(2) } else { 0 };
    let start = u64::from(sector.le16(0x0e)) + tables + cluster * u64::from(sector.u8(0x0d));
    let root = volume.at(start * each, 4096)?;
    let entry = (0..4096)
        .step_by(32)
        .take_while(|at| root.u8(*at) != 0)
        // Parts of long names have this attribute too, with others.
        .find(|at| root.u8(*at) != 0xe5 && root.u8(at + 11) & 0x1f == VOLUME_ID);
    Ok(entry.and_then(|at| root.text(at, 11)))
}

/// Whether the sector begins a FAT file system with the extended fields, and whether that is FAT32. The names of
/// types are informative only and decide nothing alone.
fn fat(sector: &Bytes) -> Option<bool> {
    let wide = sector.has(0x52, b"FAT32   ") && sector.le16(0x16) == 0 && sector.le32(0x24) != 0;
    let narrow = [b"FAT12   ", b"FAT16   ", b"FAT     "].iter().any(|name| sector.has(0x36, *name));
    let sane = [512, 1024, 2048, 4096].contains(&sector.le16(0x0b))
        && sector.u8(0x0d).is_power_of_two()
        && sector.le16(0x0e) != 0
        && (1..=2).contains(&sector.u8(0x10))
        && (sector.u8(0x15) == 0xf0 || sector.u8(0x15) >= 0xf8);
    (sane && (wide || narrow && sector.le16(0x16) != 0)).then_some(wide)
}

/// The label is an entry of type 0x83 in the root directory (exFAT specification, 7.3), of at most 11 characters.
fn exfat_label(volume: &ProbedVolume<'_>, sector: &Bytes) -> std::io::Result<Option<String>> {
    let (sector_shift, cluster_shift) = (u32::from(sector.u8(0x6c)), u32::from(sector.u8(0x6d)));
    if !(9..=12).contains(&sector_shift) || sector_shift + cluster_shift > 25 {
        return Ok(None);
    }
    let heap = u64::from(sector.le32(0x58)) << sector_shift;
    let Some(cluster) = sector.le32(0x60).checked_sub(2) else { return Ok(None) };
    let root = volume.at(heap + (u64::from(cluster) << (sector_shift + cluster_shift)), 4096)?;
    let entry = (0..4096).step_by(32).take_while(|at| root.u8(*at) != 0).find(|at| root.u8(*at) == 0x83);
    Ok(entry.and_then(|at| root.text16(at + 2, usize::from(root.u8(at + 1).min(11)))))
}
