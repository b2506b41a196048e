//! Where the node's containerd finds images, from the key `registries` or the setting `containerd-registry`.
//!
//! RKE2 and K3s have a file of their own for it. Debian's containerd, which nodes of kubeadm use, reads a file for each registry
//! (containerd 1.7, `docs/hosts.md`): mirrors in their order, and last the registry itself. It has no credentials but headers, so
//! that a registry which gives tokens for them, such as Docker Hub, is asked without.

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::cluster_node::{ClusterNode, text};
use machine::node_files::{NOTE, NodeFile};
use model::config::Distribution;
use model::config::registries::{Auth, Mirror, Registries, Registry};

/// The directory in the configuration of the OS image's containerd.
const HOSTS: &str = "etc/containerd/certs.d";
/// The registry of images whose names have none, and its real host.
const HUB: [&str; 3] = ["docker.io", "registry-1.docker.io", "index.docker.io"];

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let registries = node.config.node_registries();
    if registries.is_empty() {
        return Vec::new();
    }
    match node.distribution() {
        Distribution::Rke2 | Distribution::K3s => {
            vec![NodeFile::new(&node.etc("registries.yaml"), 0o600, text(&base::encode::json(&registries)))]
        }
        Distribution::Kubeadm => hosts(&registries),
    }
}

/// The file of each registry that the setting names.
fn hosts(registries: &Registries) -> Vec<NodeFile> {
    let names: BTreeSet<&String> = registries.mirrors.keys().chain(registries.configs.keys()).collect();
    let file = |name: &String| {
        let directory = if name == "*" { "_default" } else { name };
        // containerd reads one file only, so that the mirrors of all others have to be in it too.
        let mirror = registries.mirrors.get(name).or_else(|| registries.mirrors.get("*"));
        let text = hosts_of(registries, name, mirror);
        NodeFile::new(&format!("{HOSTS}/{directory}/hosts.toml"), 0o600, text)
    };
    names.into_iter().map(file).collect()
}

fn hosts_of(registries: &Registries, name: &str, mirror: Option<&Mirror>) -> String {
    let mut text = NOTE.to_owned();
    let prefix = mirror.and_then(Mirror::prefix).unwrap_or_default();
    let endpoints = mirror.into_iter().flat_map(|mirror| &mirror.endpoints);
    let mirrors = endpoints.map(|endpoint| {
        let (url, host, is_path) = address(endpoint, prefix);
        (url, registries.configs.get(&host), is_path)
    });
    // containerd asks the registry itself last, and with what stands in a table only.
    let (host, names) = match HUB.contains(&name) {
        true => (HUB[1], &HUB[..]),
        false => (name, &[name][..]),
    };
    let own = names.iter().find_map(|name| registries.configs.get(*name)).filter(|_| name != "*");
    let own = own.map(|own| (format!("https://{host}"), Some(own), false));
    let mut known = BTreeSet::new();
    for (url, registry, is_path) in mirrors.chain(own) {
        // TOML has each table once.
        if !known.insert(url.clone()) {
            continue;
        }
        let table = format!("host.{}", quoted(&url));
        push(&mut text, &format!("\n[{table}]"));
        push(&mut text, "capabilities = [\"pull\", \"resolve\"]");
        if is_path {
            push(&mut text, "override_path = true");
        }
        if let Some(registry) = registry {
            push_registry(&mut text, registry, &table);
        }
    }
    text
}

/// The URL of a mirror whose repositories are below `prefix`, its host, and whether the URL has a path. A path is used as it is.
fn address(endpoint: &str, prefix: &str) -> (String, String, bool) {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("https", endpoint));
    let rest = rest.trim_end_matches('/');
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = match (path, prefix) {
        (path, "") => path.to_owned(),
        ("", prefix) => format!("v2/{prefix}"),
        (path, prefix) => format!("{path}/{prefix}"),
    };
    match path.is_empty() {
        true => (format!("{scheme}://{host}"), host.to_owned(), false),
        false => (format!("{scheme}://{host}/{path}"), host.to_owned(), true),
    }
}

/// How to talk to a registry. Tables come last in TOML.
fn push_registry(text: &mut String, registry: &Registry, table: &str) {
    if let Some(tls) = &registry.tls {
        if !tls.ca_file.is_empty() {
            push(text, &format!("ca = {}", quoted(&tls.ca_file)));
        }
        if !tls.cert_file.is_empty() && !tls.key_file.is_empty() {
            push(text, &format!("client = [[{}, {}]]", quoted(&tls.cert_file), quoted(&tls.key_file)));
        }
        if tls.insecure_skip_verify {
            push(text, "skip_verify = true");
        }
    }
    if let Some(basic) = registry.auth.as_ref().and_then(basic) {
        push(text, &format!("[{table}.header]"));
        push(text, &format!("Authorization = {}", quoted(&format!("Basic {basic}"))));
    }
}

/// Name and password, as HTTP has them (RFC 7617).
fn basic(auth: &Auth) -> Option<String> {
    if !auth.auth.is_empty() {
        return Some(auth.auth.clone());
    }
    let given = !auth.username.is_empty();
    given.then(|| BASE64_STANDARD.encode(format!("{}:{}", auth.username, auth.password)))
}

fn push(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

/// A string of TOML; JSON writes them the same.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_and_the_setting_make_the_same_files() {
        let read = |text: &str| {
            let text = format!("kubernetes: {{distribution: kubeadm}}\n{text}");
            let config = model::config::parse(&text, "f").unwrap();
            let size = crate::configuration::MachineSize { cpus: 4, memory: 8192 };
            let files = crate::configuration::files(&config, Some("a"), size, false);
            files.into_iter().filter(|file| file.path.contains("certs.d")).collect::<Vec<_>>()
        };
        let key = "registries: {mirrors: {docker.io: {endpoint: [https://mirror.example.org]}}, configs: \
                   {mirror.example.org: {auth: {username: u, password: p}}}}";
        let setting = r#"system_settings: {containerd-registry: '{"Mirrors": {"docker.io": {"Endpoints":
            ["https://mirror.example.org"]}}, "Configs": {"mirror.example.org": {"Auth": {"Username": "u", "Password": "p"}}}}'}"#;
        assert_eq!(read(key).len(), 2);
        assert_eq!(read(key), read(setting));
        assert!(read(key).iter().all(|file| file.mode == 0o600));
    }

    fn written(setting: &str) -> Vec<(String, String)> {
        let files = hosts(&Registries::parse(setting).unwrap());
        let text = |file: NodeFile| {
            assert_eq!(file.mode, 0o600);
            let text = String::from_utf8(file.bytes).unwrap();
            (
                file.path.strip_prefix("etc/containerd/certs.d/").unwrap().to_owned(),
                text.strip_prefix(NOTE).unwrap().to_owned(),
            )
        };
        files.into_iter().map(text).collect()
    }

    fn file(setting: &str, name: &str) -> String {
        let found = written(setting).into_iter().find(|(path, _)| *path == format!("{name}/hosts.toml"));
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn mirrors_keep_their_order_and_have_what_their_hosts_need() {
        let setting = r#"{
            "Mirrors": {"docker.io": {"Endpoints": ["https://one.example.org", "http://two.example.org:5000/v2/hub/", "one.example.org/"]}},
            "Configs": {
                "one.example.org": {"Auth": {"Username": "u", "Password": "p\""}, "TLS": {"CAFile": "/oem/ca.pem", "CertFile": "/oem/c", "KeyFile": "/oem/k"}},
                "registry-1.docker.io": {"Auth": {"Auth": "dTpw"}, "TLS": {"InsecureSkipVerify": true}}}}"#;
        let expected = r#"
[host."https://one.example.org"]
capabilities = ["pull", "resolve"]
ca = "/oem/ca.pem"
client = [["/oem/c", "/oem/k"]]
[host."https://one.example.org".header]
Authorization = "Basic dTpwIg=="

[host."http://two.example.org:5000/v2/hub"]
capabilities = ["pull", "resolve"]
override_path = true

[host."https://registry-1.docker.io"]
capabilities = ["pull", "resolve"]
skip_verify = true
[host."https://registry-1.docker.io".header]
Authorization = "Basic dTpw"
"#;
        assert_eq!(file(setting, "docker.io"), expected);
    }

    #[test]
    fn a_registry_with_a_file_of_its_own_still_has_the_mirror_of_all() {
        let setting = r#"{"Mirrors": {"*": {"Endpoints": ["mirror.example.org"], "Rewrites": {"^(.*)$": "all/$1"}}},
                          "Configs": {"own.example.org:5000": {"TLS": {"InsecureSkipVerify": true}}}}"#;
        let mirror = "\n[host.\"https://mirror.example.org/v2/all\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\n";
        assert_eq!(file(setting, "_default"), mirror);
        let own = "\n[host.\"https://own.example.org:5000\"]\ncapabilities = [\"pull\", \"resolve\"]\nskip_verify = true\n";
        assert_eq!(file(setting, "own.example.org:5000"), format!("{mirror}{own}"));
    }

    #[test]
    fn a_text_cannot_leave_its_place() {
        let setting = r#"{"Configs": {"a": {"TLS": {"CAFile": "x\"\nskip_verify = true\n\\"}}}}"#;
        assert!(file(setting, "a").contains("\nca = \"x\\\"\\nskip_verify = true\\n\\\\\"\n"), "{setting}");
    }
}
