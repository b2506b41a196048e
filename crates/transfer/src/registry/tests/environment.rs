//! Settings from the environment of the process: proxies, and docker's configuration and helpers. The environment of
//! this process belongs to all tests, so each of these runs itself again with another one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::fake::nobody;
use super::*;
use crate::download::proxies::{self, Proxies};

/// Set where a test runs again; its value is for the test to use.
const AGAIN: &str = "NQRUST_TEST_AGAIN";
const USER: &str = "Basic dXNlcjpodW50ZXIy";

/// Runs the test of this name again in this environment.
fn again(name: &str, value: &str, environment: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("registry::tests::environment::{name}")]);
    for variable in ["http_proxy", "https_proxy", "no_proxy", "all_proxy"] {
        command.env_remove(variable).env_remove(variable.to_uppercase());
    }
    let output = command.env(AGAIN, value).envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Pulls from a registry without TLS, with the login of docker if there is one.
fn pull(host: &str) {
    let yaml = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}");
    let client = Client::new(Settings { docker_config: true, ..settings(&yaml) }).unwrap();
    assert_eq!(client.document(&image(&format!("{host}/app/web:1"))).unwrap().bytes, MANIFEST);
    assert_eq!(read(&client, host, 0).unwrap(), content());
}

#[test]
fn documents_and_blobs_come_through_the_proxy_of_the_environment() {
    let far = "registry.example.org:5000";
    if let Ok(host) = std::env::var(AGAIN) {
        return pull(&host);
    }
    let proxy = Fake::start(move |request| {
        let path = request.path.strip_prefix(&format!("http://{far}")).unwrap_or("/none").to_owned();
        plain(&Request { path, ..request.clone() })
    });
    let name = "documents_and_blobs_come_through_the_proxy_of_the_environment";
    let nowhere = ("DOCKER_CONFIG", "/nonexistent");
    again(name, far, &[("http_proxy", &proxy.url()), nowhere]);
    assert_eq!((proxy.requests("/manifests/").len(), proxy.requests("/blobs/").len()), (1, 1));
    // A host that needs no proxy is asked itself.
    let near = Fake::start(plain);
    let dead = format!("http://{}", nobody());
    again(name, &near.host, &[("http_proxy", &dead), ("no_proxy", "127.0.0.1"), nowhere]);
    assert_eq!(near.requests("/manifests/").len(), 1);
}

#[test]
fn the_proxy_of_a_configuration_stands_in_place_of_the_environments() {
    let far = "registry.example.org:5000";
    if let Ok(url) = std::env::var(AGAIN) {
        proxies::choose(Proxies::new(Some(&url), None, None).unwrap());
        return pull(far);
    }
    let proxy = Fake::start(move |request| {
        let path = request.path.strip_prefix(&format!("http://{far}")).unwrap_or("/none").to_owned();
        plain(&Request { path, ..request.clone() })
    });
    let name = "the_proxy_of_a_configuration_stands_in_place_of_the_environments";
    let dead = format!("http://{}", nobody());
    again(name, &proxy.url(), &[("http_proxy", &dead), ("DOCKER_CONFIG", "/nonexistent")]);
    assert_eq!((proxy.requests("/manifests/").len(), proxy.requests("/blobs/").len()), (1, 1));
}

#[test]
fn a_credential_helper_of_docker_is_asked() {
    if let Ok(host) = std::env::var(AGAIN) {
        return pull(&host);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let knowing = "read host; echo \"{\\\"ServerURL\\\": \\\"$host\\\", \\\"Username\\\": \\\"user\\\", \\\"Secret\\\": \\\"hunter2\\\"}\"";
    let empty = "read host; echo credentials not found in native keychain; exit 1";
    for (name, script) in [("knowing", knowing), ("empty", empty)] {
        let file = path.join(format!("docker-credential-{name}"));
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let programs = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let environment = [("PATH", programs.as_str()), ("DOCKER_CONFIG", path.to_str().unwrap())];
    for (helper, expected) in [("knowing", USER), ("empty", "")] {
        fs::write(path.join("config.json"), format!(r#"{{"credsStore": "{helper}"}}"#)).unwrap();
        let fake = Fake::start(move |request| match request.authorization() == expected {
            true => plain(request),
            false => Answer::error(401, "UNAUTHORIZED").with("WWW-Authenticate: Basic realm=\"x\""),
        });
        again("a_credential_helper_of_docker_is_asked", &fake.host, &environment);
        assert_eq!(fake.requests("/blobs/")[0].authorization(), expected, "{helper}");
    }
}
