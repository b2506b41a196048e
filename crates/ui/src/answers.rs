//! The answers so far: values of the install configuration, each with its origin.
//!
//! Below the answers is the configuration that the machine found, from a medium, a volume, a URL or the kernel command line. An
//! answer that the present mode does not use stays here and is left out of the document, so that nothing is lost by going back
//! and forth. [`config::check_in_use`] judges the values: a weak token is a warning, since the cluster may exist already.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::missing_values::missing_value;
use crate::toolkit::form::Field;
use base::encode;
use model::config::rules::idle;
use model::config::sources::{CombinedConfig, ConfigEntry, SourceKind};
use model::config::{self, Diagnostic, InstallConfig, Method, Mode, Role, Severity};

/// The name of the document in diagnostics.
pub const NAME: &str = "answers on the console";

/// The answers. Its `Debug` shows no value.
#[derive(Clone, Default, PartialEq)]
pub struct Answers {
    found: Value,
    origins: BTreeMap<String, SourceKind>,
    given: BTreeMap<String, Option<Value>>,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.given.keys()).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOrigin {
    Answered,
    /// A source of the machine.
    Found(SourceKind),
}

#[derive(Clone, Debug)]
pub struct CheckedAnswers {
    pub config: Option<InstallConfig>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Answers {
    /// No answers, on top of the configuration that was found.
    #[must_use]
    pub fn on(found: &CombinedConfig) -> Self {
        let value = encode::json(&found.config);
        let origin = |entry: &ConfigEntry| (entry.path.clone(), entry.source);
        Self { found: value, origins: found.entries.iter().map(origin).collect(), given: BTreeMap::new() }
    }

    /// Replaces the configuration below the answers.
    pub fn found(&mut self, found: &CombinedConfig) {
        *self = Self { given: std::mem::take(&mut self.given), ..Self::on(found) };
    }

    #[must_use]
    pub fn value(&self, path: &str) -> Option<Value> {
        match self.given.get(path) {
            Some(given) => given.clone(),
            None => at(&self.found, path).filter(|value| !value.is_null()).cloned(),
        }
    }

    /// The value as text; a list is joined by commas.
    #[must_use]
    pub fn text(&self, path: &str) -> String {
        match self.value(path) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(Value::Array(items)) => {
                let word = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
                items.iter().map(word).collect::<Vec<_>>().join(", ")
            }
            Some(other) => other.to_string(),
        }
    }

    /// Answers; `None` removes the value. A value equal to the found one is no answer.
    pub fn give(&mut self, path: &str, value: Option<Value>) {
        if self.value(path) != value {
            self.given.insert(path.to_owned(), value);
        }
    }

    /// The origin of the value at a path; `None` for a default, or without a value.
    #[must_use]
    pub fn origin(&self, path: &str) -> Option<AnswerOrigin> {
        if self.given.contains_key(path) {
            return Some(AnswerOrigin::Answered);
        }
        let below = |known: &String| {
            known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let found = self.origins.iter().find(|(known, _)| below(known));
        found.map(|(_, kind)| AnswerOrigin::Found(*kind))
    }

    /// The valid part of the configuration: an answer with a mistake is left out.
    #[must_use]
    pub fn understood(&self) -> InstallConfig {
        let mut value = if self.found.is_null() { Value::Object(Map::new()) } else { self.found.clone() };
        let mut config: InstallConfig = serde_json::from_value(value.clone()).unwrap_or_default();
        for (path, given) in &self.given {
            let mut changed = value.clone();
            put(&mut changed, path, given.clone());
            if let Ok(understood) = serde_json::from_value(changed.clone()) {
                (value, config) = (changed, understood);
            }
        }
        config
    }

    /// The document: every value that is used in the answered mode and role.
    #[must_use]
    pub fn document(&self) -> Value {
        let mut value = if self.found.is_null() { Value::Object(Map::new()) } else { self.found.clone() };
        for (path, given) in &self.given {
            put(&mut value, path, given.clone());
        }
        let config = self.understood();
        let (mode, role) = (config.install.mode, config.install.role);
        for path in idle(&config, mode, role).iter().map(String::as_str).chain(unasked(&config)) {
            put(&mut value, path, None);
        }
        put(&mut value, "install.automatic", None);
        value
    }

    /// Checks the document against all rules. `whole`: there are no more questions, so missing values are mistakes too.
    #[must_use]
    pub fn check(&self, whole: bool) -> CheckedAnswers {
        let mut document = self.document();
        if whole {
            put(&mut document, "install.automatic", Some(Value::Bool(true)));
        }
        let text = encode::yaml(&prune(document));
        match config::check_in_use(&text, NAME) {
            Ok(accepted) => CheckedAnswers { config: Some(accepted.config), diagnostics: accepted.warnings },
            Err(invalid) => CheckedAnswers { config: None, diagnostics: invalid.0 },
        }
    }
}

impl CheckedAnswers {
    /// The diagnostics of the value at a path, or below it, or of the group `also`.
    pub fn about<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Diagnostic> {
        let about = move |diagnostic: &&Diagnostic| {
            let rest = diagnostic.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.diagnostics.iter().filter(about)
    }

    /// Shows the mistakes and warnings of a field at the field.
    pub fn tell(&self, field: &mut Field) {
        for said in self.about(&field.id).filter(|said| said.code != "clear-text-password") {
            let list = if is_mistake(said) { &mut field.errors } else { &mut field.warnings };
            list.push(in_words(said));
        }
    }
}

/// A diagnostic as screens show it: a missing value is asked for in the screens' own words.
#[must_use]
pub fn in_words(said: &Diagnostic) -> String {
    match missing_value(&said.path).filter(|_| matches!(said.code, "missing-value" | "no-login")) {
        Some(words) => words.to_owned(),
        None => {
            let better = said.suggestion.as_ref().map(|better| format!("; try {better}"));
            format!("{}{}", said.message, better.unwrap_or_default())
        }
    }
}

#[must_use]
pub fn is_mistake(diagnostic: &Diagnostic) -> bool {
    diagnostic.severity == Severity::Error
}

/// Paths that are not asked for in this mode, role and network, and must not be in the document.
fn unasked(config: &InstallConfig) -> Vec<&'static str> {
    let install = &config.install;
    let mut paths = Vec::new();
    if install.mode != Mode::Join {
        paths.push("install.role");
    }
    if install.own_role() == Role::Witness {
        paths.push("install.data_disk");
    }
    match &install.management_interface {
        Some(management) if management.interfaces.is_empty() => paths.push("install.management_interface"),
        Some(management) if management.method == Method::Dhcp => paths.extend([
            "install.management_interface.ip",
            "install.management_interface.subnet_mask",
            "install.management_interface.gateway",
        ]),
        _ => {}
    }
    paths
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

/// Puts a value at a dotted path, or removes it.
fn put(value: &mut Value, path: &str, given: Option<Value>) {
    let (key, rest) = match path.split_once('.') {
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    if !value.is_object() {
        if given.is_none() {
            return;
        }
        *value = Value::Object(Map::new());
    }
    let Some(object) = value.as_object_mut() else { return };
    match (rest, given) {
        (None, None) => drop(object.remove(key)),
        (None, Some(given)) => drop(object.insert(key.to_owned(), given)),
        (Some(rest), Some(given)) => put(object.entry(key).or_insert(Value::Null), rest, Some(given)),
        (Some(rest), None) => {
            if let Some(below) = object.get_mut(key) {
                put(below, rest, None);
            }
        }
    }
}

/// Without empty values, and groups that have none: what a person would write.
fn prune(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().map(|(key, value)| (key, prune(value)));
            let is_nothing = |value: &Value| {
                value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty)
            };
            Value::Object(kept.filter(|(_, value)| !is_nothing(value)).collect())
        }
        other => other,
    }
}

/// The answers as a document that installs the next machine unattended. It holds secrets: a file with it has mode 0600.
#[must_use]
pub fn recorded(config: &InstallConfig) -> String {
    let mut config = config.clone();
    config.install.automatic = true;
    let text = encode::yaml(&prune(encode::json(&config)));
    format!(
        "# Recorded by `installer install`. It installs a machine without questions and erases its disk.\n\
         # Give each machine its own os.hostname, its own disk in install.device and, where they are fixed, its own \
         addresses.\n{text}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::sources::{Document, combine};
    use serde_json::json;

    fn found(text: &str) -> Answers {
        Answers::on(&combine(&[Document::yaml(SourceKind::Volume, "cidata", text)]).unwrap())
    }

    #[test]
    fn an_answer_is_stronger_than_what_was_found_and_both_know_where_they_come_from() {
        let mut answers = found("os: {hostname: node-1, dns_nameservers: [192.0.2.1, 192.0.2.2]}");
        assert_eq!(answers.text("os.dns_nameservers"), "192.0.2.1, 192.0.2.2");
        assert_eq!(answers.origin("os.dns_nameservers"), Some(AnswerOrigin::Found(SourceKind::Volume)));
        assert_eq!(answers.origin("token"), None);
        answers.give("os.hostname", Some(json!("node-1")));
        assert_eq!(
            answers.origin("os.hostname"),
            Some(AnswerOrigin::Found(SourceKind::Volume)),
            "nothing was changed"
        );
        answers.give("os.hostname", Some(json!("node-2")));
        assert_eq!(answers.origin("os.hostname"), Some(AnswerOrigin::Answered));
        answers.give("os.dns_nameservers", None);
        let config = answers.check(false).config.unwrap();
        assert_eq!(config.os.hostname.as_deref(), Some("node-2"));
        assert!(config.os.dns_nameservers.is_empty());
    }

    #[test]
    fn an_answer_that_another_mode_has_no_use_for_comes_back_with_the_mode() {
        let mut answers = found("install: {vip: 192.0.2.10}");
        answers.give("install.mode", Some(json!("join")));
        answers.give("install.role", Some(json!("witness")));
        answers.give("install.data_disk", Some(json!("/dev/sdb")));
        let config = answers.check(false).config.unwrap();
        assert_eq!((config.install.vip, config.install.data_disk.clone()), (None, None));
        answers.give("install.mode", Some(json!("create")));
        let config = answers.check(false).config.unwrap();
        assert!(config.install.vip.is_some() && config.install.data_disk.is_some());
        assert_eq!(config.install.role, Role::Default);
    }

    #[test]
    fn mistakes_are_those_of_validate_and_know_their_place() {
        let mut answers = Answers::default();
        answers.give("os.hostname", Some(json!("Node 1")));
        let checked = answers.check(false);
        let said: Vec<_> = checked.about("os.hostname").collect();
        assert_eq!(said.len(), 1);
        assert_eq!(said[0].suggestion.as_deref(), Some("node-1"));
        let alone = config::check("os: {hostname: Node 1}", NAME).unwrap_err();
        assert_eq!(alone.0[0].message, said[0].message);
    }

    #[test]
    fn what_is_missing_is_a_mistake_only_when_nothing_more_is_asked() {
        let answers = Answers::default();
        assert!(answers.check(false).config.is_some());
        let whole = answers.check(true);
        assert!(whole.config.is_none());
        assert!(["token", "os", "install.vip"].iter().all(|path| whole.about(path).any(is_mistake)));
    }

    #[test]
    fn a_record_of_the_answers_is_a_valid_configuration_that_asks_nothing() {
        let mut answers = Answers::default();
        for (path, value) in [
            ("token", "a-long-and-random-shared-text"),
            ("install.device", "/dev/sda"),
            ("install.vip", "192.0.2.10"),
            ("os.password", "long enough to be good"),
        ] {
            answers.give(path, Some(json!(value)));
        }
        let config = answers.check(true).config.unwrap();
        let read = config::parse(&recorded(&config), "recorded").unwrap();
        assert!(read.install.automatic);
        assert_eq!(
            InstallConfig { install: model::config::Install { automatic: true, ..config.install }, ..config },
            read
        );
    }
}
