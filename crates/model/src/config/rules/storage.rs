//! Sizes.

use super::finding::Finding;
use crate::config::sizes::PartitionSizes;
use crate::config::{InstallConfig, Profile};
use base::size::ByteSize;

/// More than any disk has: a slip of the keyboard.
const MOST: ByteSize = ByteSize::gib(1 << 20);

/// The persistent partition has a size that can be meant.
pub(super) fn persistent_size(config: &InstallConfig) -> Vec<Finding> {
    let Some(size) = config.install.persistent_partition_size else { return Vec::new() };
    let least = PartitionSizes::of(config.install.profile).persistent_minimum;
    let profile = match config.install.profile {
        Profile::Production => "a production node",
        Profile::Trial => "a trial",
    };
    let finding = |message: String| {
        vec![Finding::new("install.persistent_partition_size", "size-out-of-range", message)]
    };
    if size < least {
        finding(format!("{size} is less than the {least} that {profile} needs"))
    } else if size > MOST {
        finding(format!("{size} is more than any disk has"))
    } else {
        Vec::new()
    }
}
