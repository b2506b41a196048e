//! What is printed and what is written.

use std::os::unix::fs::PermissionsExt;

use super::{THREE, three};
use crate::cluster_file::{check, shown, write};
use base::failure::{Class, class_of, render as told};

#[test]
fn a_node_for_reading_shows_no_secret() {
    let checked =
        check(&three(&[("  token", "  kubernetes: {agent_token: 4cb1dea79be2f83d5c60}\n  token")]), "c")
            .unwrap();
    let (text, value) = shown(&checked.documents[1]);
    let all = format!("{text}{value}{checked:?}");
    assert!(!text.contains("9f8e7d6c5b4a") && !text.contains("4cb1dea79be2"), "{text}");
    assert!(!all.contains("9f8e7d6c5b4a") && !all.contains("4cb1dea79be2"), "{all}");
    assert!(text.contains("hostname: n2") && text.contains("[hidden]"));
}

#[test]
fn a_directory_is_written_once_and_follows_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("nodes");
    let render = |text: &str| write(&check(text, "c").unwrap(), &directory);
    let report = render(THREE).unwrap();
    assert_eq!(report.written, ["n1.yaml", "n2.yaml", "n3.yaml"]);
    for name in ["n1.yaml", "rendered.json"] {
        let mode = std::fs::metadata(directory.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(render(THREE).unwrap().unchanged.len(), 3);
    let renamed = render(&three(&[("hostname: n3", "hostname: n4")])).unwrap();
    assert_eq!(
        (renamed.written.as_slice(), renamed.removed.as_slice()),
        (&["n4.yaml".to_owned()][..], &["n3.yaml".to_owned()][..])
    );
    assert!(!directory.join("n3.yaml").exists());
    // A document that the world can read is put right.
    std::fs::set_permissions(directory.join("n1.yaml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(render(&three(&[("hostname: n3", "hostname: n4")])).unwrap().written, ["n1.yaml"]);
}

#[test]
fn what_render_did_not_write_stays_and_nothing_else_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let render = |text: &str| write(&check(text, "c").unwrap(), directory.path());
    std::fs::write(directory.path().join("n2.yaml"), "mine").unwrap();
    let error = render(THREE).unwrap_err();
    assert!(class_of(&error) == Class::Invalid && told(&error).contains("n2.yaml"), "{}", told(&error));
    assert!(!directory.path().join("n1.yaml").exists());
    std::fs::remove_file(directory.path().join("n2.yaml")).unwrap();
    render(THREE).unwrap();
    // Changed by hand, whether it would be replaced or removed.
    std::fs::write(directory.path().join("n3.yaml"), "changed").unwrap();
    for text in [THREE.to_owned(), three(&[("hostname: n3", "hostname: n4")])] {
        assert!(told(&render(&text).unwrap_err()).contains("n3.yaml"));
    }
    assert!(!directory.path().join("n4.yaml").exists());
    assert_eq!(std::fs::read_to_string(directory.path().join("n3.yaml")).unwrap(), "changed");
}

#[test]
fn a_write_that_was_cut_off_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let checked = check(THREE, "c").unwrap();
    std::fs::write(directory.path().join("n1.yaml"), &checked.documents[0].text).unwrap();
    assert!(write(&checked, directory.path()).is_ok());
}

#[test]
fn a_template_that_nodes_were_made_from_does_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let render = |text: &str| write(&check(text, "c").unwrap(), directory.path());
    render(THREE).unwrap();
    let changed = three(&[("/dev/disk/by-id/a", "/dev/disk/by-id/b")]);
    let error = told(&render(&changed).unwrap_err());
    assert!(error.contains("`large`") && error.contains("another name"), "{error}");
    let renamed = changed.replace("  large:", "  large-2:").replace("template: large", "template: large-2");
    assert_eq!(render(&renamed).unwrap().written.len(), 3);
    let error = told(&render(&three(&[("east", "west")])).unwrap_err());
    assert!(error.contains("`east`, not of `west`"), "{error}");
}
