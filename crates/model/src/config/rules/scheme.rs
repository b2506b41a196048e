//! The version of the scheme, and keys that a document does not need.

use crate::config::InstallConfig;
use document::finding::Finding;

/// The document is of the scheme that this program reads.
pub(super) fn scheme_version(config: &InstallConfig) -> Vec<Finding> {
    let wrong = |version: &u32| *version != 1;
    let message = "this program reads documents of scheme version 1";
    let finding = |_| Finding::new("scheme_version", "unsupported-scheme-version", message).suggest("1");
    config.scheme_version.filter(wrong).map(finding).into_iter().collect()
}

/// Keys of the reference product that say what is so anyway.
pub(super) fn superfluous_keys(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let mut findings = Vec::new();
    let keys = [
        ("install.force_efi", install.force_efi.is_some(), "nodes boot on BIOS and on UEFI whatever it says"),
        ("install.force_gpt", install.force_gpt.is_some(), "disks always get a GUID partition table"),
        ("install.silent", install.silent.is_some(), "there is no silent mode"),
    ];
    for (path, given, reason) in keys {
        if given {
            let message = format!("the key has no effect: {reason}");
            findings.push(Finding::warning(path, "superfluous-key", message));
        }
    }
    findings
}
