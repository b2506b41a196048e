//! Helpers that several rules share.

use std::collections::HashMap;
use std::hash::Hash;

use document::diagnostic::Severity;
use document::finding::Finding;

use crate::config::{InstallConfig, Mode};

/// The codes of what is wrong with a choice that works all the same.
const CHOICES: [&str; 5] =
    ["weak-token", "secret-placeholder", "long-hostname", "unusable-hostname", "decimal-permissions"];

/// A warning where the finding is about a choice, which cannot be made again on a node that runs.
pub(super) fn of_choice_in_use(finding: Finding) -> Finding {
    match CHOICES.contains(&finding.code) {
        true => Finding { severity: Severity::Warning, ..finding },
        false => finding,
    }
}

/// True if the node becomes part of a cluster and no console asks for what the document leaves out.
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
