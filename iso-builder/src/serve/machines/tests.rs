use super::*;

const NOW: Moment = Moment(1_700_000_000);

fn identity(mac: &str, serial: Option<&str>, uuid: Option<u128>) -> Identity {
    let macs = if mac.is_empty() { Vec::new() } else { vec![mac.parse().unwrap()] };
    Identity { macs, serial: serial.map(Into::into), uuid: uuid.map(Uuid::from_u128), asset_tag: None }
}

const FIRST: &str = "52:54:00:00:00:01";
const SECOND: &str = "52:54:00:00:00:02";

fn tokens(name: &str) -> Tokens {
    Tokens {
        configuration: Digest::of(name.as_bytes()),
        report: Digest::of(format!("{name} report").as_bytes()),
        until: NOW.plus(60),
        used: false,
    }
}

#[test]
fn each_event_leads_where_the_table_says() {
    use State::{Booting, Failed, Installed, Installing, Joined, Redeploy, Waiting};
    let states = [Waiting, Booting, Installing, Installed, Joined, Failed, Redeploy];
    for (event, after) in [
        (Event::Booted, [Booting, Booting, Installing, Installed, Joined, Booting, Booting]),
        (Event::Took, [Waiting, Installing, Installing, Installed, Joined, Installing, Redeploy]),
        (Event::Finished, [Waiting, Installed, Installed, Installed, Joined, Installed, Redeploy]),
        (Event::Joined, [Waiting, Joined, Joined, Joined, Joined, Joined, Redeploy]),
        (Event::Failed, [Waiting, Failed, Failed, Installed, Joined, Failed, Redeploy]),
        (Event::Redeploy, [Redeploy; 7]),
    ] {
        assert_eq!(states.map(|state| state.after(event)), after, "{event:?}");
    }
}

#[test]
fn only_a_machine_that_a_configuration_is_for_installs_and_only_once() {
    use State::{Booting, Failed, Installed, Installing, Joined, Redeploy, Waiting};
    let (yes, disk) = (Answer::Install, Answer::Disk);
    for (state, own) in [
        (Waiting, yes),
        (Booting, yes),
        (Installing, disk(Why::Started)),
        (Installed, disk(Why::Installed)),
        (Joined, disk(Why::Installed)),
        (Failed, yes),
        (Redeploy, yes),
    ] {
        assert_eq!(state.answer(Permission::Unsaid, Fit::Own), own, "{state:?}");
        assert_eq!(state.answer(Permission::Allowed, Fit::Fallback), own, "{state:?}");
        assert_eq!(state.answer(Permission::Unsaid, Fit::Fallback), disk(Why::Unknown), "{state:?}");
        assert_eq!(state.answer(Permission::Allowed, Fit::Nothing), disk(Why::Unknown), "{state:?}");
        assert_eq!(state.answer(Permission::Denied, Fit::Own), disk(Why::Denied), "{state:?}");
    }
}

#[test]
fn a_machine_is_known_again_by_a_card_or_by_marks_that_do_not_contradict_each_other() {
    let known = identity(FIRST, Some("CZ1"), Some(1));
    for (other, same) in [
        (identity(FIRST, None, None), true),
        (identity(FIRST, Some("CZ2"), Some(2)), true),
        (identity(SECOND, Some("cz1"), Some(1)), true),
        (identity(SECOND, Some("CZ1"), None), true),
        (identity(SECOND, Some("CZ1"), Some(2)), false),
        (identity(SECOND, Some("CZ2"), Some(1)), false),
        (identity(SECOND, None, None), false),
        (identity("", None, Some(1)), true),
    ] {
        assert_eq!(is_same(&known, &other), same, "{other:?}");
        assert_eq!(is_same(&other, &known), same, "{other:?}");
    }
}

#[test]
fn an_installed_machine_that_boots_from_another_card_is_still_installed() {
    let mut machines = Machines::default();
    let first = machines.seen(&identity(FIRST, Some("CZ1"), None), NOW);
    first.state = State::Installed;
    let id = first.id;
    let again = machines.seen(&identity(SECOND, Some("CZ1"), None), NOW.plus(9));
    assert_eq!((again.id, again.state), (id, State::Installed));
    assert_eq!((again.first_seen, again.last_seen), (NOW, NOW.plus(9)));
    // From then on the second card alone is enough.
    assert_eq!(machines.seen(&identity(SECOND, None, None), NOW).id, id);
}

#[test]
fn of_two_machines_that_turn_out_to_be_one_the_one_that_must_not_install_counts() {
    let mut machines = Machines::default();
    machines.seen(&identity(FIRST, None, None), NOW).state = State::Booting;
    machines.seen(&identity(SECOND, None, Some(1)), NOW).state = State::Installed;
    let both = Identity { macs: vec![FIRST.parse().unwrap()], ..identity("", None, Some(1)) };
    assert_eq!(machines.seen(&both, NOW).state, State::Installed);
    let denied = machines.seen(&identity(FIRST, None, None), NOW);
    denied.permission = Permission::Denied;
    assert_eq!(machines.seen(&both, NOW).permission, Permission::Denied);
}

#[test]
fn a_token_opens_one_configuration_once_and_in_its_time() {
    let mut machines = Machines::default();
    let machine = machines.seen(&identity(FIRST, None, None), NOW);
    machine.apply(Event::Booted, NOW);
    machine.tokens = Some(tokens("a"));
    let (a, id) = (Digest::of(b"a"), machine.id);
    assert_eq!(machines.take(Digest::of(b"b"), NOW).unwrap_err(), Refused::Unknown);
    assert_eq!(machines.take(Digest::of(b"a report"), NOW).unwrap_err(), Refused::Unknown);
    assert_eq!(machines.take(a, NOW.plus(61)).unwrap_err(), Refused::Gone);
    assert_eq!(machines.get(id).unwrap().state, State::Booting);
    let taken = machines.take(a, NOW.plus(60)).unwrap();
    assert_eq!((taken.id, taken.state, taken.since), (id, State::Installing, NOW.plus(60)));
    assert_eq!(machines.take(a, NOW.plus(60)).unwrap_err(), Refused::Gone);
    assert_eq!(machines.reporting(Digest::of(b"a report")).map(|machine| machine.id), Some(id));
    assert_eq!(machines.reporting(a), None);
}

#[test]
fn a_token_of_a_machine_that_was_denied_or_is_to_be_installed_again_opens_nothing() {
    for redeploy in [false, true] {
        let mut machines = Machines::default();
        let machine = machines.seen(&identity(FIRST, None, None), NOW);
        machine.apply(Event::Booted, NOW);
        machine.tokens = Some(tokens("a"));
        if redeploy {
            machine.apply(Event::Redeploy, NOW);
        } else {
            machine.permission = Permission::Denied;
        }
        let expected = if redeploy { Refused::Unknown } else { Refused::Gone };
        assert_eq!(machines.take(Digest::of(b"a"), NOW).unwrap_err(), expected);
    }
}

#[test]
fn strangers_are_forgotten_before_they_fill_the_memory_and_others_never() {
    let mut machines = Machines::default();
    machines.seen(&identity(FIRST, None, None), Moment(0)).state = State::Installed;
    let stranger = |number: u64| {
        let mac = format!("52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        identity(&mac, None, None)
    };
    for number in 0..=MOST_STRANGERS as u64 {
        machines.seen(&stranger(number), NOW.plus(number));
    }
    assert_eq!(machines.iter().count(), MOST_STRANGERS + 1);
    assert!(!machines.iter().any(|machine| machine.identity == stranger(0)));
    assert!(machines.iter().any(|machine| machine.identity == stranger(1)));
    assert_eq!(machines.lasting().count(), 1);
}

#[test]
fn a_moment_reads_as_a_date() {
    assert_eq!(NOW.to_string(), "2023-11-14T22:13:20Z");
    assert_eq!(Moment(u64::MAX).to_string(), "@18446744073709551615");
}
