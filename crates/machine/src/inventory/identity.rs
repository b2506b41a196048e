//! The identity of this machine, read from the kernel.

use std::path::Path;

use model::machine::Identity;
use model::machine::identity::{real_text, real_uuid};

use super::nics;
use super::sysfs::attribute;

/// This machine's identity from `sys/class/net` and `sys/class/dmi/id` below `root`, which is `/` except in tests. Only root may
/// read serial number and UUID.
#[must_use]
pub fn read_identity(root: &Path) -> Identity {
    let sys = root.join("sys");
    let dmi = |file| attribute(&sys.join("class/dmi/id").join(file));
    let nics = nics::scan(&sys);
    let mut macs: Vec<_> = nics.iter().filter_map(|nic| nic.mac.parse().ok()).collect();
    macs.sort_unstable();
    macs.dedup();
    Identity {
        macs,
        serial: dmi("product_serial").and_then(|text| real_text(&text)),
        uuid: dmi("product_uuid").and_then(|text| real_uuid(&text)),
        asset_tag: dmi("chassis_asset_tag").and_then(|text| real_text(&text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::files::write_atomically;
    use model::machine::Mac;

    /// A directory that looks like a machine with these cards and these DMI strings.
    fn machine(macs: &[&str], dmi: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (number, mac) in macs.iter().enumerate() {
            let card = root.path().join(format!("sys/class/net/ens{number}"));
            std::fs::create_dir_all(card.join("device")).unwrap();
            write_atomically(&card.join("address"), format!("{mac}\n").as_bytes(), 0o644).unwrap();
        }
        for (file, text) in dmi {
            let path = root.path().join("sys/class/dmi/id").join(file);
            write_atomically(&path, format!("{text}\n").as_bytes(), 0o644).unwrap();
        }
        root
    }

    #[test]
    fn a_machine_tells_its_cards_and_what_its_firmware_has() {
        let root = machine(
            &["52:54:00:00:00:02", "52:54:00:00:00:01", "00:00:00:00:00:00"],
            &[
                ("product_serial", "CZ1234 "),
                ("product_uuid", "4C4C4544-0042-3510-8052-b4c04f4a5a32"),
                ("chassis_asset_tag", "rack 7"),
            ],
        );
        // A bridge has an address too, but no device.
        std::fs::create_dir_all(root.path().join("sys/class/net/br0")).unwrap();
        std::fs::write(root.path().join("sys/class/net/br0/address"), "52:54:00:00:00:09").unwrap();
        let found = read_identity(root.path());
        let macs: Vec<_> = found.macs.iter().map(Mac::to_string).collect();
        assert_eq!(macs, ["52:54:00:00:00:01", "52:54:00:00:00:02"]);
        assert_eq!(found.serial.as_deref(), Some("CZ1234"));
        assert_eq!(found.uuid.unwrap().to_string(), "4c4c4544-0042-3510-8052-b4c04f4a5a32");
        assert_eq!(found.asset_tag.as_deref(), Some("rack 7"));
        assert_eq!(
            found.to_string(),
            "mac:52:54:00:00:00:01, mac:52:54:00:00:00:02, serial:CZ1234, \
             uuid:4c4c4544-0042-3510-8052-b4c04f4a5a32, asset-tag:rack 7"
        );
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_identity() {
        let nobody = read_identity(tempfile::tempdir().unwrap().path());
        assert!(nobody.is_empty());
        assert_eq!(nobody.to_string(), "nothing that identifies it");
    }
}
