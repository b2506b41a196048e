//! Where an installed node has its parts, and how a path of the node is reached below another root.

use std::path::{Path, PathBuf};

/// Directories of the image that last, besides `/var`. Each is kept below [`KEPT`] and filled from the image
/// at the first boot.
pub const PERSISTENT: [&str; 4] = ["/home", "/root", "/opt", "/srv"];

/// Where the persistent directories are kept.
pub const KEPT: &str = "/var/lib/nqrust/persistent";

/// Where the configuration partition is mounted.
pub const CONFIG: &str = "/oem";

/// The node document.
pub const DOCUMENT: &str = "/oem/node.yaml";

/// Where the data partition is mounted.
pub const DATA: &str = "/var/lib/harvester/defaultdisk";

/// `path`, which is absolute, below `root`.
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
