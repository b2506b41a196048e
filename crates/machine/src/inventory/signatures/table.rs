//! Partition tables: GPT in both copies (UEFI 2.10, 5.3), MBR (5.2.1), and those of Sun, BSD and Apple.

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::ProbedVolume;
use base::size::ByteSize;
use formats::partition_table::{self, PartitionTable, PartitionTables};

/// Sizes of sectors that a table may be made for.
const SECTORS: [u64; 2] = [512, 4096];

/// Every table on a disk. `taken` says that the boot sector belongs to a file system, and so holds no table.
pub(super) fn probe(volume: &ProbedVolume<'_>, taken: bool) -> std::io::Result<Vec<Signature>> {
    let sector = volume.at(0, 512)?;
    let old = if taken { None } else { MbrTable::read(&sector) };
    let mut found: Vec<_> = gpt(volume, old.as_ref())?.into_iter().collect();
    if let Some(old) = old
        && (old.foreign > 0 || found.is_empty())
    {
        let kind = if old.foreign > 0 { SignatureKind::Mbr } else { SignatureKind::MbrEmpty };
        let identity = Some(sector.le32(440)).filter(|identity| *identity != 0);
        found.push(Signature::new(kind, 510).uuid(identity.map(|identity| format!("{identity:08x}"))));
    }
    found.extend(foreign_table(volume, &sector)?);
    Ok(found)
}

struct MbrTable {
    /// Entries that announce a GPT.
    protective: usize,
    /// Other entries in use.
    foreign: usize,
}

impl MbrTable {
    /// `None` without the boot signature, or if the entries are impossible.
    fn read(sector: &Bytes) -> Option<Self> {
        let entries = [446, 462, 478, 494];
        let sane = entries.iter().all(|at| matches!(sector.u8(*at), 0 | 0x80));
        if !sector.has(510, &[0x55, 0xaa]) || !sane {
            return None;
        }
        let used = entries.iter().filter(|at| sector.u8(**at + 4) != 0 && sector.le32(**at + 12) != 0);
        let (protective, foreign): (Vec<&usize>, Vec<&usize>) =
            used.partition(|at| sector.u8(**at + 4) == 0xee);
        Some(Self { protective: protective.len(), foreign: foreign.len() })
    }
}

fn gpt(volume: &ProbedVolume<'_>, old: Option<&MbrTable>) -> std::io::Result<Option<Signature>> {
    let own = |kind, table: &PartitionTable, lba| {
        Signature::new(kind, lba * volume.sector).uuid(Some(table.guid.to_string()))
    };
    let last = (volume.size / volume.sector).saturating_sub(1);
    let tables = tables(volume, volume.sector);
    match (&tables.primary, &tables.backup) {
        (Some(table), Some(_)) if table.entries.is_empty() => {
            return Ok(Some(own(SignatureKind::GptEmpty, table, 1)));
        }
        (Some(table), Some(_)) => return Ok(Some(own(SignatureKind::Gpt, table, 1))),
        (Some(table), None) => return Ok(Some(own(SignatureKind::GptBackupDamaged, table, 1))),
        (None, Some(table)) => return Ok(Some(own(SignatureKind::GptPrimaryDamaged, table, last))),
        (None, None) => {}
    }
    for sector in SECTORS.into_iter().filter(|sector| *sector != volume.sector) {
        if let Some(table) = self::tables(volume, sector).primary {
            let found = Signature::new(SignatureKind::GptOtherSectors, sector);
            return Ok(Some(found.uuid(Some(table.guid.to_string()))));
        }
    }
    let announced = old.is_some_and(|old| old.protective > 0);
    let remains = volume.at(volume.sector, 8)?.has(0, b"EFI PART");
    Ok((announced || remains)
        .then(|| Signature::new(SignatureKind::GptLost, if remains { volume.sector } else { 510 })))
}

/// Both copies of a table for sectors of that size.
fn tables(volume: &ProbedVolume<'_>, sector: u64) -> PartitionTables {
    let read = |offset: u64, buffer: &mut [u8]| volume.source.read_exact_at(buffer, offset);
    partition_table::read(&read, ByteSize::bytes(volume.size), sector)
}

/// Tables of other systems: Sun's label (its words add up to zero by exclusive or), BSD's disklabel in the second sector (its
/// magic is there twice), and Apple's map.
fn foreign_table(volume: &ProbedVolume<'_>, sector: &Bytes) -> std::io::Result<Option<Signature>> {
    let second = volume.at(512, 512)?;
    let words = (0..512).step_by(2).fold(0, |sum, at| sum ^ sector.be16(at));
    let bsd = 0x8256_4557;
    Ok(if sector.be16(508) == 0xdabe && words == 0 {
        Some(Signature::new(SignatureKind::SunLabel, 508))
    } else if second.le32(0) == bsd && second.le32(132) == bsd {
        Some(Signature::new(SignatureKind::BsdLabel, 512))
    } else if sector.has(0, b"ER") && second.has(0, b"PM\0\0") {
        Some(Signature::new(SignatureKind::AppleMap, 0))
    } else {
        None
    })
}
