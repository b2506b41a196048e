//! Settings of the machine under virtual machines (`os.host`): what the machine can do ([`HostFacts`]), what of it the node itself needs
//! ([`NeededDevices`]), setting it up at each start ([`prepare`], [`settle`]), and what came of it ([`SettingState`]).
//!
//! Everything is in sysfs. What only the kernel's command line can set is not here: `model::config` makes the arguments, and
//! `node::host` keeps them for the boot loader.

mod facts;
mod needed;
mod set_up;
mod state;
#[cfg(test)]
mod tests;

pub use facts::{HostFacts, IommuState};
pub use needed::NeededDevices;
pub use set_up::{prepare, settle};
pub use state::{SettingState, crash_reservation, note_crash_kernel, states};

use std::path::{Path, PathBuf};

use model::config::host::HugePageSize;

/// The driver that hands devices to virtual machines.
const VFIO: &str = "vfio-pci";

/// The number of reserved huge pages of a size (Documentation/admin-guide/mm/hugetlbpage.rst).
fn huge_pages_file(sys: &Path, size: HugePageSize) -> PathBuf {
    let kib = size.bytes().get() / 1024;
    sys.join(format!("kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"))
}

/// The directory of each cpufreq policy: processors with one clock.
fn policies(sys: &Path) -> Vec<PathBuf> {
    let directory = sys.join("devices/system/cpu/cpufreq");
    let names = crate::inventory::directory_names(&directory).into_iter();
    names.filter(|name| name.starts_with("policy")).map(|name| directory.join(name)).collect()
}
