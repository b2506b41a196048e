//! The live system that an install runs in: it takes the network of the configuration, as the node will have it.
//!
//! Until the configuration is known, the live system uses DHCP on every card. A network that needs a static address, a VLAN or a
//! bond works only from here on; and a mistake in it shows before anything is written.

pub mod help;
pub mod multipath;
pub mod network_disks;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::network;
use crate::network::activate::{ProfileChanges, activate, address_of};
use crate::nics::CardSelectors;
use crate::node_files::{NodeFile, write};
use base::command::Runner;
use base::files::Root;
use base::progress::Progress;
use model::boot::parameter;
use model::config::InstallConfig;

/// How long the management network may take to get an address.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether this is a live system, which may be changed: `command_line` is that of its kernel.
#[must_use]
pub fn is_live(command_line: &str) -> bool {
    command_line.split_whitespace().any(|word| word.strip_prefix(parameter::MODE) == Some("=install"))
}

/// Makes the networks of the configuration, if it names cards, and waits for the address of the management network.
///
/// A network that does not come up is a warning and no failure: only later steps know whether the install can do without it.
pub fn set_up_network(
    config: &InstallConfig,
    root: &Path,
    runner: &dyn Runner,
    progress: &Progress,
) -> Result<()> {
    let Some(device) = network::management_device(config) else { return Ok(()) };
    let step = progress.step("network", format!("Setting up the network {device}"), None);
    let mut changes = ProfileChanges::default();
    let root = Root::open(root)?;
    for file in network::files(config, &CardSelectors::default()).into_iter().chain([careful()]) {
        let existed = root.status(&file.path)?.is_some();
        if write(&root, &file)? {
            changes.wrote(&file.path, existed);
        }
    }
    // The live system's own profiles hold the cards until others are requested by name.
    changes.every_card(config);
    activate(config, &changes, runner, &mut |note| progress.note("network", note))?;
    match address_of(&device, runner, ADDRESS_TIMEOUT) {
        Some(address) => progress.note("network", format!("{device} has the address {address}")),
        None => {
            progress.note("network", format!("warning: {device} has no address: check cables, VLAN and DHCP"))
        }
    }
    step.done();
    Ok(())
}

/// Takes no address that another machine answers for (RFC 5227), so that the preflight checks find that machine.
fn careful() -> NodeFile {
    let path = "etc/NetworkManager/conf.d/20-nqrust-live.conf";
    NodeFile::new(path, 0o644, "[connection-nqrust-live]\nipv4.dad-timeout=3000\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;
    use testing::runner::ScriptedRunner;

    fn asked(document: &str, root: &Path) -> Vec<String> {
        let manager =
            ScriptedRunner::silent().answer("IP4.ADDRESS", "192.0.2.9/24\n").fail("port1", "no carrier");
        set_up_network(&parse(document, "f").unwrap(), root, &manager, &Progress::silent()).unwrap();
        manager.commands()
    }

    #[test]
    fn every_card_of_the_configuration_is_brought_up_though_one_has_no_cable() {
        let root = tempfile::tempdir().unwrap();
        let text = "install: {management_interface: {interfaces: [{name: a}, {name: b}], vlan_id: 7},\
                    networks: [{name: store, interfaces: [{name: c}]}]}";
        let asked = asked(text, root.path());
        for port in ["mgmt-port0", "mgmt-port1", "store-port0"] {
            let wanted = format!("nmcli --wait 30 connection up id nqrust-{port}");
            assert!(asked.contains(&wanted), "{asked:?}");
        }
        assert_eq!(asked.last().unwrap(), "nmcli -g IP4.ADDRESS device show mgmt-br.7");
        assert!(
            root.path()
                .join("etc/NetworkManager/system-connections/nqrust-mgmt-bridge.nmconnection")
                .exists()
        );
    }

    #[test]
    fn a_configuration_without_cards_leaves_the_live_system_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        assert!(asked("os: {hostname: node-1}", root.path()).is_empty());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_live_system_is_known_by_its_command_line() {
        assert!(is_live("quiet nqrust.mode=install rd.live.image"));
        assert!(!is_live("nqrust.slot=a nqrust.mode=installed"));
    }
}
