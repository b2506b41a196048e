//! udev's records of devices, for properties that sysfs does not have: `E:` lines hold them (systemd, src/libsystemd/sd-device;
//! the same that sd-device(3) gives).

use std::collections::BTreeMap;

use super::sysfs::Roots;
use base::files::read_at_most;

/// The properties of one device; empty if udev does not run or does not know it.
pub(super) struct UdevRecord(BTreeMap<String, String>);

impl UdevRecord {
    /// The record of the block device with this number, such as `8:0`.
    pub(super) fn read(roots: &Roots, number: Option<&str>) -> Self {
        Self::file(roots, number.map(|number| format!("b{number}")))
    }

    /// The record of the network card with this index of the kernel.
    pub(super) fn of_card(roots: &Roots, index: Option<&str>) -> Self {
        Self::file(roots, index.map(|index| format!("n{index}")))
    }

    fn file(roots: &Roots, name: Option<String>) -> Self {
        let file = name.map(|name| roots.udev.join(name));
        let bytes = file.and_then(|file| read_at_most(&file, 1 << 20).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        Self(lines.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
    }

    /// The first of the properties that exists and is not empty.
    pub(super) fn first(&self, keys: &[&str]) -> Option<String> {
        keys.iter().filter_map(|key| self.0.get(*key)).find(|value| !value.is_empty()).cloned()
    }

    /// The model: in the encoded form spaces are kept as `\x20`, elsewhere they are underscores.
    pub(super) fn model(&self) -> Option<String> {
        let encoded = self.first(&["ID_MODEL_ENC"]).map(|text| text.replace("\\x20", " ").trim().to_owned());
        encoded.filter(|text| !text.is_empty() && !text.contains('\\')).or_else(|| self.first(&["ID_MODEL"]))
    }
}
