use super::*;
use crate::machines::store::location::StateLocation;
use crate::test_support::{StorePlace, told};
use base::failure::{class_of, render};
use serde_json::{Value, json};

/// A machine in the old format.
fn old(number: u32, mac: &str, state: &str, configuration: Option<&str>) -> Value {
    json!({
        "id": uuid::Uuid::from_u128(u128::from(number)),
        "identity": {"macs": [mac], "serial": null, "uuid": null, "asset_tag": null},
        "state": state, "permission": "unsaid", "configuration": configuration,
        "first_seen": 1, "last_seen": 3, "since": 2,
        "tokens": {"configuration": "00".repeat(32), "report": "11".repeat(32), "until": 9, "used": true},
    })
}

fn write(directory: &Path, machines: &[Value]) {
    let content = json!({"format": 1, "machines": machines});
    std::fs::write(directory.join(NAME), serde_json::to_vec(&content).unwrap()).unwrap();
}

fn open(directory: &Path) -> Result<Box<dyn MachineStore>> {
    StateLocation::in_directory(directory).open(Box::new(|_| {}))
}

fn all(store: &dyn MachineStore) -> Vec<Machine> {
    store.read(|records| records.list(usize::MAX)).unwrap()
}

const A: &str = "52:54:00:00:00:0a";
const B: &str = "52:54:00:00:00:0b";

#[test]
fn what_an_earlier_version_kept_is_taken_over_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut denied = old(2, B, "waiting", None);
    denied["permission"] = "denied".into();
    write(directory.path(), &[old(1, A, "installed", Some("mac-a.yaml")), denied]);
    for _ in 0..2 {
        let store = open(directory.path()).unwrap();
        let machines = all(&*store);
        assert_eq!(machines.len(), 2);
        let find = |number: u128| machines.iter().find(|one| one.id.as_uuid().as_u128() == number).unwrap();
        let (installed, denied) = (find(1), find(2));
        assert_eq!(
            (installed.state, installed.assigned.as_deref()),
            (DeploymentState::Installed, Some("mac-a.yaml"))
        );
        assert_eq!(installed.identity, told(&format!("mac={A}")));
        assert_eq!(
            (installed.first_seen, installed.since, installed.last_seen),
            (Moment(1), Moment(2), Moment(3))
        );
        assert_eq!((denied.permission, denied.assigned.as_deref()), (InstallPermission::Denied, None));
        assert!(!directory.path().join(NAME).exists() && directory.path().join(MIGRATED).exists());
    }
}

#[test]
fn a_file_that_was_taken_over_before_the_server_was_killed_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), &[old(1, A, "installed", Some("mac-a.yaml"))]);
    drop(open(directory.path()).unwrap());
    write(
        directory.path(),
        &[old(1, A, "waiting", Some("mac-a.yaml")), old(9, B, "booting", Some("mac-a.yaml"))],
    );
    let machines = all(&*open(directory.path()).unwrap());
    assert_eq!((machines.len(), machines[0].state), (1, DeploymentState::Installed));
}

#[test]
fn of_two_machines_with_one_configuration_the_one_that_must_not_install_counts() {
    let directory = tempfile::tempdir().unwrap();
    let mut denied = old(3, "52:54:00:00:00:0c", "booting", Some("node-1.yaml"));
    denied["permission"] = "denied".into();
    let machines =
        [old(1, A, "booting", Some("node-1.yaml")), old(2, B, "installed", Some("node-1.yaml")), denied];
    write(directory.path(), &machines);
    let machines = all(&*open(directory.path()).unwrap());
    assert_eq!(machines.len(), 1);
    assert_eq!(
        (machines[0].state, machines[0].permission),
        (DeploymentState::Installed, InstallPermission::Denied)
    );
    assert_eq!(machines[0].identity.macs.len(), 3);
}

#[test]
fn a_state_file_of_any_size_that_was_written_is_read() {
    // More than the former limit of 64 MiB.
    let directory = tempfile::tempdir().unwrap();
    let long = "x".repeat(1 << 20);
    let machines: Vec<_> = (0..70)
        .map(|number| {
            let mac = format!("52:54:00:00:01:{number:02x}");
            let mut machine = old(number, &mac, "installed", Some(&format!("{number}.yaml")));
            machine["identity"]["serial"] = format!("{number}{long}").into();
            machine
        })
        .collect();
    write(directory.path(), &machines);
    assert!(std::fs::metadata(directory.path().join(NAME)).unwrap().len() > 64 << 20);
    assert_eq!(all(&*open(directory.path()).unwrap()).len(), 70);
}

#[test]
fn a_file_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    for text in ["", "{}", r#"{"format": 2, "machines": []}"#, r#"{"format": 1, "machines": [{}]}"#] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(NAME), text).unwrap();
        let error = open(directory.path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid, "{text}");
        assert!(render(&error).contains("install again"), "{}", render(&error));
        assert!(directory.path().join(NAME).exists());
    }
}

#[test]
fn a_database_gets_the_machines_of_the_server_that_was_alone_once() {
    let place = StorePlace::postgres();
    let location = place.location();
    let alone = open(&location.directory).unwrap();
    let mut installed = Machine::stranger(told(&format!("mac={A}")), Moment(1));
    (installed.assigned, installed.state) = (Some("mac-a.yaml".into()), DeploymentState::Installed);
    alone.change(Durability::Full, |records| records.put(&installed)).unwrap();
    drop(alone);
    // A server of the fleet, with the directory locked as while it runs.
    let lock = location.lock().unwrap();
    assert!(lock.is_some());
    let store = place.open();
    assert_eq!(all(&*store), std::slice::from_ref(&installed));
    let exists = |name: &str| location.directory.join(name).exists();
    assert!(!exists(sqlite::NAME) && exists(MIGRATED_FILE));
    // What has changed since stays.
    installed.state = DeploymentState::Redeploy;
    store.change(Durability::Full, |records| records.put(&installed)).unwrap();
    fs::rename(location.directory.join(MIGRATED_FILE), location.directory.join(sqlite::NAME)).unwrap();
    assert_eq!(all(&*place.open()), [installed]);
}
