use super::*;
use crate::machines::configurations::ConfigurationSource;
use crate::machines::id::MachineId;
use crate::machines::machine::OperatorAction;
use crate::machines::machine::{DeploymentEvent, DeploymentState, Machine};
use crate::machines::store::{
    ChangeMark, ChangesBody, Durability, MachineStore, SnapshotBody, TransactionBody, WriteLock,
};
use crate::machines::token;
use crate::server::health::{HealthCheck, look};
use crate::test_support::{NODE, SECRETS, medium, operator};
use base::progress::Sink;
use model::release::MediumKind;

const NOW: Moment = Moment(1_700_000_000);
const KNOWN: &str = "mac=52:54:00:00:00:01&mac=&uuid=&serial=CZ1&asset=No%20Asset%20Tag";

pub(super) struct Bench {
    pub(super) router: Router,
    pub(super) directory: tempfile::TempDir,
}

fn bench(files: &[&str]) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let sample = medium(MediumKind::Full);
    let nodes = directory.path().join("nodes");
    std::fs::create_dir(&nodes).unwrap();
    for name in files {
        std::fs::write(nodes.join(name), NODE).unwrap();
    }
    let files = MediumFiles::open(&sample.tree()).unwrap();
    let system = BootSystem::of(&files, &[]).unwrap();
    let store = crate::test_support::registry(&directory.path().join("state"));
    let configurations = Configurations::load(&ConfigurationSource::Directory(nodes), &[]).unwrap();
    Bench { router: router_of(files, system, store, configurations), directory }
}

pub(super) fn router_of(
    files: MediumFiles,
    system: BootSystem,
    store: MachineRegistry,
    configurations: Configurations,
) -> Router {
    let mut router = Router::new(files, system, store, configurations);
    router.hosts = ServerNames::of_this_host(Some("http://192.0.2.1:8080"));
    router
}

impl Bench {
    pub(super) fn ask(&self, path: &str, query: &str, now: Moment) -> ServedReply {
        let asked = ServedRequest { path, query, host: Some("192.0.2.1:8080"), ..ServedRequest::default() };
        self.router.answer(&asked, now)
    }

    pub(super) fn boot(&self, query: &str, now: Moment) -> String {
        match self.ask(BOOT, query, now) {
            ServedReply::Script(script) => script,
            other => panic!("{other:?}"),
        }
    }

    /// The path of the configuration that a script names.
    pub(super) fn configuration(script: &str) -> String {
        let word = script.split_whitespace().find_map(|word| word.strip_prefix("nqrust.install.config_url="));
        word.unwrap().strip_prefix("http://192.0.2.1:8080").unwrap().to_owned()
    }

    /// The server after it was killed.
    pub(super) fn restarted(self) -> Self {
        let Self { router, directory } = self;
        let Router { files, system, store, configurations, .. } = router;
        drop(store);
        let store = crate::test_support::registry(&directory.path().join("state"));
        let configurations = Arc::into_inner(configurations.into_inner().unwrap()).unwrap();
        Self { router: router_of(files, system, store, configurations), directory }
    }
}

impl Bench {
    /// The only record.
    fn machine(&self) -> Machine {
        self.machines().pop().unwrap()
    }

    pub(super) fn machines(&self) -> Vec<Machine> {
        self.router.store.list(usize::MAX).unwrap().0
    }

    fn act(&self, action: OperatorAction) {
        let configurations = self.router.configurations();
        let targets = [self.machine().id.into()];
        self.router.store.act(&targets, action, &operator(), &configurations, NOW).unwrap();
    }

    fn report(&self, event: DeploymentEvent) {
        let nothing = Identity::default();
        let configurations = self.router.configurations();
        self.router.store.report(self.machine().id, Some(event), &nothing, &configurations, NOW).unwrap();
    }
}

pub(super) fn installs(script: &str) -> bool {
    script.contains("nqrust.mode=install")
}

#[test]
fn a_machine_installs_once_with_its_own_configuration() {
    let bench = bench(&["mac-52-54-00-00-00-01.yaml"]);
    let script = bench.boot(KNOWN, NOW);
    assert!(installs(&script), "{script}");
    let path = Bench::configuration(&script);
    match bench.ask(&path, "", NOW) {
        ServedReply::Configuration(text) => assert_eq!(text.expose(), NODE),
        other => panic!("{other:?}"),
    }
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Gone));
    let script = bench.boot(KNOWN, NOW);
    assert!(!installs(&script) && script.contains("started before"), "{script}");
}

#[test]
fn a_token_outlives_the_server_and_is_used_up_across_its_death_too() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    let bench = bench.restarted();
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
    let bench = bench.restarted();
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Gone));
    assert!(!installs(&bench.boot(KNOWN, NOW)));
}

#[test]
fn a_machine_that_boots_again_before_it_took_its_configuration_gets_another_token() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let first = Bench::configuration(&bench.boot(KNOWN, NOW));
    let second = Bench::configuration(&bench.boot(KNOWN, NOW));
    assert_ne!(first, second);
    assert!(matches!(bench.ask(&second, "", NOW.plus(3601)), ServedReply::Gone));
    // Either opens the configuration, and then neither does.
    assert!(matches!(bench.ask(&first, "", NOW.plus(3600)), ServedReply::Configuration(_)));
    assert!(matches!(bench.ask(&second, "", NOW), ServedReply::Gone));
    assert!(matches!(bench.ask(&first, "", NOW), ServedReply::Gone));
}

#[test]
fn a_failed_install_may_begin_again_and_a_finished_one_only_when_an_operator_asks() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for event in [DeploymentEvent::Failed, DeploymentEvent::Finished] {
        let path = Bench::configuration(&bench.boot(KNOWN, NOW));
        assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
        bench.report(event);
    }
    assert!(bench.boot(KNOWN, NOW).contains("it is installed"));
    bench.act(OperatorAction::Redeploy);
    assert!(installs(&bench.boot(KNOWN, NOW)));
}

#[test]
fn a_conflict_boots_from_disk_with_an_answer_before_and_after_a_new_start() {
    let mut bench = bench(&["mac-52-54-00-00-00-01.yaml", "serial-SRV2.yaml"]);
    let node = "mac=52:54:00:00:00:02&serial=SRV2";
    let path = Bench::configuration(&bench.boot(node, NOW));
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
    bench.report(DeploymentEvent::Finished);
    let both = "mac=52-54-00-00-00-01&mac=52-54-00-00-00-02&serial=SRV2";
    for _ in 0..2 {
        let script = bench.boot(both, NOW);
        assert!(!installs(&script) && script.contains("more than one machine"), "{script}");
        // Neither of the two is worse off for it.
        assert!(bench.boot(node, NOW).contains("it is installed"));
        assert!(installs(&bench.boot("mac=52-54-00-00-00-01", NOW)));
        bench = bench.restarted();
    }
    let (_, _, conflicts) = bench.router.store.list(0).unwrap();
    assert_eq!(conflicts.len(), 1);
    assert_eq!(conflicts[0].between, ["mac-52-54-00-00-00-01.yaml", "serial-SRV2.yaml"]);
}

/// A store in which everything fails so.
#[derive(Debug)]
struct FailingStore(fn() -> anyhow::Error);

impl MachineStore for FailingStore {
    fn key(&self) -> [u8; token::KEY] {
        [0; token::KEY]
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Err((self.0)())
    }

    fn transact(&self, _: WriteLock, _: Durability, _: TransactionBody<'_>) -> Result<()> {
        Err((self.0)())
    }

    fn look(&self, _: SnapshotBody<'_>) -> Result<()> {
        Err((self.0)())
    }

    fn look_at_changes(&self, _: Option<&ChangeMark>, _: ChangesBody<'_>) -> Result<()> {
        Err((self.0)())
    }
}

#[test]
fn a_server_is_not_ready_while_its_state_or_its_medium_cannot_be_used() {
    let mut bench = bench(&[]);
    let failed = |bench: &Bench| -> Vec<(HealthCheck, String, bool)> {
        let found = look(&bench.router.store, &bench.router.files, 7).into_iter();
        found.map(|failure| (failure.check, failure.why, failure.logged.is_some())).collect()
    };
    assert_eq!(failed(&bench), []);
    for (error, why, is_logged) in [
        (
            (|| StoreUnavailable("connecting to db.example.org: connection refused".into()).into())
                as fn() -> _,
            "the database of the fleet does not answer",
            false,
        ),
        (
            || anyhow::anyhow!("SECRET: the disk is full"),
            "the records of machines cannot be used; the server's log has the reason",
            true,
        ),
    ] {
        bench.router.store = MachineRegistry::new(Box::new(FailingStore(error)));
        assert_eq!(failed(&bench), [(HealthCheck::State, why.to_owned(), is_logged)]);
    }
    bench.router.store = crate::test_support::registry(&bench.directory.path().join("other"));
    let sample = medium(MediumKind::Full);
    bench.router.files = MediumFiles::open(&sample.tree()).unwrap();
    assert_eq!(failed(&bench), []);
    let (name, _) = bench.router.files.path_of(model::release::Purpose::Initrd).unwrap();
    let (name, path) = (name.to_owned(), sample.tree().join(name));
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let expected = format!("reading {name} of the medium: it has become shorter");
    assert_eq!(failed(&bench), [(HealthCheck::Medium, expected, true)]);
}

#[test]
fn a_machine_boots_from_its_disk_where_the_server_has_trouble() {
    let mut bench = bench(&["serial-CZ1.yaml"]);
    bench.router.store = MachineRegistry::new(Box::new(FailingStore(|| anyhow::anyhow!("the disk is full"))));
    let script = bench.boot(KNOWN, NOW);
    assert!(!installs(&script) && script.contains("the server has an internal error"), "{script}");
    let grub = bench.ask(&format!("{GRUB}52:54:00:00:00:01"), "", NOW);
    assert!(matches!(grub, ServedReply::Script(script) if script.ends_with("exit\n")));
}

#[test]
fn a_machine_asks_again_where_the_database_does_not_answer() {
    let mut bench = bench(&["serial-CZ1.yaml"]);
    let unavailable = || StoreUnavailable("connection refused".into()).into();
    bench.router.store = MachineRegistry::new(Box::new(FailingStore(unavailable)));
    let script = bench.boot(KNOWN, NOW);
    assert!(!installs(&script) && script.contains("chain --replace /boot.ipxe"), "{script}");
    let grub = bench.ask(&format!("{GRUB}52:54:00:00:00:01"), "", NOW);
    assert!(
        matches!(grub, ServedReply::Script(script) if script.contains("sleep 50") && !script.contains("exit"))
    );
    let ticket = token::DeploymentTicket::new(MachineId::random(), 1, NOW).unwrap();
    let token = token::TokenSigner::new(&[0; token::KEY]).token(token::TokenPurpose::Configuration, ticket);
    let configuration = bench.ask(&format!("{CONFIGURATION}{}", token.expose()), "", NOW);
    assert!(matches!(configuration, ServedReply::Unavailable), "{configuration:?}");
    // What needs no state is there.
    assert!(matches!(bench.ask("/boot.ipxe", "", NOW), ServedReply::File(..)));
}

#[test]
fn a_web_page_changes_nothing_by_get() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    let before = bench.machine();
    let card = format!("{GRUB}52:54:00:00:00:01");
    let none = RequestProvenance::default();
    for provenance in [
        RequestProvenance { fetch_site: Some("cross-site"), ..none },
        RequestProvenance { fetch_site: Some("same-origin"), ..none },
        RequestProvenance { origin: true, ..none },
        RequestProvenance { referer: true, ..none },
    ] {
        for path in [BOOT, &card, &path] {
            let host = Some("192.0.2.1:8080");
            let asked = ServedRequest { path, query: KNOWN, host, provenance, ..ServedRequest::default() };
            assert!(
                matches!(bench.router.answer(&asked, NOW), ServedReply::Refused(_)),
                "{path} {provenance:?}"
            );
        }
    }
    assert_eq!(bench.machines(), [before]);
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
}

#[test]
fn a_name_that_is_not_the_servers_opens_nothing() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    for host in ["evil.example", "evil.example:8080", "203.0.113.9:8080", "192.0.2.1.evil.example"] {
        for path in [BOOT, &path] {
            let asked = ServedRequest { path, query: KNOWN, host: Some(host), ..ServedRequest::default() };
            assert!(matches!(bench.router.answer(&asked, NOW), ServedReply::Refused(_)), "{host} {path}");
        }
    }
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
}

/// The messages for the operator.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<String>>>);

impl Sink for Log {
    fn show(&mut self, event: &base::progress::Event) {
        self.0.lock().unwrap().push(event.message.clone());
    }
}

#[test]
fn the_log_tells_the_address_of_each_client() {
    let mut bench = bench(&["serial-CZ1.yaml"]);
    let log = Log::default();
    bench.router.progress = Progress::new(vec![Box::new(log.clone())]);
    let ask = |last: u8, path: &str| {
        let peer = [192, 0, 2, last].into();
        let host = Some("192.0.2.1:8080");
        bench
            .router
            .answer(&ServedRequest { peer, path, query: KNOWN, host, ..ServedRequest::default() }, NOW)
    };
    let ServedReply::Script(script) = ask(7, BOOT) else { panic!() };
    ask(8, BOOT);
    ask(9, &Bench::configuration(&script));
    let told = log.0.lock().unwrap().join("\n");
    for line in [
        "192.0.2.7: node-1 (machine 52:54:00:00:00:01) boots the installer",
        "192.0.2.8: asked as node-1 (machine 52:54:00:00:00:01); 192.0.2.7 asked as the same machine before",
        "192.0.2.9: node-1 (machine CZ1) has taken its configuration serial-CZ1.yaml",
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
    let clients: Vec<_> = bench.machine().clients.iter().map(|client| client.address.to_string()).collect();
    assert_eq!(clients, ["192.0.2.7", "192.0.2.8", "192.0.2.9"]);
}

#[test]
fn an_unknown_machine_boots_from_disk_and_is_listed() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for query in ["mac=52:54:00:00:00:09", "uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32", "asset=rack%207"] {
        let script = bench.boot(query, NOW);
        assert!(!installs(&script) && script.contains("no configuration names this machine"), "{script}");
    }
    let machines = bench.machines();
    assert_eq!(machines.len(), 3);
    assert!(machines.iter().any(|machine| machine.identity.asset_tag.as_deref() == Some("rack 7")));
}

#[test]
fn the_fallback_is_for_machines_that_an_operator_allows() {
    let bench = bench(&["default.yaml"]);
    assert!(!installs(&bench.boot(KNOWN, NOW)));
    bench.act(OperatorAction::Allow);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    bench.act(OperatorAction::Deny);
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Gone));
    assert!(bench.boot(KNOWN, NOW).contains("denied"));
}

#[test]
fn grub_gets_the_same_by_the_address_of_its_card() {
    let bench = bench(&["mac-52-54-00-00-00-01.yaml"]);
    let ask = |card: &str| match bench.ask(&format!("{GRUB}{card}"), "", NOW) {
        ServedReply::Script(script) => script,
        other => panic!("{other:?}"),
    };
    let script = ask("52:54:00:00:00:01");
    let linux = format!("linux /medium/{}live/vmlinuz", bench.router.files.folder());
    assert!(installs(&script) && script.contains(&linux), "{script}");
    assert!(ask("52:54:00:00:00:02").ends_with("exit\n"));
}

#[test]
fn questions_that_make_no_sense_change_nothing() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for query in
        ["", "mac=", "mac=x&uuid=0&serial=0", "serial", "serial=%f", "serial=%ff", "mac=ff:ff:ff:ff:ff:ff"]
    {
        assert!(matches!(bench.ask(BOOT, query, NOW), ServedReply::Bad(_)), "{query}");
    }
    for host in [None, Some(""), Some("a b"), Some("a/${b}"), Some("a\r\nb")] {
        let asked = ServedRequest { path: BOOT, query: KNOWN, host, ..ServedRequest::default() };
        assert!(matches!(bench.router.answer(&asked, NOW), ServedReply::Bad(_)), "{host:?}");
    }
    assert!(bench.machines().is_empty());
    let many: Vec<_> = (0..=MOST_CARDS).map(|card| format!("mac=52:54:00:00:01:{card:02x}")).collect();
    assert!(matches!(bench.ask(BOOT, &many.join("&"), NOW), ServedReply::Bad(_)));
    assert!(bench.machines().is_empty());
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    for path in [BOOT, &path, &format!("{GRUB}52:54:00:00:00:01")] {
        let asked = ServedRequest {
            head: true,
            path,
            query: KNOWN,
            host: Some("localhost"),
            ..ServedRequest::default()
        };
        assert!(matches!(bench.router.answer(&asked, NOW), ServedReply::OnlyGet), "{path}");
    }
    assert!(matches!(bench.ask(&path, "", NOW), ServedReply::Configuration(_)));
}

#[test]
fn a_path_outside_of_what_is_served_is_not_found() {
    let bench = bench(&["serial-CZ1.yaml"]);
    assert!(matches!(bench.ask("/", "", NOW), ServedReply::FleetPage));
    for path in [
        "//",
        "/medium",
        "/medium/",
        "/medium/../state/machines.db",
        "/medium/live/../../etc/passwd",
        "/medium/%2e%2e/%2e%2e/etc/passwd",
        "/medium//etc/passwd",
        "/medium/%2fetc%2fpasswd",
        "/medium/live/initrd%00",
        "/medium/live/initrd%0",
        "/medium/live/initrd/",
        "/medium/live\\initrd",
        "/loaders/../../etc/passwd",
        "/loaders/",
        "/v1/config/",
        "/v1/config/00000000000000000000000000000000",
        "/v1/config/../config",
        "/state/machines.db",
    ] {
        assert!(matches!(bench.ask(path, "", NOW), ServedReply::NotFound), "{path}");
    }
    assert!(matches!(
        bench.ask("/medium/live/%69nitrd", "", NOW),
        ServedReply::File(_, RangeSelection::Whole, _)
    ));
    let asked = ServedRequest {
        head: true,
        path: "/medium/live/initrd",
        fields: RangeFields { range: Some("bytes=0-0"), ..RangeFields::default() },
        ..ServedRequest::default()
    };
    assert!(matches!(bench.router.answer(&asked, NOW), ServedReply::File(_, RangeSelection::Whole, _)));
}

#[test]
fn nothing_that_is_kept_or_told_holds_a_token_or_a_secret() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    let token = path.rsplit('/').next().unwrap();
    let ServedReply::Configuration(_) = bench.ask(&path, "", NOW) else { panic!() };
    let mut texts = vec![format!("{:?}", bench.router)];
    for entry in std::fs::read_dir(bench.directory.path().join("state")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        texts.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    assert!(texts.len() > 3, "the database with its journal, and the lock");
    for text in texts {
        assert!(![token].iter().chain(&SECRETS).any(|secret| text.contains(secret)), "{text}");
    }
    assert_eq!(bench.machine().state, DeploymentState::Installing);
}

#[test]
fn a_token_in_the_address_of_the_first_script_goes_along_and_lets_the_machine_install() {
    let mut bench = bench(&["default.yaml"]);
    let store = &bench.router.store;
    let name = "rack-7".parse().unwrap();
    let role = crate::machines::access_token::TokenRole::Enroll;
    let token = store.make_token(name, role, None, Some(1), &operator(), NOW).unwrap().unwrap().text;
    let query = format!("enroll={}", token.expose());
    let script = |bench: &Bench, query: &str| match bench.ask(IPXE_START, query, NOW) {
        ServedReply::File(served, ..) => {
            let mut text = vec![0; usize::try_from(served.length).unwrap()];
            served.read_at(&mut text, 0).unwrap();
            String::from_utf8(text).unwrap()
        }
        ServedReply::Script(script) => {
            assert!(query.contains("nqrust_"), "{query}");
            script
        }
        other => panic!("{other:?}"),
    };
    let start = script(&bench, &query);
    assert!(start.contains(&format!("&asset=${{asset:uristring}}&{query} || goto again")), "{start}");
    // What is no token does not get into a script.
    for hostile in ["enroll=a%20b", "enroll=${net0/mac}", "enroll=a||reboot", "enroll=", "x=y"] {
        assert_eq!(script(&bench, hostile), script(&bench, ""), "{hostile}");
    }
    assert!(!installs(&bench.boot(KNOWN, NOW)));
    assert!(installs(&bench.boot(&format!("{KNOWN}&{query}"), NOW)));
    assert!(installs(&bench.boot(KNOWN, NOW)), "it is let install from then on");
    // A machine that waits for the database asks with it again.
    let unavailable = || StoreUnavailable("connection refused".into()).into();
    bench.router.store = MachineRegistry::new(Box::new(FailingStore(unavailable)));
    let wait = bench.boot(&format!("{KNOWN}&{query}"), NOW);
    assert!(wait.contains(&format!("chain --replace /boot.ipxe?{query} || goto again")), "{wait}");
}
