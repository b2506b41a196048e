//! Secrets are secrets, and not the text in whose place one was to be put.

use super::cluster::tokens_are_strong;
use crate::config::password::{self, PasswordKind};
use crate::config::{InstallConfig, Secret};
use document::finding::Finding;
use document::placeholder::{is_no_secret, is_placeholder, is_reference, is_variable};

/// The message for a reference to a secret in another program.
const REFERENCE: &str =
    "this refers to a secret that another program keeps or has encrypted; write the secret itself here";

/// Checks the token and the passwords of a configuration whose references have been resolved.
#[must_use]
pub fn check(config: &InstallConfig) -> Vec<Finding> {
    [tokens_are_strong, are_not_placeholders].iter().flat_map(|rule| rule(config)).collect()
}

/// A template that was not filled in, or an example that was copied, gives every node the same public secret.
pub(super) fn are_not_placeholders(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, token) in tokens(config) {
        let message = match token.expose() {
            text if is_reference(text) => REFERENCE,
            text if is_placeholder(text) => {
                "this is a placeholder, not a token; replace it (`openssl rand -hex 24` generates one), or check why the template was not filled in"
            }
            text if text.ends_with("...") => {
                "this ends in `...`, so it was shortened for display; copy the whole token"
            }
            _ => continue,
        };
        findings.push(Finding::new(path, "secret-placeholder", message));
    }
    let message = "this is a placeholder, not a password; replace it (`mkpasswd --method=yescrypt` makes a hash), or check why the template was not filled in";
    let passwords = passwords(config).into_iter().filter(|(_, password)| {
        let text = password.expose();
        password::kind(text) == PasswordKind::Clear && is_no_secret(text)
    });
    findings.extend(passwords.map(|(path, password)| {
        let message = if is_reference(password.expose()) { REFERENCE } else { message };
        Finding::new(path, "secret-placeholder", message)
    }));
    let message = "this has a placeholder in place of a secret; check why the template was not filled in";
    findings
        .extend(variables(config).into_iter().map(|path| Finding::new(path, "secret-placeholder", message)));
    findings
}

fn tokens(config: &InstallConfig) -> Vec<(&'static str, &Secret)> {
    let tokens = [("token", &config.token), ("kubernetes.agent_token", &config.kubernetes.agent_token)];
    tokens.into_iter().filter_map(|(path, token)| Some((path, token.as_ref()?))).collect()
}

fn passwords(config: &InstallConfig) -> Vec<(String, &Secret)> {
    let own = config.os.password.iter().map(|password| ("os.password".to_owned(), password));
    let users =
        config.os.users.iter().enumerate().filter_map(|(index, user)| {
            Some((format!("os.users[{index}].password"), user.password.as_ref()?))
        });
    own.chain(users).collect()
}

/// True if a secret for another server was not filled in. Its words may be those of an instruction.
fn is_unfilled(text: &str) -> bool {
    is_variable(text) || is_reference(text)
}

/// The places of secrets for other servers that hold a variable of a template. Their words are those of the servers.
fn variables(config: &InstallConfig) -> Vec<String> {
    let mut found = Vec::new();
    for (index, hook) in config.install.webhooks.iter().enumerate() {
        let is = hook.basic_auth.as_ref().is_some_and(|auth| is_unfilled(auth.password.expose()));
        found.extend(is.then(|| format!("install.webhooks[{index}].basic_auth.password")));
        for (name, values) in &hook.headers {
            // `{{.Hostname}}` and its like are filled in at the call.
            let is = |value: &Secret| value.expose().contains("${") && is_variable(value.expose());
            let is = values.iter().any(is);
            found.extend(is.then(|| format!("install.webhooks[{index}].headers.{name}")));
        }
    }
    let targets = config.install.network_disks.iter().flat_map(|disks| &disks.iscsi).enumerate();
    for (index, target) in targets {
        let is = target.chap.as_ref().is_some_and(|chap| is_unfilled(chap.password.expose()));
        found.extend(is.then(|| format!("install.network_disks.iscsi[{index}].chap.password")));
    }
    let is = config.node_registries().secrets().any(is_unfilled);
    found.extend(is.then(|| config.registries_path()));
    found
}
