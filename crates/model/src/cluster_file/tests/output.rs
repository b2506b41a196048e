//! Tests of the printed and the written output.

use std::os::unix::fs::PermissionsExt;

use super::{THREE, findings, three};
use crate::cluster_file::{check, shown, write};
use crate::config::parse;
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

/// [`THREE`] with a worker, a default node and a witness, and this part of `cluster`.
fn with_agents(cluster: &str) -> String {
    let pools = "  - name: more\n    role: worker\n    machines: [{hostname: w1, ip: 192.0.2.21, macs: ['52:54:00:00:00:21']}]\n\
                 \x20 - name: spare\n    role: default\n    machines: [{hostname: d1, ip: 192.0.2.22, macs: ['52:54:00:00:00:22']}]\n\
                 \x20 - name: votes\n    role: witness\n    machines: [{hostname: v1, ip: 192.0.2.23, macs: ['52:54:00:00:00:23']}]\n";
    let text = format!("{THREE}{pools}").replace("template: large", "");
    let text = text.replace("  token: 9f8e7d6c5b4a39281706f5e4d3c2b1a0\n", cluster);
    text.replace("    automatic: true\n", "    automatic: true\n    device: /dev/disk/by-id/a\n")
}

#[test]
fn documents_of_agents_have_the_token_of_agents_alone_and_all_others_know_it() {
    const TOKEN: &str = "9f8e7d6c5b4a39281706f5e4d3c2b1a0";
    let derived = crate::config::cluster_secrets::agent_token(&crate::config::Secret::new(TOKEN)).unwrap();
    let pinned = format!("K10{}::server:{TOKEN}", "ab".repeat(32));
    for distribution in ["kubeadm", "rke2", "k3s"] {
        for (given, own) in [
            (format!("  token: {TOKEN}\n"), derived.expose()),
            (format!("  token: {pinned}\n"), derived.expose()),
            (format!("  token: {TOKEN}\n"), "2b7e151628aed2a6abf7158809cf4f3c"),
        ] {
            let agents =
                if own == derived.expose() { String::new() } else { format!(", agent_token: {own}") };
            let text =
                with_agents(&format!("{given}  kubernetes: {{distribution: {distribution}{agents}}}\n"));
            let checked = check(&text, "c").unwrap();
            assert_eq!(checked.documents.len(), 6);
            for document in checked.documents {
                let config = parse(&document.text, "d").unwrap();
                let (agent, name) = (config.install.is_agent(), &document.entry.hostname);
                assert_eq!(agent, ["w1", "d1"].contains(&name.as_str()));
                assert_eq!(config.token.is_none(), agent, "{name}");
                assert_eq!(document.text.contains(TOKEN), !agent, "{name}");
                assert!(config.kubernetes.agent_token.unwrap().expose().ends_with(own), "{name}");
            }
        }
    }
}

#[test]
fn a_token_that_is_elsewhere_is_for_agents_only_where_they_have_none_of_their_own() {
    for (given, kept) in [
        ("  token_file: /run/token\n", true),
        ("  token_file: /run/token\n  kubernetes: {agent_token: 2b7e151628aed2a6abf7158809cf4f3c}\n", false),
        ("  token_url: https://a/t\n  kubernetes: {agent_token: 2b7e151628aed2a6abf7158809cf4f3c}\n", false),
    ] {
        for document in check(&with_agents(given), "c").unwrap().documents {
            let config = parse(&document.text, "d").unwrap();
            let refers = config.token_file.is_some() || config.token_url.is_some();
            assert_eq!(refers, kept || !config.install.is_agent(), "{}", document.entry.hostname);
        }
    }
}

#[test]
fn a_token_that_cannot_be_read_is_told_in_its_place() {
    let text = three(&[("9f8e7d6c5b4a39281706f5e4d3c2b1a0", "K10-and-no-more-9f8e7d6c5b4a")]);
    assert_eq!(findings(&text), ["unusable-token 3 cluster.token"]);
}
