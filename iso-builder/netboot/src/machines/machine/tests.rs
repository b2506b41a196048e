use super::*;
use crate::machines::token::DeploymentTicket;
use crate::moment::Moment;
use crate::test_support::told;
use model::machine::Identity;
use std::net::IpAddr;

const NOW: Moment = Moment(1_700_000_000);

#[test]
fn each_event_leads_where_the_table_says() {
    use DeploymentState::{
        Booting, Failed, Installed, Installing, Joined, Redeploy, Waiting, WaitingForCluster as Cluster,
    };
    let states = [Waiting, Booting, Installing, Cluster, Installed, Joined, Failed, Redeploy];
    for (event, after) in [
        (
            DeploymentEvent::Booted,
            [Booting, Booting, Installing, Cluster, Installed, Joined, Booting, Booting],
        ),
        (
            DeploymentEvent::Took,
            [Installing, Installing, Installing, Installing, Installed, Joined, Installing, Installing],
        ),
        (DeploymentEvent::Waits, [Waiting, Booting, Cluster, Cluster, Installed, Joined, Failed, Redeploy]),
        (
            DeploymentEvent::Proceeds,
            [Waiting, Booting, Installing, Installing, Installed, Joined, Failed, Redeploy],
        ),
        (
            DeploymentEvent::Finished,
            [Waiting, Installed, Installed, Installed, Installed, Joined, Installed, Redeploy],
        ),
        (DeploymentEvent::Joined, [Waiting, Joined, Joined, Joined, Joined, Joined, Joined, Redeploy]),
        (DeploymentEvent::Failed, [Waiting, Failed, Failed, Failed, Installed, Joined, Failed, Redeploy]),
        (DeploymentEvent::Redeploy, [Redeploy; 8]),
    ] {
        assert_eq!(states.map(|state| state.after(event)), after, "{event:?}");
    }
}

#[test]
fn only_a_machine_that_a_configuration_is_for_installs_and_only_once() {
    use DeploymentState::{
        Booting, Failed, Installed, Installing, Joined, Redeploy, Waiting, WaitingForCluster,
    };
    let (yes, disk) = (BootAnswer::Install, BootAnswer::Disk);
    for (state, own) in [
        (Waiting, yes),
        (Booting, yes),
        (Installing, disk(DiskBootReason::Started)),
        (Installed, disk(DiskBootReason::Installed)),
        (Joined, disk(DiskBootReason::Installed)),
        (WaitingForCluster, yes),
        (Failed, yes),
        (Redeploy, yes),
    ] {
        assert_eq!(state.answer(InstallPermission::Unsaid, ConfigurationFit::Own), own, "{state:?}");
        assert_eq!(state.answer(InstallPermission::Allowed, ConfigurationFit::Fallback), own, "{state:?}");
        let others = if state.is_taken() { own } else { disk(DiskBootReason::Unknown) };
        assert_eq!(state.answer(InstallPermission::Unsaid, ConfigurationFit::Fallback), others, "{state:?}");
        assert_eq!(state.answer(InstallPermission::Allowed, ConfigurationFit::Nothing), others, "{state:?}");
        assert_eq!(
            state.answer(InstallPermission::Denied, ConfigurationFit::Own),
            disk(DiskBootReason::Denied),
            "{state:?}"
        );
    }
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

#[test]
fn who_asks_is_remembered_by_address_and_who_took_the_configuration_is_not_forgotten() {
    let mut machine = Machine::stranger(told("serial=CZ1"), NOW);
    assert!(!machine.asked(address(1), &told("serial=CZ1"), NOW));
    assert!(!machine.asked(address(1), &told("serial=CZ1"), NOW.plus(1)), "it is the same client");
    machine.took(address(1), NOW.plus(2));
    for last in 2..=100 {
        assert!(machine.asked(address(last), &told("serial=CZ1&asset=a"), NOW.plus(u64::from(last))));
    }
    assert_eq!(machine.clients.len(), MOST_CLIENTS);
    let first = &machine.clients[0];
    assert_eq!((first.address, first.times, first.took), (address(1), 2, Some(NOW.plus(2))));
    let last = machine.clients.last().unwrap();
    assert_eq!((last.address, last.told.as_str()), (address(100), "serial:CZ1, asset-tag:a"));
}

#[test]
fn a_redeployment_makes_all_tokens_void_and_forgets_who_asked() {
    let mut machine = Machine::stranger(told("serial=CZ1"), NOW);
    machine.asked(address(1), &told("serial=CZ1"), NOW);
    let ticket = DeploymentTicket::new(machine.id, machine.generation, NOW).unwrap();
    machine.taken = Some(ticket.into());
    machine.apply(DeploymentEvent::Redeploy, NOW);
    assert_ne!(machine.generation, ticket.generation);
    assert_eq!((machine.taken, machine.clients.len()), (None, 0));
}

#[test]
fn only_so_many_cards_are_learned() {
    let mut machine = Machine::stranger(Identity::default(), NOW);
    let mac = |number: u8| format!("52:54:00:00:00:{number:02x}").parse().unwrap();
    assert!((0..64).all(|number| machine.learn(mac(number))));
    assert!(!machine.learn(mac(64)) && !machine.learn(mac(0)));
}

#[test]
fn the_name_of_a_machine_does_not_steer_a_terminal() {
    assert_eq!(described(&told("serial=a\u{1b}[2J")), "machine a[2J");
    assert_eq!(described(&told("asset=rack 7")), "machine rack 7");
}

#[test]
fn a_moment_reads_as_a_date() {
    assert_eq!(NOW.to_string(), "2023-11-14T22:13:20Z");
    assert_eq!(Moment(u64::MAX).to_string(), "@18446744073709551615");
}
