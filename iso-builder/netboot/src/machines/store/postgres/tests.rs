use super::*;
use crate::machines::machine::Machine;
use crate::machines::store::RunRecord;
use crate::test_support::{StorePlace, postgres_server, told};
use base::failure::{class_of, render};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use testing::postgres::{PASSWORD, PostgresServer, USER};

const NOW: Moment = Moment(7);

fn machine(query: &str) -> Machine {
    Machine::stranger(told(query), NOW)
}

fn put(store: &dyn MachineStore, machine: &Machine) -> Result<()> {
    store.change(Durability::Full, |records| records.put(machine))
}

fn all(store: &dyn MachineStore) -> Result<Vec<Machine>> {
    store.read(|records| records.list(usize::MAX))
}

/// The messages of a store.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn open(&self, url: &str) -> Result<PostgresStore> {
        let told = self.clone();
        let notice = move |text: &str| told.0.lock().unwrap().push(text.to_owned());
        PostgresStore::open(&PostgresAddress::parse(url)?, Box::new(notice))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[test]
fn servers_that_start_together_make_the_tables_once() {
    let url = StorePlace::postgres().url.unwrap();
    let keys = std::thread::scope(|scope| {
        let one = || Told::default().open(&url).unwrap().key();
        let servers: Vec<_> = (0..6).map(|_| scope.spawn(one)).collect();
        servers.into_iter().map(|server| server.join().unwrap()).collect::<std::collections::BTreeSet<_>>()
    });
    assert_eq!(keys.len(), 1);
}

#[test]
fn tables_of_an_earlier_version_are_changed_and_those_of_a_later_one_refused() {
    let url = StorePlace::postgres().url.unwrap();
    let sql = |text: &str| postgres_server().run(&url, text);
    let store = Told::default().open(&url).unwrap();
    let (machine, key) = (machine("serial=1"), store.key());
    put(&store, &machine).unwrap();
    sql(
        "DROP TABLE nqrust.runs, nqrust.logs, nqrust.access_tokens, nqrust.audit; UPDATE nqrust.version SET version = 1",
    );
    let newer = Told::default().open(&url).unwrap();
    assert_eq!((all(&newer).unwrap(), newer.key()), (vec![machine.clone()], key));
    // A server that runs meets tables that a later program has changed, and one that starts.
    sql(&format!("UPDATE nqrust.version SET version = {}", schema::VERSION + 1));
    for error in [put(&store, &machine).unwrap_err(), Told::default().open(&url).unwrap_err()] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid, "{text}");
        assert!(
            text.contains("this program reads format") && text.contains("Use the iso-builder that wrote it"),
            "{text}"
        );
    }
}

#[test]
fn a_database_that_cannot_be_used_is_named_with_the_reason() {
    let server = postgres_server();
    let url = server.database();
    server.run(&url, "CREATE ROLE guest LOGIN");
    server.run(&url, "CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0");
    for (url, class, told) in [
        (server.url("absent"), Class::Network, "database \"absent\" does not exist"),
        (server.url("postgres").replace(USER, "guest"), Class::Invalid, "permission denied for database"),
        (server.url("latin"), Class::Invalid, "its encoding is LATIN1"),
        ("postgres://serve@127.0.0.1:1/fleet?sslmode=disable".into(), Class::Network, "Connection refused"),
    ] {
        let error = Told::default().open(&url).unwrap_err();
        let text = render(&error);
        assert!(class_of(&error) == class && text.contains(told), "{text}");
    }
}

#[test]
fn a_database_that_was_stopped_is_told_once_and_used_again_by_itself() {
    let mut server = PostgresServer::start();
    let (url, told) = (server.database(), Told::default());
    let store = told.open(&url).unwrap();
    let [one, other, third] = ["serial=1", "serial=2", "serial=3"].map(machine);
    put(&store, &one).unwrap();
    // Restarted while nobody asked: nothing is lost and nothing is to be told.
    server.stop();
    server.start_again();
    put(&store, &other).unwrap();
    assert_eq!(told.take(), Vec::<String>::new());
    server.stop();
    for _ in 0..20 {
        for error in [put(&store, &third).unwrap_err(), all(&store).unwrap_err()] {
            assert!(error.is::<StoreUnavailable>(), "{error:?}");
        }
    }
    let messages = told.take();
    assert!(messages.len() == 1 && messages[0].contains("does not answer"), "{messages:?}");
    server.start_again();
    let since = Instant::now();
    while let Err(error) = put(&store, &third) {
        assert!(error.is::<StoreUnavailable>() && since.elapsed() < Duration::from_secs(20), "{error:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let messages = told.take();
    assert!(messages.len() == 1 && messages[0].contains("answers again after"), "{messages:?}");
    assert_eq!(all(&store).unwrap().len(), 3);
}

#[test]
fn a_database_that_can_be_read_only_or_has_newer_tables_is_told_by_a_check() {
    let url = StorePlace::postgres().url.unwrap();
    let sql = |text: &str| postgres_server().run(&url, text);
    let store = Told::default().open(&url).unwrap();
    store.check().unwrap();
    let version = |number| sql(&format!("UPDATE nqrust.version SET version = {number}"));
    version(schema::VERSION + 1);
    assert!(render(&store.check().unwrap_err()).contains("this program reads format"));
    version(schema::VERSION);
    // As on a standby, for sessions that begin from now on.
    sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
         current_database()); END $$");
    store.check().unwrap();
    locked(&store.pool).idle.clear();
    assert!(render(&store.check().unwrap_err()).contains("can be read only"));
}

#[test]
fn a_transaction_whose_server_is_killed_leaves_nothing_and_holds_up_nobody() {
    let url = StorePlace::postgres().url.unwrap();
    let (killed, other) = (Told::default().open(&url).unwrap(), Told::default().open(&url).unwrap());
    let (lost, kept) = (machine("serial=1"), machine("serial=2"));
    let killed: &dyn MachineStore = &killed;
    let error = killed.change(Durability::Full, |records| {
        records.put(&lost)?;
        // As where the process is killed: the database sees the end of its connection.
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        assert_eq!(postgres_server().run(&url, sql), "t");
        Ok(())
    });
    assert!(error.as_ref().unwrap_err().is::<StoreUnavailable>(), "{error:?}");
    put(&other, &kept).unwrap();
    assert_eq!(all(&other).unwrap(), std::slice::from_ref(&kept));
    // The server that lost its connection goes on with another one.
    assert_eq!(all(killed).unwrap(), [kept]);
}

#[test]
fn a_server_waits_for_what_another_one_decides_and_not_for_its_reports() {
    let url = StorePlace::postgres().url.unwrap();
    let (one, other) = (Told::default().open(&url).unwrap(), Told::default().open(&url).unwrap());
    let (first, second) = (machine("serial=1"), machine("serial=2"));
    let store: &dyn MachineStore = &one;
    std::thread::scope(|scope| {
        let waiting = store
            .change(Durability::Full, |records| {
                let waiting = scope.spawn(|| put(&other, &second).map(|()| all(&other).unwrap().len()));
                std::thread::sleep(Duration::from_millis(200));
                assert!(!waiting.is_finished(), "it has the lock");
                let run = super::super::RunRecord { run: "{}".into(), heard: None, has_log: false };
                let reporting: &dyn MachineStore = &one;
                reporting.change_run(first.id, |records| records.put_run(first.id, &run))?;
                records.put(&first)?;
                Ok(waiting)
            })
            .unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 2, "it sees what it waited for");
    });
}

#[test]
fn a_connection_over_the_network_needs_the_password_and_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        base::files::write_atomically(&path, text.as_bytes(), 0o600).unwrap();
        path.display().to_string()
    };
    let (authority, issuer) = authority();
    let own = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&own, &issuer).unwrap();
    let server = PostgresServer::with(
        &["ssl=on"],
        &[("server.crt", &certificate.pem()), ("server.key", &own.serialize_pem())],
    );
    let trusted = format!("sslrootcert={}", file("authority.pem", &authority));
    let other = format!("sslrootcert={}", file("other.pem", &self::authority().0));
    let right = format!("passfile={}", file("right", &format!("localhost:*:*:{USER}:{PASSWORD}\n")));
    let wrong = format!("passfile={}", file("wrong", &format!("localhost:*:*:{USER}:another\n")));
    let url = |options: &[&str]| server.network_url("postgres", &options.join("&"));
    let told = Told::default();
    let store = told.open(&url(&[&trusted, &right])).unwrap();
    put(&store, &machine("serial=1")).unwrap();
    let sql = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE application_name = 'nqrust serve'";
    assert_eq!(server.run(&server.url("postgres"), sql), "t");
    for (options, told) in [
        ([&*trusted, &wrong], "password authentication failed"),
        ([&*other, &right], "invalid peer certificate"),
        // Without sslrootcert the authorities of the host count.
        ([&*right, "connect_timeout=5"], "invalid peer certificate"),
    ] {
        let error = Told::default().open(&url(&options)).unwrap_err();
        let text = render(&error);
        assert!(class_of(&error) == Class::Network && text.contains(told), "{options:?}: {text}");
        assert!(!text.contains(PASSWORD) && !text.contains("another"), "{text}");
    }
    // An address that is not in the certificate.
    let address = url(&[&trusted, &right]).replace("localhost:", "127.0.0.1:");
    assert!(render(&Told::default().open(&address).unwrap_err()).contains("not valid for name"));
}

/// A certificate authority in PEM, and what signs with it.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), Issuer::new(params, key))
}

/// The machines that were changed since the mark, and the next mark.
fn changed(store: &dyn MachineStore, since: Option<&ChangeMark>) -> RecentChanges {
    store.read_changes(since, |_, changes| Ok(changes)).unwrap()
}

#[test]
fn what_is_committed_after_later_transactions_is_read_all_the_same() {
    let url = StorePlace::postgres().url.unwrap();
    let [one, other] = [(); 2].map(|()| Told::default().open(&url).unwrap());
    let [slow, quick] = ["serial=1", "serial=2"].map(machine);
    let run = RunRecord { run: "{}".into(), heard: None, has_log: false };
    let (written, is_written) = std::sync::mpsc::channel();
    let (read, is_read) = std::sync::mpsc::channel();
    put(&one, &slow).unwrap();
    let before = changed(&other, None).mark;
    let store: &dyn MachineStore = &one;
    let between = std::thread::scope(|scope| {
        let reports = scope.spawn(move || {
            store.change_run(slow.id, |records| {
                records.put_run(slow.id, &run)?;
                written.send(()).unwrap();
                is_read.recv().unwrap();
                Ok(())
            })
        });
        is_written.recv().unwrap();
        put(&other, &quick).unwrap();
        let changes = changed(&other, Some(&before));
        assert!(changes.machines.unwrap().contains(&quick.id));
        read.send(()).unwrap();
        reports.join().unwrap().unwrap();
        changes.mark
    });
    assert!(changed(&other, Some(&between)).machines.unwrap().contains(&slow.id));
}

#[test]
fn a_mark_of_another_server_or_of_long_ago_is_none() {
    let mut server = PostgresServer::start();
    let store = Told::default().open(&server.database()).unwrap();
    let machine = machine("serial=1");
    put(&store, &machine).unwrap();
    let mark = changed(&store, None).mark;
    let since = |number: u64| changed(&store, Some(&ChangeMark { number, ..mark.clone() })).machines;
    assert_eq!(since(mark.number), Some(BTreeSet::new()));
    assert_eq!(since(mark.number - 1), Some([machine.id].into()));
    assert_eq!(since(mark.number + 1), None, "more transactions than there were");
    assert_eq!(since(mark.number.wrapping_sub(MOST_TRANSACTIONS)), None);
    // A restart, as of a standby that takes its place.
    server.stop();
    server.start_again();
    let changes = changed(&store, Some(&mark));
    assert_eq!(changes.machines, None);
    assert_eq!(changed(&store, Some(&changes.mark)).machines, Some(BTreeSet::new()));
    // Rows whose numbers are not kept.
    let sql = "VACUUM FREEZE nqrust.machines, nqrust.runs, nqrust.logs";
    server.run(&server.url("fleet0"), sql);
    assert_eq!(changed(&store, Some(&changes.mark)).machines, Some(BTreeSet::new()));
}
