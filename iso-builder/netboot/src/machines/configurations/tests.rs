use super::*;
use crate::test_support::{NODE, SECRETS, told};
use base::failure::{class_of, render};
use model::cluster_file;
use std::path::Path;

/// The names of the configurations for a machine with this query.
fn naming<'a>(loaded: &'a Configurations, query: &str) -> Vec<&'a str> {
    loaded.naming(&identity_keys::of(&told(query))).into_iter().collect()
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn load(files: &[(&str, &str)], defaults: &[(String, String)]) -> Result<Configurations> {
    let directory = directory(files);
    Configurations::load(&ConfigurationSource::Directory(directory.path().into()), defaults)
}

#[test]
fn a_machine_gets_the_file_with_its_name_and_else_the_fallback() {
    let files = [("mac-52-54-00-00-00-01.yaml", NODE), ("serial-CZ1.yaml", NODE), ("default.yaml", NODE)];
    let loaded = load(&files, &[]).unwrap();
    let first = "mac=52:54:00:00:00:01";
    assert_eq!(naming(&loaded, first), ["mac-52-54-00-00-00-01.yaml"]);
    assert_eq!(naming(&loaded, "serial=cz1"), ["serial-CZ1.yaml"]);
    assert!(naming(&loaded, "mac=52:54:00:00:00:02").is_empty());
    let both = naming(&loaded, &format!("{first}&serial=CZ1"));
    assert_eq!(both, ["mac-52-54-00-00-00-01.yaml", "serial-CZ1.yaml"]);
    assert_eq!(loaded.fallback(), Some("default.yaml"));
    assert_eq!(loaded.text("default.yaml").unwrap().expose(), NODE);
    assert_eq!(load(&files[..1], &[]).unwrap().fallback(), None);
}

#[test]
fn each_mistake_of_each_configuration_is_told_with_its_place_and_no_secret() {
    let wrong = NODE.replace("hostname", "hostnme");
    let other = NODE.replace("192.0.2.10", "192.0.2.300");
    let files = [("default.yaml", NODE), ("serial-A.yaml", &wrong), ("serial-B.yaml", &other)];
    let error = load(&files, &[]).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Invalid);
    for part in ["2 of 3 configurations", "serial-A.yaml:2:6", "`hostnme` in `os`", "serial-B.yaml:3:30"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!SECRETS.iter().any(|secret| text.contains(secret)), "{text}");
}

#[test]
fn a_configuration_is_checked_together_with_what_the_medium_and_the_server_add() {
    let defaults = |text: &str| vec![("config/defaults.yaml".to_owned(), text.to_owned())];
    let half = &NODE.replace("vip: 192.0.2.10, ", "");
    assert!(load(&[("default.yaml", half)], &[]).is_err());
    load(&[("default.yaml", half)], &defaults("install: {vip: 192.0.2.10}")).unwrap();
    let chained = format!("{NODE}  ").replace("mode: create", "mode: create, config_url: 'http://a/b'");
    let text = render(&load(&[("default.yaml", &chained)], &[]).unwrap_err());
    assert!(text.contains("chained-config-url"), "{text}");
    for empty in ["", "# nothing\n"] {
        let text = render(&load(&[("default.yaml", empty)], &[]).unwrap_err());
        assert!(text.contains("default.yaml is empty"), "{text}");
    }
}

#[test]
fn a_warning_names_the_file_that_it_is_about() {
    let trial = NODE.replace("vip: 192.0.2.10", "profile: trial");
    let loaded = load(&[("serial-A.yaml", &trial)], &[]).unwrap();
    let warnings = loaded.warnings.join("\n");
    assert!(warnings.contains("serial-A.yaml:3:") && warnings.contains("install.vip"), "{warnings}");
}

#[test]
fn a_cluster_file_gives_each_machine_its_own_by_any_of_its_cards() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/clusters/three-nodes.yaml");
    let loaded = Configurations::load(&ConfigurationSource::Cluster(path), &[]).unwrap();
    assert_eq!(loaded.count(), 3);
    let checked = cluster_file::load(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/clusters/three-nodes.yaml"),
    )
    .unwrap();
    for document in &checked.documents {
        for mac in &document.entry.macs {
            assert_eq!(naming(&loaded, &format!("mac={mac}")), [document.entry.file.as_str()]);
            assert_eq!(loaded.text(&document.entry.file).unwrap().expose(), document.text);
        }
    }
}

#[test]
fn the_cluster_and_the_rack_of_each_machine_are_known() {
    let creates = |hostname: &str, vip: &str| {
        NODE.replace("node-1", hostname)
            .replace("vip: 192.0.2.10", vip)
            .replace("os: {", "os: {labels: {topology.kubernetes.io/zone: rack-1}, ")
    };
    let joins = |hostname: &str, host: &str| {
        let node = NODE.replace("node-1", hostname).replace("mode: create, vip: 192.0.2.10", "mode: join");
        format!("server_url: https://{host}\n{node}")
    };
    let of = |files: &[(&str, &str)]| {
        let loaded = load(files, &[]).unwrap();
        let place =
            |name: &str| (loaded.cluster(name).map(str::to_owned), loaded.rack(name).map(str::to_owned));
        files.iter().map(|(name, _)| place(name)).collect::<Vec<_>>()
    };
    let (one, other) = (creates("a", "vip: 192.0.2.10"), creates("b", "vip: 192.0.2.20"));
    let (joiner, far) = (joins("c", "192.0.2.10"), joins("d", "far.example.org"));
    let found = |cluster: &str, rack: Option<&str>| (Some(cluster.to_owned()), rack.map(str::to_owned));
    assert_eq!(
        of(&[
            ("serial-A.yaml", &one),
            ("serial-B.yaml", &other),
            ("serial-C.yaml", &joiner),
            ("serial-D.yaml", &far)
        ]),
        [
            found("192.0.2.10", Some("rack-1")),
            found("192.0.2.20", Some("rack-1")),
            found("192.0.2.10", None),
            found("far.example.org", None)
        ]
    );
    // A cluster without an address of its own.
    let trial = creates("a", "profile: trial");
    assert_eq!(of(&[("serial-A.yaml", &trial)]), [found("a", Some("rack-1"))]);
    let (joined, further) = (joins("c", "192.0.2.30"), joins("d", "192.0.2.30"));
    assert_eq!(
        of(&[("serial-A.yaml", &trial), ("serial-C.yaml", &joined), ("serial-D.yaml", &further)])[0],
        found("192.0.2.30", Some("rack-1"))
    );
    assert_eq!(
        of(&[("serial-A.yaml", &trial), ("serial-C.yaml", &joined), ("serial-D.yaml", &far)])[0].0.as_deref(),
        Some("a")
    );
}

#[test]
fn a_change_of_any_file_is_noticed() {
    let directory = directory(&[("default.yaml", NODE)]);
    let origin = ConfigurationSource::Directory(directory.path().into());
    let before = stamp(&origin);
    assert_eq!(stamp(&origin), before);
    std::fs::write(directory.path().join("serial-A.yaml"), NODE).unwrap();
    let added = stamp(&origin);
    assert_ne!(added, before);
    base::files::write_atomically(&directory.path().join("default.yaml"), NODE.as_bytes(), 0o644).unwrap();
    assert_ne!(stamp(&origin), added, "another file of the same length");
}
