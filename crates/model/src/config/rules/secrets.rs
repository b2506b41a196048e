//! Secrets are secrets, and not the text in whose place one was to be put.

use super::cluster::tokens_are_strong;
use super::finding::Finding;
use crate::config::password::{self, PasswordKind};
use crate::config::placeholder::{is_placeholder, is_variable};
use crate::config::{InstallConfig, Secret};

/// What is wrong with the token and the passwords of a configuration whose references have been followed.
#[must_use]
pub fn check(config: &InstallConfig) -> Vec<Finding> {
    [tokens_are_strong, are_not_placeholders].iter().flat_map(|rule| rule(config)).collect()
}

/// A template that was not filled in, or an example that was copied, gives every node the same public secret.
pub(super) fn are_not_placeholders(config: &InstallConfig) -> Vec<Finding> {
    let tokens = tokens(config).into_iter().filter(|(_, token)| is_placeholder(token.expose()));
    let message = "this is a placeholder and not a token: everyone knows it; replace it, for example with what \
                   `openssl rand -hex 24` prints, or check why the template was not filled in";
    let mut findings: Vec<_> =
        tokens.map(|(path, _)| Finding::new(path, "secret-placeholder", message)).collect();
    let message = "this is a placeholder and not a password: everyone knows it; replace it, for example with a hash made by \
                   `mkpasswd --method=yescrypt`, or check why the template was not filled in";
    let passwords = passwords(config).into_iter().filter(|(_, password)| {
        password::kind(password.expose()) == PasswordKind::Clear && is_placeholder(password.expose())
    });
    findings.extend(passwords.map(|(path, _)| Finding::new(path, "secret-placeholder", message)));
    let message = "this has a placeholder where a secret belongs; check why the template was not filled in";
    findings
        .extend(variables(config).into_iter().map(|path| Finding::new(path, "secret-placeholder", message)));
    findings
}

fn tokens(config: &InstallConfig) -> Vec<(&'static str, &Secret)> {
    let tokens = [("token", &config.token), ("kubernetes.agent_token", &config.kubernetes.agent_token)];
    tokens.into_iter().filter_map(|(path, token)| Some((path, token.as_ref()?))).collect()
}

/// The passwords of logins.
fn passwords(config: &InstallConfig) -> Vec<(String, &Secret)> {
    let own = config.os.password.iter().map(|password| ("os.password".to_owned(), password));
    let users =
        config.os.users.iter().enumerate().filter_map(|(index, user)| {
            Some((format!("os.users[{index}].password"), user.password.as_ref()?))
        });
    own.chain(users).collect()
}

/// The places of secrets for other servers that hold a variable of a template. Their words are those of the servers.
fn variables(config: &InstallConfig) -> Vec<String> {
    let mut found = Vec::new();
    for (index, hook) in config.install.webhooks.iter().enumerate() {
        let is = hook.basic_auth.as_ref().is_some_and(|auth| is_variable(auth.password.expose()));
        found.extend(is.then(|| format!("install.webhooks[{index}].basic_auth.password")));
        for (name, values) in &hook.headers {
            // `{{.Hostname}}` and its like are filled in at the call.
            let is = |value: &Secret| value.expose().contains("${") && is_variable(value.expose());
            let is = values.iter().any(is);
            found.extend(is.then(|| format!("install.webhooks[{index}].headers.{name}")));
        }
    }
    let is = config.node_registries().secrets().any(is_variable);
    found.extend(is.then(|| config.registries_path()));
    found
}
