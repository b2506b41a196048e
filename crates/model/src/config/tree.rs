//! A YAML document as a tree whose every node knows where it stands.
//!
//! Reads the events of serde-saphyr's parser instead of deserialising at once, because a deserialiser stops at the
//! first mistake and forgets positions, and because only here duplicates and spellings can still be told
//! apart. Anchors, aliases and tags have no use in a configuration and are refused.

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError};

use super::diagnostic::Problem;
use super::span::Span;

/// How deep nodes may nest; the deepest key of a configuration is at 5.
const DEPTH: usize = 32;

/// One node.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Text; `plain` where it was written without quotes and could mean a number, a truth value or nothing.
    Scalar { text: String, plain: bool },
    /// `[...]` or lines with `-`.
    List(Vec<TreeNode>),
    /// Keys in the order of the source, duplicates included.
    Map(Vec<(Key, TreeNode)>),
}

/// The key of a mapping.
#[derive(Clone, Debug)]
pub struct Key {
    /// As written.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// A document and its comments.
#[derive(Debug, Default)]
pub struct Tree {
    /// The top node; none in an empty document.
    pub root: Option<TreeNode>,
    /// Where the comments stand.
    pub comments: Vec<Span>,
}

/// Reads a document. The first thing that is not YAML, or that a configuration may not use, ends it.
pub fn read(text: &str) -> Result<Tree, Problem> {
    let mut reader = Reader { parser: Parser::new_from_str(text), comments: Vec::new(), held: None };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentEnd => {}
            Event::DocumentStart(..) if root.is_some() => {
                return Err(unsupported(span, "a second document in the same file"));
            }
            Event::DocumentStart(..) => root = Some(reader.node(0)?),
            _ => return Err(unsupported(span, "this construct")),
        }
    }
    // The parser makes a nothing of a document that has only a `---`.
    let root = root.filter(|node| !node.is_nothing());
    Ok(Tree { root, comments: reader.comments })
}

impl TreeNode {
    /// Whether it is an unquoted nothing: absent, `~` or `null`.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
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
}

impl<'a> Reader<'a> {
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
        match event {
            Event::Scalar(_, _, anchor, ref tag) if anchor != 0 || tag.is_some() => {
                Err(unsupported(span, "an anchor or a tag"))
            }
            Event::SequenceStart(_, anchor, ref tag) | Event::MappingStart(_, anchor, ref tag)
                if anchor != 0 || tag.is_some() =>
            {
                Err(unsupported(span, "an anchor or a tag"))
            }
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain;
                Ok(TreeNode { span, kind: NodeKind::Scalar { text: text.into_owned(), plain } })
            }
            Event::SequenceStart(..) => self.list(span, depth),
            Event::MappingStart(..) => self.map(span, depth),
            Event::Alias(_) | Event::UnresolvedAlias(_) => Err(unsupported(span, "an alias")),
            _ => Err(unsupported(span, "this construct")),
        }
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
        let mut entries = Vec::new();
        loop {
            match self.next()? {
                (Event::MappingEnd, end) => {
                    return Ok(TreeNode { span: start.to(end), kind: NodeKind::Map(entries) });
                }
                other => self.held = Some(other),
            }
            let key = self.node(depth + 1)?;
            let NodeKind::Scalar { text, .. } = key.kind else {
                return Err(unsupported(key.span, "a key that is not a single word"));
            };
            if text == "<<" {
                return Err(unsupported(key.span, "a merge key"));
            }
            entries.push((Key { text, span: key.span }, self.node(depth + 1)?));
        }
    }
}

fn syntax(error: &ScanError) -> Problem {
    // The parser's texts name characters, never words of the document.
    Problem::new(Span::at(error.marker()), "", "yaml-syntax", format!("not valid YAML: {}", error.kind()))
}

fn unsupported(span: Span, what: &str) -> Problem {
    Problem::new(span, "", "yaml-unsupported", format!("{what} has no place in a configuration"))
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
        }
    }
}
