//! Applying the document of a node that runs, at the request of a person.

use std::path::Path;

use anyhow::Result;

use super::apply::{ApplyOutcome, apply_on};
use super::host;
use base::command::Runner;
use cluster::configuration::MachineSize;
use machine::inventory::nics;
use machine::nic_setup::show_missing;
use machine::nics::RememberedCards;
use model::config;

/// Applies the document of the running node at `root` because a person has asked for it: the network cards that it names are
/// remembered as they are now, logins show which of them are missing, and the boot loader gets the kernel arguments of `os.host`.
pub fn apply_running(document: &Path, root: &Path, runner: &dyn Runner) -> Result<ApplyOutcome> {
    let config = config::load(document)?;
    let present = nics::scan(&root.join("sys"));
    RememberedCards::beside(document).unwrap_or_default().after(&config, &present).keep_beside(document)?;
    let mut outcome = apply_on(document, root, MachineSize::read(Path::new("/proc"))?, &present)?;
    outcome.warnings.extend(host::kept_devices(root, &config));
    // The files are as the document says; the rest waits for a boot loader that can be written.
    match host::keep_words(root, &config) {
        Ok(words) => outcome.next_kernel_arguments = words,
        Err(error) => outcome
            .warnings
            .push(format!("the kernel arguments of `os.host` do not reach the next start: {error:#}")),
    }
    show_missing(root, &config, runner)?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::apply;
    use crate::apply::tests::image;
    use machine::nic_setup::settle;
    use machine::nics::missing;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use testing::runner::ScriptedRunner;

    const DOCUMENT_TEXT: &str =
        "install: {mode: install, management_interface: {interfaces: [{name: ens3}]}}\n";
    const PORT: &str = "etc/NetworkManager/system-connections/nqrust-mgmt-port0.nmconnection";

    /// A node with this document, whose machine has these cards.
    fn node(document: &str, cards: &[(&str, &str)]) -> tempfile::TempDir {
        let root = image();
        fs::create_dir_all(root.path().join("oem")).unwrap();
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        board(root.path(), cards);
        root
    }

    /// Moves the disk of the node into a machine with these cards.
    fn board(root: &Path, cards: &[(&str, &str)]) {
        let net = root.join("sys/class/net");
        let _ = fs::remove_dir_all(&net);
        fs::create_dir_all(&net).unwrap();
        for (name, address) in cards {
            fs::create_dir_all(net.join(name).join("device")).unwrap();
            fs::write(net.join(name).join("address"), format!("{address}\n")).unwrap();
            fs::write(net.join(name).join("addr_assign_type"), "0\n").unwrap();
        }
    }

    /// Like a boot: the document is applied before names are final, then the cards are looked for.
    fn boot(root: &Path) -> Vec<String> {
        apply(&root.join("oem/node.yaml"), root).unwrap();
        settle(root, &ScriptedRunner::silent()).unwrap()
    }

    fn port(root: &Path) -> String {
        fs::read_to_string(root.join(PORT)).unwrap()
    }

    fn remembered(root: &Path) -> String {
        fs::read_to_string(root.join("oem/cards.json")).unwrap_or_default()
    }

    const OLD: (&str, &str) = ("ens3", "52:54:00:00:00:03");

    #[test]
    fn a_card_that_is_called_otherwise_on_another_board_is_found_by_its_address() {
        let root = node(DOCUMENT_TEXT, &[OLD]);
        boot(root.path());
        let record = root.path().join("oem/cards.json");
        assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o644);
        board(root.path(), &[("enp1s0", "52:54:00:00:00:09"), ("enp7s0", OLD.1)]);
        let notes = boot(root.path());
        assert!(notes.contains(&"ens3 (52:54:00:00:00:03) is enp7s0 here".to_owned()), "{notes:?}");
        assert!(port(root.path()).contains("mac-address=52:54:00:00:00:03\n"), "{}", port(root.path()));
        assert!(!port(root.path()).contains("interface-name"), "{}", port(root.path()));
        assert!(!root.path().join(missing::ISSUE).exists());
    }

    #[test]
    fn a_replaced_card_is_found_by_its_name_and_remembered_when_a_person_applies_the_document() {
        let root = node(DOCUMENT_TEXT, &[OLD]);
        boot(root.path());
        board(root.path(), &[("ens3", "52:54:00:00:00:77")]);
        let notes = boot(root.path());
        assert!(notes.iter().any(|note| note.starts_with("ens3 is another card than before")), "{notes:?}");
        assert!(port(root.path()).contains("interface-name=ens3\n"), "{}", port(root.path()));
        assert!(remembered(root.path()).contains("00:03"), "a boot alone forgets no card");
        apply_running(&root.path().join("oem/node.yaml"), root.path(), &ScriptedRunner::silent()).unwrap();
        assert!(remembered(root.path()).contains("00:77"), "{}", remembered(root.path()));
        assert!(port(root.path()).contains("mac-address=52:54:00:00:00:77\n"), "{}", port(root.path()));
    }

    #[test]
    fn a_login_says_which_card_is_missing_and_which_are_there_until_it_is_back() {
        let root = node(DOCUMENT_TEXT, &[OLD]);
        boot(root.path());
        board(root.path(), &[("enp1s0", "52:54:00:00:00:09")]);
        boot(root.path());
        let issue = fs::read_to_string(root.path().join(missing::ISSUE)).unwrap();
        assert!(
            issue.starts_with(
                "NETWORK CARD MISSING: ens3 (52:54:00:00:00:03) of network mgmt\n\
                 Card in this machine: enp1s0 52:54:00:00:00:09 (driver not known, link not\n\
                 known: the card is down)\nPut the card back, or name a present one"
            ),
            "{issue}"
        );
        assert!(port(root.path()).contains("mac-address=52:54:00:00:00:03\n"), "it is found when it comes");
        board(root.path(), &[OLD]);
        let programs = ScriptedRunner::silent();
        settle(root.path(), &programs).unwrap();
        assert!(!root.path().join(missing::ISSUE).exists());
        assert_eq!(programs.commands(), ["agetty --reload"]);
    }

    #[test]
    fn a_node_without_a_record_makes_one_at_the_first_boot_where_every_named_card_is_there() {
        let two =
            "install: {mode: install, management_interface: {interfaces: [{name: ens3}, {name: ens4}]}}\n";
        let root = node(two, &[OLD]);
        boot(root.path());
        assert_eq!(remembered(root.path()), "");
        assert!(port(root.path()).contains("interface-name=ens3\n"));
        board(root.path(), &[OLD, ("ens4", "52:54:00:00:00:04")]);
        boot(root.path());
        assert!(
            remembered(root.path()).contains("\"ens4\": \"52:54:00:00:00:04\""),
            "{}",
            remembered(root.path())
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_keeps_no_node_from_its_network() {
        let root = node(DOCUMENT_TEXT, &[OLD]);
        fs::write(root.path().join("oem/cards.json"), "{\"version\": 2, \"cards\": {}}").unwrap();
        let outcome = apply(&root.path().join("oem/node.yaml"), root.path()).unwrap();
        assert!(outcome.warnings[0].contains("found by their names"), "{outcome:?}");
        assert!(port(root.path()).contains("interface-name=ens3\n"));
        let notes = settle(root.path(), &ScriptedRunner::silent()).unwrap();
        assert!(notes[0].contains("it has version 2 and not 1"), "{notes:?}");
        assert!(remembered(root.path()).contains("\"version\": 1"));
    }

    #[test]
    fn a_card_that_the_document_gives_by_its_address_is_not_remembered() {
        let text = "install: {mode: install, management_interface: {interfaces: [{name: ens3, hw_addr: '52:54:00:00:00:03'}]}}\n";
        let root = node(text, &[OLD]);
        boot(root.path());
        assert!(!root.path().join("oem/cards.json").exists());
        board(root.path(), &[("ens3", "52:54:00:00:00:09")]);
        let notes = boot(root.path());
        assert!(notes.iter().any(|note| note.contains("MISSING: ens3 (52:54:00:00:00:03)")), "{notes:?}");
    }
}
