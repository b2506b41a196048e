//! VMware's VMFS. Its format is not published; magic bytes and fields are those that vmfs-tools and libblkid found.

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const VOLUME: u64 = 1 << 20;
const FILE_SYSTEM: u64 = 2 << 20;

pub(super) fn volume(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(VOLUME, 1024)?;
    let found = block.has(0, b"\x0d\xd0\x01\xc0");
    // The text of the logical volume's identity is in the next sector.
    Ok(found.then(|| Signature::new(SignatureKind::VmfsVolume, VOLUME).uuid(block.text(512 + 20, 35))))
}

pub(super) fn file_system(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(FILE_SYSTEM, 512)?;
    let found = block.has(0, b"\x5e\xf1\xab\x2f");
    Ok(found.then(|| {
        Signature::new(SignatureKind::Vmfs, FILE_SYSTEM).label(block.text(29, 128)).uuid(uuid(&block))
    }))
}

fn uuid(block: &Bytes) -> Option<String> {
    let (first, second, third) = (block.le32(9), block.le32(13), block.le16(17));
    let rest: String = block.part(19, 6).iter().map(|byte| format!("{byte:02x}")).collect();
    (first != 0).then(|| format!("{first:08x}-{second:08x}-{third:04x}-{rest}"))
}
