//! The disks of a node that are reached over the network, in its initrd: before anything looks for partitions, the network cards are set
//! up and the targets reached, as the install has put down and as the firmware says (iBFT).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use base::progress::Progress;
use machine::network_disks::connect::{ConnectPolicy, Pace, connect};
use machine::network_disks::{firmware, record_logins};
use model::boot::{BootParameters, NetworkDiskUse, Slot};
use model::network_disks::{ACCESS_FILE, NetworkDiskAccess};

/// How long the kernel holds back what a node reads and writes while the connection to its only path is lost. Less would cost the node its
/// file systems when the storage restarts.
const HOLD: Duration = Duration::from_secs(24 * 60 * 60);
/// The same where multipathd goes on with another path.
const HOLD_WITH_PATHS: Duration = Duration::from_secs(15);

/// Reaches the disks that the command line `line` of a node says it has. Returns the ways that do not work; a target without which the
/// node cannot start is tried without end.
///
/// # Errors
/// [`Class::Hardware`] if neither the boot loader nor the firmware has brought how they are reached.
pub fn reach_disks(
    root: &Path,
    line: &str,
    runner: &dyn Runner,
    pace: &mut dyn Pace,
    progress: &Progress,
) -> Result<Vec<String>> {
    let used = NetworkDiskUse::of_line(line)?;
    let installed = BootParameters::parse(line)?;
    // The recovery system mounts no data.
    let recovery = installed.as_ref().is_some_and(|installed| installed.slot == Slot::Recovery);
    if !used.any() || (recovery && !used.system) {
        return Ok(Vec::new());
    }
    let firmware = firmware::load_and_read(root, runner);
    let installed_access = of_boot_loader(root)?;
    let installed_access = if recovery { installed_access.for_recovery() } else { installed_access };
    let access = installed_access.with(firmware);
    if access.is_empty() {
        return Err(Failure::new(
            Class::Hardware,
            "this node is on disks over the network, and nothing says how to reach them",
        )
        .because(anyhow::anyhow!(
            "the firmware has no iBFT, and the boot loader has brought no file with targets"
        ))
        .hint("Let the firmware or iPXE start this machine from its iSCSI disk, so that there is an iBFT.")
        .into());
    }
    let policy = ConnectPolicy { forever: true, hold: hold(installed.as_ref()), in_system: false };
    let failed = connect(&access, root, policy, runner, pace, progress)?;
    Ok(failed.into_iter().map(|way| way.words).collect())
}

fn hold(installed: Option<&BootParameters>) -> Duration {
    let paths = installed.is_some_and(|installed| !installed.multipath.is_empty());
    if paths { HOLD_WITH_PATHS } else { HOLD }
}

/// Keeps the disks of a running node: its iscsid gets records of the logins of the initrd before it takes them over, and starts; networkd
/// keeps the addresses of the cards.
///
/// # Errors
/// The services cannot be started.
pub fn keep_disks(root: &Path, line: &str, runner: &dyn Runner, progress: &Progress) -> Result<()> {
    let installed = BootParameters::parse(line)?;
    if let Err(error) = record_logins(root, hold(installed.as_ref()), runner) {
        progress.warn("network-disks", &format!("recording the logins to iSCSI targets: {error:#}"));
    }
    let start = ["--no-block", "start", "systemd-networkd.service", "iscsid.service"];
    runner.run(&Invocation::new("systemctl").args(start)).map(drop)
}

/// What the install has put down.
fn of_boot_loader(root: &Path) -> Result<NetworkDiskAccess> {
    let file = root.join(ACCESS_FILE);
    if !file.exists() {
        return Ok(NetworkDiskAccess::default());
    }
    let what = || format!("reading {}", file.display());
    let bytes = std::fs::read(&file).with_context(what)?;
    serde_json::from_slice(&bytes).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use machine::network_disks::connect::SystemPace;
    use testing::machine::MachineTree;
    use testing::runner::ScriptedRunner;

    const NODE: &str = "nqrust.slot=a nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
                        nqrust.persistent=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007";
    const ACCESS: &str = r#"{"initiator":"iqn.2026-01.com.example:n","cards":[{"mac":"52:54:00:00:00:04","address":"dhcp"}],
        "system_targets":["iqn.2026-01.com.example:a"],
        "targets":[{"protocol":"iscsi","target":"iqn.2026-01.com.example:a","portal":"192.0.2.9:3260","chap":{"user":"n","password":"correct horse"}}]}"#;

    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        machine.file("etc/x", "");
        machine.file("run/x", "");
        machine
    }

    fn run(machine: &MachineTree, words: &str) -> (Result<Vec<String>>, Vec<String>) {
        let runner = ScriptedRunner::silent();
        let line = format!("{NODE} {words}\n");
        let pace = &mut SystemPace::default();
        let done = reach_disks(machine.path(), &line, &runner, pace, &Progress::silent());
        (done, runner.commands())
    }

    #[test]
    fn a_node_on_disks_of_its_own_does_nothing() {
        let (done, commands) = run(&machine(), "");
        assert!(done.unwrap().is_empty() && commands.is_empty());
    }

    #[test]
    fn the_file_of_the_boot_loader_is_enough_and_holds_reads_back_for_as_long_as_the_paths_need() {
        for (words, hold) in [("", "86400"), (" nqrust.multipath=3600c0ff0", "15")] {
            let machine = machine();
            machine.file(ACCESS_FILE, ACCESS);
            let (done, commands) = run(&machine, &format!("nqrust.network_disks=system{words}"));
            assert!(done.unwrap().is_empty());
            let login = "iscsiadm -m node -T iqn.2026-01.com.example:a -p 192.0.2.9:3260 --login";
            assert!(commands.iter().any(|command| command == login), "{commands:?}");
            assert!(!commands.iter().any(|command| command.contains("nmcli") || command.contains("correct")));
            let settings = std::fs::read_to_string(machine.path().join("etc/iscsi/iscsid.conf")).unwrap();
            assert!(settings.contains(&format!("replacement_timeout = {hold}\n")), "{settings}");
            assert!(machine.path().join("run/systemd/network/10-nqrust-storage0.network").exists());
        }
    }

    #[test]
    fn a_running_node_records_its_logins_before_its_iscsid_starts_and_starts_it_even_if_that_fails() {
        let machine = machine();
        machine.file(ACCESS_FILE, ACCESS);
        run(&machine, "nqrust.network_disks=system").0.unwrap();
        for (file, text) in [
            ("iscsi_session/session1/targetname", "iqn.2026-01.com.example:a"),
            ("iscsi_session/session1/tpgt", "1"),
            ("iscsi_connection/connection1:0/persistent_address", "192.0.2.9"),
            ("iscsi_connection/connection1:0/persistent_port", "3260"),
        ] {
            machine.file(&format!("sys/class/{file}"), &format!("{text}\n"));
        }
        let start = "systemctl --no-block start systemd-networkd.service iscsid.service";
        for runner in [ScriptedRunner::silent(), ScriptedRunner::silent().fail("-o new", "no room")] {
            keep_disks(machine.path(), NODE, &runner, &Progress::silent()).unwrap();
            let commands = runner.commands();
            assert!(commands[1].ends_with("-p 192.0.2.9:3260,1 -o new"), "{commands:?}");
            assert_eq!(commands.last().unwrap(), start);
        }
    }

    #[test]
    fn the_recovery_system_logs_in_for_the_system_only() {
        let machine = machine();
        machine.file(ACCESS_FILE, ACCESS);
        for (used, logs_in) in [("data", false), ("system", true), ("system,data", true)] {
            let (done, commands) =
                run(&machine, &format!("nqrust.network_disks={used} nqrust.slot=recovery"));
            done.unwrap();
            assert_eq!(commands.iter().any(|command| command.ends_with("--login")), logs_in, "{used}");
        }
    }

    #[test]
    fn a_node_to_whose_disk_nothing_leads_says_so() {
        let (done, _) = run(&machine(), "nqrust.network_disks=system");
        let text = render(&done.unwrap_err());
        assert!(text.contains("the firmware has no iBFT") && text.contains("iPXE"), "{text}");
        let machine = machine();
        machine.file(ACCESS_FILE, "{");
        let (done, _) = run(&machine, "nqrust.network_disks=system");
        assert!(format!("{:#}", done.unwrap_err()).contains("network-disks.json"));
    }
}
