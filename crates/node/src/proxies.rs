//! The environment of a node: everybody's in `/etc/environment`, and the proxies of its services in a file that only root reads.
//!
//! Units read the latter by a drop-in of the OS image (`usr/lib/nqrust/proxies.conf`): containerd, the kubelet, and RKE2 and K3s,
//! which hand it to their own containerd. kubeadm and the pods of the control plane get no proxies: what they ask is the cluster.

use machine::node_files::{NOTE, NodeFile, environment_line};
use machine::paths::PROXIES;
use model::config::InstallConfig;
use model::config::proxies::{is_proxy, without_login};

/// The lines of `/etc/environment`, which has no quotes (pam_env(8)). Proxies are there without their logins.
pub(super) fn environment(config: &InstallConfig) -> Vec<String> {
    let line = |(name, value): (&String, &model::config::text::Line)| match is_proxy(name) {
        true => format!("{name}={}", without_login(value)),
        false => format!("{name}={}", &**value),
    };
    config.os.environment.iter().map(line).collect()
}

/// The proxies of services, each by both of the names that programs look for.
pub(super) fn of_services(config: &InstallConfig) -> Option<NodeFile> {
    let named = config.node_proxies();
    let variables = [("http_proxy", named.http), ("https_proxy", named.https), ("no_proxy", named.none)];
    let lines: String = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .flat_map(|(name, value)| {
            [name.to_uppercase(), name.to_owned()].map(|name| environment_line(&name, &value))
        })
        .collect();
    let path = PROXIES.trim_start_matches('/');
    (!lines.is_empty()).then(|| NodeFile::new(path, 0o600, format!("{NOTE}{lines}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    fn text(file: &NodeFile) -> String {
        String::from_utf8(file.bytes.clone()).unwrap()
    }

    #[test]
    fn services_get_the_proxy_with_its_login_and_everybody_else_without() {
        let config = parse(
            "install: {mode: install}\nos: {environment: {HTTPS_PROXY: 'http://me:h$sh@proxy.example.org:3128', \
             no_proxy: .example.org, LANG: C}}",
            "f",
        )
        .unwrap();
        assert_eq!(
            environment(&config),
            ["HTTPS_PROXY=http://proxy.example.org:3128", "LANG=C", "no_proxy=.example.org"]
        );
        let file = of_services(&config).unwrap();
        let exceptions = ".example.org,localhost,127.0.0.1";
        let expected = format!(
            "{NOTE}HTTPS_PROXY=\"http://me:h\\$sh@proxy.example.org:3128\"\n\
             https_proxy=\"http://me:h\\$sh@proxy.example.org:3128\"\n\
             NO_PROXY=\"{exceptions}\"\nno_proxy=\"{exceptions}\"\n"
        );
        assert_eq!((file.path.as_str(), file.mode, text(&file)), ("etc/nqrust/proxies.env", 0o600, expected));
    }

    #[test]
    fn without_a_proxy_services_have_no_file() {
        for document in
            ["{}", "os: {environment: {NO_PROXY: a, LANG: C}}", "os: {environment: {ALL_PROXY: 'http://a'}}"]
        {
            assert!(of_services(&parse(document, "f").unwrap()).is_none(), "{document}");
        }
    }
}
