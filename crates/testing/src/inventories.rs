//! Inventories in JSON: of machines as `installer inventory` wrote them, and of the one that screens are drawn for.

pub const OLD_RAID: &str = include_str!("inventories/old-raid.json");
pub const SAS_MULTIPATH: &str = include_str!("inventories/sas-multipath.json");
pub const SCREENS: &str = include_str!("inventories/screens.json");
pub const TWO_NVME: &str = include_str!("inventories/two-nvme.json");
pub const UNFILLED_NAMES: &str = include_str!("inventories/unfilled-names.json");
pub const UNMAPPED_PATHS: &str = include_str!("inventories/unmapped-paths.json");
