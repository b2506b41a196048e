use super::*;
use crate::machines::identity_keys;
use crate::machines::machine::{DeploymentEvent, DeploymentState, InstallPermission, Machine};
use crate::machines::store::IdentityConflict;
use crate::machines::store::records::{MOST_CONFLICTS, MOST_STRANGERS};
use crate::moment::Moment;
use crate::test_support::told;
use base::failure::{class_of, render};
use std::os::unix::fs::PermissionsExt;

const NOW: Moment = Moment(7);

fn store() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("state")).unwrap();
    (directory, store)
}

/// The store as its callers see it.
fn of(store: &SqliteStore) -> &dyn MachineStore {
    store
}

fn machine(query: &str) -> Machine {
    Machine::stranger(told(query), NOW)
}

fn put(store: &SqliteStore, machine: &Machine) -> Result<()> {
    of(store).change(Durability::Full, |records| records.put(machine))
}

fn all(store: &SqliteStore) -> Vec<Machine> {
    of(store).read(|records| records.list(usize::MAX)).unwrap()
}

#[test]
fn a_record_is_the_same_when_the_server_starts_again() {
    let (directory, store) = store();
    let mut machine =
        machine("mac=52:54:00:00:00:01&serial=Cz1 é&asset=a&uuid=4c4c4544-0042-3510-8052-b4c04f4a5a32");
    machine.assigned = Some("node-1.yaml".into());
    machine.configuration = Some("node-1.yaml".into());
    machine.apply(DeploymentEvent::Booted, Moment(8));
    machine.asked("192.0.2.1".parse().unwrap(), &told("serial=a"), Moment(9));
    machine.taken = Some(token::DeploymentTicket::new(machine.id, 4, NOW).unwrap().into());
    machine.generation = u32::MAX;
    machine.permission = InstallPermission::Denied;
    put(&store, &machine).unwrap();
    let key = store.key();
    drop(store);
    let store = SqliteStore::open(&directory.path().join("state")).unwrap();
    assert_eq!((all(&store), store.key()), (vec![machine], key));
    let (_other, other) = self::store();
    assert_ne!(other.key(), key);
}

#[test]
fn the_state_is_for_its_owner_alone() {
    let (directory, store) = store();
    put(&store, &machine("serial=1")).unwrap();
    let state = directory.path().join("state");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    assert!(names.iter().any(|name| name.ends_with("-wal")), "{names:?}");
}

#[test]
fn an_error_inside_a_change_leaves_the_state_as_it_was() {
    let (_directory, store) = store();
    let (kept, lost) = (machine("serial=1"), machine("serial=2"));
    put(&store, &kept).unwrap();
    let error = of(&store).change(Durability::Full, |records| -> Result<()> {
        records.put(&lost)?;
        records.remove(kept.id)?;
        records.add_conflict(&IdentityConflict::new("::1".parse().unwrap(), "x".into(), vec![], NOW))?;
        Err(anyhow!("something is wrong"))
    });
    assert_eq!(error.unwrap_err().to_string(), "something is wrong");
    assert_eq!(all(&store), std::slice::from_ref(&kept));
    assert!(of(&store).read(|records| records.conflicts()).unwrap().is_empty());
    assert_eq!(of(&store).read(|records| records.with_any(&identity_keys::of(&lost.identity))).unwrap(), []);
    // The same for a change that panics; the next change works.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        of(&store).change(Durability::Full, |records| -> Result<()> {
            records.remove(kept.id)?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(all(&store), [kept]);
    put(&store, &lost).unwrap();
    assert_eq!(all(&store).len(), 2);
}

#[test]
fn records_are_found_by_each_of_their_marks_and_not_by_those_they_had() {
    let (_directory, store) = store();
    let mut one = machine("mac=52:54:00:00:00:01&serial=CZ1");
    let other = machine("mac=52:54:00:00:00:02&serial=cz1");
    put(&store, &one).unwrap();
    put(&store, &other).unwrap();
    let found = |query: &str| {
        let marks = identity_keys::of(&told(query));
        of(&store).read(|records| records.with_any(&marks)).unwrap().len()
    };
    assert_eq!((found("serial=CZ1"), found("mac=52:54:00:00:00:01"), found("serial=CZ2")), (2, 1, 0));
    one.identity.serial = Some("CZ2".into());
    put(&store, &one).unwrap();
    assert_eq!((found("serial=CZ1"), found("serial=CZ2")), (1, 1));
    of(&store).change(Durability::Process, |records| records.remove(one.id)).unwrap();
    assert_eq!((found("serial=CZ2"), found("mac=52:54:00:00:00:01")), (0, 0));
}

#[test]
fn a_configuration_has_one_record() {
    let (_directory, store) = store();
    let assigned = |query: &str| Machine { assigned: Some("a.yaml".into()), ..machine(query) };
    let one = assigned("serial=1");
    put(&store, &one).unwrap();
    assert!(put(&store, &assigned("serial=2")).unwrap_err().to_string().contains("a.yaml"));
    assert_eq!(all(&store), [one]);
}

#[test]
fn strangers_are_forgotten_before_they_fill_the_disk_and_others_never() {
    let (_directory, store) = store();
    let mut installed = machine("mac=52:54:00:00:00:01");
    installed.state = DeploymentState::Installed;
    put(&store, &installed).unwrap();
    let stranger = |number: u32| {
        let mac = format!("mac=52:54:01:00:{:02x}:{:02x}", number >> 8, number & 0xff);
        Machine { last_seen: Moment(100 + u64::from(number)), ..machine(&mac) }
    };
    of(&store)
        .change(Durability::Process, |records| {
            (0..=MOST_STRANGERS).try_for_each(|number| {
                records.make_room_for_a_stranger()?;
                records.put(&stranger(number))
            })
        })
        .unwrap();
    let machines = all(&store);
    assert_eq!(machines.len(), MOST_STRANGERS as usize + 1);
    assert!(!machines.iter().any(|machine| machine.identity == stranger(0).identity));
    assert!(machines.iter().any(|machine| machine.identity == stranger(1).identity));
    assert!(machines.contains(&installed));
}

#[test]
fn conflicts_are_counted_and_the_oldest_of_too_many_go() {
    let (_directory, store) = store();
    let conflict = |number: u64| {
        let between = vec![format!("{number}.yaml"), "b".into()];
        IdentityConflict::new("192.0.2.1".parse().unwrap(), "serial:a".into(), between, Moment(number))
    };
    let add =
        |number| of(&store).change(Durability::Process, |records| records.add_conflict(&conflict(number)));
    (0..=u64::from(MOST_CONFLICTS)).for_each(|number| add(number).unwrap());
    add(9).unwrap();
    let conflicts = of(&store).read(|records| records.conflicts()).unwrap();
    assert_eq!(conflicts.len(), MOST_CONFLICTS as usize);
    assert!(!conflicts.contains(&conflict(0)) && conflicts.contains(&conflict(1)));
    assert_eq!(conflicts.iter().find(|one| one.id == conflict(9).id).unwrap().times, 2);
    assert!(of(&store).change(Durability::Full, |records| records.remove_conflict(&conflict(9).id)).unwrap());
    assert!(
        !of(&store).change(Durability::Full, |records| records.remove_conflict(&conflict(9).id)).unwrap()
    );
}

#[test]
fn who_looks_does_not_hold_up_who_changes() {
    let (_directory, store) = store();
    put(&store, &machine("serial=1")).unwrap();
    of(&store)
        .read(|records| {
            assert_eq!(records.count()?, 1);
            put(&store, &machine("serial=2"))?;
            assert_eq!(records.count()?, 1, "it sees one moment");
            Ok(())
        })
        .unwrap();
    assert_eq!(all(&store).len(), 2);
}

#[test]
fn a_second_server_does_not_take_the_same_state() {
    let (directory, _store) = store();
    let error = SqliteStore::open(&directory.path().join("state")).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("another server uses the state"), "{}", render(&error));
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let newer = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.execute_batch(TABLES).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION).unwrap();
        connection.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    };
    let foreign = |path: &Path| Connection::open(path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let garbage = |path: &Path| std::fs::write(path, "x".repeat(5000)).unwrap();
    let made: [&dyn Fn(&Path); 3] = [&newer, &foreign, &garbage];
    for make in made {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join(NAME));
        let error = SqliteStore::open(directory.path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid, "{}", render(&error));
        assert!(render(&error).contains("install again"), "{}", render(&error));
    }
}
