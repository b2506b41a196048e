//! The keys that releases are signed with.

use super::shared::repeated;
use crate::config::{InstallConfig, Trust, UnsignedRelease};
use document::finding::Finding;

/// A key that is given twice counts once, so that its maker has made a mistake.
pub(super) fn each_key_once(config: &InstallConfig) -> Vec<Finding> {
    let keys: Vec<_> = config.os.trust.keys.iter().map(|key| key.key.0.id()).collect();
    let finding = |(later, earlier): (usize, usize)| {
        let message = format!("the key is that of os.trust.keys[{earlier}]; remove one of them");
        Finding::new(format!("os.trust.keys[{later}].key"), "repeated-key", message)
    };
    repeated(&keys).map(finding).collect()
}

/// A key is shown by its name.
pub(super) fn keys_are_named(config: &InstallConfig) -> Vec<Finding> {
    let blank = config.os.trust.keys.iter().enumerate().filter(|(_, key)| key.name.trim().is_empty());
    let finding = |(index, _)| {
        let message = "the name is empty; write whose key it is, such as `Example Ltd. 2026`";
        Finding::new(format!("os.trust.keys[{index}].name"), "empty-name", message)
    };
    blank.map(finding).collect()
}

/// Without the keys of the OS image, those of the document alone can sign.
pub(super) fn a_release_can_be_trusted(config: &InstallConfig) -> Vec<Finding> {
    let Trust { keys, replace, threshold, unsigned } = &config.os.trust;
    if !replace || *unsigned == Some(UnsignedRelease::Allow) && keys.is_empty() {
        return Vec::new();
    }
    if keys.is_empty() {
        let message = "no release could be used: the keys of the OS image do not count, and there are no others; \
                       add `keys`, or remove `replace`";
        return vec![Finding::new("os.trust.replace", "no-release-keys", message)];
    }
    let most = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let finding = |wanted: &u32| {
        let message = format!(
            "{wanted} keys have to sign, and with `replace` there are only those of this list: {most}"
        );
        Finding::new("os.trust.threshold", "too-few-release-keys", message)
    };
    threshold.iter().filter(|wanted| **wanted > most).map(finding).collect()
}
