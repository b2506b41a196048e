//! Members of ZFS pools: four labels of 256 KiB, two at either end, each with a list of names and values
//! (OpenZFS, include/sys/vdev_impl.h and module/nvpair/nvpair.c; ZFS On-Disk Specification, chapter 1).

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const LABEL: u64 = 256 << 10;
/// The offset of the list in a label.
const LIST: u64 = 16 << 10;
const LENGTH: usize = 4096;
const UINT64: u32 = 8;
const STRING: u32 = 9;

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let usable = volume.size / LABEL * LABEL;
    if usable < 4 * LABEL {
        return Ok(None);
    }
    for label in [0, LABEL, usable - 2 * LABEL, usable - LABEL] {
        let list = volume.at(label + LIST, LENGTH)?;
        if let Some(pool) = pool(&list) {
            let found = Signature::new(SignatureKind::ZfsMember, label + LIST);
            return Ok(Some(found.label(pool.name).uuid(Some(pool.guid.to_string()))));
        }
    }
    Ok(None)
}

struct Pool {
    name: Option<String>,
    guid: u64,
}

/// Reads the list up to its first nested list, behind which there is nothing about the pool. XDR: big-endian, names and texts
/// padded to four bytes.
fn pool(list: &Bytes) -> Option<Pool> {
    // Encoding 1 is XDR; then the byte order of the machine, reserved, version and flags.
    if list.u8(0) != 1 || list.u8(1) > 1 {
        return None;
    }
    let (mut at, mut name, mut guid) = (12, None, None);
    loop {
        let (size, length) = (list.be32(at) as usize, list.be32(at + 8) as usize);
        let value = at + 12 + length.next_multiple_of(4);
        if size < 24 || value + 8 > at + size || at + size > LENGTH {
            break;
        }
        match (list.part(at + 12, length), list.be32(value)) {
            (b"name", STRING) => name = list.text(value + 12, list.be32(value + 8) as usize),
            (b"pool_guid", UINT64) => guid = Some(list.be64(value + 8)),
            _ => {}
        }
        at += size;
    }
    guid.map(|guid| Pool { name, guid })
}
