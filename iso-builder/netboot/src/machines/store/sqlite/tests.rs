use super::*;
use crate::machines::machine::Machine;
use crate::moment::Moment;
use crate::test_support::told;
use base::failure::{class_of, render};
use std::os::unix::fs::PermissionsExt;

const NOW: Moment = Moment(7);

fn store() -> (tempfile::TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("state").join(NAME)).unwrap();
    (directory, store)
}

fn put(store: &dyn MachineStore, machine: &Machine) -> Result<()> {
    store.change(Durability::Full, |records| records.put(machine))
}

#[test]
fn the_state_is_for_its_owner_alone() {
    let (directory, store) = store();
    put(&store, &Machine::stranger(told("serial=1"), NOW)).unwrap();
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
fn a_second_server_does_not_take_the_same_state() {
    let (directory, _store) = store();
    let error = SqliteStore::open(&directory.path().join("state").join(NAME)).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("another server uses the state"), "{}", render(&error));
}

#[test]
fn a_state_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let newer = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION).unwrap();
        connection.pragma_update(None, "user_version", schema::VERSION + 1).unwrap();
    };
    let foreign = |path: &Path| Connection::open(path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let garbage = |path: &Path| std::fs::write(path, "x".repeat(5000)).unwrap();
    let made: [&dyn Fn(&Path); 3] = [&newer, &foreign, &garbage];
    for make in made {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join(NAME));
        let error = SqliteStore::open(&directory.path().join(NAME)).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid, "{}", render(&error));
        assert!(render(&error).contains("install again"), "{}", render(&error));
    }
}

#[test]
fn the_tables_of_an_earlier_version_are_changed_and_keep_what_is_in_them() {
    let (directory, store) = store();
    let machine = Machine::stranger(told("serial=1"), NOW);
    put(&store, &machine).unwrap();
    let (path, key) = (store.path.clone(), store.key());
    drop(store);
    // As version 1 left it.
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch("DROP TABLE runs; DROP TABLE logs; DROP TABLE access_tokens; DROP TABLE audit")
        .unwrap();
    connection.pragma_update(None, "user_version", 1).unwrap();
    drop(connection);
    for _ in 0..2 {
        let store = SqliteStore::open(&path).unwrap();
        let store: &dyn MachineStore = &store;
        let found = store.read(|records| Ok((records.list(2)?, records.runs()?.len()))).unwrap();
        assert_eq!((found, store.key()), ((vec![machine.clone()], 0), key));
    }
    drop(directory);
}

#[test]
fn a_state_whose_file_was_removed_or_replaced_is_told() {
    let (_directory, store) = store();
    store.check().unwrap();
    let (path, aside) = (store.path.clone(), store.path.with_extension("aside"));
    std::fs::rename(&path, &aside).unwrap();
    let text = render(&store.check().unwrap_err());
    assert!(text.contains(&path.display().to_string()) && text.contains("No such file"), "{text}");
    std::fs::copy(&aside, &path).unwrap();
    assert!(render(&store.check().unwrap_err()).contains("another file than the one"), "{text}");
    std::fs::rename(&aside, &path).unwrap();
    store.check().unwrap();
}
