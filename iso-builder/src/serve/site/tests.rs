use super::*;
use crate::serve::machines::State;
use crate::serve::nodes::Origin;
use crate::serve::testing::{NODE, SECRETS, medium};
use installer::release::MediumKind;

const NOW: Moment = Moment(1_700_000_000);
const KNOWN: &str = "mac=52:54:00:00:00:01&mac=&uuid=&serial=CZ1&asset=No%20Asset%20Tag";

struct Bench {
    site: Site,
    directory: tempfile::TempDir,
}

fn bench(files: &[&str]) -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let sample = medium(MediumKind::Full);
    let nodes = directory.path().join("nodes");
    std::fs::create_dir(&nodes).unwrap();
    for name in files {
        std::fs::write(nodes.join(name), NODE).unwrap();
    }
    let files = Files::open(&sample.tree()).unwrap();
    let system = System::of(&files, &[]).unwrap();
    let store = Store::open(&directory.path().join("state")).unwrap();
    let configurations = Configurations::load(&Origin::Directory(nodes), &[]).unwrap();
    Bench { site: Site::new(files, system, store, configurations), directory }
}

impl Bench {
    fn ask(&self, path: &str, query: &str, now: Moment) -> Reply {
        let asked = Asked { path, query, host: Some("192.0.2.1:8080"), ..Asked::default() };
        self.site.answer(&asked, now)
    }

    /// The script for a machine.
    fn boot(&self, query: &str, now: Moment) -> String {
        match self.ask(BOOT, query, now) {
            Reply::Script(script) => script,
            other => panic!("{other:?}"),
        }
    }

    /// The path of the configuration that a script names.
    fn configuration(script: &str) -> String {
        let word = script.split_whitespace().find_map(|word| word.strip_prefix("nqrust.install.config_url="));
        word.unwrap().strip_prefix("http://192.0.2.1:8080").unwrap().to_owned()
    }

    /// The server after it was killed.
    fn restarted(self) -> Self {
        let Self { site, directory } = self;
        let Site { files, system, store, configurations, .. } = site;
        drop(store);
        let store = Store::open(&directory.path().join("state")).unwrap();
        let configurations = Arc::into_inner(configurations.into_inner().unwrap()).unwrap();
        Self { site: Site::new(files, system, store, configurations), directory }
    }
}

fn installs(script: &str) -> bool {
    script.contains("nqrust.mode=install")
}

#[test]
fn a_machine_installs_once_with_its_own_configuration() {
    let bench = bench(&["mac-52-54-00-00-00-01.yaml"]);
    let script = bench.boot(KNOWN, NOW);
    assert!(installs(&script), "{script}");
    let path = Bench::configuration(&script);
    match bench.ask(&path, "", NOW) {
        Reply::Configuration(text) => assert_eq!(text.expose(), NODE),
        other => panic!("{other:?}"),
    }
    assert!(matches!(bench.ask(&path, "", NOW), Reply::Gone));
    let script = bench.boot(KNOWN, NOW);
    assert!(!installs(&script) && script.contains("begun already"), "{script}");
}

#[test]
fn a_token_outlives_the_server_and_is_used_up_across_its_death_too() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    let bench = bench.restarted();
    assert!(matches!(bench.ask(&path, "", NOW), Reply::Configuration(_)));
    let bench = bench.restarted();
    assert!(matches!(bench.ask(&path, "", NOW), Reply::Gone));
    assert!(!installs(&bench.boot(KNOWN, NOW)));
}

#[test]
fn a_machine_that_boots_again_before_it_took_its_configuration_gets_another_token() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let first = Bench::configuration(&bench.boot(KNOWN, NOW));
    let second = Bench::configuration(&bench.boot(KNOWN, NOW));
    assert!(matches!(bench.ask(&first, "", NOW), Reply::NotFound));
    assert!(matches!(bench.ask(&second, "", NOW.plus(3601)), Reply::Gone));
    assert!(matches!(bench.ask(&second, "", NOW.plus(3600)), Reply::Configuration(_)));
}

#[test]
fn a_failed_install_may_begin_again_and_a_finished_one_only_when_somebody_asks() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let report = |event| {
        let path = Bench::configuration(&bench.boot(KNOWN, NOW));
        assert!(matches!(bench.ask(&path, "", NOW), Reply::Configuration(_)));
        bench.site.store.change(|machines| {
            let id = machines.iter().next().unwrap().id;
            machines.get_mut(id).unwrap().apply(event, NOW);
        })
    };
    report(Event::Failed).unwrap();
    report(Event::Finished).unwrap();
    assert!(bench.boot(KNOWN, NOW).contains("it is installed"));
    let again = |machine: &mut Machine| machine.apply(Event::Redeploy, NOW);
    let id = bench.site.store.read(|machines| machines.iter().next().unwrap().id);
    bench.site.store.change(|machines| again(machines.get_mut(id).unwrap())).unwrap();
    assert!(installs(&bench.boot(KNOWN, NOW)));
}

#[test]
fn an_unknown_machine_boots_from_disk_and_is_listed() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for query in ["mac=52:54:00:00:00:09", "uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32", "asset=rack%207"] {
        let script = bench.boot(query, NOW);
        assert!(!installs(&script) && script.contains("no configuration is for this machine"), "{script}");
    }
    bench.site.store.read(|machines| {
        assert_eq!(machines.iter().count(), 3);
        assert!(machines.iter().any(|machine| machine.identity.asset_tag.as_deref() == Some("rack 7")));
    });
}

#[test]
fn the_fallback_is_for_machines_that_somebody_allows() {
    let bench = bench(&["default.yaml"]);
    assert!(!installs(&bench.boot(KNOWN, NOW)));
    let permit = |permission| {
        bench
            .site
            .store
            .change(|machines| {
                let id = machines.iter().next().unwrap().id;
                machines.get_mut(id).unwrap().permission = permission;
            })
            .unwrap();
    };
    permit(Permission::Allowed);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    permit(Permission::Denied);
    assert!(matches!(bench.ask(&path, "", NOW), Reply::Gone));
    assert!(bench.boot(KNOWN, NOW).contains("denied"));
}

#[test]
fn grub_gets_the_same_by_the_address_of_its_card() {
    let bench = bench(&["mac-52-54-00-00-00-01.yaml"]);
    let ask = |card: &str| match bench.ask(&format!("{GRUB}{card}"), "", NOW) {
        Reply::Script(script) => script,
        other => panic!("{other:?}"),
    };
    let script = ask("52:54:00:00:00:01");
    assert!(installs(&script) && script.contains("linux /medium/live/vmlinuz"), "{script}");
    assert!(ask("52:54:00:00:00:02").ends_with("exit\n"));
}

#[test]
fn questions_that_make_no_sense_change_nothing() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for query in
        ["", "mac=", "mac=x&uuid=0&serial=0", "serial", "serial=%f", "serial=%ff", "mac=ff:ff:ff:ff:ff:ff"]
    {
        assert!(matches!(bench.ask(BOOT, query, NOW), Reply::Bad(_)), "{query}");
    }
    for host in [None, Some(""), Some("a b"), Some("a/${b}"), Some("a\r\nb")] {
        let asked = Asked { path: BOOT, query: KNOWN, host, ..Asked::default() };
        assert!(matches!(bench.site.answer(&asked, NOW), Reply::Bad(_)), "{host:?}");
    }
    bench.site.store.read(|machines| assert_eq!(machines.iter().count(), 0));
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    for path in [BOOT, &path, &format!("{GRUB}52:54:00:00:00:01")] {
        let asked = Asked { head: true, path, query: KNOWN, host: Some("a"), ..Asked::default() };
        assert!(matches!(bench.site.answer(&asked, NOW), Reply::OnlyGet), "{path}");
    }
    assert!(matches!(bench.ask(&path, "", NOW), Reply::Configuration(_)));
}

#[test]
fn a_path_outside_of_what_is_served_is_not_found() {
    let bench = bench(&["serial-CZ1.yaml"]);
    for path in [
        "/",
        "//",
        "/medium",
        "/medium/",
        "/medium/../state/machines.json",
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
        "/state/machines.json",
    ] {
        assert!(matches!(bench.ask(path, "", NOW), Reply::NotFound), "{path}");
    }
    assert!(matches!(bench.ask("/medium/live/%69nitrd", "", NOW), Reply::File(_, Selection::Whole)));
    let asked = Asked {
        head: true,
        path: "/medium/live/initrd",
        fields: range::Fields { range: Some("bytes=0-0"), ..range::Fields::default() },
        ..Asked::default()
    };
    assert!(matches!(bench.site.answer(&asked, NOW), Reply::File(_, Selection::Whole)));
}

#[test]
fn nothing_that_is_kept_or_told_holds_a_token_or_a_secret() {
    let bench = bench(&["serial-CZ1.yaml"]);
    let path = Bench::configuration(&bench.boot(KNOWN, NOW));
    let token = path.rsplit('/').next().unwrap();
    let Reply::Configuration(_) = bench.ask(&path, "", NOW) else { panic!() };
    let kept = std::fs::read_to_string(bench.directory.path().join("state/machines.json")).unwrap();
    let told = format!("{:?}", bench.site);
    for text in [kept, told] {
        assert!(![token].iter().chain(&SECRETS).any(|secret| text.contains(secret)), "{text}");
    }
    let state = bench.site.store.read(|machines| machines.iter().next().unwrap().state);
    assert_eq!(state, State::Installing);
}
