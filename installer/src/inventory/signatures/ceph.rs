//! Ceph's BlueStore: a text at the start of the device with the identity of the OSD
//! (ceph, src/os/bluestore/BlueStore.cc, `_write_bdev_label`).

use super::{Found, Kind, Signature, Volume};

const MARK: &[u8] = b"bluestore block device\n";

pub(super) fn probe(volume: &Volume<'_>) -> Found {
    let block = volume.at(0, 64)?;
    let uuid = block.text(MARK.len(), 36).filter(|text| text.len() == 36);
    Ok(block.has(0, MARK).then(|| Signature::new(Kind::CephBluestore, 0).uuid(uuid)))
}
