//! One round of a conversion: each key, and what the reader says of it, done.

use std::collections::HashMap;

use super::change::{Change, ChangeKind};
use super::draft::{self, Draft, DraftEntry, is_sexagesimal};
use crate::config::harvester::older::OlderNetworks;
use crate::config::harvester::retired;
use crate::config::sources::{Document, combine};
use document::accepted_spellings::is_same_word;
use document::diagnostic::{Problem, Severity};
use document::secret::is_secretive;
use document::shape::{camel, join};
use document::tree::{Key, NodeKind, Tree, TreeNode};

/// Codes of warnings that say of a value that it does nothing.
const IDLE: [&str; 7] = [
    "already-persistent",
    "empty-value",
    "no-effect",
    "repeated-entry",
    "superfluous-key",
    "wrong-mode",
    "wrong-role",
];
/// Codes of mistakes that say of a key, or of an element of a list, that there is nothing like it here.
const FOREIGN: [&str; 7] = [
    "invalid-addon",
    "invalid-persistent-path",
    "managed-path",
    "read-only-path",
    "retired-key",
    "unknown-key",
    "unknown-setting",
];
/// The key of which only the port can do nothing.
const SERVER: &str = "server_url";

enum Verdict {
    Keep,
    Drop(String),
    Lose(String),
    Replace(String, String),
    /// Another key of the same group, with its value.
    Rename((&'static str, &'static str), String),
}

/// The keys of the document whose top group is `root`, after one round; and what was done.
pub(super) fn round(root: &TreeNode, text: &str, document: Document) -> (Vec<DraftEntry>, Vec<Change>) {
    let (problems, names) = combine::findings(document);
    let mut found: HashMap<&str, Vec<&Problem>> = HashMap::new();
    for problem in &problems {
        found.entry(&problem.path).or_default().push(problem);
    }
    let letters: Vec<char> = text.chars().collect();
    let mut round = Translation { found, names: &names, letters: &letters, changes: Vec::new() };
    let NodeKind::Map(entries) = &root.kind else { return (Vec::new(), Vec::new()) };
    let entries = round.group(entries, "");
    (entries, round.changes)
}

/// The keys of a document as they are.
pub(super) fn unchanged(tree: &Tree) -> Vec<DraftEntry> {
    match tree.root.as_ref().map(|root| &root.kind) {
        Some(NodeKind::Map(entries)) => entries.iter().map(entry_as_is).collect(),
        _ => Vec::new(),
    }
}

struct Translation<'r> {
    /// By their paths.
    found: HashMap<&'r str, Vec<&'r Problem>>,
    /// Canonical names of keys, by where they begin.
    names: &'r HashMap<usize, String>,
    letters: &'r [char],
    changes: Vec<Change>,
}

impl Translation<'_> {
    fn note(&mut self, kind: ChangeKind, line: usize, path: &str, message: impl Into<String>) {
        self.changes.push(Change { kind, line, path: path.to_owned(), message: message.into() });
    }

    fn group(&mut self, entries: &[(Key, TreeNode)], path: &str) -> Vec<DraftEntry> {
        let older = (path == "install").then(|| OlderNetworks::of(entries)).flatten();
        let says_method = entries.iter().any(|(key, _)| is_same_word(&key.text, "method"));
        let mut written = Vec::new();
        for (key, node) in entries {
            match &older {
                Some(older) if older.keys.iter().any(|own| own.span == key.span) => {
                    if key.span == older.key.span {
                        written.extend(self.networks(older, path));
                    }
                    let message = format!("`{}` is of an older scheme", key.text);
                    let message = format!("{message}; its networks are described by today's keys");
                    self.note(ChangeKind::Changed, key.span.line, &join(path, &key.text), message);
                }
                _ => written.push(self.entry(key, node, path, says_method)),
            }
        }
        written
    }

    /// The networks of an older scheme in today's keys; the next round checks their contents.
    fn networks(&mut self, older: &OlderNetworks<'_>, path: &str) -> Vec<DraftEntry> {
        let mut entries = Vec::new();
        for (name, node) in older.groups() {
            let mut entry = DraftEntry::new(older.key.span.line, name, as_is(&node));
            let was = if name == "networks" { name } else { &older.key.text };
            let today = join(path, name);
            entry.notes.push(format!("changed: `{was}` of Harvester v0.2 to v1.0 is `{today}` today"));
            entries.push(entry);
        }
        if entries.is_empty() {
            let text = format!("dropped: `{}` is of Harvester v0.2 to v1.0", older.key.text);
            entries.push(DraftEntry::left_out(older.key.span.line, vec![text]));
        }
        entries
    }

    /// `says_method` is whether the group of the key says how a network gets its addresses.
    fn entry(&mut self, key: &Key, node: &TreeNode, path: &str, says_method: bool) -> DraftEntry {
        let name = self.names.get(&key.span.start).unwrap_or(&key.text).clone();
        let below = join(path, &name);
        let line = key.span.line;
        match self.verdict(key, node, path, &below, says_method) {
            Verdict::Drop(reason) => {
                let reason = naming(&key.text, &reason);
                self.note(ChangeKind::Dropped, line, &below, reason.clone());
                DraftEntry::left_out(line, vec![format!("dropped: {reason}")])
            }
            Verdict::Lose(reason) => {
                let reason = naming(&key.text, &reason);
                self.note(ChangeKind::Lost, line, &below, reason.clone());
                let mut notes = vec![format!("left out, and nothing here does the same: {reason}")];
                notes.extend(shown(key, node));
                DraftEntry::left_out(line, notes)
            }
            Verdict::Replace(text, reason) => {
                let reason = naming(&name, &reason);
                self.note(ChangeKind::Changed, line, &below, reason.clone());
                let mut entry = DraftEntry::new(line, name, Draft::Scalar { text, plain: false });
                entry.notes.push(format!("changed: {reason}"));
                entry
            }
            Verdict::Rename((key, text), reason) => {
                self.note(ChangeKind::Changed, line, &below, reason.clone());
                let value = Draft::Scalar { text: text.to_owned(), plain: true };
                let mut entry = DraftEntry::new(line, key, value);
                entry.notes.push(format!("changed: {reason}"));
                entry
            }
            Verdict::Keep => {
                let value = self.value(node, &below);
                let is_ours = key.text == name || key.text == camel(&name);
                let mut entry = DraftEntry::new(line, if is_ours { &key.text } else { &name }, value);
                if !is_ours {
                    let message = format!("`{}` is written `{name}`", key.text);
                    self.note(ChangeKind::Changed, line, &below, message);
                    entry.remark = Some(format!("was `{}`", key.text));
                }
                self.quote(node, line, &below, &mut entry);
                entry
            }
        }
    }

    /// Notes a value that other readers of YAML take for a number.
    fn quote(&mut self, node: &TreeNode, line: usize, path: &str, entry: &mut DraftEntry) {
        if let NodeKind::Scalar { text, plain: true } = &node.kind
            && is_sexagesimal(text)
        {
            let message = "in quotes: without them YAML 1.1 takes the value for a number";
            self.note(ChangeKind::Changed, line, path, message);
            entry.notes.push(format!("changed: {message}"));
        }
    }

    fn verdict(&self, key: &Key, node: &TreeNode, path: &str, below: &str, says_method: bool) -> Verdict {
        let as_written = join(path, &key.text);
        let paths = if as_written == below { vec![below] } else { vec![&as_written, below] };
        let found = paths.iter().filter_map(|path| self.found.get(path)).flatten();
        let mut port = None;
        for problem in found {
            match (problem.code, problem.severity, &problem.suggestion) {
                ("retired-key", Severity::Warning, _) => {
                    let today = retired::find(path, &key.text).and_then(|retired| retired.today(node));
                    return today
                        .map_or(Verdict::Keep, |today| Verdict::Rename(today, problem.message.to_string()));
                }
                // Without the method, a fixed address may be what is meant.
                ("needs-static", Severity::Error, _) if says_method => {
                    return Verdict::Drop(problem.message.to_string());
                }
                ("wrong-mode", Severity::Error, _) if below == SERVER => {
                    return Verdict::Lose(problem.message.to_string());
                }
                ("invalid-server-url", _, Some(suggestion)) => {
                    return Verdict::Replace(suggestion.clone(), problem.message.to_string());
                }
                ("no-effect", ..) if below == SERVER => {
                    port = Some(problem.message.to_string());
                }
                (code, Severity::Error, suggestion) if FOREIGN.contains(&code) => {
                    let meant = suggestion.as_ref().map(|key| format!("; is `{key}` meant?"));
                    return Verdict::Lose(format!("{}{}", problem.message, meant.unwrap_or_default()));
                }
                (code, Severity::Warning, _) if IDLE.contains(&code) => {
                    return Verdict::Drop(problem.message.to_string());
                }
                _ => {}
            }
        }
        match &node.kind {
            NodeKind::Scalar { text, .. } if port.is_some() => {
                Verdict::Replace(without_port(text), port.unwrap_or_default())
            }
            NodeKind::Scalar { text, .. } if below == "install.iso_url" && is_foreign_iso(text) => {
                let reason = "`iso_url` names an ISO of Harvester; the medium that the machine boots has everything, and \
                              one for the network takes the URL of a medium of ours in `install.medium`";
                Verdict::Drop(reason.to_owned())
            }
            _ => Verdict::Keep,
        }
    }

    fn value(&mut self, node: &TreeNode, path: &str) -> Draft {
        let before = self.changes.len();
        let draft = match &node.kind {
            NodeKind::Scalar { .. } => return as_is(node),
            NodeKind::Map(entries) => Draft::Map(self.group(entries, path)),
            NodeKind::List(items) => {
                let items = items.iter().enumerate();
                Draft::List(items.map(|(at, item)| self.item(item, &format!("{path}[{at}]"))).collect())
            }
        };
        let line = self.letters.get(node.span.range()).unwrap_or_default();
        let is_flow = matches!(line, ['[', .., ']'] | ['{', .., '}']) && !line.contains(&'\n');
        match is_flow && self.changes.len() == before {
            true => Draft::Verbatim(line.iter().collect()),
            false => draft,
        }
    }

    /// One element of a list. What is foreign in a file of `os.write_files` is the file.
    fn item(&mut self, item: &TreeNode, path: &str) -> DraftEntry {
        let line = item.span.line;
        let file = format!("{path}.path");
        let found = [path, &file].into_iter().filter_map(|path| self.found.get(path)).flatten();
        let mut verdict = None;
        for problem in found {
            let message = problem.message.to_string();
            match problem.severity {
                Severity::Error if FOREIGN.contains(&problem.code) => {
                    verdict = Some((ChangeKind::Lost, message));
                }
                Severity::Warning if IDLE.contains(&problem.code) && problem.path == path => {
                    verdict = Some((ChangeKind::Dropped, message));
                }
                _ => {}
            }
        }
        if let Some((kind, reason)) = verdict {
            let what = match &item.kind {
                NodeKind::Scalar { text, .. } => format!("`{text}`"),
                _ => named_by(item).unwrap_or_else(|| "this element".to_owned()),
            };
            let verb = if kind == ChangeKind::Lost { "left out" } else { "dropped" };
            self.note(kind, line, path, format!("{what}: {reason}"));
            return DraftEntry::left_out(line, vec![format!("{verb}: {what}: {reason}")]);
        }
        let value = self.value(item, path);
        let mut entry = DraftEntry::new(line, "", value);
        self.quote(item, line, path, &mut entry);
        entry
    }
}

pub(super) fn as_is(node: &TreeNode) -> Draft {
    match &node.kind {
        NodeKind::Scalar { text, plain } => Draft::Scalar { text: text.clone(), plain: *plain },
        NodeKind::Map(entries) => Draft::Map(entries.iter().map(entry_as_is).collect()),
        NodeKind::List(items) => {
            let item = |item: &TreeNode| DraftEntry::new(item.span.line, "", as_is(item));
            Draft::List(items.iter().map(item).collect())
        }
    }
}

fn entry_as_is((key, node): &(Key, TreeNode)) -> DraftEntry {
    DraftEntry::new(key.span.line, &*key.text, as_is(node))
}

/// A key with its value as a note, unless it may hold a secret.
fn shown(key: &Key, node: &TreeNode) -> Option<String> {
    if is_secretive(&key.text) || has_secretive(node) {
        return None;
    }
    let entry = DraftEntry::new(1, &*key.text, as_is(node));
    let text = draft::write(&[entry], Vec::new()).text;
    Some(text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))
}

fn naming(key: &str, message: &str) -> String {
    if message.contains(&format!("`{key}`")) { message.to_owned() } else { format!("`{key}`: {message}") }
}

/// The path or name by which messages identify a group.
fn named_by(node: &TreeNode) -> Option<String> {
    let NodeKind::Map(entries) = &node.kind else { return None };
    let (_, node) = entries.iter().find(|(key, _)| matches!(key.text.as_str(), "path" | "name"))?;
    match &node.kind {
        NodeKind::Scalar { text, .. } => Some(format!("`{text}`")),
        _ => None,
    }
}

fn has_secretive(node: &TreeNode) -> bool {
    match &node.kind {
        NodeKind::Scalar { .. } => false,
        NodeKind::List(items) => items.iter().any(has_secretive),
        NodeKind::Map(entries) => {
            entries.iter().any(|(key, node)| is_secretive(&key.text) || has_secretive(node))
        }
    }
}

/// The address of a cluster, without a port.
fn without_port(url: &str) -> String {
    match url.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|b| b.is_ascii_digit()) => bare.to_owned(),
        _ => url.to_owned(),
    }
}

/// True if a place is one of the reference product's ISOs, by its path.
fn is_foreign_iso(text: &str) -> bool {
    let path =
        text.split_once("://").map_or(text, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    path.to_ascii_lowercase().contains("harvester")
}
