//! Where things are fetched from, and the checks of the machine.

use crate::config::text::IsoUrl;
use crate::config::{Images, InstallConfig, Profile};
use document::finding::Finding;

/// The medium is named once.
pub(super) fn one_medium(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let read = install.iso_url.as_ref().filter(|place| !place.is_iso_file());
    let both = install.medium.is_some() && read.is_some();
    let message = "`medium` is set as well; keep one of them";
    both.then(|| Finding::new("install.iso_url", "conflicting-keys", message)).into_iter().collect()
}

/// A configuration that is for every medium names an ISO; one that carries its payloads does without.
pub(super) fn an_iso_is_for_net_installs(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let given = install.iso_url.as_ref().is_some_and(IsoUrl::is_iso_file);
    let message = "the ISO is read only for what the booted medium lacks; a full medium has everything";
    let spare = given && install.medium.is_none();
    spare.then(|| Finding::warning("install.iso_url", "unneeded-iso", message)).into_iter().collect()
}

/// The two keys for images say the same.
pub(super) fn images_come_once(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let defer = install.images.map(|images| images == Images::Defer);
    let contrary = defer.zip(install.with_net_images).is_some_and(|(images, other)| images != other);
    let message = "`images` says the opposite; keep one of them";
    let path = "install.with_net_images";
    contrary.then(|| Finding::new(path, "conflicting-keys", message)).into_iter().collect()
}

/// A digest is that of something.
pub(super) fn one_configuration(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let alone = install.config_sha256.is_some() && install.config_url.is_none();
    let message = "`config_sha256` has no effect without `config_url`";
    alone.then(|| Finding::new("install.config_sha256", "no-effect", message)).into_iter().collect()
}

/// Secrets and trusted data are never fetched over plain HTTP.
pub(super) fn nothing_in_the_clear(config: &InstallConfig) -> Vec<Finding> {
    let clear = urls(config).into_iter().filter(|(_, url, _)| url.starts_with("http://"));
    clear
        .map(|(path, _, what)| {
            let message =
                format!("over http:// others on the network can read and change {what}; use https://");
            Finding::warning(path, "unencrypted-url", message)
        })
        .collect()
}

/// A medium without TLS is no place for what has no digest. Its payloads are checked by theirs.
pub(super) fn a_medium_in_the_clear(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let medium = install.medium.iter().map(|url| ("install.medium", &**url));
    let directory = install.iso_url.iter().filter(|place| !place.is_iso_file());
    let named = medium.chain(directory.map(|url| ("install.iso_url", &**url)));
    let clear = named.filter(|(_, url)| url.starts_with("http://"));
    let message = "over http:// others on the network can change the medium, so what it was customized with \
                   (custom.img) is left out unless the kernel parameter nqrust.custom gives its digest; use https://";
    clear.map(|(path, _)| Finding::warning(path, "unencrypted-url", message)).collect()
}

/// Places, URLs, and what travels; payloads of a medium are checked by their digests and are not among them.
fn urls(config: &InstallConfig) -> Vec<(String, &str, &'static str)> {
    let InstallConfig { os, install, .. } = config;
    let token = config.token_url.iter().map(|url| ("token_url".to_owned(), &**url, "the token"));
    let document = install.config_url.iter();
    let document = document.map(|url| ("install.config_url".to_owned(), &**url, "the configuration"));
    let users = os.users.iter().enumerate();
    let users = users.map(|(index, user)| (format!("os.users[{index}]"), &user.ssh_authorized_keys));
    let keys = users.chain([("os".to_owned(), &os.ssh_authorized_keys)]).flat_map(|(path, keys)| {
        keys.iter().enumerate().map(move |(index, key)| {
            (format!("{path}.ssh_authorized_keys[{index}]"), &**key, "the keys that may log in")
        })
    });
    let hooks = install.webhooks.iter().enumerate();
    let hooks =
        hooks.map(|(index, hook)| (format!("install.webhooks[{index}].url"), &*hook.url, "what is sent"));
    token.chain(document).chain(keys).chain(hooks).collect()
}

/// Servers prove who they are.
pub(super) fn certificates_are_checked(config: &InstallConfig) -> Vec<Finding> {
    let message = "without a check of the certificate anyone on the network can pose as the server; trust an \
                   authority of your own with `install.ca_certificates`";
    let hooks = config.install.webhooks.iter().enumerate().filter(|(_, hook)| hook.insecure);
    let path = |index: usize| format!("install.webhooks[{index}].insecure");
    hooks.map(|(index, _)| Finding::warning(path(index), "unchecked-certificate", message)).collect()
}

/// A node of production that skips the checks of its machine may not be able to do its work.
pub(super) fn checks_stay_on(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    if !install.skipchecks {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if install.profile == Profile::Production {
        let message = "the install ignores all failed checks; `skip_checks` skips single ones";
        findings.push(Finding::warning("install.skipchecks", "checks-skipped", message));
    }
    if !install.skip_checks.is_empty() {
        let message = "`skipchecks: true` skips all checks, so this has no effect";
        findings.push(Finding::warning("install.skip_checks", "superfluous-key", message));
    }
    findings
}
