//! Sizes.

use super::Finding;
use crate::config::{InstallConfig, Profile};
use crate::size::ByteSize;

/// The least that the persistent partition of a production node may have, the reference product's limit.
const PRODUCTION: ByteSize = ByteSize::gib(150);
/// The least that a trial can work with.
const TRIAL: ByteSize = ByteSize::gib(2);
/// More than any disk has: a slip of the keyboard.
const MOST: ByteSize = ByteSize::gib(1 << 20);

/// The persistent partition has a size that can be meant.
pub(super) fn persistent_size(config: &InstallConfig) -> Vec<Finding> {
    let Some(size) = config.install.persistent_partition_size else { return Vec::new() };
    let (least, profile) = match config.install.profile {
        Profile::Production => (PRODUCTION, "a production node"),
        Profile::Trial => (TRIAL, "a trial"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::layout::Sizes;

    #[test]
    fn the_limits_are_those_of_the_layout() {
        assert_eq!(PRODUCTION, Sizes::of(Profile::Production).persistent_minimum);
        assert_eq!(TRIAL, Sizes::of(Profile::Trial).persistent_minimum);
    }
}
