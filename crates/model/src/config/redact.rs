//! Removes secrets from what leaves the machine: the secrets of a document, to remove from other texts, and the document
//! without them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::InstallConfig;
use super::shape;
use base::{encode, percent};
use document::diagnostic::HIDDEN;

/// Texts of settings and files shorter than this are `true`, `info` or a number, found everywhere and no secrets.
const SETTING: usize = 8;

/// Keys whose values may hold secrets without being one: content of files, payloads, addresses of webhooks.
const CLOSED: [&str; 6] = ["content", "values_content", "payload", "url", "environment", "headers"];

/// The secrets of one or more documents.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Adds the secrets of a document, in every form in which programs write them.
    pub fn add(&mut self, config: &InstallConfig) {
        let mut value = encode::json(config);
        shape::install_config().visit(&mut value, &mut |path, value, secret| {
            let Some(text) = value.as_str().filter(|_| secret) else { return };
            let often =
                path.starts_with("system_settings.") || is_closed(path) && !path.contains(".headers.");
            if !often || text.len() >= SETTING {
                self.add_text(text);
            }
        });
        for auth in config.install.webhooks.iter().filter_map(|hook| hook.basic_auth.as_ref()) {
            self.0.push(STANDARD.encode(format!("{}:{}", &*auth.user, auth.password.expose())));
        }
        self.put_in_order();
    }

    /// Adds texts that no document has, such as tokens of kernel parameters.
    pub fn add_texts<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) {
        texts.into_iter().for_each(|text| self.add_text(text));
        self.put_in_order();
    }

    fn put_in_order(&mut self) {
        self.0.retain(|text| !text.is_empty());
        // A secret that holds another one goes first, or its rest would stay.
        self.0.sort_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
        self.0.dedup();
    }

    fn add_text(&mut self, text: &str) {
        let quoted = Value::from(text).to_string();
        let quoted = quoted[1..quoted.len() - 1].to_owned();
        self.0.extend([text.to_owned(), quoted, STANDARD.encode(text)]);
        self.0.push(percent::encode(text));
        // Logs are lines; a secret of several is there line by line.
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= SETTING);
        self.0.extend(lines.map(str::to_owned));
    }

    #[must_use]
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

fn is_closed(path: &str) -> bool {
    path.split('.').any(|key| CLOSED.contains(&key.split('[').next().unwrap_or_default()))
}

/// The document as YAML for people who help: no secrets, and nothing that may hold one.
#[must_use]
pub fn without_secrets(config: &InstallConfig) -> String {
    let mut value = encode::json(config);
    hide(&mut value);
    encode::yaml(&value)
}

/// Hides the secrets of a document in canonical spelling, and what may hold one.
pub fn hide(document: &mut Value) {
    shape::install_config().visit(document, &mut |path, value, secret| {
        if secret || is_closed(path) && value.as_str().is_some_and(|text| !text.is_empty()) {
            *value = Value::from(HIDDEN);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::documents::MARKED;

    #[test]
    fn the_document_without_secrets_keeps_all_else() {
        let config = crate::config::parse(MARKED, "f").unwrap();
        let text = without_secrets(&config);
        assert!(!text.contains("MARK"), "{text}");
        assert!(
            text.contains("hostname: node-1") && text.contains("name: me") && text.contains("FAILED"),
            "{text}"
        );
    }

    #[test]
    fn secrets_are_hidden_in_every_spelling_and_settings_stay_readable() {
        let mut secrets = Secrets::default();
        secrets.add(&crate::config::parse(MARKED, "f").unwrap());
        let basic = STANDARD.encode("me:MARK-auth");
        let text = format!(
            "info MARK-token \"quoted\" {{\"t\": \"MARK-token \\\"quoted\\\"\"}} MARK-token%20%22quoted%22 \
             {} {basic} MARK-password MARK-user {{\"ca\": \"MARK-certificate\"}} MARK-header MARK-auth MARK-agent",
            STANDARD.encode("MARK-user")
        );
        let hidden = secrets.hide(&text);
        assert!(
            !hidden.contains("MARK") && !hidden.contains(&basic) && hidden.starts_with("info "),
            "{hidden}"
        );
        assert!(!hidden.contains(&STANDARD.encode("MARK-user")));
    }
}
