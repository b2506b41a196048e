//! A definition as it is after `extends`, for people and programs: without secrets, and with the place of every value that is
//! inherited.

use std::ops::Range;

use document::diagnostic::{HIDDEN, Ranges};
use document::tree::{NodeKind, TreeNode};
use serde::Serialize;
use serde_json::Value;

use super::Definition;
use super::chain::Chain;
use super::shape::shape;

/// A definition as it is after `extends`.
#[derive(Clone, Debug, Serialize)]
pub struct ShownDefinition {
    /// With every default; secrets are `[hidden]`.
    pub definition: Value,
    /// The definitions that it extends, the nearest first.
    pub extends: Vec<ShownExtension>,
    /// The keys that the texts give, as YAML. A comment says where an inherited value is from.
    #[serde(skip)]
    pub yaml: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ShownExtension {
    /// Relative to the definition; a bare name where the builder itself has it.
    pub path: std::path::PathBuf,
    pub sha256: base::digest::Digest,
}

impl ShownDefinition {
    /// `hidden` are the characters of the texts that must not be shown.
    pub(super) fn of(
        definition: &Definition,
        chain: &Chain,
        root: &TreeNode,
        hidden: &[Range<usize>],
    ) -> Self {
        let several = !definition.architectures.is_empty();
        let mut definition = serde_json::to_value(definition).unwrap_or_default();
        if let Some(keys) = definition.as_object_mut().filter(|_| several) {
            keys.remove("architecture");
        }
        shape().visit(&mut definition, &mut |_, value, secret| {
            if secret {
                *value = Value::from(HIDDEN);
            }
        });
        let extended = chain.extended().into_iter();
        let extends =
            extended.map(|other| ShownExtension { path: other.path, sha256: other.digest }).collect();
        let printer = Printer { chain, hidden: Ranges::new(hidden.to_vec()) };
        let mut lines = Vec::new();
        printer.node(root, "", 0, &mut lines);
        Self { definition, extends, yaml: lines.join("\n") }
    }
}

struct Printer<'c> {
    chain: &'c Chain,
    hidden: Ranges,
}

impl Printer<'_> {
    /// Adds the lines of a node. `lead` is what stands before it on its first line: a key with its colon, or the dash of an
    /// element.
    fn node(&self, node: &TreeNode, lead: &str, depth: usize, lines: &mut Vec<String>) {
        let indent = " ".repeat(depth);
        let single = |text: &str| {
            let origin = self.chain.origin(node.span).map(|origin| format!("  # {origin}"));
            format!("{indent}{lead}{text}{}", origin.unwrap_or_default())
        };
        match &node.kind {
            NodeKind::Scalar { .. } if self.hidden.contains(node.span.start) => {
                lines.push(single(&quoted(HIDDEN)));
            }
            NodeKind::Scalar { text, plain } => lines.push(single(&scalar(text, *plain))),
            NodeKind::List(items) if items.is_empty() => lines.push(single("[]")),
            NodeKind::Map(entries) if entries.is_empty() => lines.push(single("{}")),
            NodeKind::List(items) => {
                if !lead.is_empty() {
                    lines.push(format!("{indent}{}", lead.trim_end()));
                }
                for item in items {
                    self.node(item, "- ", depth + 2, lines);
                }
            }
            NodeKind::Map(entries) => {
                let (depth, mut dash) = match lead {
                    "" => (depth, ""),
                    // The first key of an element stands behind its dash.
                    "- " => (depth, "- "),
                    _ => {
                        lines.push(format!("{indent}{}", lead.trim_end()));
                        (depth + 2, "")
                    }
                };
                for (key, value) in entries {
                    let first = lines.len();
                    let inner = if lead == "- " { depth + 2 } else { depth };
                    self.node(value, &format!("{}: ", scalar(&key.text, false)), inner, lines);
                    if let Some(line) = lines.get_mut(first).filter(|_| !dash.is_empty()) {
                        line.replace_range(depth..depth + 2, "- ");
                        dash = "";
                    }
                }
            }
        }
    }
}

/// A single value as YAML. What was written without quotes could stand without them; other text gets them where it could be
/// read as something else.
fn scalar(text: &str, plain: bool) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "._/@%+=~^-".contains(c);
    let is_word = text.starts_with(|c: char| c.is_ascii_alphanumeric() || "./_".contains(c))
        && text.chars().all(word)
        && text.parse::<f64>().is_err()
        && !["null", "true", "false", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    let is_line = !text.is_empty() && !text.contains(char::is_control);
    if is_word || plain && is_line { text.to_owned() } else { quoted(text) }
}

/// Text in double quotes; the escapes of JSON are among those of YAML.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
