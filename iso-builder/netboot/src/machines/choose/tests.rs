use super::*;
use crate::machines::machine::DeploymentEvent;
use crate::test_support::{configurations, told};

const NOW: Moment = Moment(1_700_000_000);
const A: &str = "mac=52:54:00:00:00:0a";
const B: &str = "mac=52:54:00:00:00:0b";
const OF_A: &str = "mac-52-54-00-00-00-0a.yaml";
const OF_B: &str = "mac-52-54-00-00-00-0b.yaml";

/// The choice for a request with this query.
fn about(query: &str, found: Vec<Machine>, names: &[&str]) -> RecordChoice {
    let identity = told(query);
    choose(&RequestIdentity::new(&identity), found, &configurations(names), NOW)
}

fn record(query: &str, found: Vec<Machine>, names: &[&str]) -> ChosenRecord {
    match about(query, found, names) {
        RecordChoice::Record(chosen) => *chosen,
        RecordChoice::Conflict(between) => panic!("conflict between {between:?}"),
    }
}

fn conflict(query: &str, found: Vec<Machine>, names: &[&str]) -> Vec<String> {
    match about(query, found, names) {
        RecordChoice::Conflict(between) => between,
        RecordChoice::Record(chosen) => panic!("{chosen:?}"),
    }
}

/// The record of the assignment of the first of `names` after these events.
fn assignment(name: &str, events: &[DeploymentEvent]) -> Machine {
    let all = configurations(&[name]);
    let mut machine = Machine::assignment(name, all.selectors(name).unwrap(), NOW);
    events.iter().for_each(|event| machine.apply(*event, NOW));
    machine
}

fn stranger(query: &str, permission: InstallPermission) -> Machine {
    Machine { permission, ..Machine::stranger(told(query), NOW) }
}

const INSTALLED: [DeploymentEvent; 3] =
    [DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Finished];

#[test]
fn a_machine_that_asked_before_a_configuration_named_it_is_the_machine_of_that_configuration() {
    let asked = stranger(&format!("{A}&serial=CZ1"), InstallPermission::Unsaid);
    let chosen = record(&format!("{A}&serial=CZ1"), vec![asked.clone()], &[OF_A]);
    assert_eq!((chosen.answer, chosen.machine.id), (BootAnswer::Install, asked.id));
    // The identity that it sent before is not trusted.
    assert_eq!(chosen.machine.identity, told(A));
    assert_eq!(chosen.machine.assigned.as_deref(), Some(OF_A));
    // If the assignment has a record already, the other one is removed.
    let own = assignment(OF_A, &[DeploymentEvent::Booted]);
    let chosen = record(A, vec![own.clone(), asked.clone()], &[OF_A]);
    assert_eq!((chosen.machine.id, chosen.absorbed), (own.id, vec![asked.id]));
}

#[test]
fn a_machine_that_was_installed_or_denied_before_a_configuration_named_it_stays_so() {
    let mut installed = stranger(A, InstallPermission::Allowed);
    INSTALLED.iter().for_each(|event| installed.apply(*event, NOW));
    let chosen = record(A, vec![installed], &[OF_A]);
    assert_eq!(chosen.answer, BootAnswer::Disk(DiskBootReason::Installed));
    let denied = stranger(&format!("{A}&serial=CZ1"), InstallPermission::Denied);
    let chosen = record(A, vec![denied], &[OF_A]);
    assert_eq!(chosen.answer, BootAnswer::Disk(DiskBootReason::Denied));
    assert_eq!(chosen.machine.identity, told(&format!("{A}&serial=CZ1")), "its identifiers stay denied");
}

#[test]
fn marks_of_two_machines_or_configurations_are_a_conflict_that_names_both() {
    let both = format!("{A}&{B}");
    assert_eq!(conflict(&both, vec![], &[OF_A, OF_B]), [OF_A, OF_B]);
    let names = conflict(&both, vec![stranger(B, InstallPermission::Unsaid)], &[OF_A]);
    assert_eq!(names, [OF_A, "machine 52:54:00:00:00:0b"]);
    let names = conflict(&both, vec![assignment(OF_B, &INSTALLED)], &[OF_A]);
    assert_eq!(names, [OF_A, OF_B]);
    let strangers = vec![stranger(A, InstallPermission::Unsaid), stranger(B, InstallPermission::Unsaid)];
    assert_eq!(conflict(&both, strangers, &[]).len(), 2);
    let own = assignment(OF_A, &[]);
    assert_eq!(conflict(A, vec![own, stranger(A, InstallPermission::Denied)], &[OF_A]).len(), 2);
}

#[test]
fn a_configuration_under_another_name_does_not_install_a_node_again() {
    let installed = assignment(OF_A, &INSTALLED);
    let names = conflict(&format!("{A}&serial=CZ1"), vec![installed], &["serial-CZ1.yaml"]);
    assert_eq!(names, ["serial-CZ1.yaml", OF_A]);
    // Nothing was handed out, or the install failed: the configuration was only renamed.
    for events in [
        &[][..],
        &[DeploymentEvent::Booted],
        &[DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Failed],
    ] {
        let before = assignment(OF_A, events);
        let chosen = record(&format!("{A}&serial=CZ1"), vec![before], &["serial-CZ1.yaml"]);
        assert_eq!(chosen.answer, BootAnswer::Install, "{events:?}");
    }
}

#[test]
fn what_is_known_of_a_machine_only_speaks_against_an_install() {
    // The second card of a node that has reported it; no configuration names this card.
    for (events, why) in [
        (&INSTALLED[..2], DiskBootReason::Started),
        (&INSTALLED[..], DiskBootReason::Installed),
        (&[DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Failed], DiskBootReason::Unknown),
    ] {
        let mut machine = assignment(OF_A, events);
        machine.learn("52:54:00:00:00:0b".parse().unwrap());
        let chosen = record(B, vec![machine.clone()], &[OF_A, "default.yaml"]);
        assert_eq!(chosen.answer, BootAnswer::Disk(why), "{events:?}");
        assert_eq!(chosen.machine.identity, machine.identity);
    }
}

#[test]
fn the_fallback_is_for_who_tells_all_marks_of_the_machine_that_was_allowed() {
    let marks = format!("{A}&serial=CZ1");
    let allowed = stranger(&marks, InstallPermission::Allowed);
    let answer = |query: &str| record(query, vec![allowed.clone()], &["default.yaml"]).answer;
    assert_eq!(answer(&marks), BootAnswer::Install);
    assert_eq!(answer(&format!("{marks}&{B}")), BootAnswer::Install);
    assert_eq!(answer(A), BootAnswer::Disk(DiskBootReason::Incomplete));
    assert_eq!(answer("serial=CZ1"), BootAnswer::Disk(DiskBootReason::Incomplete));
    assert_eq!(record(&marks, vec![allowed], &[]).answer, BootAnswer::Disk(DiskBootReason::Unknown));
}

#[test]
fn marks_that_an_operator_took_from_a_configuration_are_forgotten_before_it_is_taken() {
    let mut machine = assignment(OF_A, &[DeploymentEvent::Booted]);
    machine.learn("52:54:00:00:00:0b".parse().unwrap());
    let chosen = record(A, vec![machine], &[OF_A]);
    assert_eq!(chosen.machine.identity, told(A));
}
