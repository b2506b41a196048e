//! Disks over the network in the live system: it logs in before disks are shown or chosen.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::inventory::nics;
use crate::network_disks::connect::{ConnectPolicy, Pace, connect};
use crate::network_disks::{access, firmware, require_unmoved};
use base::command::Runner;
use base::failure::{Class, Failure};
use base::progress::Progress;
use model::config::InstallConfig;

/// How long an install is held up by a connection that is lost, before it fails.
const HOLD: Duration = Duration::from_secs(120);

/// Sets up the network cards of such disks, and reaches the targets of the document and of the firmware. With `forever` a target that does
/// not answer is tried without end, as for an install that nobody watches; else it is a warning, and the plan says which disk is missing.
///
/// # Errors
/// A card is missing, or would be taken by a network of the document; or it is not known how a target is reached. [`Class::Network`] if
/// with `forever` a target refuses this machine.
pub fn connect_disks(
    (config, forever): (&InstallConfig, bool),
    root: &Path,
    runner: &dyn Runner,
    pace: &mut dyn Pace,
    progress: &Progress,
) -> Result<()> {
    let firmware = firmware::load_and_read(root, runner);
    let nics = nics::scan(&root.join("sys"));
    let access = access(config, firmware, &nics)?;
    if access.is_empty() {
        return Ok(());
    }
    require_unmoved(config, &access.cards, &nics)?;
    let policy = ConnectPolicy { forever, hold: HOLD, in_system: true };
    let failed = connect(&access, root, policy, runner, pace, progress)?;
    let missing: Vec<_> = failed.into_iter().filter(|way| forever && way.only).map(|way| way.words).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Class::Network, "a storage system does not let this machine in")
        .because(anyhow!("{}", missing.join("; ")))
        .hint("Compare the names and the password of install.network_disks with those of the storage system.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_disks::connect::SystemPace;
    use model::config::parse;
    use testing::machine::MachineTree;
    use testing::runner::ScriptedRunner;

    fn run(machine: &MachineTree, document: &str) -> (Result<()>, Vec<String>) {
        let runner = ScriptedRunner::silent();
        let config = parse(document, "f").unwrap();
        let pace = &mut SystemPace::default();
        let done = connect_disks((&config, false), machine.path(), &runner, pace, &Progress::silent());
        (done, runner.commands())
    }

    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        for directory in ["etc", "run", "sys/devices/card"] {
            machine.file(&format!("{directory}/x"), "");
        }
        for (name, mac) in [("ens3", "52:54:00:00:00:03"), ("ens4", "52:54:00:00:00:04")] {
            machine.link(&format!("sys/class/net/{name}/device"), "../../../devices/card");
            machine.file(&format!("sys/class/net/{name}/address"), &format!("{mac}\n"));
        }
        machine
    }

    fn firmware(machine: &MachineTree) {
        for (file, text) in [
            ("initiator/initiator-name", "iqn.2010-04.org.ipxe:1"),
            ("ethernet0/mac", "52:54:00:00:00:04"),
            ("ethernet0/ip-addr", "10.0.4.15"),
            ("ethernet0/subnet-mask", "255.255.255.0"),
            ("target0/ip-addr", "10.0.4.2"),
            ("target0/port", "3260"),
            ("target0/target-name", "iqn.2026-01.com.example:a"),
        ] {
            machine.file(&format!("sys/firmware/ibft/{file}"), &format!("{text}\n"));
        }
    }

    #[test]
    fn the_firmwares_target_is_logged_in_to_without_a_word_in_the_document() {
        let machine = machine();
        firmware(&machine);
        let (done, commands) = run(&machine, "os: {hostname: a}");
        done.unwrap();
        let login = "iscsiadm -m node -T iqn.2026-01.com.example:a -p 10.0.4.2:3260 --login";
        assert!(commands.iter().any(|command| command == login), "{commands:?}");
        assert!(commands.contains(&"nmcli device set ens4 managed no".to_owned()), "{commands:?}");
    }

    #[test]
    fn a_network_that_would_take_the_card_ends_it_before_anything_is_done() {
        let machine = machine();
        firmware(&machine);
        let (done, commands) = run(&machine, "install: {management_interface: {interfaces: [{name: ens4}]}}");
        assert!(format!("{:#}", done.unwrap_err()).contains("names ens4 52:54:00:00:00:04"));
        assert_eq!(commands, ["modprobe iscsi_ibft"]);
    }

    #[test]
    fn without_such_disks_nothing_is_done() {
        let (done, commands) = run(&machine(), "os: {hostname: a}");
        done.unwrap();
        assert_eq!(commands, ["modprobe iscsi_ibft"]);
    }
}
