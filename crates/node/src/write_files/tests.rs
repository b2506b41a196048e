use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::accounts::tests::debian;

mod races;

fn file(text: &str) -> WriteFile {
    model::config::parse(&format!("os: {{write_files: [{text}]}}"), "f").unwrap().os.write_files.remove(0)
}

#[test]
fn a_file_is_written_once_with_its_mode() {
    let place = tempfile::tempdir().unwrap();
    let root = Root::open(place.path()).unwrap();
    let motd = file("{path: /etc/new/motd, content: aGVsbG8K, encoding: base64, permissions: '0644'}");
    assert!(write(&root, &motd, &debian()).unwrap());
    let path = place.path().join("etc/new/motd");
    assert_eq!(fs::read_to_string(&path).unwrap(), "hello\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    assert!(!write(&root, &motd, &debian()).unwrap());
    let quiet = file("{path: /etc/quiet, content: x}");
    write(&root, &quiet, &debian()).unwrap();
    assert_eq!(fs::metadata(place.path().join("etc/quiet")).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn owners_are_those_of_the_node() {
    let accounts = debian();
    let owner = |text: &str| owner_of(text, &accounts).map(|owner| (owner.user, owner.group));
    assert_eq!(owner("daemon").unwrap(), (1, 1));
    assert_eq!(owner("daemon:shadow").unwrap(), (1, 42));
    assert_eq!(owner("1234:5").unwrap(), (1234, 5));
    assert_eq!(owner("1234").unwrap(), (1234, 1234));
    assert!(owner("nobody-here").unwrap_err().to_string().contains("nobody-here"));
    assert!(owner("daemon:none").is_err());
}

#[test]
fn a_file_in_a_home_is_its_users_unless_the_document_names_another_owner() {
    if !testing::privileges::root_runs() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mut accounts = debian();
    accounts.passwd.push_str("bob:x:1001:1001::/home/bob:/bin/bash\n");
    let root = Root::open(place.path()).unwrap().with_homes(accounts.homes());
    let owner = |name: &str| {
        let metadata = fs::symlink_metadata(place.path().join(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    write(&root, &file("{path: /home/bob/.ssh/config, content: x}"), &accounts).unwrap();
    write(&root, &file("{path: /home/bob/.ssh/roots, content: x, owner: root}"), &accounts).unwrap();
    write(&root, &file("{path: /home/bob/.ssh/shadow, content: x, owner: 'bob:shadow'}"), &accounts).unwrap();
    assert_eq!(["home", "home/bob", "home/bob/.ssh"].map(owner), [(0, 0), (1001, 1001), (1001, 1001)]);
    let names = ["config", "roots", "shadow"].map(|name| owner(&format!("home/bob/.ssh/{name}")));
    assert_eq!(names, [(1001, 1001), (0, 0), (1001, 42)]);
}
