//! Where the images of a repository are looked for, from `registries.yaml`.
//!
//! The rules are those of K3s and RKE2: the mirrors of the registry's host in their order, or else those of `*`, and the
//! registry itself last. Rewrites change the path at mirrors only. One rule is stricter: plain HTTP is spoken only to
//! an address that is written with `http://`, and to a registry on this machine that answers it.

use std::net::IpAddr;

use regex::Regex;

use base::failure::{Class, Failure};
use formats::oci::Repository;
use model::config::registries::{Mirror, Registries};

/// Where Docker's registry answers.
const HUB: &str = "registry-1.docker.io";
/// The entry for every host that has none of its own.
const EVERY: &str = "*";
/// The root of the registry API (distribution-spec 1.1).
const ROOT: &str = "/v2";

/// A server and path that may have an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) server: Server,
    pub(super) path: String,
    /// The registry that it mirrors.
    pub(super) mirrors: Option<String>,
    /// True if it is on this machine and no scheme is configured. As with docker, containerd and crane, it may then use plain
    /// HTTP.
    pub(super) may_be_plain: bool,
}

impl Endpoint {
    /// The address of a manifest or a blob (`kind`). A mirror gets the original registry as `ns`, as from containerd.
    pub(super) fn url(&self, kind: &str, reference: &str) -> String {
        let whose = self.mirrors.as_ref().map(|host| format!("?ns={host}")).unwrap_or_default();
        format!("{}{ROOT}/{}/{kind}/{reference}{whose}", self.server, self.path)
    }
}

/// A server with the API of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) plain: bool,
    /// With the port where that is not the usual one.
    pub(super) host: String,
    /// Its entry in `configs`.
    pub(super) config: Option<String>,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.plain { "http" } else { "https" }, self.host)
    }
}

/// The endpoints of `repository`, in the order in which they are tried.
pub(super) fn endpoints(registries: &Registries, repository: &Repository) -> Result<Vec<Endpoint>, Failure> {
    let registry = repository.registry();
    let mut list = Vec::new();
    let own = registries.mirrors.get(registry);
    if let Some(mirror) = own.or_else(|| registries.mirrors.get(EVERY)) {
        let path = rewrite(mirror, repository.path())?;
        for url in &mirror.endpoints {
            let Address { plain, host, prefix } = address(url)?;
            let server = Server { plain, config: config(registries, &host), host };
            let mirrors = (server.host != reached(registry)).then(|| registry.to_owned());
            let path = format!("{prefix}{path}");
            let endpoint = Endpoint { server, path, mirrors, may_be_plain: false };
            if !list.contains(&endpoint) {
                list.push(endpoint);
            }
        }
    }
    let host = reached(registry);
    let entry = config(registries, host);
    let general = || own.is_none().then(|| registries.configs.get_key_value(EVERY))?;
    let config = entry.or_else(|| general().map(|(key, _)| key.clone()));
    let tls = config.as_ref().and_then(|key| registries.configs.get(key)?.tls.as_ref());
    let itself = Endpoint {
        may_be_plain: tls.is_none() && is_loopback(host),
        server: Server { plain: false, host: host.to_owned(), config },
        path: repository.path().to_owned(),
        mirrors: None,
    };
    // An explicit endpoint of the registry itself replaces the default one.
    let named = |endpoint: &Endpoint| endpoint.server.host == host && endpoint.path == itself.path;
    if !list.iter().any(named) {
        list.push(itself);
    }
    Ok(list)
}

pub(super) fn check(registries: &Registries) -> Result<(), Failure> {
    for mirror in registries.mirrors.values() {
        mirror.endpoints.iter().try_for_each(|url| address(url).map(drop))?;
        rewrite(mirror, "")?;
    }
    Ok(())
}

/// The host that serves a registry.
fn reached(registry: &str) -> &str {
    if is_hub(registry) { HUB } else { registry }
}

/// True if a host, perhaps with a port, is this machine by its name or address.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn is_hub(host: &str) -> bool {
    matches!(host, "docker.io" | "index.docker.io" | HUB)
}

/// The entry for a host; Docker's registry has several names.
fn config(registries: &Registries, host: &str) -> Option<String> {
    let names = [host, HUB, "docker.io", "index.docker.io"];
    let names = names.into_iter().take(if is_hub(host) { 4 } else { 1 });
    names.into_iter().find(|name| registries.configs.contains_key(*name)).map(str::to_owned)
}

/// The path after the first rewrite, by the order of their patterns, that changes it.
fn rewrite(mirror: &Mirror, path: &str) -> Result<String, Failure> {
    let mut rewritten = None;
    for (pattern, replacement) in &mirror.rewrites {
        let pattern = Regex::new(pattern).map_err(|error| {
            Failure::new(Class::Invalid, format!("reading the rewrite {pattern:?} of registries"))
                .because(error)
                .hint("Write a regular expression, for instance \"^(.*)$\".")
        })?;
        let changed = pattern.replace_all(path, replacement);
        if rewritten.is_none() && changed != path {
            rewritten = Some(changed.into_owned());
        }
    }
    Ok(rewritten.unwrap_or_else(|| path.to_owned()))
}

struct Address {
    plain: bool,
    host: String,
    /// The prefix of repository paths, empty or with a slash at its end.
    prefix: String,
}

fn address(url: &str) -> Result<Address, Failure> {
    let wrong = |why: &str| {
        let what = format!("reading the endpoint {:?} of registries", base::url::shown(url));
        let failure = Failure::new(Class::Invalid, what).because(anyhow::anyhow!("{why}"));
        failure.hint("Write https://HOST, https://HOST:PORT or https://HOST/v2/PATH.")
    };
    let (plain, rest) = match url.split_once("://") {
        Some(("https", rest)) => (false, rest),
        Some(("http", rest)) => (true, rest),
        Some(_) => return Err(wrong("it is neither https nor http")),
        None => (false, url),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if host.contains('@') {
        return Err(wrong("user name and password belong under configs.HOST.auth"));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-.:[]_".contains(c);
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(wrong("it names no host"));
    }
    // A path means that the interface begins there and not at the usual place.
    let path = path.trim_end_matches('/');
    let prefix = match path.strip_prefix(ROOT) {
        _ if path.is_empty() => String::new(),
        Some("") => String::new(),
        Some(prefix) if prefix.starts_with('/') && !prefix.contains(['?', '#', '%']) => {
            format!("{}/", &prefix[1..])
        }
        _ => return Err(wrong("its path must begin with /v2 and be a plain one")),
    };
    Ok(Address { plain, host: reached(host).to_owned(), prefix })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;

    fn registries(yaml: &str) -> Registries {
        serde_saphyr::from_str(yaml).unwrap()
    }

    /// The endpoints as `URL/PATH`, with `<-HOST` where it stands for another registry and `[ENTRY]` of `configs`.
    fn found(yaml: &str, image: &str) -> Vec<String> {
        let image: formats::oci::ImageReference = image.parse().unwrap();
        let list = endpoints(&registries(yaml), image.repository()).unwrap();
        let show = |endpoint: Endpoint| {
            let mirrors = endpoint.mirrors.map(|host| format!("<-{host}")).unwrap_or_default();
            let config = endpoint.server.config.as_ref().map(|key| format!("[{key}]")).unwrap_or_default();
            format!("{}/{}{mirrors}{config}", endpoint.server, endpoint.path)
        };
        list.into_iter().map(show).collect()
    }

    #[test]
    fn a_registry_without_mirrors_is_asked_itself_over_tls() {
        for (image, expected) in [
            ("nginx", "https://registry-1.docker.io/library/nginx"),
            ("index.docker.io/a/b", "https://registry-1.docker.io/a/b"),
            ("quay.io/a/b", "https://quay.io/a/b"),
            ("localhost:5000/a", "https://localhost:5000/a"),
        ] {
            assert_eq!(found("{}", image), [expected], "{image}");
        }
    }

    #[test]
    fn only_a_registry_on_this_machine_may_do_without_tls_unless_something_is_said_of_it() {
        for (yaml, image, expected) in [
            ("{}", "localhost:5000/a", true),
            ("{}", "localhost/a", true),
            ("{}", "127.0.0.1:5000/a", true),
            ("{}", "127.8.9.1/a/b", true),
            ("{}", "192.0.2.1:5000/a", false),
            ("{}", "localhost.example.org:5000/a", false),
            ("{}", "127.0.0.1.example.org/a", false),
            ("{}", "nginx", false),
            (r#"configs: {"localhost:5000": {tls: {ca_file: x}}}"#, "localhost:5000/a", false),
            (r#"configs: {"localhost:5000": {auth: {username: x}}}"#, "localhost:5000/a", true),
            (
                r#"mirrors: {"localhost:5000": {endpoint: ["https://localhost:5000"]}}"#,
                "localhost:5000/a",
                false,
            ),
        ] {
            let image: formats::oci::ImageReference = image.parse().unwrap();
            let list = endpoints(&registries(yaml), image.repository()).unwrap();
            assert_eq!(list.last().unwrap().may_be_plain, expected, "{image} {yaml}");
        }
        assert!(is_loopback("[::1]:5000") && is_loopback("[::1]") && !is_loopback("[2001:db8::1]:5000"));
    }

    #[test]
    fn mirrors_come_first_in_their_order_and_the_registry_last() {
        let yaml = r#"
            mirrors:
              docker.io: {endpoint: ["https://one.example.org", "http://two.example.org:5000/", "three.example.org/v2/"]}
              "*": {endpoint: ["https://every.example.org"]}
              quay.io: {}
        "#;
        let expected = [
            "https://one.example.org/library/nginx<-docker.io",
            "http://two.example.org:5000/library/nginx<-docker.io",
            "https://three.example.org/library/nginx<-docker.io",
            "https://registry-1.docker.io/library/nginx",
        ];
        assert_eq!(found(yaml, "nginx"), expected);
        assert_eq!(
            found(yaml, "ghcr.io/a/b"),
            ["https://every.example.org/a/b<-ghcr.io", "https://ghcr.io/a/b"]
        );
        assert_eq!(found(yaml, "quay.io/a/b"), ["https://quay.io/a/b"]);
    }

    #[test]
    fn a_registry_among_its_own_endpoints_is_not_asked_in_another_way() {
        let plain = r#"mirrors: {"localhost:5000": {endpoint: ["http://localhost:5000"]}}"#;
        assert_eq!(found(plain, "localhost:5000/a"), ["http://localhost:5000/a"]);
        let first = r#"mirrors: {docker.io: {endpoint: ["https://docker.io", "https://m.example.org"]}}"#;
        let expected = ["https://registry-1.docker.io/a/b", "https://m.example.org/a/b<-docker.io"];
        assert_eq!(found(first, "a/b"), expected);
    }

    #[test]
    fn rewrites_change_the_path_at_mirrors_only_and_the_first_that_fits_counts() {
        let yaml = r#"
            mirrors:
              docker.io:
                endpoint: ["https://m.example.org", "https://h.example.org/v2/cache"]
                rewrite: {"^rancher/(.*)": "prod/rancher-$1", "^(.*)$": "hub/${1}"}
        "#;
        for (image, path) in [("rancher/a", "hub/rancher/a"), ("x/y", "hub/x/y")] {
            let expected = [
                format!("https://m.example.org/{path}<-docker.io"),
                format!("https://h.example.org/cache/{path}<-docker.io"),
                format!("https://registry-1.docker.io/{image}"),
            ];
            assert_eq!(found(yaml, image), expected);
        }
        let other = yaml.replace(r#", "^(.*)$": "hub/${1}""#, "");
        assert_eq!(found(&other, "rancher/a")[0], "https://m.example.org/prod/rancher-a<-docker.io");
        assert_eq!(found(&other, "x/y")[0], "https://m.example.org/x/y<-docker.io");
    }

    #[test]
    fn a_host_has_its_own_entry_and_that_of_every_host_is_not_for_mirrors() {
        let yaml = r#"
            mirrors:
              docker.io: {endpoint: ["https://m.example.org:8443", "https://n.example.org"]}
            configs: {"m.example.org:8443": {}, "docker.io": {}, "*": {}}
        "#;
        let expected = [
            "https://m.example.org:8443/a/b<-docker.io[m.example.org:8443]",
            "https://n.example.org/a/b<-docker.io",
            "https://registry-1.docker.io/a/b[docker.io]",
        ];
        assert_eq!(found(yaml, "a/b"), expected);
        assert_eq!(found(yaml, "quay.io/a/b"), ["https://quay.io/a/b[*]"]);
    }

    #[test]
    fn what_is_no_address_or_no_pattern_is_refused_with_its_name() {
        for (mirror, named) in [
            (r#"{endpoint: ["ftp://m.example.org"]}"#, "ftp://m.example.org"),
            (r#"{endpoint: ["https://m.example.org/cache"]}"#, "https://m.example.org/cache"),
            (r#"{endpoint: ["https://"]}"#, "names no host"),
            (r#"{endpoint: ["https://user:hunter2@m.example.org"]}"#, "configs.HOST.auth"),
            (r#"{endpoint: ["https://m.example.org"], rewrite: {"(": "x"}}"#, "\"(\""),
        ] {
            let failure = check(&registries(&format!("mirrors: {{a.example.org: {mirror}}}"))).unwrap_err();
            assert_eq!(failure.class(), Class::Invalid);
            let text = render(&failure.into());
            assert!(text.contains(named) && !text.contains("hunter2"), "{text}");
        }
    }
}
