//! Requests to an API server, which a TLS server of these tests answers.

use std::fs;
use std::net::TcpListener;

use super::kubelet::KubeApi;
use super::open::ping;
use crate::kubernetes::node::Node;
use testing::http::{AUTHORITY, Answer, CERTIFICATE, Fake, KEY};

fn serve(status: u16, body: &str) -> Fake {
    let body = body.to_owned();
    Fake::with_tls(move |_| Answer::new(status, body.as_bytes()))
}

/// A root with the kubelet's files of a distribution.
fn credentials(server: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("agent/ca.crt", AUTHORITY);
    put("agent/kubelet.crt", CERTIFICATE);
    put("agent/kubelet.key", KEY);
    put(
        "agent/kubelet.kubeconfig",
        &format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    server: {server}\n    certificate-authority: /agent/ca.crt\n  name: local\n\
             contexts:\n- context:\n    cluster: local\n    user: user\n  name: Default\ncurrent-context: Default\nkind: Config\n\
             preferences: {{}}\nusers:\n- name: user\n  user:\n    client-certificate: /agent/kubelet.crt\n    client-key: /agent/kubelet.key\n"
        ),
    );
    root
}

fn ask(status: u16, body: &str) -> Result<Option<Node>, String> {
    let server = serve(status, body);
    let root = credentials(&server.url());
    KubeApi::open(root.path(), "/agent/kubelet.kubeconfig")?.node("node-1")
}

fn condition(status: &str) -> String {
    format!(
        "{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"node-1\"}}, \"status\": {{\"conditions\": [{{\"type\": \"MemoryPressure\", \"status\": \"False\"}}, \
         {{\"type\": \"Ready\", \"status\": \"{status}\", \"message\": \"the reason\"}}]}}}}"
    )
}

#[test]
fn the_kubelets_credentials_are_enough_to_ask_for_the_node() {
    assert!(ask(200, &condition("True")).unwrap().unwrap().is_ready());
    assert_eq!(ask(200, &condition("Unknown")).unwrap().unwrap().unready_reason(), Some("the reason"));
    assert_eq!(ask(404, "{}"), Ok(None));
    let bare = ask(200, "{\"metadata\": {\"name\": \"node-1\"}, \"status\": {}}").unwrap().unwrap();
    assert!(bare.unready_reason().is_some_and(|why| why.contains("has not reported")));
    for (status, body, text) in [(403, "{}", "answers 403"), (200, "<html>", "something other than a node")] {
        let why = ask(status, body).unwrap_err();
        assert!(why.starts_with("the API at https://127.0.0.1") && why.contains(text), "{text}: {why}");
    }
}

#[test]
fn the_same_access_is_for_other_servers_and_for_changes_too() {
    let server = Fake::with_tls(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/version") => Answer::ok(br#"{"gitVersion": "v1.37.2"}"#),
        ("GET", "/metrics") => Answer::ok(b"a 1\n"),
        ("PATCH" | "POST", _) => Answer::new(201, b"{}"),
        _ => Answer::new(403, b"{}"),
    });
    let root = credentials("https://127.0.0.1:1");
    let api = KubeApi::open(root.path(), "/agent/kubelet.kubeconfig").unwrap().at(&server.url());
    assert_eq!(api.version().unwrap(), "v1.37.2");
    assert_eq!(
        api.is_ready().unwrap_err(),
        format!("{} is not ready: it answers 403 Forbidden", server.url())
    );
    assert!(api.nodes().unwrap_err().contains("does not list its nodes: 403"));
    assert_eq!(api.metrics().unwrap(), "a 1\n");
    let body = serde_json::json!({ "a": 1 });
    api.patch("/objects/1", &body).unwrap();
    api.create("/events", &body).unwrap();
    let sent = server.requests("/objects/1");
    assert_eq!(
        (sent[0].header("content-type"), &sent[0].body[..]),
        (Some("application/merge-patch+json"), &b"{\"a\":1}"[..])
    );
    assert_eq!(server.requests("/events")[0].header("content-type"), Some("application/json"));
}

#[test]
fn credentials_that_are_not_usable_and_a_server_that_is_away_are_different_errors() {
    let root = credentials("https://127.0.0.1:1");
    let ask = || KubeApi::open(root.path(), "/agent/kubelet.kubeconfig")?.node("node-1");
    assert!(ask().unwrap_err().contains("does not answer"));
    fs::write(root.path().join("agent/kubelet.key"), "no key").unwrap();
    assert_eq!(ask().unwrap_err(), "the certificates of the node cannot be used");
}

#[test]
fn a_server_of_another_authority_is_not_asked() {
    let server = serve(200, "{}");
    let root = credentials(&server.url());
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap().cert.pem();
    fs::write(root.path().join("agent/ca.crt"), other).unwrap();
    let why = KubeApi::open(root.path(), "/agent/kubelet.kubeconfig").unwrap().node("a").unwrap_err();
    assert!(why.contains("does not answer: invalid peer certificate"), "{why}");
    assert!(server.requests("").is_empty());
}

#[test]
fn a_server_answers_its_ping_whoever_vouches_for_it() {
    assert_eq!(ping(&serve(200, "pong").url(), "/ping"), Ok(()));
    assert!(ping(&serve(404, "").url(), "/readyz").unwrap_err().contains("404 Not Found"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", nobody.local_addr().unwrap());
    drop(nobody);
    assert!(ping(&url, "/ping").unwrap_err().starts_with(&format!("{url} does not answer: ")));
}
