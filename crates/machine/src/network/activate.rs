//! Applying changed profiles on a running system, through NetworkManager's nmcli(1).
//!
//! Unchanged parts keep working: a device whose profile only has another address is changed in place (`nmcli device reapply`), so
//! that a bridge keeps the ports of its virtual machines, and a network with unchanged profiles is not touched. The profiles
//! themselves are written elsewhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{ANY_CARD, NetworkProfiles, PROFILES, chains, profile_id};
use base::command::{Invocation, Runner};
use model::config::InstallConfig;

/// How long a card may take: link, and the negotiation of 802.3ad.
const CARD_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two checks of a device.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// nmcli's message after NetworkManager has not answered for the 25 s of a D-Bus call, and the number of attempts. A virtual
/// machine may get no processor time for so long, and an install must not fail because of it.
const NO_ANSWER: &str = "Timeout was reached";
const ATTEMPTS: usize = 4;

/// The changed profiles of a system, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileChanges {
    fresh: BTreeSet<String>,
    changed: BTreeSet<String>,
}

impl ProfileChanges {
    /// Notes that the file at `path`, from the root, was written; `existed`: it replaced another one. Only profiles count.
    pub fn wrote(&mut self, path: &str, existed: bool) {
        let profile = Path::new(path).strip_prefix(PROFILES).ok().and_then(Path::file_stem);
        if let Some(name) = profile.and_then(|name| name.to_str()) {
            let list = if existed { &mut self.changed } else { &mut self.fresh };
            list.insert(name.to_owned());
        }
    }

    /// Every card of `config` is to be activated, even with an unchanged profile: another profile may hold it.
    pub fn every_card(&mut self, config: &InstallConfig) {
        self.changed.extend(chains(config).into_iter().flat_map(|chain| chain.ports));
    }
}

/// Makes NetworkManager apply the changed profiles of `config`. A device that does not come up, a card without a cable for
/// example, is a note and no failure.
///
/// # Errors
/// NetworkManager cannot be asked to read its profiles.
pub fn activate(
    config: &InstallConfig,
    changes: &ProfileChanges,
    runner: &dyn Runner,
    note: &mut dyn FnMut(String),
) -> Result<()> {
    runner.run(&Invocation::new("udevadm").args(["control", "--reload"]))?;
    nmcli(runner, &["general", "reload"])?;
    // This ends the profiles of removed files, and the devices that they made.
    nmcli(runner, &["connection", "reload"])?;
    let active = nmcli(runner, &["-t", "-f", "NAME,DEVICE", "connection", "show", "--active"])?;
    let mut work =
        ProfileActivation { changes, active: String::from_utf8_lossy(&active).into_owned(), runner, note };
    for chain in chains(config) {
        work.chain(&chain);
    }
    work.any_card();
    Ok(())
}

/// The first IPv4 address of a device, with the length of its prefix, once it has one; `None` after `timeout`.
#[must_use]
pub fn address_of(device: &str, runner: &dyn Runner, timeout: Duration) -> Option<String> {
    let until = Instant::now() + timeout;
    loop {
        let answer = nmcli(runner, &["-g", "IP4.ADDRESS", "device", "show", device]).unwrap_or_default();
        let address = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().trim().to_owned();
        // Several of one device are on one line.
        let address = address.split(" | ").next().unwrap_or_default().to_owned();
        if !address.is_empty() {
            return Some(address);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Every request to NetworkManager here may be repeated.
fn nmcli(runner: &dyn Runner, arguments: &[&str]) -> Result<Vec<u8>> {
    let ask = || runner.run(&Invocation::new("nmcli").args(arguments.iter().copied()));
    let mut answer = ask();
    for _ in 1..ATTEMPTS {
        if !answer.as_ref().is_err_and(|error| format!("{error:#}").contains(NO_ANSWER)) {
            break;
        }
        answer = ask();
    }
    answer
}

struct ProfileActivation<'a> {
    changes: &'a ProfileChanges,
    /// The active profiles and their devices, `PROFILE:DEVICE` a line.
    active: String,
    runner: &'a dyn Runner,
    note: &'a mut dyn FnMut(String),
}

impl ProfileActivation<'_> {
    fn chain(&mut self, chain: &NetworkProfiles) {
        let mut anew = false;
        for (profile, device) in [&chain.bridge, &chain.bond] {
            // The ports make the devices above them if they do not exist.
            anew = anew || self.changes.fresh.contains(profile) || !self.is_reapplied(profile, device);
        }
        for port in &chain.ports {
            let (fresh, changed) = (&self.changes.fresh, &self.changes.changed);
            if anew || fresh.contains(port) || changed.contains(port) && !self.is_told(port) {
                self.up(&[port]);
            }
        }
        if let Some((profile, device)) = &chain.vlan {
            let made = self.changes.fresh.contains(profile);
            // NetworkManager makes a new device itself once its bridge exists.
            let stays = made || self.is_reapplied(profile, device);
            if stays && anew && !made {
                self.up(&[profile]);
            }
        }
    }

    /// Applies the changed profile of a device; `false` if it had to be activated again, which detaches its ports.
    fn is_reapplied(&mut self, profile: &str, device: &str) -> bool {
        if !self.changes.changed.contains(profile) || self.reapply(device) {
            return true;
        }
        self.up(&[profile]);
        false
    }

    fn reapply(&self, device: &str) -> bool {
        nmcli(self.runner, &["device", "reapply", device]).is_ok()
    }

    fn up(&mut self, which: &[&str]) {
        let wait = CARD_TIMEOUT.as_secs().to_string();
        let arguments: Vec<&str> =
            ["--wait", &wait, "connection", "up", "id"].into_iter().chain(which.iter().copied()).collect();
        if let Err(error) = nmcli(self.runner, &arguments) {
            (self.note)(format!("warning: {}: {error:#}", which[0]));
        }
    }

    /// The one profile of all cards, if the document names none.
    fn any_card(&mut self) {
        let profile = profile_id(super::MANAGEMENT, ANY_CARD);
        if !self.changes.changed.contains(&profile) {
            return;
        }
        for device in self.devices(&profile) {
            if !self.reapply(&device) {
                self.up(&[&profile, "ifname", &device]);
            }
        }
    }

    fn devices(&self, profile: &str) -> Vec<String> {
        let device = |line: &str| Some(line.strip_prefix(profile)?.strip_prefix(':')?.to_owned());
        self.active.lines().filter_map(device).collect()
    }

    /// Applies the changed profile of a card; `false` if no card has it or it now belongs to another card.
    fn is_told(&self, port: &str) -> bool {
        let devices = self.devices(port);
        !devices.is_empty() && devices.iter().all(|device| self.reapply(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::files;
    use crate::nics::CardSelectors;
    use model::config::parse;
    use testing::runner::ScriptedRunner;

    /// A NetworkManager that refuses some commands.
    fn manager(refuses: &str) -> ScriptedRunner {
        let manager = ScriptedRunner::silent()
            .answer("--active", "nqrust-mgmt-any:ens3\nnqrust-mgmt-port0:ens3\nlo:lo\n");
        if refuses.is_empty() { manager } else { manager.fail(refuses, "refused") }
    }

    /// The requests to NetworkManager, without the reloads at the beginning, when one document follows another.
    fn asked(before: &str, after: &str, refuses: &'static str) -> (Vec<String>, Vec<String>) {
        let [before, after] = [before, after].map(|text| parse(text, "f").unwrap());
        let known = files(&before, &CardSelectors::default());
        let mut changes = ProfileChanges::default();
        for file in files(&after, &CardSelectors::default()) {
            match known.iter().find(|known| known.path == file.path) {
                None => changes.wrote(&file.path, false),
                Some(known) if *known != file => changes.wrote(&file.path, true),
                Some(_) => {}
            }
        }
        let manager = manager(refuses);
        let mut notes = Vec::new();
        activate(&after, &changes, &manager, &mut |note| notes.push(note)).unwrap();
        let mut asked = manager.commands();
        assert_eq!(asked[2], "nmcli connection reload");
        (asked.split_off(4), notes)
    }

    fn document(rest: &str) -> String {
        format!(
            "install: {{management_interface: {{interfaces: [{{name: a}}, {{name: b}}], {rest}}},\
             networks: [{{name: store, interfaces: [{{name: c}}]}}]}}"
        )
    }

    #[test]
    fn another_address_is_told_to_the_device_and_nothing_else_is_touched() {
        assert!(asked(&document("mtu: 0"), &document("mtu: 0"), "").0.is_empty());
        let fixed = "method: static, ip: 192.0.2.7, subnet_mask: 255.255.255.0, gateway: 192.0.2.1";
        let fixed = format!("os: {{dns_nameservers: [192.0.2.53]}}\n{}", document(fixed));
        assert_eq!(asked(&document("mtu: 0"), &fixed, "").0, ["nmcli device reapply mgmt-br"]);
    }

    #[test]
    fn a_device_that_cannot_change_in_place_is_activated_anew_with_its_cards() {
        let bonded = document("bond_options: {mode: balance-rr}");
        let (asked, notes) = asked(&document("mtu: 0"), &bonded, "reapply mgmt-bo");
        assert_eq!(
            asked,
            [
                "nmcli device reapply mgmt-bo",
                "nmcli --wait 30 connection up id nqrust-mgmt-bond",
                "nmcli --wait 30 connection up id nqrust-mgmt-port0",
                "nmcli --wait 30 connection up id nqrust-mgmt-port1",
            ]
        );
        assert!(notes.is_empty());
    }

    #[test]
    fn what_does_not_come_up_is_told() {
        let (asked, notes) = asked("{}", &document("vlan_id: 7"), "port1");
        let ports = ["mgmt-port0", "mgmt-port1", "store-port0"];
        assert_eq!(asked, ports.map(|port| format!("nmcli --wait 30 connection up id nqrust-{port}")));
        assert_eq!(notes, ["warning: nqrust-mgmt-port1: refused"]);
    }

    #[test]
    fn a_network_manager_that_gives_no_answer_in_time_is_asked_again() {
        for (unanswered, good) in [(0, true), (3, true), (4, false)] {
            let error = "Error: failed to reload connections: Timeout was reached.";
            let slow = ScriptedRunner::silent().fail("", error).times(unanswered);
            let answer = nmcli(&slow, &["connection", "reload"]);
            assert_eq!(answer.is_ok(), good, "{unanswered}");
            assert_eq!(slow.commands().len(), ATTEMPTS.min(unanswered + 1), "{unanswered}");
        }
        // Any other error is final.
        let manager = manager("reload");
        nmcli(&manager, &["connection", "reload"]).unwrap_err();
        assert_eq!(manager.commands().len(), 1);
    }

    #[test]
    fn a_card_that_stays_keeps_its_link() {
        let (before, after) = (document("mtu: 0"), document("mtu: 9000"));
        let wanted = ["reapply mgmt-br", "reapply mgmt-bo", "reapply ens3", "up id nqrust-mgmt-port1"];
        let (asked, _) = asked(&before, &after, "");
        assert_eq!(asked.len(), 4, "{asked:?}");
        assert!(asked.iter().zip(wanted).all(|(line, wanted)| line.ends_with(wanted)), "{asked:?}");
    }

    #[test]
    fn a_vlan_follows_its_bridge() {
        let before = document("vlan_id: 7");
        let after = document("vlan_id: 7, mtu: 1400");
        let (asked, _) = asked(&before, &after, "reapply mgmt-br");
        assert!(asked.starts_with(&["nmcli device reapply mgmt-br".to_owned()]), "{asked:?}");
        assert!(asked.contains(&"nmcli --wait 30 connection up id nqrust-mgmt-bridge".to_owned()));
        let last = asked.last().unwrap();
        assert_eq!(last, "nmcli --wait 30 connection up id nqrust-mgmt-vlan");
        assert!(!asked.iter().any(|line| line.contains("store")), "{asked:?}");
    }

    #[test]
    fn name_servers_reach_every_card_that_uses_the_one_profile() {
        let servers = "os: {dns_nameservers: [192.0.2.53]}";
        let (asked, _) = asked("{}", servers, "");
        assert_eq!(asked.last().unwrap(), "nmcli device reapply ens3");
    }
}
