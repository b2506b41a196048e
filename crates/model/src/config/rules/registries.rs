//! The registries, which every node needs before it can ask the cluster for settings.

use std::collections::BTreeSet;

use crate::config::formats::network::registry;
use crate::config::registries::{Auth, SETTING};
use crate::config::{Distribution, InstallConfig};
use document::finding::Finding;

/// The value becomes the node's own file, so it is read now.
pub(super) fn are_readable(config: &InstallConfig) -> Vec<Finding> {
    let unreadable = config.registries_setting() == Some(None);
    let message = "the value is not a JSON object with Mirrors, Configs and Auths as the cluster's \
                   setting has them";
    let finding = || Finding::new(format!("system_settings.{SETTING}"), "invalid-registries", message);
    unreadable.then(finding).into_iter().collect()
}

/// Registries stand in one place, unless both say the same.
pub(super) fn are_given_once(config: &InstallConfig) -> Vec<Finding> {
    let setting = config.registries_setting().flatten();
    let both = !config.registries.is_empty() && setting.is_some_and(|setting| setting != config.registries);
    let message = "`registries` is set as well and differs; keep one of them";
    let finding = || Finding::new(format!("system_settings.{SETTING}"), "conflicting-keys", message);
    both.then(finding).into_iter().collect()
}

/// Debian's containerd, which nodes of kubeadm use, reads less than that of RKE2 and K3s.
pub(super) fn suit_the_distribution(config: &InstallConfig) -> Vec<Finding> {
    if config.kubernetes.distribution() != Distribution::Kubeadm {
        return Vec::new();
    }
    let (registries, path) = (config.node_registries(), config.registries_path());
    let finding = |message: String| Finding::new(path.clone(), "wrong-distribution", message);
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
    let names = names.into_iter().filter(|name| registry(name).is_err());
    let names = names
        .map(|name| finding(format!("{name:?} is not the host of a registry, HOST or HOST:PORT, nor `*`")));
    rewrites.chain(tokens).chain(names).collect()
}

#[cfg(test)]
mod tests {
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
    fn both_keys_are_one_value_and_differ_in_no_document() {
        let key = "registries: {mirrors: {docker.io: {endpoint: [https://mirror.example.org]}}, configs: {mirror.example.org: \
                   {auth: {username: u, password: marked}, tls: {ca_file: /oem/ca.pem}}}}\n";
        let setting = |password: &str| {
            format!(
                "system_settings: {{containerd-registry: '{{\"Mirrors\": {{\"docker.io\": {{\"Endpoints\": \
                 [\"https://mirror.example.org\"]}}}}, \"Configs\": {{\"mirror.example.org\": {{\"Auth\": {{\"Username\": \
                 \"u\", \"Password\": \"{password}\"}}, \"TLS\": {{\"CAFile\": \"/oem/ca.pem\"}}}}}}}}'}}\n"
            )
        };
        let read = |text: &str| check(text, "f").unwrap().config.node_registries();
        assert!(
            read(key) == read(&setting("marked"))
                && read(key) == read(&format!("{key}{}", setting("marked")))
        );
        let told = check(&format!("{key}{}", setting("other")), "f").unwrap_err();
        let found: Vec<_> = told.0.iter().map(|mistake| (&*mistake.path, mistake.code)).collect();
        assert_eq!(found, [("system_settings.containerd-registry", "conflicting-keys")]);
        let mut secrets = crate::config::redact::Secrets::default();
        let config = check(key, "f").unwrap().config;
        secrets.add(&config);
        assert!(!secrets.hide("marked").contains("marked"));
        assert!(!crate::config::redact::without_secrets(&config).contains("marked"));
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
