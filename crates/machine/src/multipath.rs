//! Which devices multipathd takes: `/etc/multipath.conf`. Its unit starts only if there is such a file, or on a node that has disks with
//! several paths itself.

use crate::node_files::{NOTE, NodeFile};
use model::boot::MultipathId;
use model::config::os::{MultiPathDevice, MultiPathLists};
use model::config::{ExternalStorage, MultiPath};

/// The first line of the files that do not follow from the node document.
const OWN_NOTE: &str =
    "# Written at each start from the kernel argument nqrust.multipath; changes here do not last.\n";

pub fn file(storage: &ExternalStorage) -> Option<NodeFile> {
    storage.enabled.then(|| with_names(storage, "yes"))
}

/// The file of the live system. Its maps have the names of their disks, which are known before multipathd runs.
pub(crate) fn live_file(storage: &ExternalStorage) -> NodeFile {
    with_names(storage, "no")
}

/// The files for the disks that the node itself is on: multipathd takes each, also where only one path is left, and their maps keep the
/// names that the initrd gave them. They stand beside `/etc/multipath.conf`; without it, multipathd takes no other disk.
#[must_use]
pub fn own_disks(disks: &[MultipathId]) -> Vec<NodeFile> {
    if disks.is_empty() {
        return Vec::new();
    }
    let wwids: String = disks.iter().map(|disk| format!("/{disk}/\n")).collect();
    let alias = |disk: &MultipathId| {
        format!("    multipath {{\n        wwid \"{disk}\"\n        alias \"{disk}\"\n    }}\n")
    };
    let maps = section("multipaths", &disks.iter().map(alias).collect::<String>());
    vec![
        NodeFile::new("etc/multipath/wwids", 0o600, format!("{OWN_NOTE}{wwids}")),
        NodeFile::new("etc/multipath/conf.d/nqrust.conf", 0o644, format!("{OWN_NOTE}{maps}")),
    ]
}

/// Debian's default makes maps only of disks that had one before; `find_multipaths yes` makes one where there are two paths.
fn with_names(storage: &ExternalStorage, friendly: &str) -> NodeFile {
    let text = match &storage.multi_path_config {
        None => String::new(),
        Some(MultiPath::Only(devices)) => only(devices),
        Some(MultiPath::Lists(lists)) => of_lists(lists),
    };
    // The cluster's own volumes come over iSCSI and are not for multipathd.
    let own = section(
        "blacklist",
        "    device {\n        vendor \"IET\"\n        product \"VIRTUAL-DISK\"\n    }\n",
    );
    let defaults = format!("defaults {{\n    user_friendly_names {friendly}\n    find_multipaths yes\n}}\n");
    NodeFile::new("etc/multipath.conf", 0o644, format!("{NOTE}{defaults}{own}{text}"))
}

/// Everything is left alone but these: exceptions have precedence over the list (multipath.conf(5)).
fn only(devices: &[MultiPathDevice]) -> String {
    let all = "    device {\n        vendor \".*\"\n        product \".*\"\n    }\n";
    section("blacklist", all) + &section("blacklist_exceptions", &of_devices(devices))
}

fn of_lists(lists: &MultiPathLists) -> String {
    let wwids = |ids: &[model::config::Line]| {
        ids.iter().map(|id| format!("    wwid {}\n", quoted(id))).collect::<String>()
    };
    section("blacklist", &(of_devices(&lists.blacklist) + &wwids(&lists.blacklist_wwids)))
        + &section(
            "blacklist_exceptions",
            &(of_devices(&lists.blacklist_exceptions) + &wwids(&lists.blacklist_exception_wwids)),
        )
}

fn of_devices(devices: &[MultiPathDevice]) -> String {
    let device = |device: &MultiPathDevice| {
        format!(
            "    device {{\n        vendor {}\n        product {}\n    }}\n",
            quoted(&device.vendor),
            quoted(&device.product)
        )
    };
    devices.iter().map(device).collect()
}

fn section(name: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("{name} {{\n{body}}}\n") }
}

/// A value in quotes; two quotes stand for one (multipath.conf(5), "Syntax").
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    fn text(config: &str) -> Option<String> {
        let document = format!("os: {{external_storage_config: {config}}}");
        let file = file(&parse(&document, "f").unwrap().os.external_storage_config)?;
        Some(String::from_utf8(file.bytes).unwrap())
    }

    #[test]
    fn a_list_is_all_that_multipathd_takes() {
        let text =
            text("{enabled: true, multi_path_config: [{vendor: ACME, product: 'Disk \"9\"'}]}").unwrap();
        assert!(text.contains("blacklist {\n    device {\n        vendor \".*\"\n"), "{text}");
        assert!(text.ends_with(
            "blacklist_exceptions {\n    device {\n        vendor \"ACME\"\n        product \"Disk \"\"9\"\"\"\n    }\n}\n"
        ), "{text}");
    }

    #[test]
    fn lists_say_what_it_leaves_alone() {
        let text = text(
            "{enabled: true, multiPathConfig: {blacklist_wwids: ['.*'], blacklist_exception_wwids: ['3600']}}",
        );
        let text = text.unwrap();
        assert!(
            text.contains("blacklist {\n    wwid \".*\"\n}\nblacklist_exceptions {\n    wwid \"3600\"\n}\n"),
            "{text}"
        );
    }

    #[test]
    fn the_disks_of_the_node_are_taken_by_their_wwids_and_keep_their_names() {
        assert!(own_disks(&[]).is_empty());
        let disks = ["3600c0ff0", "3600c0ff1"].map(|disk| MultipathId::new(disk).unwrap());
        let files = own_disks(&disks);
        let texts: Vec<_> = files.iter().map(|file| String::from_utf8(file.bytes.clone()).unwrap()).collect();
        assert_eq!((files[0].path.as_str(), files[0].mode), ("etc/multipath/wwids", 0o600));
        assert!(texts[0].ends_with("/3600c0ff0/\n/3600c0ff1/\n"), "{}", texts[0]);
        let first =
            "multipaths {\n    multipath {\n        wwid \"3600c0ff0\"\n        alias \"3600c0ff0\"\n    }\n";
        assert!(texts[1].contains(first), "{}", texts[1]);
    }

    #[test]
    fn without_external_storage_there_is_no_file() {
        assert_eq!(text("{}"), None);
        assert!(text("{enabled: true}").unwrap().contains("VIRTUAL-DISK"));
    }
}
