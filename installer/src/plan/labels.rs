//! The labels of the file systems that an install makes, and by which a node is known.

/// That of the configuration partition.
pub(super) const CONFIG: &str = "NQ_CONFIG";
/// That of the persistent partition.
pub(super) const PERSISTENT: &str = "NQ_PERSISTENT";
/// The label of the file system with the data of virtual machines.
pub(crate) const DATA: &str = "HARV_LH_DEFAULT";
