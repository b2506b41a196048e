//! The devices that a node cannot give away: what its disks and its networks hang on.

use std::collections::BTreeMap;
use std::path::Path;

use super::facts::{HostFacts, pci_address};
use crate::inventory::directory_names;
use crate::inventory::pci::PciDevice;
use base::files::read_text;
use model::config::HostSettings;

/// What needs a device, by the device's address on the PCI bus, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededDevices(BTreeMap<String, String>);

impl NeededDevices {
    /// The devices of these disks and network cards, by the kernel's names.
    pub fn of<'a>(
        facts: &HostFacts,
        disks: impl IntoIterator<Item = &'a str>,
        cards: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut needed = Self::default();
        let disks = disks.into_iter().map(|name| (name, "the disk"));
        for (name, what) in disks.chain(cards.into_iter().map(|name| (name, "the network card"))) {
            if let Some(address) = facts.addresses.get(name) {
                needed.0.insert(address.clone(), format!("{what} {name}"));
            }
        }
        needed
    }

    /// The devices of the file systems that are mounted, and of these network cards, on the running system at `root`.
    pub fn of_running<'a>(root: &Path, facts: &HostFacts, cards: impl IntoIterator<Item = &'a str>) -> Self {
        let sys = root.join("sys");
        let mut needed = Self::of(facts, [], cards);
        let mounts = read_text(&root.join("proc/self/mountinfo")).unwrap_or_default();
        for number in mounts.lines().filter_map(|line| line.split(' ').nth(2)) {
            needed.insert_disk(&sys.join("dev/block").join(number), 0);
        }
        needed
    }

    /// The device of a disk or partition; of an array or a mapping, those of all that it is made of.
    fn insert_disk(&mut self, path: &Path, depth: u32) {
        /// More layers than any system of ours has: a hash tree on an array of partitions is three.
        const DEPTH_MAX: u32 = 8;
        if let Some(address) = pci_address(path) {
            let name = path.canonicalize().ok();
            let name = name.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            self.0.entry(address).or_insert_with(|| format!("the disk {name}"));
        } else if depth < DEPTH_MAX {
            let slaves = path.join("slaves");
            for slave in directory_names(&slaves) {
                self.insert_disk(&slaves.join(slave), depth + 1);
            }
        }
    }

    /// What needs the device.
    #[must_use]
    pub fn by(&self, device: &PciDevice) -> Option<&str> {
        self.0.get(&device.address).map(String::as_str)
    }

    /// A clause for each device that the settings would take away from the node.
    #[must_use]
    pub fn taken_by(&self, settings: &HostSettings, facts: &HostFacts) -> Vec<String> {
        let selectors = settings.passthrough.iter();
        let taken = selectors.flat_map(|selector| {
            facts.selected(selector).filter_map(move |device| {
                let what = self.by(device)?;
                Some(format!(
                    "`os.host.passthrough` takes {} ({selector}), on which {what} is",
                    device.address
                ))
            })
        });
        taken.collect()
    }
}
