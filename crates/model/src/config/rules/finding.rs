//! What a rule finds, and what many rules ask of a document.

use std::collections::HashMap;
use std::hash::Hash;

use crate::config::diagnostic::Severity;
use crate::config::{InstallConfig, Mode};

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// Whether the configuration can be used all the same.
    pub severity: Severity,
    /// The dotted key to underline; where the document does not have it, what is nearest above it.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people. Never holds a secret.
    pub message: String,
    /// What to write instead.
    pub suggestion: Option<String>,
}

/// The codes of what is wrong with a choice that works all the same.
const CHOICES: [&str; 5] =
    ["weak-token", "secret-placeholder", "long-hostname", "unusable-hostname", "decimal-permissions"];

impl Finding {
    pub fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { severity: Severity::Error, path, code, message, suggestion: None }
    }

    pub fn warning(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(path, code, message) }
    }

    /// A warning where this is about a choice, which cannot be made again on a node that runs.
    pub(super) fn of_choice_in_use(self) -> Self {
        match CHOICES.contains(&self.code) {
            true => Self { severity: Severity::Warning, ..self },
            false => self,
        }
    }

    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}

/// Whether the node becomes part of a cluster and no console asks for what the document leaves out.
pub(super) fn is_unattended(config: &InstallConfig) -> bool {
    config.install.automatic && config.install.mode != Mode::Install
}

/// Pairs of the place of a later element and the place of the first one that it equals.
pub(super) fn repeated<T: Eq + Hash>(items: &[T]) -> impl Iterator<Item = (usize, usize)> {
    let mut first = HashMap::new();
    items.iter().enumerate().filter_map(move |(later, item)| {
        let earlier = *first.entry(item).or_insert(later);
        (earlier < later).then_some((later, earlier))
    })
}
