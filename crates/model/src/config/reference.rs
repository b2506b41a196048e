//! The reference page of the configuration, made from the types: `docs/reference/configuration-keys.md`. The test below
//! fails when the page is not what the types say; `UPDATE_GOLDEN=1` writes it. The page of the cluster file is made with
//! the same functions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::InstallConfig;
use super::formats::FORMATS;
use document::shape::{inline_schema, join};

/// One row per key, in the order of the types.
fn page() -> String {
    let schema = inline_schema::<InstallConfig>();
    let mut rows = KeyRows::default();
    record(&schema, "", &mut rows);
    format!(
        "# Every key of a configuration\n\n\
         Made from the types of `crates/model/src/config`; [`configuration.md`](configuration.md) tells how documents are \
         read and merged. Lists and maps are empty unless given. `[]` stands for each element of a list, `*` for each \
         key of a map.\n\n\
         | Key | Value | Default | Meaning |\n|---|---|---|---|\n{}\n",
        rows.text()
    )
}

/// The rows of a page.
#[derive(Debug, Default)]
pub struct KeyRows {
    rows: Vec<String>,
    /// The first group with these rows, which are relative to it. Later ones refer to it.
    groups: BTreeMap<Vec<String>, String>,
}

impl KeyRows {
    /// A group of fewer keys is told anew: a reference to it would be longer.
    const REFERRED_MIN: usize = 3;

    /// All rows, in their order.
    pub fn text(&self) -> String {
        self.rows.join("\n")
    }

    /// The group before `path` with the same keys below it as this value; remembers `path` where there is none.
    fn same_group(&mut self, value: &Value, path: &str) -> Option<String> {
        let mut relative = Self::default();
        below(value, "", &mut relative);
        if relative.rows.len() < Self::REFERRED_MIN {
            return None;
        }
        let known = self.groups.get(&relative.rows).cloned();
        self.groups.entry(relative.rows).or_insert_with(|| path.to_owned());
        known
    }
}

/// One row for each key of a group with this schema, and for what is below it.
pub fn record(schema: &Value, path: &str, rows: &mut KeyRows) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = join(path, key);
        let default = match &value["default"] {
            Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
            Value::String(text) if text.is_empty() => String::new(),
            other => format!("`{}`", other.as_str().map_or_else(|| other.to_string(), str::to_owned)),
        };
        let meaning =
            value["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let same = rows.same_group(value, &path);
        let reference =
            same.as_ref().map(|group| format!(" Its keys are those of `{group}`.")).unwrap_or_default();
        rows.rows.push(format!("| `{path}` | {} | {default} | {meaning}{reference} |", kind(value)));
        if same.is_none() {
            below(value, &path, rows);
        }
    }
}

/// The keys below a value of this schema.
fn below(schema: &Value, path: &str, rows: &mut KeyRows) {
    for option in schema["anyOf"].as_array().into_iter().flatten() {
        below(option, path, rows);
    }
    if schema["properties"].is_object() {
        record(schema, path, rows);
    } else if schema["items"].is_object() {
        below(&schema["items"], &format!("{path}[]"), rows);
    } else if schema["additionalProperties"].is_object() {
        below(&schema["additionalProperties"], &format!("{path}.*"), rows);
    }
}

/// The form of a value of this schema, in words.
fn kind(schema: &Value) -> String {
    if let Some(words) = document::shape::words(schema) {
        let words: Vec<_> =
            words.iter().map(|word| format!("`{}`", if word.is_empty() { "''" } else { word })).collect();
        return words.join(", ");
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let format = schema["format"].as_str().map(of_format);
        let kinds: Vec<_> = options.iter().filter(|option| option["type"] != "null").map(kind).collect();
        return format.unwrap_or_else(|| kinds.join(", or "));
    }
    let name = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        other => other.as_str(),
    };
    match name {
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map to {}", kind(&schema["additionalProperties"]))
        }
        Some("object") => "group".into(),
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("integer") => match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (least, Some(most)) => format!("{} to {most}", least.unwrap_or(0)),
            _ => "whole number".into(),
        },
        Some("boolean") => "true or false".into(),
        _ => schema["format"].as_str().map_or_else(|| "text".into(), of_format),
    }
}

fn of_format(name: &str) -> String {
    assert!(FORMATS.iter().any(|format| format.name == name), "{name}");
    name.replace('-', " ")
}

/// Compares a file of `docs/` with what it should be; `UPDATE_GOLDEN=1` writes it.
pub fn drift(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    testing::golden::compare(path, text);
}

#[test]
fn the_page_is_what_the_types_say() {
    let page = page();
    drift("reference/configuration-keys.md", &page);
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    assert!(
        rows.clone().count() > 100 && rows.clone().all(|line| !line.ends_with("|  |")),
        "a key has no meaning"
    );
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    drift("reference/configuration.schema.json", &(super::json_schema() + "\n"));
}
