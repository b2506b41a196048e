//! Reading and writing documents: files and text to [`InstallConfig`] and back.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::diagnostic::{Invalid, Problem, Source};
use super::rules::{self, Finding};
use super::tree::{self, Span};
use super::walk::Walk;
use super::{InstallConfig, Secret, password, shape};
use crate::failure::{Class, Classify, Failure};
use crate::files;

/// Reads and checks the file at `path`. A file that cannot be read and a document with mistakes are
/// [`Class::Invalid`].
pub fn load(path: &Path) -> Result<InstallConfig> {
    let text = files::read_text(path)
        .class(Class::Invalid, || format!("reading the configuration {}", path.display()))?;
    parse(&text, &path.display().to_string())
}

/// Reads and checks a document; `name` is what messages call it. All mistakes come in one error, which holds
/// an [`Invalid`].
pub fn parse(text: &str, name: &str) -> Result<InstallConfig> {
    check(text, name).map_err(|invalid| {
        let count = invalid.0.len();
        let mistakes = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
        let what = format!("the configuration {name} has {mistakes}\n{invalid}");
        Failure::new(Class::Invalid, what).because(invalid).into()
    })
}

/// Reads and checks a document; every mistake with its place.
pub fn check(text: &str, name: &str) -> Result<InstallConfig, Invalid> {
    let tree = tree::read(text).map_err(|problem| Source::unread(name, text).diagnose(vec![problem]))?;
    let Some(root) = &tree.root else { return Ok(InstallConfig::default()) };
    let mut walk = Walk::default();
    let value =
        walk.value(root, shape::install_config(), "").unwrap_or_else(|| Value::Object(Default::default()));
    let config = match serde_json::from_value::<InstallConfig>(value) {
        Ok(config) => {
            let findings = rules::check(&config);
            let problems: Vec<_> = findings.into_iter().filter_map(|finding| place(&walk, finding)).collect();
            walk.problems.extend(problems);
            config
        }
        // The formats accept what a type then refuses: a defect here, and still no reason to accept the document.
        Err(_) => {
            let message = "the document holds a value that cannot be used";
            walk.problems.push(Problem::new(root.span, "", "invalid-value", message));
            InstallConfig::default()
        }
    };
    if walk.problems.is_empty() {
        return Ok(config);
    }
    Err(Source::new(name, text, walk.hidden, &tree.comments).diagnose(walk.problems))
}

/// Finds the place of a finding in the document. A finding about a value that has a mistake of its own, or
/// that holds one, is an echo of that mistake and is dropped.
fn place(walk: &Walk, finding: Finding) -> Option<Problem> {
    let Finding { path, code, message, suggestion } = finding;
    let below = |problem: &Problem| {
        problem.path.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    if walk.problems.iter().any(below) {
        return None;
    }
    let mut at = path.as_str();
    let span = loop {
        if let Some(span) = walk.places.get(at) {
            break *span;
        }
        at = at.rfind(['.', '[']).map_or("", |end| &at[..end]);
    };
    // A whole group is too much to underline; its beginning will do.
    let span = if at == path { span } else { Span { end: span.start, ..span } };
    Some(Problem::new(span, path, code, message).suggest(suggestion))
}

impl InstallConfig {
    /// The document as YAML, every text that could be taken for something else in quotes. It holds secrets:
    /// files with it have mode 0600.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Maps, lists, texts and numbers always serialise.
        serde_saphyr::to_string(self).unwrap_or_default()
    }

    /// The document as a node keeps it: a password in clear text replaced by its yescrypt hash.
    /// A hash of a method that the node does not accept is [`Class::Invalid`].
    pub fn for_node(&self) -> Result<Self> {
        let mut node = self.clone();
        node.os.password = self.os.password.as_ref().map(storable).transpose()?;
        Ok(node)
    }
}

fn storable(secret: &Secret) -> Result<Secret> {
    match password::kind(secret.expose()) {
        password::Kind::Hash => Ok(secret.clone()),
        password::Kind::Clear => password::hash(secret.expose()),
        password::Kind::Unsupported(why) => {
            Err(Failure::new(Class::Invalid, format!("`os.password` is {why}"))
                .hint("Give the password in clear text, or a hash made by `mkpasswd --method=yescrypt`.")
                .into())
        }
    }
}
