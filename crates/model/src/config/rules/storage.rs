//! Sizes.

use crate::config::sizes::PartitionSizes;
use crate::config::{InstallConfig, Profile};
use base::size::ByteSize;
use document::finding::Finding;

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
    let finding =
        |message: String| Finding::new("install.persistent_partition_size", "size-out-of-range", message);
    let findings = if size < least {
        // A number alone is in bytes, and nobody means a partition of 200 bytes.
        let better =
            Some(ByteSize::gib(size.get())).filter(|_| size.get() < 1 << 20).filter(|size| *size >= least);
        let message = format!("{size} is less than the {least} that {profile} needs");
        finding(message).suggest(better.unwrap_or(least).exact())
    } else if size > MOST {
        finding(format!("{size} is larger than any disk"))
    } else {
        return Vec::new();
    };
    vec![findings]
}
