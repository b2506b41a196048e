//! Documents to one checked configuration. Each document is held against the shape by itself, so that a mistake
//! is one in whatever source; the rules see the merged configuration, and what they find is placed at the
//! source of the value that it is about.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_json::{Map, Value};

use super::SourceKind;
use super::document::{Document, DocumentPart};
use super::merge::SourcedValue;
use crate::config::harvester::InstallDialect;
use crate::config::rules;
use crate::config::shape;
use crate::config::{InstallConfig, Webhook};
use base::{encode, url};
use document::diagnostic::{Diagnostic, Invalid, Problem, Ranges, Severity};
use document::echo::{self, MistakePaths};
use document::finding::Finding;
use document::shape::Shape;
use document::shape_check::ShapeCheck;
use document::span::Span;
use document::tree::{NodeKind, TreeNode};

/// The widest value that a listing shows, in characters.
const WIDTH: usize = 60;

/// A configuration and where it came from.
#[derive(Debug, Default)]
pub struct CombinedConfig {
    pub config: InstallConfig,
    /// Where each value came from, by path. What no source gives is not listed.
    pub entries: Vec<ConfigEntry>,
    /// Certificates (PEM) of authorities to trust beside the usual ones.
    pub authorities: Vec<String>,
    /// Document by document.
    pub warnings: Vec<Diagnostic>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ConfigEntry {
    /// Dotted key.
    #[serde(skip)]
    pub path: String,
    pub source: SourceKind,
    /// The document, as diagnostics name it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// The value as text; none for a secret.
    pub value: Option<String>,
}

impl fmt::Display for ConfigEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, source, file, line, column, value } = self;
        let value = value.as_deref().unwrap_or("[hidden]");
        write!(f, "{path} = {value}\n    {source}, {file}:{line}:{column}")
    }
}

impl CombinedConfig {
    #[must_use]
    pub fn listing(&self) -> String {
        self.entries.iter().map(|entry| format!("{entry}\n")).collect()
    }

    /// The listing for programs: an object with an entry for each path.
    #[must_use]
    pub fn sources(&self) -> Value {
        Value::Object(self.entries.iter().map(|each| (each.path.clone(), encode::json(each))).collect())
    }
}

/// Merges `documents`, the weakest first, and checks the result; every mistake of every document comes at once.
#[expect(
    clippy::expect_used,
    reason = "a value that is no configuration is one of the mistakes that end this before"
)]
pub fn combine(documents: &[Document]) -> Result<CombinedConfig, Invalid> {
    let (examined, judged) = judge(documents);
    let Some((merged, config)) = judged else {
        return examined
            .verdict(documents)
            .map(|warnings| CombinedConfig { warnings, ..CombinedConfig::default() });
    };
    let entries = examined.entries(documents, &merged);
    let warnings = examined.verdict(documents)?;
    let authorities = authorities(&merged.value());
    let config = config.expect("documents without mistakes are a configuration");
    Ok(CombinedConfig { config: rules::without_idle(config), entries, authorities, warnings })
}

/// The merged value of documents, and the configuration that it is.
type MergedConfig = (SourcedValue, Result<InstallConfig, serde_json::Error>);

/// Holds `documents`, the weakest first, against the shape and the rules; with what they say together, unless they say
/// nothing, and its type, if it fits.
fn judge(documents: &[Document]) -> (CheckedDocuments, Option<MergedConfig>) {
    let mut examined = CheckedDocuments::of(documents, shape::install_config());
    let Some(merged) = examined.merged.take() else { return (examined, None) };
    let config = serde_json::from_value::<InstallConfig>(merged.value());
    match &config {
        Ok(config) if !examined.unread => {
            let unusable: Vec<_> = examined.walks.iter().map(|walk| &walk.unusable).collect();
            let rules = match documents.iter().any(Document::is_in_use) {
                true => rules::check_in_use,
                false => rules::check,
            };
            let judge = |value| serde_json::from_value(value).ok().map(|config| rules(&config));
            let findings = echo::undisputed(rules(config), &unusable, &merged.value(), judge);
            examined.breaches(documents, findings, &merged);
        }
        Err(_) if examined.is_clean() => {
            let problem = Problem::unusable(examined.place(merged.source, ""));
            examined.walks[merged.source].problems.push(problem);
        }
        _ => {}
    }
    (examined, Some((merged, config)))
}

/// The usable part of a document that stands alone and may have mistakes: every value without one, and the mistakes. For work
/// that goes on although nobody can correct the document first.
///
/// # Errors
/// Nothing of it can be used: it is not YAML, or not a configuration.
pub(in crate::config) fn usable(document: Document) -> Result<(InstallConfig, Vec<Diagnostic>), Invalid> {
    document.is_configuration()?;
    let documents = [document];
    let (examined, judged) = judge(&documents);
    let config = judged.and_then(|(_, config)| config.ok()).filter(|_| !examined.unread);
    match (config, examined.verdict(&documents).err()) {
        (None, Some(invalid)) => Err(invalid),
        (config, invalid) => {
            let mistakes = invalid.map(|invalid| invalid.0).unwrap_or_default();
            Ok((rules::without_idle(config.unwrap_or_default()), mistakes))
        }
    }
}

/// Everything that is found in a document alone, and the canonical name of each of its keys, by where the key begins.
pub(in crate::config) fn findings(document: Document) -> (Vec<Problem>, HashMap<usize, String>) {
    let (mut examined, _) = judge(&[document]);
    let walk = examined.walks.swap_remove(0);
    (walk.problems, walk.names)
}

/// Checks a document that stands alone although a machine has more sources, as the kernel command line does: where it names the URL
/// of the rest, it is only a part, else it is the whole configuration.
pub fn combine_alone(document: Document) -> Result<CombinedConfig, Invalid> {
    let documents = [document];
    let mut examined = CheckedDocuments::of(&documents, shape::install_config());
    let rest = |merged: &SourcedValue| merged.value().pointer("/install/config_url").is_some();
    match examined.merged.take().filter(rest) {
        None => combine(&documents),
        Some(merged) => {
            let entries = examined.entries(&documents, &merged);
            Ok(CombinedConfig {
                entries,
                warnings: examined.verdict(&documents)?,
                ..CombinedConfig::default()
            })
        }
    }
}

/// The usable part of documents with mistakes, to report the failure: the webhooks that are valid
/// themselves, and the certificates and the name that they need. Nothing else is in it.
#[must_use]
pub fn salvage(documents: &[Document]) -> InstallConfig {
    let examined = CheckedDocuments::of(documents, shape::install_config());
    let mut saved = InstallConfig::default();
    saved.install.webhooks = documents.iter().rev().find_map(hooks).unwrap_or_default();
    let Some(merged) = &examined.merged else { return saved };
    let value = merged.value();
    let authorities = authorities(&value).into_iter();
    saved.install.ca_certificates = authorities.filter_map(|pem| pem.parse().ok()).collect();
    saved.os.hostname =
        value.pointer("/os/hostname").and_then(Value::as_str).and_then(|name| name.parse().ok());
    saved
}

/// The webhooks of one document that have no mistake, each by itself; none where it has no list of them.
fn hooks(document: &Document) -> Option<Vec<Webhook>> {
    let root = document.content().as_ref().ok()?.root.as_ref()?;
    let NodeKind::List(items) = &root.get("install")?.get("webhooks")?.kind else { return None };
    let Shape::List(shape) = shape::install_config().at("install")?.at("webhooks")? else { return None };
    let one = |item: &TreeNode| {
        let mut walk = ShapeCheck::new(&InstallDialect);
        let value = walk.value(item, shape, "")?;
        let right = walk.problems.iter().all(|problem| problem.severity == Severity::Warning);
        right.then(|| serde_json::from_value(value).ok()).flatten()
    };
    Some(items.iter().filter_map(one).collect())
}

/// Checks a document that is only a part of a configuration: key by key. The rules, most of which need the
/// whole, wait until its parts are put together.
pub fn check_partial(document: Document) -> Result<(), Invalid> {
    let documents = [document];
    CheckedDocuments::of(&documents, shape::install_config()).verdict(&documents).map(drop)
}

/// The texts of `install.ca_certificates`.
pub(super) fn authorities(config: &Value) -> Vec<String> {
    let list = config.pointer("/install/ca_certificates").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|pem| pem.as_str().map(str::to_owned)).collect()
}

/// Documents that have been held against their shape.
#[derive(Debug)]
pub(super) struct CheckedDocuments {
    walks: Vec<ShapeCheck>,
    /// All documents merged; `None` if all are empty.
    pub(super) merged: Option<SourcedValue>,
    /// True if one of them is not valid YAML.
    unread: bool,
}

impl CheckedDocuments {
    /// Holds `documents`, the weakest first, against `shape`.
    pub(super) fn of(documents: &[Document], shape: &Shape) -> Self {
        let mut examined = Self { walks: Vec::new(), merged: None, unread: false };
        for (source, document) in documents.iter().enumerate() {
            let mut walk = ShapeCheck::new(&InstallDialect);
            match document.content() {
                Err(problem) => {
                    walk.problems.push(problem.clone());
                    examined.unread = true;
                }
                Ok(content) => {
                    walk.problems.extend_from_slice(&content.problems);
                    walk.hidden.extend_from_slice(&content.hidden);
                    if let Some(root) = &content.root {
                        let value = walk.value(root, shape, "").unwrap_or_else(|| Value::Object(Map::new()));
                        let keys = document.only().map(|part| part.keys).unwrap_or_default();
                        let piece = SourcedValue::of(&value, source);
                        let piece = keys.iter().fold(piece, |piece, key| piece.closed_at(key));
                        examined.merged = Some(match examined.merged.take() {
                            Some(weaker) => weaker.under(piece),
                            None => piece,
                        });
                    }
                }
            }
            for refused in document.refused() {
                if let Some(span) = walk.places.get(refused.path) {
                    walk.problems.push(Problem::new(*span, refused.path, refused.code, refused.message));
                }
            }
            if let Some(part) = document.only() {
                walk.problems.extend(others(part, &walk.places));
            }
            examined.walks.push(walk);
        }
        examined
    }

    /// True if there are no errors so far.
    pub(super) fn is_clean(&self) -> bool {
        self.walks.iter().flat_map(|walk| &walk.problems).all(|problem| problem.severity == Severity::Warning)
    }

    /// The text at a path such as `/install/config_url`, with the number of its source.
    pub(super) fn text(&self, pointer: &str) -> Option<(String, usize)> {
        let merged = self.merged.as_ref()?;
        let text = merged.value().pointer(pointer)?.as_str()?.to_owned();
        let path = pointer.trim_start_matches('/').replace('/', ".");
        Some((text, merged.nearest(&path).0))
    }

    /// Every warning, document by document; with a mistake, every mistake beside them.
    pub(super) fn verdict(self, documents: &[Document]) -> Result<Vec<Diagnostic>, Invalid> {
        let clean = self.is_clean();
        let mut all: Vec<Diagnostic> = Vec::new();
        for (walk, document) in self.walks.into_iter().zip(documents) {
            all.extend(document.source(walk.hidden).diagnose(walk.problems).0);
        }
        if clean { Ok(all) } else { Err(Invalid(all)) }
    }

    /// Places what the rules have found. A finding about a value that has a mistake of its own in one of the
    /// documents, or that holds one or is in one, is an echo of that mistake and is dropped.
    fn breaches(&mut self, documents: &[Document], findings: Vec<Finding>, merged: &SourcedValue) {
        let mistakes = MistakePaths::of(self.walks.iter().flat_map(|walk| &walk.problems));
        for Finding { severity, path, code, message, suggestion } in findings {
            let lost = || self.walks.iter().any(|walk| walk.unusable.has_around(&path));
            if mistakes.within(&path) || lost() {
                continue;
            }
            let (nearest, at) = merged.nearest(&path);
            let source = if merged.is_group(&path) { self.lacking(documents, nearest, at) } else { nearest };
            let span = self.place(source, at);
            // A whole group is too much to underline; its beginning will do.
            let known = at == path && self.walks[source].places.contains_key(at);
            let span = if known { span } else { Span { end: span.start, ..span } };
            let problem = Problem { severity, ..Problem::new(span, path, code, message).suggest(suggestion) };
            self.walks[source].problems.push(problem);
        }
    }

    /// The source whose group `at` lacks something, where `nearest` is the strongest that has the group. Parameters are
    /// mostly put there by what boots a machine, so the strongest document that somebody has written comes before them.
    fn lacking(&self, documents: &[Document], nearest: usize, at: &str) -> usize {
        let written = |(document, walk): (&Document, &ShapeCheck)| {
            let kind = document.kind();
            let written = matches!(
                kind,
                SourceKind::Embedded | SourceKind::Volume | SourceKind::Url | SourceKind::File
            );
            written && walk.places.contains_key(at)
        };
        let given = documents[nearest].kind() == SourceKind::KernelParameters;
        let having = || documents.iter().zip(&self.walks).rposition(written);
        given.then(having).flatten().unwrap_or(nearest)
    }

    /// Where a document has the value at `path`, or what is nearest above it.
    fn place(&self, source: usize, path: &str) -> Span {
        let places = &self.walks[source].places;
        let mut at = path;
        loop {
            match places.get(at) {
                Some(span) => return *span,
                None if at.is_empty() => return Span::default(),
                None => at = at.rfind(['.', '[']).map_or("", |end| &at[..end]),
            }
        }
    }

    fn entries(&self, documents: &[Document], merged: &SourcedValue) -> Vec<ConfigEntry> {
        let hidden: Vec<_> = self.walks.iter().map(|walk| Ranges::new(walk.hidden.clone())).collect();
        let entry = |(path, source, value): (String, usize, Value)| {
            let span = self.place(source, &path);
            let hidden = hidden[source].contains(span.start);
            ConfigEntry {
                source: documents[source].kind(),
                file: documents[source].name().to_owned(),
                line: span.line,
                column: span.column,
                value: (!hidden).then(|| shown(&value)),
                path,
            }
        };
        merged.leaves().into_iter().filter(|(path, ..)| !path.is_empty()).map(entry).collect()
    }
}

/// The keys that a part must not have, of several inside each other the outermost.
fn others(part: &DocumentPart, places: &HashMap<String, Span>) -> Vec<Problem> {
    let stray: BTreeMap<&String, &Span> = places.iter().filter(|(path, _)| !part.has(path)).collect();
    let outermost = |path: &&String| {
        let above = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
        part.has(above)
    };
    let problem = |path: &String| Problem::new(*stray[path], path, "other-key", part.message);
    stray.keys().copied().filter(outermost).map(problem).collect()
}

/// A value on one line that is not too long.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), url::shown);
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
