use super::*;
use crate::machines::configurations::Configurations;
use crate::machines::identity_keys::IdentityKey;
use crate::machines::store::sqlite::{self, SqliteStore};
use crate::metrics::MetricsFormat;
use crate::test_support::{StorePlace, configurations, for_every_store, operator, told};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Moment = Moment(1_700_000_000);
const HOUR: u64 = 3600;
const A: &str = "mac=52:54:00:00:00:0a";
const B: &str = "mac=52:54:00:00:00:0b";
const OF_A: &str = "mac-52-54-00-00-00-0a.yaml";
const OF_B: &str = "mac-52-54-00-00-00-0b.yaml";

fn peer(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

struct Bench {
    /// Of each server that shares the state.
    registries: Vec<MachineRegistry>,
    requests: std::cell::Cell<usize>,
    configurations: Configurations,
    place: StorePlace,
}

fn bench(names: &[&str]) -> Bench {
    bench_in(StorePlace::sqlite(), 1, names)
}

/// Some servers that share a state.
fn bench_in(place: StorePlace, servers: usize, names: &[&str]) -> Bench {
    let registries = (0..servers).map(|_| place.registry()).collect();
    Bench { registries, requests: Default::default(), configurations: configurations(names), place }
}

impl Bench {
    /// The server that gets the next request: one after the other, as a load balancer does it.
    fn registry(&self) -> &MachineRegistry {
        let request = self.requests.replace(self.requests.get() + 1);
        &self.registries[request % self.registries.len()]
    }

    fn boot(&self, query: &str) -> BootDecision {
        self.boot_from(peer(1), query)
    }

    fn boot_from(&self, peer: IpAddr, query: &str) -> BootDecision {
        self.registry().boot(&told(query), peer, &self.configurations, NOW).unwrap()
    }

    /// Tells the machine to install; its tokens for the configuration and for reports.
    fn tokens(&self, query: &str) -> (String, String) {
        let booted = self.boot(query);
        assert_eq!(booted.answer, BootAnswer::Install, "{query}");
        let (configuration, report) = booted.tokens.unwrap();
        (configuration.expose().to_owned(), report.expose().to_owned())
    }

    fn take(&self, token: &str) -> Result<ConfigurationHandout, TokenRefusal> {
        self.take_at(token, NOW)
    }

    fn take_at(&self, token: &str, now: Moment) -> Result<ConfigurationHandout, TokenRefusal> {
        self.registry().take(token, peer(2), &self.configurations, HOUR, now).unwrap()
    }

    /// Installs the machine; its token for reports.
    fn install(&self, query: &str) -> String {
        let (configuration, report) = self.tokens(query);
        self.take(&configuration).unwrap();
        report
    }

    fn report(&self, token: &str, event: Option<DeploymentEvent>, query: &str) -> RefusedCards {
        let reporter = self.registry().reporter(token).unwrap().unwrap();
        assert!(reporter.has_taken);
        self.registry().report(reporter.id, event, &told(query), &self.configurations, NOW).unwrap()
    }

    fn act(&self, id: MachineId, action: OperatorAction) -> ActionResult {
        let acted =
            self.registry().act(&[id.into()], action, &operator(), &self.configurations, NOW).unwrap();
        acted[0].result
    }

    fn machines(&self) -> Vec<Machine> {
        self.registry().list(usize::MAX).unwrap().0
    }

    fn of(&self, name: &str) -> Machine {
        self.machines().into_iter().find(|machine| machine.assigned.as_deref() == Some(name)).unwrap()
    }

    fn answer(&self, query: &str) -> BootAnswer {
        self.boot(query).answer
    }

    /// The servers after they were killed.
    fn restarted(mut self) -> Self {
        let servers = self.registries.drain(..).count();
        self.registries.extend((0..servers).map(|_| self.place.registry()));
        self
    }
}

const INSTALLED: BootAnswer = BootAnswer::Disk(DiskBootReason::Installed);
const STARTED: BootAnswer = BootAnswer::Disk(DiskBootReason::Started);

#[test]
fn marks_of_two_machines_in_one_request_install_neither_now_nor_later() {
    let mut bench = bench(&[OF_A]);
    let production = format!("{B}&serial=PROD");
    assert_eq!(bench.answer(&production), BootAnswer::Disk(DiskBootReason::Unknown));
    let booted = bench.boot_from(peer(9), &format!("{A}&{B}"));
    assert_eq!(booted.answer, BootAnswer::Disk(DiskBootReason::Conflict));
    assert_eq!(booted.conflict, [OF_A, "machine 52:54:00:00:00:0b"]);
    for _ in 0..2 {
        assert_eq!(bench.answer(&production), BootAnswer::Disk(DiskBootReason::Unknown));
        assert_eq!(
            bench.answer(&format!("{B}&serial=PROD&uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32")),
            BootAnswer::Disk(DiskBootReason::Unknown)
        );
        bench = bench.restarted();
    }
    assert_eq!(bench.answer(A), BootAnswer::Install);
    let (_, _, conflicts) = bench.registry().list(0).unwrap();
    assert_eq!(conflicts.len(), 1);
    assert_eq!((conflicts[0].address, conflicts[0].times), (peer(9), 1));
    assert_eq!(conflicts[0].between, booted.conflict);
    assert!(bench.registry().dismiss(&conflicts[0].id, &operator(), NOW).unwrap().is_some());
    assert!(bench.registry().list(0).unwrap().2.is_empty());
}

#[test]
fn a_machine_that_never_asked_is_not_made_one_with_another_by_a_request() {
    let bench = bench(&[OF_A]);
    // B is unknown, so there is no conflict; and nothing is learned of it.
    assert_eq!(bench.answer(&format!("{A}&{B}")), BootAnswer::Install);
    assert_eq!(bench.answer(B), BootAnswer::Disk(DiskBootReason::Unknown));
    assert_eq!(bench.of(OF_A).identity, told(A));
}

#[test]
fn a_configuration_with_two_cards_is_given_once_through_either() {
    let mut bench = bench(&[]);
    let selectors = ["mac:52:54:00:00:00:0a", "mac:52:54:00:00:00:0b"].map(|text| text.parse().unwrap());
    bench.configurations.add("node-1.yaml", Secret::new("x"), selectors.into());
    let report = bench.install(A);
    assert_eq!((bench.answer(A), bench.answer(B)), (STARTED, STARTED));
    bench.report(&report, Some(DeploymentEvent::Finished), A);
    assert_eq!((bench.answer(A), bench.answer(B)), (INSTALLED, INSTALLED));
    assert_eq!(bench.machines().len(), 1);
    // Deny holds for both cards too.
    let id = bench.of("node-1.yaml").id;
    assert_eq!(bench.act(id, OperatorAction::Redeploy), ActionResult::Done);
    assert_eq!(bench.act(id, OperatorAction::Deny), ActionResult::Done);
    let denied = BootAnswer::Disk(DiskBootReason::Denied);
    assert_eq!((bench.answer(A), bench.answer(B)), (denied, denied));
}

#[test]
fn a_card_that_an_installed_machine_has_reported_does_not_install_it_again() {
    let bench = bench(&[OF_A, OF_B, "default.yaml"]);
    let second = "mac=52:54:00:00:00:0c";
    // It asked through its second card before, as an unknown machine.
    assert_eq!(bench.answer(second), BootAnswer::Disk(DiskBootReason::Unknown));
    let report = bench.install(A);
    assert!(bench.report(&report, None, &format!("{A}&{second}")).is_empty());
    assert_eq!(bench.answer(second), STARTED);
    assert_eq!(bench.machines().len(), 1);
    // Together with an identifier of another machine it is no identifier of that one.
    assert_eq!(bench.answer(&format!("{second}&{B}")), BootAnswer::Disk(DiskBootReason::Conflict));
    assert_eq!(bench.answer(B), BootAnswer::Install);
}

#[test]
fn a_report_cannot_claim_the_marks_of_others() {
    let bench = bench(&[OF_A, OF_B]);
    let other = bench.install(B);
    let known = "mac=52:54:00:00:00:0c";
    assert!(bench.report(&other, None, &format!("{B}&{known}")).is_empty());
    let report = bench.install(A);
    let refusals = bench.report(&report, None, &format!("{A}&{B}&{known}"));
    let owners: Vec<_> = refusals.into_iter().map(|(_, owner)| owner).collect();
    assert_eq!(owners, [OF_B, OF_B]);
    assert_eq!(bench.of(OF_A).identity, told(A));
    // A report without any identifier of the installed machine is of another one.
    bench.report(&report, Some(DeploymentEvent::Finished), "mac=52:54:00:00:00:0d");
    assert_eq!(bench.of(OF_A).identity, told(A));
}

#[test]
fn a_configuration_named_by_a_serial_number_a_uuid_or_a_tag_is_given_once() {
    let uuid = "4c4c4544-0042-3510-8052-b4c04f4a5a32";
    let bench = bench(&["serial-SRV2.yaml", "asset-tag-rack3.yaml", &format!("uuid-{uuid}.yaml")]);
    for query in ["serial=SRV2", "asset=rack3", &format!("uuid={uuid}")] {
        bench.install(query);
        for number in 0..5_u128 {
            let random = if query.starts_with("uuid") {
                format!("{query}&mac=52:54:00:00:01:{number:02x}")
            } else {
                format!("{query}&uuid={}", uuid::Uuid::from_u128(0x7000_0000 + number))
            };
            assert_eq!(bench.answer(&random), STARTED, "{random}");
        }
    }
    assert_eq!(bench.machines().len(), 3, "random marks make no records");
}

#[test]
fn a_denied_configuration_is_given_to_nobody_whatever_else_is_told() {
    let bench = bench(&["serial-SRV2.yaml"]);
    assert_eq!(bench.answer("serial=SRV2"), BootAnswer::Install);
    let token = bench.tokens("serial=SRV2").0;
    bench.act(bench.of("serial-SRV2.yaml").id, OperatorAction::Deny);
    for query in ["serial=srv2", "serial=SRV2&mac=52:54:00:00:00:01", "serial=SRV2&asset=x"] {
        assert_eq!(bench.answer(query), BootAnswer::Disk(DiskBootReason::Denied), "{query}");
    }
    assert_eq!(bench.take(&token).unwrap_err(), TokenRefusal::Gone);
    bench.act(bench.of("serial-SRV2.yaml").id, OperatorAction::Allow);
    assert_eq!(bench.take(&token).unwrap_err(), TokenRefusal::Gone, "it is of the time before the denial");
    bench.install("serial=SRV2");
}

#[test]
fn random_marks_beside_a_selector_make_no_records() {
    let bench = bench(&["asset-tag-rack3.yaml"]);
    for number in 0..300_u32 {
        let mac = format!("52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        let query = format!("asset=rack3&mac={mac}");
        bench.boot_from(peer(u8::try_from(number % 250).unwrap()), &query);
    }
    let machines = bench.machines();
    assert_eq!((machines.len(), machines[0].identity.macs.len()), (1, 0));
    assert!(machines[0].clients.len() <= crate::machines::machine::MOST_CLIENTS);
}

#[test]
fn a_second_asker_does_not_make_the_token_of_the_first_void_until_it_takes_the_configuration() {
    let bench = bench(&[OF_A]);
    let first = bench.tokens(A);
    for number in 2..100 {
        let booted = bench.boot_from(peer(number), A);
        assert_eq!(booted.answer, BootAnswer::Install);
        assert!(booted.others.contains(&peer(number - 1)), "the operator is told of the others");
    }
    let booted = bench.boot_from(peer(100), A);
    let (second, report) = booted.tokens.unwrap();
    assert!(bench.take(&first.0).is_ok());
    assert_eq!(bench.take(second.expose()).unwrap_err(), TokenRefusal::Gone);
    assert_eq!(bench.take(&first.0).unwrap_err(), TokenRefusal::Gone);
    // Nor does it report for the machine.
    assert_eq!(bench.registry().reporter(report.expose()).unwrap(), None);
    let took: Vec<_> = bench.of(OF_A).clients.into_iter().filter(|client| client.took.is_some()).collect();
    assert_eq!((took.len(), took[0].address), (1, peer(2)));
}

#[test]
fn who_did_not_take_the_configuration_reports_nothing_that_counts() {
    let bench = bench(&[OF_A]);
    let (_, idle) = bench.tokens(A);
    let reporter = bench.registry().reporter(&idle).unwrap().unwrap();
    assert!(!reporter.has_taken, "it may tell that it did not come so far");
    let report = bench.install(A);
    assert_eq!(bench.registry().reporter(&idle).unwrap(), None);
    bench.report(&report, Some(DeploymentEvent::Failed), A);
    assert_eq!(bench.of(OF_A).state, crate::machines::machine::DeploymentState::Failed);
    // A failed install can be retried, and then the previous reporter is not accepted any more.
    let again = bench.install(A);
    assert_eq!(bench.registry().reporter(&report).unwrap(), None);
    bench.report(&again, Some(DeploymentEvent::Finished), A);
    assert_eq!(bench.answer(A), INSTALLED);
}

#[test]
fn a_token_opens_one_configuration_once_and_in_its_time() {
    let bench = bench(&[OF_A]);
    let (token, report) = bench.tokens(A);
    assert_eq!(bench.take_at(&token, NOW.plus(HOUR + 1)).unwrap_err(), TokenRefusal::Gone);
    assert_eq!(bench.take(&report).unwrap_err(), TokenRefusal::Unknown);
    assert_eq!(bench.take("").unwrap_err(), TokenRefusal::Unknown);
    let taking = bench.take_at(&token, NOW.plus(HOUR)).unwrap();
    assert_eq!(taking.name, OF_A);
    let bench = bench.restarted();
    assert_eq!(bench.take(&token).unwrap_err(), TokenRefusal::Gone);
    assert_eq!(bench.answer(A), STARTED);
}

#[test]
fn a_configuration_that_is_no_longer_there_is_not_counted_as_taken() {
    let mut bench = bench(&[OF_A]);
    let (token, _) = bench.tokens(A);
    bench.configurations = configurations(&[]);
    assert_eq!(bench.take(&token).unwrap_err(), TokenRefusal::Gone);
    bench.configurations = configurations(&[OF_A]);
    assert!(bench.take(&token).is_ok());
}

#[test]
fn an_entry_whose_configuration_is_gone_is_released_by_a_redeployment() {
    let mut bench = bench(&[OF_A]);
    bench.install(A);
    bench.configurations = configurations(&["serial-CZ1.yaml"]);
    let query = format!("{A}&serial=CZ1");
    assert_eq!(bench.answer(&query), BootAnswer::Disk(DiskBootReason::Conflict));
    let id = bench.of(OF_A).id;
    assert_eq!(bench.act(id, OperatorAction::Forget), ActionResult::Refused, "it has a configuration");
    assert_eq!(bench.act(id, OperatorAction::Redeploy), ActionResult::Removed);
    assert_eq!(bench.answer(&query), BootAnswer::Install);
    assert_eq!(bench.act(id, OperatorAction::Deny), ActionResult::Absent);
}

#[test]
fn the_fallback_is_given_to_an_allowed_machine_once() {
    let bench = bench(&["default.yaml"]);
    let query = format!("{A}&serial=CZ1");
    assert_eq!(bench.answer(&query), BootAnswer::Disk(DiskBootReason::Unknown));
    let id = bench.machines()[0].id;
    bench.act(id, OperatorAction::Allow);
    let (token, _) = bench.tokens(&query);
    assert_eq!(bench.take(&token).unwrap().name, "default.yaml");
    for query in [&query, A, "serial=CZ1&uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32"] {
        assert_eq!(bench.answer(query), STARTED, "{query}");
    }
    bench.act(id, OperatorAction::Redeploy);
    assert_eq!(bench.answer(&query), BootAnswer::Install);
}

#[test]
fn a_stranger_in_the_way_can_be_forgotten() {
    let bench = bench(&[OF_A]);
    bench.boot(B);
    let both = format!("{A}&{B}");
    assert_eq!(bench.answer(&both), BootAnswer::Disk(DiskBootReason::Conflict));
    assert_eq!(bench.act(bench.machines()[0].id, OperatorAction::Forget), ActionResult::Removed);
    assert_eq!(bench.answer(&both), BootAnswer::Install);
}

#[derive(Clone, Debug)]
enum Step {
    /// A client asks with these identifiers.
    Boot(BTreeSet<usize>),
    /// A token is used that was given out before.
    Take(usize),
    /// A report is sent with a token that was given out.
    Report(usize, usize, BTreeSet<usize>),
    Act(usize, OperatorAction),
    /// The server is killed and starts again.
    Restart,
}

/// The identifiers that clients of the property test send.
const MARKS: [&str; 7] = [
    A,
    B,
    "mac=52:54:00:00:00:0c",
    "serial=S1",
    "serial=S2",
    "asset=T1",
    "uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32",
];

fn any_step() -> impl Strategy<Value = Step> {
    let marks = || prop::collection::btree_set(0..MARKS.len(), 1..4);
    let action = prop_oneof![
        Just(OperatorAction::Allow),
        Just(OperatorAction::Deny),
        Just(OperatorAction::Redeploy),
        Just(OperatorAction::Forget),
    ];
    prop_oneof![
        6 => marks().prop_map(Step::Boot),
        4 => (0..8_usize).prop_map(Step::Take),
        3 => (0..8_usize, 0..4_usize, marks()).prop_map(|(token, event, marks)| Step::Report(token, event, marks)),
        1 => (0..8_usize, action).prop_map(|(machine, action)| Step::Act(machine, action)),
        1 => Just(Step::Restart),
    ]
}

fn query(marks: &BTreeSet<usize>) -> Identity {
    // Of two serial numbers the last counts, as in a request.
    told(&marks.iter().map(|mark| MARKS[*mark]).collect::<Vec<_>>().join("&"))
}

/// Takes these steps with servers that share a state. However they come, no configuration is taken twice, and no machine installs
/// that none names.
fn take_steps(place: StorePlace, servers: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut bench = bench_in(place, servers, &[OF_A, "serial-S1.yaml", "asset-tag-T1.yaml", "default.yaml"]);
    let (mut tokens, mut taken) = (Vec::<(String, String)>::new(), BTreeMap::<String, bool>::new());
    for step in steps {
        match step {
            Step::Boot(marks) => {
                let identity = query(&marks);
                let booted = bench.registry().boot(&identity, peer(1), &bench.configurations, NOW).unwrap();
                if let Some((configuration, report)) = booted.tokens {
                    tokens.push((configuration.expose().into(), report.expose().into()));
                    let now: BTreeSet<IdentityKey> = identity_keys::of(&identity);
                    let named = bench.configurations.naming(&now);
                    let allowed = bench.machines().iter().any(|machine| {
                        machine.permission == InstallPermission::Allowed
                            && machine.assigned.is_none()
                            && identity_keys::of(&machine.identity).is_subset(&now)
                    });
                    prop_assert!(named.len() == 1 || named.is_empty() && allowed, "{identity}");
                }
            }
            Step::Take(number) => {
                let Some((token, _)) = tokens.get(number) else { continue };
                if let Ok(taking) = bench.take(token) {
                    let unit = taking.machine.assigned.clone();
                    let unit = unit.unwrap_or_else(|| taking.machine.id.to_string());
                    prop_assert_ne!(taken.insert(unit, true), Some(true), "taken twice");
                    prop_assert_ne!(taking.machine.permission, InstallPermission::Denied);
                }
            }
            Step::Report(number, event, marks) => {
                let Some((_, token)) = tokens.get(number) else { continue };
                let Some(reporter) = bench.registry().reporter(token).unwrap() else { continue };
                if !reporter.has_taken {
                    continue;
                }
                let event = [
                    None,
                    Some(DeploymentEvent::Failed),
                    Some(DeploymentEvent::Finished),
                    Some(DeploymentEvent::Joined),
                ][event];
                bench
                    .registry()
                    .report(reporter.id, event, &query(&marks), &bench.configurations, NOW)
                    .unwrap();
                let machine = bench.registry().get(reporter.id).unwrap().unwrap();
                if !machine.state.is_taken() {
                    // The install failed and can be retried.
                    taken.insert(machine.assigned.unwrap_or_else(|| machine.id.to_string()), false);
                }
            }
            Step::Act(number, action) => {
                let Some(machine) = bench.machines().into_iter().nth(number) else { continue };
                bench.act(machine.id, action);
                if action == OperatorAction::Redeploy {
                    taken.insert(machine.assigned.unwrap_or_else(|| machine.id.to_string()), false);
                }
            }
            Step::Restart => bench = bench.restarted(),
        }
        let names: Vec<_> = bench.machines().into_iter().filter_map(|one| one.assigned).collect();
        prop_assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_is_taken_twice_and_no_machine_installs_that_none_names(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        take_steps(StorePlace::sqlite(), 1, steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, ..ProptestConfig::default() })]

    #[test]
    fn no_configuration_is_taken_twice_through_several_servers(
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        take_steps(StorePlace::postgres(), 3, steps)?;
    }
}

for_every_store!(
    of_many_clients_at_once_one_gets_the_configuration,
    what_one_server_was_told_holds_on_the_others,
    no_more_machines_are_let_install_than_a_token_has_uses,
    only_the_machines_that_have_changed_are_read_again,
);

/// Servers that share a place, as far as its kind can be shared.
fn servers(place: &StorePlace) -> Vec<MachineRegistry> {
    (0..if place.url.is_some() { 3 } else { 1 }).map(|_| place.registry()).collect()
}

fn of_many_clients_at_once_one_gets_the_configuration(place: &StorePlace) {
    const CLIENTS: u8 = 16;
    let (servers, configurations) = (servers(place), configurations(&[OF_A]));
    for round in 0..5 {
        let now = NOW.plus(round);
        let start = std::sync::Barrier::new(CLIENTS.into());
        let client = |number: u8| {
            let server = |number: u8| &servers[usize::from(number) % servers.len()];
            start.wait();
            let booted = server(number).boot(&told(A), peer(number), &configurations, now).unwrap();
            assert_eq!(booted.answer, BootAnswer::Install);
            let (token, report) = booted.tokens.unwrap();
            start.wait();
            let taken =
                server(number + 1).take(token.expose(), peer(number), &configurations, HOUR, now).unwrap();
            start.wait();
            // Only who has taken it reports.
            let reporter = server(number + 2).reporter(report.expose()).unwrap();
            assert_eq!(reporter.is_some_and(|reporter| reporter.has_taken), taken.is_ok());
            taken.is_ok()
        };
        let taken = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).filter(|taken| *taken).count()
        });
        assert_eq!(taken, 1, "round {round}");
        let (machines, _, _) = servers[0].list(usize::MAX).unwrap();
        assert_eq!((machines.len(), machines[0].state), (1, DeploymentState::Installing));
        servers[0]
            .act(&[machines[0].id.into()], OperatorAction::Redeploy, &operator(), &configurations, now)
            .unwrap();
    }
}

fn what_one_server_was_told_holds_on_the_others(place: &StorePlace) {
    let (servers, configurations) = (servers(place), configurations(&[OF_A, "default.yaml"]));
    let (one, other) = (&servers[0], servers.last().unwrap());
    let (token, report) = one.boot(&told(A), peer(1), &configurations, NOW).unwrap().tokens.unwrap();
    let id = other.list(1).unwrap().0[0].id;
    // A token of one server counts on the others, until an operator denies the machine there.
    assert!(other.reporter(report.expose()).unwrap().is_some());
    other.act(&[id.into()], OperatorAction::Deny, &operator(), &configurations, NOW).unwrap();
    assert_eq!(one.reporter(report.expose()).unwrap(), None);
    let taken = one.take(token.expose(), peer(1), &configurations, HOUR, NOW).unwrap();
    assert_eq!(taken.map(|handout| handout.name).unwrap_err(), TokenRefusal::Gone);
    let answer = one.boot(&told(A), peer(1), &configurations, NOW).unwrap().answer;
    assert_eq!(answer, BootAnswer::Disk(DiskBootReason::Denied));
    // So does the permission of a machine that no configuration names.
    one.boot(&told(B), peer(2), &configurations, NOW).unwrap();
    let stranger = other.list(2).unwrap().0.into_iter().find(|machine| machine.id != id).unwrap();
    other.act(&[stranger.id.into()], OperatorAction::Allow, &operator(), &configurations, NOW).unwrap();
    assert_eq!(one.boot(&told(B), peer(2), &configurations, NOW).unwrap().answer, BootAnswer::Install);
    // The token of the page is one for all of them, and another one for each start of a server that is alone.
    let same = one.fleet_token().unwrap().expose() == other.fleet_token().unwrap().expose();
    assert_eq!(same, place.url.is_some());
}

/// Counts the turns of the writer.
#[derive(Debug)]
struct CountingStore {
    inner: SqliteStore,
    turns: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl MachineStore for CountingStore {
    fn key(&self) -> [u8; crate::machines::token::KEY] {
        self.inner.key()
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn transact(
        &self,
        lock: crate::machines::store::WriteLock,
        durability: Durability,
        change: crate::machines::store::TransactionBody<'_>,
    ) -> Result<()> {
        self.turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.inner.transact(lock, durability, change)
    }

    fn look(&self, look: crate::machines::store::SnapshotBody<'_>) -> Result<()> {
        self.inner.look(look)
    }

    fn look_at_changes(
        &self,
        since: Option<&ChangeMark>,
        look: crate::machines::store::ChangesBody<'_>,
    ) -> Result<()> {
        self.inner.look_at_changes(since, look)
    }
}

#[test]
fn a_configured_machine_waits_for_few_turns_of_the_writer_however_many_strangers_ask() {
    let directory = tempfile::tempdir().unwrap();
    let turns = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let inner = SqliteStore::open(&directory.path().join(sqlite::NAME)).unwrap();
    let registry = MachineRegistry::new(Box::new(CountingStore { inner, turns: turns.clone() }));
    let configurations = configurations(&[OF_A]);
    let count = || turns.load(std::sync::atomic::Ordering::SeqCst);
    // 200 addresses with three requests each of 63 invented cards, and one address with 600.
    let stranger = |number: u32| {
        let cards = (0..63_u32)
            .map(|card| format!("mac=02:00:{:02x}:{:02x}:00:{card:02x}", number >> 8, number & 255));
        told(&cards.collect::<Vec<_>>().join("&"))
    };
    let mut kept = 0;
    for number in 0..1200_u32 {
        let last = if number < 600 { u8::try_from(number / 3).unwrap() } else { 250 };
        let booted = registry.boot(&stranger(number), peer(last), &configurations, NOW).unwrap();
        assert_eq!(booted.answer, BootAnswer::Disk(DiskBootReason::Unknown));
        kept += usize::from(matches!(booted.stranger, Some(StrangerVerdict::Recorded { .. })));
    }
    assert!(kept <= 250 && count() == kept, "{kept} {}", count());
    let marks = |machine: &Machine| machine.identity.macs.len();
    assert!(registry.list(usize::MAX).unwrap().0.iter().all(|machine| marks(machine) <= 8));
    // The machine with a configuration needs one turn, and gets the installer from an address that is over its rate, too.
    let before = count();
    let booted = registry.boot(&told(A), peer(250), &configurations, NOW).unwrap();
    assert_eq!((booted.answer, count() - before), (BootAnswer::Install, 1));
}

#[test]
fn an_allowed_machine_installs_though_strangers_at_its_address_are_over_their_rate() {
    let bench = bench(&["default.yaml"]);
    bench.boot(B);
    let id = bench.machines()[0].id;
    bench.act(id, OperatorAction::Allow);
    for number in 0..300 {
        bench.boot(&format!("mac=02:00:00:00:{:02x}:{:02x}", number >> 8, number & 255));
    }
    assert!(bench.machines().len() < 100);
    assert_eq!(bench.boot(B).answer, BootAnswer::Install);
}

#[test]
fn what_is_stored_is_counted_once() {
    let bench = bench(&[OF_A]);
    let value = |series: &str| -> u64 {
        let text = bench.registry().metrics().text(None, MetricsFormat::Prometheus).unwrap();
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or("0").parse().unwrap()
    };
    let (handed, joined) = ("nqrust_configurations_handed_out_total", "nqrust_nodes_joined_total");
    let ended = |result: &str| value(&format!(r#"nqrust_installs_total{{result="{result}"}}"#));
    let booted = bench.boot(A);
    let (token, _) = booted.tokens.unwrap();
    let take =
        || bench.registry().take(token.expose(), peer(1), &bench.configurations, HOUR, NOW).unwrap().is_ok();
    assert!(take() && !take());
    assert_eq!(value(handed), 1);
    let id = bench.machines()[0].id;
    let report = |event| {
        bench.registry().report(id, Some(event), &Identity::default(), &bench.configurations, NOW).unwrap();
    };
    // Reports come twice and out of order.
    for event in [
        DeploymentEvent::Failed,
        DeploymentEvent::Failed,
        DeploymentEvent::Finished,
        DeploymentEvent::Finished,
        DeploymentEvent::Joined,
        DeploymentEvent::Failed,
        DeploymentEvent::Joined,
    ] {
        report(event);
    }
    assert_eq!((ended("failed"), ended("installed"), value(joined)), (1, 1, 1));
    assert_eq!(bench.act(id, OperatorAction::Forget), ActionResult::Refused);
    assert_eq!(bench.act(id, OperatorAction::Redeploy), ActionResult::Done);
    assert_eq!(value(r#"nqrust_operator_actions_total{action="forget",result="refused"}"#), 1);
    assert_eq!(value(r#"nqrust_operator_actions_total{action="redeploy",result="done"}"#), 1);
    assert!(value(r#"nqrust_state_duration_seconds_count{operation="change"}"#) >= 5);
    assert_eq!(value(r#"nqrust_state_errors_total{operation="change",error="failed"}"#), 0);
}

/// A registry and the text of a token that lets so many machines install.
fn enrolling(
    registry: &MachineRegistry,
    role: TokenRole,
    uses: Option<u32>,
    expires: Option<Moment>,
) -> Secret {
    let name = format!("{role}-{uses:?}").replace(['(', ')'], "-").parse().unwrap();
    registry.make_token(name, role, expires, uses, &operator(), NOW).unwrap().unwrap().text
}

#[test]
fn a_token_lets_machines_install_that_no_configuration_names_each_once_and_no_others() {
    let bench = bench(&["default.yaml", OF_A]);
    let token = enrolling(bench.registry(), TokenRole::Enroll, Some(2), Some(NOW.plus(60)));
    let boot_at = |query: &str, token: &str, now| {
        bench.registry().boot_with(Some(token), &told(query), peer(1), &bench.configurations, now).unwrap()
    };
    let boot = |query: &str| boot_at(query, token.expose(), NOW);
    let uses = || bench.registry().access_tokens().unwrap()[0].uses;
    // One with a configuration of its own needs none.
    assert_eq!((boot(A).answer, uses()), (BootAnswer::Install, Some(2)));
    // One that an operator has denied stays so.
    bench.boot("serial=denied");
    let denied = bench.machines().into_iter().find(|one| one.assigned.is_none()).unwrap().id;
    bench.act(denied, OperatorAction::Deny);
    assert_eq!((boot("serial=denied").answer, uses()), (BootAnswer::Disk(DiskBootReason::Denied), Some(2)));
    // A token that is none, one that only looks, and one at its end.
    let read = enrolling(bench.registry(), TokenRole::Read, None, None);
    for (text, now) in
        [("", NOW), (&token.expose()[1..], NOW), (read.expose(), NOW), (token.expose(), NOW.plus(60))]
    {
        assert_eq!(boot_at("serial=1", text, now).answer, BootAnswer::Disk(DiskBootReason::Unknown));
    }
    // It asked before, with more of itself than now: what was proven is not enough.
    bench.boot("serial=2&asset=rack");
    assert_eq!(boot("serial=2").answer, BootAnswer::Disk(DiskBootReason::Incomplete));
    let first = boot("serial=1");
    assert_eq!(first.answer, BootAnswer::Install);
    let entry = first.enrolled.unwrap().record;
    assert_eq!((entry.action, entry.actor.role), (AuditAction::Enroll, Some(TokenRole::Enroll)));
    assert_eq!((entry.subject.to_string(), entry.actor.address), ("machine 1".to_owned(), Some(peer(1))));
    assert_eq!(uses(), Some(0));
    // It goes on without the token, and costs no other use.
    assert_eq!(bench.boot("serial=1").answer, BootAnswer::Install);
    assert!(boot("serial=1").enrolled.is_none());
    assert_eq!(boot("serial=3").answer, BootAnswer::Disk(DiskBootReason::Unknown));
    let (configuration, _) = boot("serial=1").tokens.unwrap();
    assert_eq!(bench.take(configuration.expose()).unwrap().name, "default.yaml");
}

#[test]
fn without_a_fallback_a_token_lets_nothing_install_and_is_not_used() {
    let bench = bench(&[OF_A]);
    let token = enrolling(bench.registry(), TokenRole::Enroll, Some(1), None);
    let booted = bench
        .registry()
        .boot_with(Some(token.expose()), &told(B), peer(1), &bench.configurations, NOW)
        .unwrap();
    assert_eq!(booted.answer, BootAnswer::Disk(DiskBootReason::Unknown));
    assert_eq!(bench.registry().access_tokens().unwrap()[0].uses, Some(1));
}

fn no_more_machines_are_let_install_than_a_token_has_uses(place: &StorePlace) {
    let configurations = configurations(&["default.yaml"]);
    let servers = servers(place);
    let token = enrolling(&servers[0], TokenRole::Enroll, Some(5), None);
    let installed: usize = std::thread::scope(|scope| {
        let boot = |number: usize| {
            let server = &servers[number % servers.len()];
            let identity = told(&format!("serial={number}"));
            let booted =
                server.boot_with(Some(token.expose()), &identity, peer(1), &configurations, NOW).unwrap();
            usize::from(booted.answer == BootAnswer::Install)
        };
        let boots: Vec<_> = (0..12).map(|number| scope.spawn(move || boot(number))).collect();
        boots.into_iter().map(|boot| boot.join().unwrap()).sum()
    });
    assert_eq!((installed, servers[0].access_tokens().unwrap()[0].uses), (5, Some(0)));
}

fn only_the_machines_that_have_changed_are_read_again(place: &StorePlace) {
    let (servers, all) = (servers(place), configurations(&["serial-A.yaml", "serial-B.yaml"]));
    let (registry, other) = (&servers[0], servers.last().unwrap());
    let boot = |serial: &str| {
        let booted = other.boot(&told(&format!("serial={serial}")), [192, 0, 2, 1].into(), &all, NOW);
        booted.unwrap().machine.unwrap()
    };
    let read = |since: Option<&ChangeMark>, further: &[MachineId]| {
        let fleet = registry.fleet(since, &further.iter().copied().collect()).unwrap();
        let ids: Vec<_> = fleet.machines.iter().map(|machine| machine.id).collect();
        assert_eq!(fleet.count, 2);
        (fleet.mark, fleet.asked.is_some(), ids)
    };
    let (one, two) = (boot("A"), boot("B"));
    let (mut mark, is_part, ids) = read(None, &[]);
    assert_eq!((is_part, ids.len()), (false, 2));
    // While transactions run in other databases of the server, what was changed since they began is read again.
    let since = std::time::Instant::now();
    loop {
        let (next, is_part, ids) = read(Some(&mark), &[]);
        assert!(is_part && since.elapsed() < std::time::Duration::from_secs(60), "{ids:?}");
        mark = next;
        if ids.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let again = |further: &[MachineId]| {
        let (_, is_part, ids) = read(Some(&mark), further);
        (is_part, ids)
    };
    assert_eq!(again(&[two]), (true, vec![two]));
    boot("A");
    assert_eq!(again(&[]), (true, vec![one]));
}
