//! A YAML document as a tree of nodes with their places.
//!
//! Reads the events of serde-saphyr's parser instead of deserialising at once, because a deserialiser stops at the
//! first mistake and forgets positions, and because only here duplicates and spellings can still be told
//! apart. Anchors, aliases and tags have no use in a configuration and are refused. Documents in which people may use
//! anchors are read by [`read_linked`].

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;

use crate::diagnostic::Problem;
use crate::span::Span;

/// How deep nodes may nest; the deepest key of a configuration is at 5.
const DEPTH: usize = 32;

/// How many nodes the aliases of a document may stand for, all together.
const LINKED: usize = 10_000;

#[derive(Clone, Debug)]
pub struct TreeNode {
    pub span: Span,
    pub kind: NodeKind,
}

#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Text; `plain` where it was written without quotes and could mean a number, a truth value or nothing.
    Scalar { text: String, plain: bool },
    /// `[...]` or lines with `-`.
    List(Vec<TreeNode>),
    /// Keys in the order of the source, duplicates included.
    Map(Vec<(Key, TreeNode)>),
}

#[derive(Clone, Debug)]
pub struct Key {
    /// As written.
    pub text: String,
    pub span: Span,
}

#[derive(Debug, Default)]
pub struct Tree {
    /// The top node; none in an empty document.
    pub root: Option<TreeNode>,
    pub comments: Vec<Span>,
}

/// Reads a document. The first thing that is not YAML, or that a configuration may not use, ends it.
pub fn read(text: &str) -> Result<Tree, Problem> {
    Reader::of(text, None).document().map_err(|problem| slip(text, &problem).unwrap_or(problem))
}

/// The likely cause of a document that is not YAML, at its own line: the parser stumbles where the next thing begins.
fn slip(text: &str, problem: &Problem) -> Option<Problem> {
    let last = problem.span.line;
    let first = last.saturating_sub(2).max(1);
    let mut start = 0;
    for (number, line) in text.split('\n').enumerate().map(|(index, line)| (index + 1, line)).take(last) {
        let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
        let word = line.trim().trim_start_matches("- ");
        let key = word.split_once(':').filter(|(key, value)| {
            crate::diagnostic::is_word(key) && !value.is_empty() && !value.starts_with([' ', '/', '\r'])
        });
        let cause = if number < first || problem.code != "yaml-syntax" {
            None
        } else if indent.contains(|c: char| !" \t\r".contains(c)) {
            Some("this line is indented with a no-break space; indent it with spaces".to_owned())
        } else if indent.contains('\t') && !line.trim().is_empty() {
            Some("this line is indented with a tab; YAML allows only spaces".to_owned())
        } else if word.contains(": {{") || word.contains(":{{") || word.contains("{%") {
            Some("this line has a template placeholder that was not filled in".to_owned())
        } else {
            key.map(|(key, _)| format!("a space is missing after the colon of `{key}`"))
        };
        let depth = indent.chars().count();
        if let Some(cause) = cause {
            let start = start + depth;
            let span = Span { start, end: start, line: number, column: depth + 1 };
            return Some(Problem::new(span, "", "yaml-syntax", format!("not valid YAML: {cause}")));
        }
        start += line.chars().count() + 1;
    }
    None
}

/// Reads a document in which an alias stands for the node of its anchor, `<<` for the keys of another group, and the tag
/// `!!str` for text. What an alias stands for has the place of the alias.
pub fn read_linked(text: &str) -> Result<Tree, Problem> {
    Reader::of(text, Some(AnchorTable::default()))
        .document()
        .map_err(|problem| slip(text, &problem).unwrap_or(problem))
}

impl TreeNode {
    /// The keys of a group with their values; empty for a list and a single value.
    #[must_use]
    pub fn entries(&self) -> &[(Key, Self)] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            NodeKind::List(_) | NodeKind::Scalar { .. } => &[],
        }
    }

    /// The value of a key in exactly this spelling.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(own, _)| own.text == key).map(|(_, value)| value)
    }

    /// True if it is null: absent, `~` or `null` without quotes.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// True if it is text without a character, quoted or unquoted.
    #[must_use]
    pub fn is_empty_text(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, .. } if text.is_empty())
    }

    /// How many nodes it is, with those inside.
    fn size(&self) -> usize {
        1 + match &self.kind {
            NodeKind::Scalar { .. } => 0,
            NodeKind::List(items) => items.iter().map(Self::size).sum::<usize>(),
            NodeKind::Map(entries) => entries.iter().map(|(_, value)| 1 + value.size()).sum(),
        }
    }

    /// Gives the node and all nodes in it the same place.
    fn move_to(&mut self, place: Span) {
        self.each_span(&mut |span| *span = place);
    }

    /// Moves all places `characters` further, for a text that stands behind another one. Lines and columns stay.
    pub fn move_behind(&mut self, characters: usize) {
        self.each_span(&mut |span| {
            (span.start, span.end) = (span.start + characters, span.end + characters);
        });
    }

    fn each_span(&mut self, change: &mut impl FnMut(&mut Span)) {
        change(&mut self.span);
        match &mut self.kind {
            NodeKind::Scalar { .. } => {}
            NodeKind::List(items) => items.iter_mut().for_each(|item| item.each_span(change)),
            NodeKind::Map(entries) => {
                for (key, value) in entries {
                    change(&mut key.span);
                    value.each_span(change);
                }
            }
        }
    }

    /// The kind of node, for messages.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self.kind {
            NodeKind::Scalar { .. } => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a group of keys",
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, serde_saphyr::granit_parser::StrInput<'a>>,
    comments: Vec<Span>,
    held: Option<(Event<'a>, Span)>,
    /// Where the document may have anchors and aliases.
    links: Option<AnchorTable>,
}

/// The anchors of a document that are complete.
#[derive(Default)]
struct AnchorTable {
    /// By the parser's number, with how many nodes it is.
    anchors: HashMap<usize, (TreeNode, usize)>,
    /// How many nodes aliases have stood for.
    linked: usize,
}

impl<'a> Reader<'a> {
    fn of(text: &'a str, links: Option<AnchorTable>) -> Self {
        Self { parser: Parser::new_from_str(text), comments: Vec::new(), held: None, links }
    }

    fn document(mut self) -> Result<Tree, Problem> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(unsupported(span, "a second document in the same file"));
                }
                Event::DocumentStart(..) => root = Some(self.node(0)?),
                _ => return Err(unsupported(span, "this construct")),
            }
        }
        // The parser returns null for a document that has only `---`.
        let root = root.filter(|node| !node.is_nothing());
        Ok(Tree { root, comments: self.comments })
    }

    /// The next event that is not a comment.
    fn next(&mut self) -> Result<(Event<'a>, Span), Problem> {
        if let Some(held) = self.held.take() {
            return Ok(held);
        }
        loop {
            match self.parser.next_event() {
                None => return Ok((Event::StreamEnd, Span::default())),
                Some(Err(error)) => return Err(syntax(&error)),
                Some(Ok((Event::Comment(..), span))) => self.comments.push(span.into()),
                Some(Ok((event, span))) => return Ok((event, span.into())),
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<TreeNode, Problem> {
        let (event, span) = self.next()?;
        if depth > DEPTH {
            return Err(unsupported(span, "nesting this deep"));
        }
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag)
            | Event::SequenceStart(_, anchor, tag)
            | Event::MappingStart(_, anchor, tag) => (*anchor, tag.as_deref()),
            _ => (0, None),
        };
        let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix() == "str");
        let is_allowed = self.links.is_some() && (tag.is_none() || is_text);
        if (anchor != 0 || tag.is_some()) && !is_allowed {
            return Err(unsupported(span, "an anchor or a tag"));
        }
        let node = match event {
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain && !is_text;
                TreeNode { span, kind: NodeKind::Scalar { text: text.into_owned(), plain } }
            }
            Event::SequenceStart(..) if !is_text => self.list(span, depth)?,
            Event::MappingStart(..) if !is_text => self.map(span, depth)?,
            Event::Alias(anchor) => self.linked(anchor, span)?,
            Event::UnresolvedAlias(_) => return Err(unsupported(span, "an alias")),
            _ => return Err(unsupported(span, "this construct")),
        };
        if let (Some(links), 1..) = (&mut self.links, anchor) {
            links.anchors.insert(anchor, (node.clone(), node.size()));
        }
        Ok(node)
    }

    /// The node of the anchor that the alias at `span` names.
    fn linked(&mut self, anchor: usize, span: Span) -> Result<TreeNode, Problem> {
        let Some(links) = &mut self.links else { return Err(unsupported(span, "an alias")) };
        let Some((node, size)) = links.anchors.get(&anchor) else {
            return Err(unsupported(span, "an alias inside its own anchor"));
        };
        links.linked += size;
        if links.linked > LINKED {
            return Err(unsupported(span, "this much content behind aliases"));
        }
        let mut node = node.clone();
        node.move_to(span);
        Ok(node)
    }

    fn list(&mut self, start: Span, depth: usize) -> Result<TreeNode, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, end) => {
                    return Ok(TreeNode { span: start.to(end), kind: NodeKind::List(items) });
                }
                other => self.held = Some(other),
            }
            items.push(self.node(depth + 1)?);
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Result<TreeNode, Problem> {
        let mut entries: Vec<(Key, TreeNode)> = Vec::new();
        let mut merged = None;
        loop {
            match self.next()? {
                (Event::MappingEnd, end) => {
                    for (key, value) in merged.map(others).transpose()?.unwrap_or_default() {
                        // The group's own keys win, then those that are merged first.
                        if !entries.iter().any(|(own, _)| own.text == key.text) {
                            entries.push((key, value));
                        }
                    }
                    return Ok(TreeNode { span: start.to(end), kind: NodeKind::Map(entries) });
                }
                other => self.held = Some(other),
            }
            let key = self.node(depth + 1)?;
            if self.links.is_some() && key.is_nothing() {
                return Err(unsupported(key.span, "an empty key"));
            }
            let NodeKind::Scalar { text, .. } = key.kind else {
                return Err(match is_template(start, &key) {
                    true => Problem::new(start, "", "yaml-syntax", TEMPLATE),
                    false => unsupported(key.span, "a key that is not a single word"),
                });
            };
            if text == "<<" {
                if self.links.is_none() || merged.is_some() {
                    return Err(unsupported(key.span, "a merge key"));
                }
                merged = Some(self.node(depth + 1)?);
                continue;
            }
            entries.push((Key { text, span: key.span }, self.node(depth + 1)?));
        }
    }
}

/// The keys that `<<` brings: those of a group, or of several.
fn others(merged: TreeNode) -> Result<Vec<(Key, TreeNode)>, Problem> {
    let groups = match merged.kind {
        NodeKind::List(groups) => groups,
        _ => vec![merged],
    };
    let mut keys = Vec::new();
    for group in groups {
        match group.kind {
            NodeKind::Map(entries) => keys.extend(entries),
            _ => return Err(unsupported(group.span, "a merge key without a group of keys")),
        }
    }
    Ok(keys)
}

fn syntax(error: &ScanError) -> Problem {
    // The parser's texts name characters, never words of the document.
    Problem::new(Span::at(error.marker()), "", "yaml-syntax", format!("not valid YAML: {}", error.kind()))
}

/// The problem with a template variable that is not in quotes.
const TEMPLATE: &str = "not valid YAML: a template placeholder was not filled in";

/// True if a group that begins at `start` has the group `key` as its key right behind its brace: `{{ token }}`.
fn is_template(start: Span, key: &TreeNode) -> bool {
    matches!(key.kind, NodeKind::Map(_)) && key.span.start == start.start + 1
}

fn unsupported(span: Span, what: &str) -> Problem {
    Problem::new(span, "", "yaml-unsupported", format!("{what} is not allowed in a configuration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_where_they_stand() {
        let tree = read("os:\n  hostname: a # why\n").unwrap();
        let Some(TreeNode { kind: NodeKind::Map(top), .. }) = tree.root else { panic!() };
        let NodeKind::Map(os) = &top[0].1.kind else { panic!() };
        let (key, value) = &os[0];
        assert_eq!((key.span.line, key.span.column), (2, 3));
        assert_eq!((value.span.line, value.span.column, value.span.range()), (2, 13, 16..17));
        assert_eq!(tree.comments[0].column, 15);
    }

    #[test]
    fn an_empty_document_has_no_root() {
        for text in ["", "# only a comment\n", "---\n", "~\n"] {
            assert!(read(text).unwrap().root.is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_linked_document_has_what_its_aliases_stand_for() {
        let tree = read_linked("a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, l: !!str 3}\n").unwrap();
        let Some(TreeNode { kind: NodeKind::Map(top), .. }) = tree.root else { panic!() };
        let NodeKind::Map(b) = &top[1].1.kind else { panic!() };
        assert_eq!((b.len(), top[1].1.span.line, b[0].1.span.line), (2, 2, 2));
        let NodeKind::Map(c) = &top[2].1.kind else { panic!() };
        let keys: Vec<_> = c.iter().map(|(key, _)| key.text.as_str()).collect();
        assert_eq!(keys, ["l", "k"]);
        assert!(matches!(&c[0].1.kind, NodeKind::Scalar { text, plain: false } if text == "3"));
        for text in
            ["a: &x [*x]\n", "a: *x\n", "a: !!int 2\n", "a: {<<: 1}\n", "a: {~: 1}\n", "a: 1\n---\nb: 2\n"]
        {
            assert!(read_linked(text).is_err(), "{text}");
        }
        let doubling: String = (1..40).map(|n| format!("a{n}: &x{n} [*x{m}, *x{m}]\n", m = n - 1)).collect();
        let bomb = format!("a0: &x0 [1]\n{doubling}");
        assert_eq!(read_linked(&bomb).unwrap_err().code, "yaml-unsupported");
    }

    #[test]
    fn what_a_configuration_may_not_use_is_refused_where_it_stands() {
        for (text, line) in [
            ("a: &x 1\n", 1),
            ("a: 1\nb: !!str 2\n", 2),
            ("a: 1\n---\nb: 2\n", 2),
            ("? [a]\n: 1\n", 1),
            ("a: {<<: {b: 1}}\n", 1),
        ] {
            let problem = read(text).unwrap_err();
            assert_eq!((problem.code, problem.span.line), ("yaml-unsupported", line), "{text}");
        }
        assert_eq!(read("a: [1\nb: 2\n").unwrap_err().code, "yaml-syntax");
        assert!(read(&"[".repeat(500)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[ -~\n\t]{0,200}") {
            let _ = read(&text);
            let _ = read_linked(&text);
        }
    }
}
