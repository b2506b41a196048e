//! Keys that other versions, or the product that this one succeeds, know and that do nothing here. Where the value asks for
//! what is so anyway, or for what a key of today does, a document that has one can be used all the same; otherwise it is
//! refused, with what to write instead.

use document::accepted_spellings::{is_same_word, truth};
use document::tree::{Key, NodeKind, TreeNode};

/// A key that is known and not used.
pub(crate) struct RetiredEntry {
    /// The dotted path of its group, `[]` for the elements of a list.
    group: &'static str,
    name: &'static str,
    harmless: HarmlessValues,
    /// Why it does nothing, and what to use.
    pub(crate) reason: &'static str,
}

/// The values that ask for nothing else than what happens anyway. No value at all is always one.
enum HarmlessValues {
    Any,
    Only(bool),
    Words(&'static [&'static str]),
    None,
}

const VERSION: &str = "versions are those of the image; choose them in the image definition";
const FAIL_OVER: &str = "the bridge on the bond has one hardware address, that of all cards (`none`)";
const LONGHORN: &str = "install.harvester.longhorn.default_settings";
const RESERVED: &str = "the storage reserves processors by `guaranteed_instance_manager_cpu`";

const fn key(
    group: &'static str,
    name: &'static str,
    harmless: HarmlessValues,
    reason: &'static str,
) -> RetiredEntry {
    RetiredEntry { group, name, harmless, reason }
}

const RETIRED: &[RetiredEntry] = &[
    key("", "runtime_version", HarmlessValues::Any, VERSION),
    key("", "rancher_version", HarmlessValues::Any, VERSION),
    key("", "harvester_chart_version", HarmlessValues::Any, VERSION),
    key("", "monitoring_chart_version", HarmlessValues::Any, VERSION),
    key("", "logging_chart_version", HarmlessValues::Any, VERSION),
    key("", "kubeovn_chart_version", HarmlessValues::Any, VERSION),
    key("", "kubeovn_operator_chart_version", HarmlessValues::Any, VERSION),
    key(
        "install",
        "force_mbr",
        HarmlessValues::Any,
        "disks always get a GUID partition table, from which BIOS boots too; leave the key out",
    ),
    key(
        "install",
        "no_format",
        HarmlessValues::Only(false),
        "an install always makes its file systems, and with `wipe: none` it refuses a disk that is not empty; \
         `install.keep: [data]` keeps the data of virtual machines",
    ),
    key(
        "install",
        "no_data_partition",
        HarmlessValues::Only(false),
        "the data of virtual machines always has a partition of its own; `install.data_disk` puts it on another disk",
    ),
    key(
        "install",
        "wipe_disks",
        HarmlessValues::Only(false),
        "it has been replaced; name the disks in `install.wipe_disks_list`",
    ),
    key(
        "install",
        "raw_disk_image_path",
        HarmlessValues::None,
        "raw images are not written; boot the medium, or give the URL of its content in `install.medium`",
    ),
    key(
        "install.harvester",
        "enable_go_cover_dir",
        HarmlessValues::Only(false),
        "it is of use for test builds of another product only; leave the key out",
    ),
    key(LONGHORN, "guaranteed_engine_manager_cpu", HarmlessValues::Any, RESERVED),
    key(LONGHORN, "guaranteed_replica_manager_cpu", HarmlessValues::Any, RESERVED),
    key(
        "os",
        "after_install_chroot_commands",
        HarmlessValues::None,
        "the system is read-only; put packages into the image definition (`iso-builder build`) and files into \
         `os.write_files`",
    ),
    key(
        "os",
        "wifi",
        HarmlessValues::None,
        "only wired cards are supported; name one in `install.management_interface.interfaces`",
    ),
    key(
        "install.management_interface",
        "default_route",
        HarmlessValues::Any,
        "the default route always goes over this network",
    ),
    key(
        "install.networks[]",
        "default_route",
        HarmlessValues::Only(false),
        "the default route always goes over the network of `install.management_interface`",
    ),
    key(
        "install.management_interface.bond_options",
        "fail_over_mac",
        HarmlessValues::Words(&["none", "0"]),
        FAIL_OVER,
    ),
    key("install.networks[].bond_options", "fail_over_mac", HarmlessValues::Words(&["none", "0"]), FAIL_OVER),
];

/// The retired key that `text` names in the group at the dotted path `group`, in any spelling.
pub(crate) fn find(group: &str, text: &str) -> Option<&'static RetiredEntry> {
    let is_group = |retired: &RetiredEntry| is_place(group, retired.group);
    RETIRED.iter().find(|retired| is_same_word(text, retired.name) && is_group(retired))
}

/// The names of the retired keys of the group at the dotted path `group`.
pub(crate) fn names(group: &str) -> impl Iterator<Item = &'static str> {
    RETIRED.iter().filter(move |retired| is_place(group, retired.group)).map(|retired| retired.name)
}

/// True if `path` is the `place`, in which `[]` is any element.
fn is_place(path: &str, place: &str) -> bool {
    let mut path = path.split('[');
    let mut place = place.split("[]");
    loop {
        match (path.next(), place.next()) {
            (None, None) => return true,
            (Some(part), Some(own)) if part.split_once(']').map_or(part, |(_, rest)| rest) == own => {}
            _ => return false,
        }
    }
}

impl RetiredEntry {
    /// The key of the same group, and its value, that do what this value asks for.
    pub(crate) fn today(&self, value: &TreeNode) -> Option<(&'static str, &'static str)> {
        let NodeKind::Scalar { text, .. } = &value.kind else { return None };
        // Without a file system to make on it, a disk had to have one: what is on it is not to be lost. The product that
        // this one succeeds formats the disk all the same.
        (self.name == "no_format" && truth(text) == Some(true)).then_some(("wipe", "none"))
    }

    /// True if the group has keys of today that say what may be wiped. They take precedence.
    pub(crate) fn is_said(&self, entries: &[(Key, TreeNode)]) -> bool {
        let is_named = |key: &Key, name| is_same_word(&key.text, name);
        entries.iter().any(|(key, node)| match &node.kind {
            NodeKind::Scalar { text, .. } => {
                !node.is_nothing() && is_named(key, "wipe")
                    || truth(text) == Some(true) && is_named(key, "wipe_all_disks")
            }
            NodeKind::List(items) => !items.is_empty() && is_named(key, "wipe_disks_list"),
            NodeKind::Map(_) => false,
        })
    }

    /// True if the value asks for what happens anyway.
    pub(crate) fn is_harmless(&self, value: &TreeNode) -> bool {
        let text = match &value.kind {
            NodeKind::Scalar { text, .. } if !text.is_empty() && !value.is_nothing() => text,
            NodeKind::Scalar { .. } => return true,
            NodeKind::List(items) if items.is_empty() => return true,
            NodeKind::Map(entries) if entries.is_empty() => return true,
            NodeKind::List(_) | NodeKind::Map(_) => return matches!(self.harmless, HarmlessValues::Any),
        };
        match self.harmless {
            HarmlessValues::Any => true,
            HarmlessValues::Only(wanted) => truth(text) == Some(wanted),
            HarmlessValues::Words(words) => words.iter().any(|word| text.eq_ignore_ascii_case(word)),
            HarmlessValues::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_key_is_found_in_every_spelling_and_only_in_its_group() {
        for text in ["force_mbr", "forceMBR", "forcembr", "force-mbr"] {
            assert!(find("install", text).is_some_and(|retired| retired.name == "force_mbr"), "{text}");
            assert!(find("os", text).is_none() && find("", text).is_none(), "{text}");
        }
        assert!(find("install.networks[12].bond_options", "failOverMac").is_some());
        assert!(find("install.networks", "default_route").is_none());
    }
}
