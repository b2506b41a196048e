//! Streams of YAML documents, divided as RKE2 and K3s divide them (at lines of three dashes and nowhere else), so that
//! the builder sees exactly the documents that they apply.

use serde_json::Value;
use serde_saphyr::options::DuplicateKeyPolicy;

/// The nesting limit of documents. Schemas of custom resources exceed the parser's own limit.
const MAX_DOCUMENT_DEPTH: usize = 200;

#[derive(Clone, Copy, Debug)]
pub(super) struct ManifestDocument<'a> {
    /// Its number in the stream, from 1. Empty documents are counted.
    pub(super) number: usize,
    /// The number of its first line, from 1.
    line: usize,
    text: &'a str,
}

impl<'a> ManifestDocument<'a> {
    pub(super) fn all(stream: &'a str) -> Vec<Self> {
        let mut documents = Vec::new();
        let (mut start, mut offset, mut line) = (0, 0, 1);
        let mut add = |text, line| documents.push(Self { number: documents.len() + 1, line, text });
        for (index, text) in stream.split_inclusive('\n').enumerate() {
            if is_marker(text) {
                // The text before the first marker is a document only if it is not empty.
                if start > 0 || !is_empty(&stream[..offset]) {
                    add(&stream[start..offset], line);
                }
                (start, line) = (offset + text.len(), index + 2);
            }
            offset += text.len();
        }
        add(&stream[start..], line);
        documents
    }

    /// The document's value; `None` if it is empty. An error is text with the line in the stream.
    pub(super) fn value(&self) -> Result<Option<Value>, String> {
        if is_empty(self.text) {
            return Ok(None);
        }
        let options = serde_saphyr::options! {
            // As the cluster reads it; charts contain duplicate keys.
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            budget: serde_saphyr::budget! { max_depth: MAX_DOCUMENT_DEPTH, max_nodes: 1_000_000 },
        };
        // Empty lines in front make the parser count lines of the stream.
        let text = "\n".repeat(self.line - 1) + self.text;
        let told = |error: serde_saphyr::Error| {
            format!("is not YAML: {}", error.to_string().lines().next().unwrap_or_default())
        };
        let mut values =
            serde_saphyr::from_multiple_with_options::<Value>(&text, options).map_err(told)?.into_iter();
        match (values.next(), values.next()) {
            (_, Some(_)) => {
                Err("has a second document that does not begin with a line of three dashes".into())
            }
            (value, None) => Ok(value.filter(|value| !value.is_null())),
        }
    }

    /// The number of the first line that contains `text`; the document's first line if none does.
    pub(super) fn line_of(&self, text: &str) -> usize {
        let found = (!text.is_empty()).then(|| self.text.lines().position(|line| line.contains(text)));
        self.line + found.flatten().unwrap_or(0)
    }

    /// The template that helm names as the source of the document.
    pub(super) fn template(&self) -> Option<&'a str> {
        self.text.lines().find_map(|line| line.strip_prefix("# Source: "))
    }
}

/// As Kubernetes' reader of streams has it (`YAMLReader`): a comment may follow the dashes, nothing else.
fn is_marker(line: &str) -> bool {
    let rest = line.strip_prefix("---").map(str::trim);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
}

fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values(stream: &str) -> Vec<(usize, usize, Option<Value>)> {
        let documents = ManifestDocument::all(stream);
        documents.iter().map(|document| (document.number, document.line, document.value().unwrap())).collect()
    }

    #[test]
    fn documents_have_numbers_and_lines() {
        assert_eq!(values("a: 1\n"), [(1, 1, Some(json!({"a": 1})))]);
        let stream = "# head\n---\na: 1\n--- # next\n\n---\nb: |\n  ---\n  x\n---";
        let expected = [
            (1, 3, Some(json!({"a": 1}))),
            (2, 5, None),
            (3, 7, Some(json!({"b": "---\nx\n"}))),
            (4, 11, None),
        ];
        assert_eq!(values(stream), expected);
        assert_eq!(values(""), [(1, 1, None)]);
    }

    #[test]
    fn a_document_that_the_distributions_would_pass_over_is_an_error() {
        for stream in ["a: 1\n--- {b: 2}\n", "a: 1\n...\nb: 2\n", "%YAML 1.1\n---\na: 1\n"] {
            let faults =
                ManifestDocument::all(stream).iter().filter(|document| document.value().is_err()).count();
            assert_eq!(faults, 1, "{stream}");
        }
    }

    #[test]
    fn mistakes_are_told_with_the_line_of_the_stream() {
        let documents = ManifestDocument::all("a: 1\n---\nb: [\n");
        let told = documents[1].value().unwrap_err();
        assert!(
            told.starts_with("is not YAML") && told.contains("line 4") || told.contains("line 3"),
            "{told}"
        );
        assert_eq!(documents[1].line_of("b: ["), 3);
        assert_eq!(documents[1].line_of("nowhere"), 3);
    }

    #[test]
    fn keys_that_are_no_text_merge_keys_and_repeated_keys_are_read_as_the_cluster_does() {
        let stream = "base: &base {a: 1}\n1: one\nitem: {<<: *base, b: 2}\nb: 1\nb: 2\n";
        let expected = json!({"base": {"a": 1}, "1": "one", "item": {"a": 1, "b": 2}, "b": 2});
        assert_eq!(values(stream), [(1, 1, Some(expected))]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_every_line_is_in_its_place(stream in "(---|a: \\[|[a-z&*!:{}\\[\\]\"'|>#% .-]{0,12}|\\PC{0,6})(\n(---|[a-z: -]{0,9}|\\PC{0,6})){0,8}") {
            for document in ManifestDocument::all(&stream) {
                let _ = document.value();
                let lines: Vec<&str> = stream.split_inclusive('\n').collect();
                prop_assert!(lines[document.line - 1..].concat().starts_with(document.text));
            }
        }
    }
}
