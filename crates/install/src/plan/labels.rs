//! The labels of the file systems that an install makes, and by which a node is recognised.

pub(super) const CONFIG: &str = "NQ_CONFIG";
pub(super) const PERSISTENT: &str = "NQ_PERSISTENT";
pub(crate) const DATA: &str = "HARV_LH_DEFAULT";
