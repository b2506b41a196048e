//! The texts of a definition: its own and, by `extends`, those that it builds on. They become one tree, and every place in it
//! still says which text it is in. With variants there is one tree for each of them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use document::diagnostic::{Problem, Source};
use document::shape::Shape;
use document::span::Span;
use document::tree::{self, NodeKind, TreeNode};
use model::config::Invalid;
use model::config::kind::DocumentKind;

use super::extend;
use super::formats::PathTarget;
use super::shape::{EXTENDS, VARIANTS, schema, shape};
use super::spellings;
use super::variants::{self, Variant};

/// How many definitions one can build on.
const DEPTH: usize = 16;
/// The definitions that the builder itself has, by the names that `extends` knows them by.
const BUILT_IN: [(&str, &str); 1] = [("minimal", include_str!("../../../configs/images/minimal.yaml"))];
/// The place of the first character of a document.
pub(super) const DOCUMENT_BEGIN: Span = Span { start: 0, end: 0, line: 1, column: 1 };

/// A text and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct DefinitionText {
    /// Its name in messages.
    pub name: String,
    /// Its path without links, which identifies it.
    pub identity: PathBuf,
    pub text: String,
}

/// Reads the text at a path, which is relative to the first definition.
pub(super) type ReadText<'r> = &'r dyn Fn(&Path) -> Result<DefinitionText>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedDefinition {
    /// Relative to the first definition; a bare name where the builder itself has it.
    pub path: PathBuf,
    pub digest: Digest,
}

/// The texts, that of the definition itself first.
#[derive(Debug)]
pub(super) struct Chain(Vec<ChainLink>);

/// The document of a definition, or of one of its variants.
#[derive(Debug)]
pub(super) struct WholeDocument {
    /// The name of the variant, and where it is written.
    pub variant: Option<(String, Span)>,
    pub root: TreeNode,
    /// The mistakes in how its texts build on each other.
    pub problems: Vec<Problem>,
}

#[derive(Debug)]
struct ChainLink {
    source: DefinitionText,
    path: PathBuf,
    /// The places of its tree, in characters of all texts.
    range: Range<usize>,
    comments: Vec<Span>,
}

impl Chain {
    /// Reads `first` and what it extends. Returns the texts, and the documents that they are together: one, or one for each variant.
    pub(super) fn read(
        first: DefinitionText,
        read: ReadText<'_>,
    ) -> Result<(Self, Vec<WholeDocument>), Invalid> {
        let (mut chain, mut trees, mut problems) = (Self(Vec::new()), Vec::new(), Vec::new());
        let mut variants = None;
        let mut next = Some((PathBuf::new(), first));
        while let Some((path, source)) = next.take() {
            let directory = path.parent().unwrap_or(Path::new("")).to_owned();
            let mut root = chain.add(path, source)?;
            if let Some(named) = taken(&mut root, EXTENDS)
                && let Some(name) = extended(&named, &mut problems)
            {
                match chain.follow(&directory, &name, read) {
                    Ok(found) => next = Some(found),
                    Err((code, message)) => {
                        problems.push(Problem::new(named.span, EXTENDS, code, message));
                    }
                }
            }
            let own_variants = taken(&mut root, VARIANTS);
            if trees.is_empty() {
                variants = own_variants.map(|node| variants::listed(node, &mut problems));
            }
            respelled(&mut root);
            relocate(&mut root, shape(), &directory);
            trees.push(root);
        }
        let mut whole = None;
        while let Some(own) = trees.pop() {
            whole = Some(extend::merge(whole, own, schema(), &mut problems));
        }
        let root = whole.unwrap_or(TreeNode { span: DOCUMENT_BEGIN, kind: NodeKind::Map(Vec::new()) });
        let variant_of = |Variant { name, mut part }: Variant| {
            let (place, mut problems) = (part.span, problems.clone());
            respelled(&mut part);
            let root = extend::merge(Some(root.clone()), part, schema(), &mut problems);
            WholeDocument { variant: Some((name, place)), root, problems }
        };
        let documents: Vec<_> = variants.into_iter().flatten().map(variant_of).collect();
        match documents.is_empty() {
            true => Ok((chain, vec![WholeDocument { variant: None, root, problems }])),
            false => Ok((chain, documents)),
        }
    }

    /// Adds a text; returns its tree.
    fn add(&mut self, path: PathBuf, source: DefinitionText) -> Result<TreeNode, Invalid> {
        let begin = self.0.last().map_or(0, |link| link.range.end);
        let DefinitionText { name, text, .. } = &source;
        let unread = |problem| Source::unread(name, text).diagnose(vec![problem]);
        let tree = tree::read_linked(text).map_err(unread)?;
        let Some(mut root) = tree.root else {
            let message = "the definition is empty; the shortest one is `extends: minimal`";
            let problem = Problem::new(DOCUMENT_BEGIN, "", "empty-document", message);
            return Err(Source::new(name, text, Vec::new(), &tree.comments).diagnose(vec![problem]));
        };
        if let Some(kind) = DocumentKind::of(&root).filter(|kind| *kind != DocumentKind::ImageDefinition) {
            let problem = Problem::new(DOCUMENT_BEGIN, "", "other-document", kind.told());
            return Err(Source::new(name, text, Vec::new(), &tree.comments).diagnose(vec![problem]));
        }
        root.move_behind(begin);
        let range = begin..begin + text.chars().count() + 1;
        self.0.push(ChainLink { source, path, range, comments: tree.comments });
        Ok(root)
    }

    /// The text that `extends: NAME` means in a definition in `directory`.
    fn follow(
        &self,
        directory: &Path,
        name: &str,
        read: ReadText<'_>,
    ) -> Result<(PathBuf, DefinitionText), (&'static str, String)> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| known == &name) {
            let identity = PathBuf::from(format!("builtin:{name}"));
            let source =
                DefinitionText { name: format!("{name} (built in)"), identity, text: (*text).to_owned() };
            return Ok((PathBuf::from(name), source));
        }
        if name.contains("://") {
            let message = "this is a URL, and a definition extends a file; download it first, and keep it with this one";
            return Err(("invalid-path", message.to_owned()));
        }
        let path = directory.join(name);
        let source = read(&path).map_err(|error| {
            let why = error.root_cause().to_string();
            let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| format!("`{name}`")).collect();
            let hint = match name.contains(['/', '.']) {
                true => String::new(),
                false => format!("; the builder itself has {}", known.join(", ")),
            };
            ("missing-file", format!("the definition {} cannot be read: {why}{hint}", path.display()))
        })?;
        if self.0.iter().any(|link| link.source.identity == source.identity) {
            let names: Vec<_> = self.0.iter().map(|link| link.source.name.as_str()).collect();
            let message = format!("the definitions extend each other: {}, {}", names.join(", "), source.name);
            return Err(("circular-extends", message));
        }
        if self.0.len() > DEPTH {
            return Err(("circular-extends", format!("a definition can extend {DEPTH} others at most")));
        }
        Ok((path, source))
    }

    /// The definitions that it extends, the nearest first.
    pub(super) fn extended(&self) -> Vec<ExtendedDefinition> {
        let others = self.0.iter().skip(1);
        let of = |link: &ChainLink| ExtendedDefinition {
            path: link.path.clone(),
            digest: Digest::of(link.source.text.as_bytes()),
        };
        others.map(of).collect()
    }

    /// Where a place is, if that is in another text than the definition's own: name and line.
    pub(super) fn origin(&self, span: Span) -> Option<String> {
        let link = self.0.iter().skip(1).find(|link| link.range.contains(&span.start))?;
        Some(format!("{}:{}", link.source.name, span.line))
    }

    /// Ties each problem to its text. `hidden` are the characters that must not be shown.
    pub(super) fn diagnose(&self, problems: &[Problem], hidden: &[Range<usize>]) -> Invalid {
        let mut all = Vec::new();
        for link in &self.0 {
            let begin = link.range.start;
            let own = problems.iter().filter(|problem| link.range.contains(&problem.span.start));
            let own = own.map(|problem| {
                let Span { start, end, .. } = problem.span;
                let span = Span {
                    start: start - begin,
                    end: end.saturating_sub(begin).max(start - begin),
                    ..problem.span
                };
                Problem { span, ..problem.clone() }
            });
            let hidden = hidden.iter().filter(|range| link.range.contains(&range.start));
            let hidden = hidden.map(|range| range.start - begin..range.end - begin);
            let source = Source::new(&link.source.name, &link.source.text, hidden.collect(), &link.comments);
            all.extend(source.diagnose(own.collect()).0);
        }
        Invalid(all)
    }
}

/// Turns what may be spelled in another way into the form that texts are merged in.
fn respelled(root: &mut TreeNode) {
    spellings::publish_names(root, schema());
    spellings::list_singles(root, schema());
}

/// Takes the value of a key that is no part of the image out of a document.
fn taken(root: &mut TreeNode, name: &str) -> Option<TreeNode> {
    let NodeKind::Map(entries) = &mut root.kind else { return None };
    let at = entries.iter().position(|(key, _)| key.text == name)?;
    Some(entries.remove(at).1)
}

/// The path in `extends`; none if it has no value.
fn extended(node: &TreeNode, problems: &mut Vec<Problem>) -> Option<String> {
    match &node.kind {
        NodeKind::Scalar { .. } if node.is_nothing() => None,
        NodeKind::Scalar { text, .. } if !text.is_empty() && !text.contains(char::is_control) => {
            Some(text.clone())
        }
        NodeKind::Scalar { .. } => {
            problems.push(Problem::new(node.span, EXTENDS, "invalid-path", "the value is not a path"));
            None
        }
        _ => {
            let message = format!("expected the path of one definition, found {}", node.noun());
            problems.push(Problem::new(node.span, EXTENDS, "wrong-type", message));
            None
        }
    }
}

/// Makes the paths of a definition in `directory` relative to the first definition.
fn relocate(node: &mut TreeNode, shape: &Shape, directory: &Path) {
    if directory.as_os_str().is_empty() || node.is_nothing() {
        return;
    }
    match (shape, &mut node.kind) {
        (Shape::Text { format: Some(format), .. }, NodeKind::Scalar { text, plain }) => {
            if let Some((_, path)) = PathTarget::of(format, text) {
                *text = directory.join(path).to_string_lossy().into_owned();
                *plain = false;
            }
        }
        (Shape::List(item), NodeKind::List(items)) => {
            items.iter_mut().for_each(|node| relocate(node, item, directory));
        }
        // `add` and `remove`.
        (Shape::List(_), NodeKind::Map(entries)) => {
            entries.iter_mut().for_each(|(_, node)| relocate(node, shape, directory));
        }
        (_, NodeKind::Map(entries)) => {
            for (key, node) in entries {
                if let Some(shape) = shape.at(&key.text) {
                    relocate(node, shape, directory);
                }
            }
        }
        _ => {}
    }
}
