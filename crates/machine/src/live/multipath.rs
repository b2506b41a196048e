//! Disks of several paths in the live system: multipathd makes one map of them, on which an install writes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::inventory::{Inventory, Roots};
use crate::multipath::live_file;
use crate::node_files::write;
use base::command::{Invocation, Runner};
use base::files::Root;
use base::progress::Progress;
use model::config::InstallConfig;

/// It has made its maps when it is started.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts multipathd where several paths lead to one disk or the configuration enables it, and looks at the disks again. Without
/// it the inventory stays as it is, and the plan refuses a disk of several paths.
pub fn join_paths(
    config: &InstallConfig,
    inventory: Inventory,
    (roots, root): (&Roots, &Path),
    runner: &dyn Runner,
    progress: &Progress,
) -> Result<Inventory> {
    let storage = &config.os.external_storage_config;
    if !inventory.has_unmapped_paths() && !storage.enabled {
        return Ok(inventory);
    }
    let step = progress.step("multipath", "Starting multipathd", None);
    write(&Root::open(root)?, &live_file(storage))?;
    let start = Invocation::new("systemctl").args(["start", "multipathd.service"]).limit(START_TIMEOUT);
    let settle = Invocation::new("udevadm").args(["settle", "--timeout=30"]).limit(START_TIMEOUT);
    for command in [start, settle] {
        if let Err(error) = runner.run(&command) {
            progress.note(
                "multipath",
                format!("warning: each path of a disk is shown as a disk of its own: {error:#}"),
            );
            return Ok(inventory);
        }
    }
    step.done();
    Inventory::scan(roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;
    use testing::runner::ScriptedRunner;

    /// What is started for this machine and this document, and the file for multipathd.
    fn started(inventory: &str, document: &str) -> (Vec<String>, Option<String>) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        // After the start the disks of this empty system are read.
        for folder in ["sys/block", "sys/class/net", "proc/self"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("proc/self/mountinfo"), "").unwrap();
        let roots = Roots { udev: root.path().join("run/udev/data"), ..Roots::below(root.path()) };
        let (inventory, runner) = (serde_json::from_str(inventory).unwrap(), ScriptedRunner::silent());
        let config = parse(document, "f").unwrap();
        join_paths(&config, inventory, (&roots, root.path()), &runner, &Progress::silent()).unwrap();
        (runner.commands(), std::fs::read_to_string(root.path().join("etc/multipath.conf")).ok())
    }

    #[test]
    fn multipathd_runs_where_there_are_paths_or_the_configuration_enables_it_and_nowhere_else() {
        let paths = testing::inventories::UNMAPPED_PATHS;
        let plain = testing::inventories::UNFILLED_NAMES;
        let enabled = "os: {external_storage_config: {enabled: true}}";
        for (inventory, document) in [(paths, "os: {hostname: a}"), (plain, enabled)] {
            let (commands, file) = started(inventory, document);
            assert_eq!(commands, ["systemctl start multipathd.service", "udevadm settle --timeout=30"]);
            let file = file.unwrap();
            assert!(
                file.contains("find_multipaths yes") && file.contains("user_friendly_names no"),
                "{file}"
            );
        }
        assert_eq!(started(plain, "os: {hostname: a}"), (vec![], None));
    }
}
