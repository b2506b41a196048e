//! The setting that every node needs before it can ask the cluster for settings.

use std::collections::BTreeSet;

use super::finding::Finding;
use crate::config::registries::{Auth, Registries, SETTING};
use crate::config::{Distribution, InstallConfig};

/// The value becomes the node's own file, so it is read now.
pub(super) fn are_readable(config: &InstallConfig) -> Vec<Finding> {
    let setting = config.system_settings.get(SETTING);
    let unreadable = setting.is_some_and(|value| Registries::parse(value.expose()).is_none());
    let message = "the value is not a JSON object with Mirrors, Configs and Auths as the cluster's \
                   setting has them";
    let finding = || Finding::new(format!("system_settings.{SETTING}"), "invalid-registries", message);
    unreadable.then(finding).into_iter().collect()
}

/// Debian's containerd, which nodes of kubeadm use, reads less than that of RKE2 and K3s.
pub(super) fn suit_the_distribution(config: &InstallConfig) -> Vec<Finding> {
    let setting = config.system_settings.get(SETTING);
    let setting = setting.filter(|_| config.kubernetes.distribution() == Distribution::Kubeadm);
    let Some(registries) = setting.and_then(|value| Registries::parse(value.expose())) else {
        return Vec::new();
    };
    let finding =
        |message: String| Finding::new(format!("system_settings.{SETTING}"), "wrong-distribution", message);
    let rewrites = registries.mirrors.iter().filter(|(_, mirror)| mirror.prefix().is_none()).map(|(host, _)| {
        finding(format!(
            "with `kubernetes.distribution: kubeadm` a mirror's rewrites can put a path before all others, `^(.*)$: PATH/$1`, \
             and nothing else; see the mirrors of {host}"
        ))
    });
    let token = |auth: &Auth| !auth.identity_token.is_empty();
    let tokens = registries.configs.iter().filter(|(_, registry)| registry.auth.as_ref().is_some_and(token));
    let tokens = tokens.map(|(host, _)| {
        finding(format!("with `kubernetes.distribution: kubeadm` {host} needs a name and a password, not an identity token"))
    });
    let names: BTreeSet<_> = registries.mirrors.keys().chain(registries.configs.keys()).collect();
    let names = names.into_iter().filter(|name| !is_host(name));
    let names = names
        .map(|name| finding(format!("{name:?} is not the host of a registry, HOST or HOST:PORT, nor `*`")));
    rewrites.chain(tokens).chain(names).collect()
}

/// It becomes the name of a directory.
fn is_host(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    name == "*"
        || name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') && name.chars().all(letter)
}

#[cfg(test)]
mod tests {
    use super::is_host;
    use crate::config::check;

    #[test]
    fn registries_that_cannot_be_read_are_refused_and_not_shown() {
        assert!(check(r#"system_settings: {containerd-registry: '{"Mirrors": null}'}"#, "f").is_ok());
        let invalid =
            check(r#"system_settings: {containerd-registry: '{"Mirrors": "marked"}'}"#, "f").unwrap_err();
        assert!(!invalid.to_string().contains("marked"));
        let found: Vec<_> = invalid.0.iter().map(|mistake| (&*mistake.path, mistake.code)).collect();
        assert_eq!(found, [("system_settings.containerd-registry", "invalid-registries")]);
    }

    #[test]
    fn a_directory_has_the_name_of_a_host() {
        for host in ["*", "docker.io", "registry.example.org:5000", "192.0.2.1:5000", "[2001:db8::1]:5000"] {
            assert!(is_host(host), "{host}");
        }
        for other in ["", "..", "../x", "a/b", "https://a", "_default", "a b"] {
            assert!(!is_host(other), "{other}");
        }
    }

    #[test]
    fn what_debians_containerd_cannot_do_is_told_for_kubeadm_only() {
        let document = |distribution: &str| {
            format!(
                "kubernetes: {{distribution: {distribution}}}\nsystem_settings:\n  containerd-registry: '{{\"Mirrors\": \
                 {{\"a.example.org\": {{\"Rewrites\": {{\"^b/(.*)\": \"c/$1\"}}}}, \"d.example.org\": {{\"Rewrites\": \
                 {{\"^(.*)$\": \"c/$1\"}}}}}}, \"Configs\": {{\"e.example.org\": {{\"Auth\": {{\"IdentityToken\": \"marked\"}}}}}}}}'\n"
            )
        };
        assert!(check(&document("rke2"), "f").is_ok());
        let told = check(&document("kubeadm"), "f").unwrap_err();
        assert_eq!(told.0.iter().map(|mistake| mistake.code).collect::<Vec<_>>(), ["wrong-distribution"; 2]);
        let told = told.to_string();
        assert!(
            told.contains("the mirrors of a.example.org") && told.contains("e.example.org needs a name"),
            "{told}"
        );
        assert!(!told.contains("d.example.org") && !told.contains("marked"), "{told}");
    }
}
