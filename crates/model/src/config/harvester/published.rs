//! The JSON Schema that is published: of everything that the reader takes, not only of the canonical form.
//!
//! The types say what a value is once it has been read. A document may say the same in other forms: numbers and truth
//! values where a text is what was typed, quoted numbers, the words that stand for truth, one word for a list, nothing for
//! a key that is left out, other spellings of a key, retired keys. Where a form cannot be described closely, the schema
//! takes more than the reader: it is for editors and validators, and the reader has the last word.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{ALIASES, retired};
use crate::config::InstallConfig;
use document::accepted_spellings;
use document::shape::{join, words};

/// The words that stand for truth; see [`accepted_spellings::truth`].
const TRUTHS: [&str; 10] = ["true", "yes", "on", "y", "t", "false", "no", "off", "n", "f"];

/// The JSON Schema of an install configuration, as `installer schema` prints it.
#[must_use]
pub fn json_schema() -> String {
    with_all_forms(schemars::schema_for!(InstallConfig).to_value(), |path| path)
}

/// The schema of all forms that documents may have, of one with the forms that values have when they are read. `within` is
/// the path inside an install configuration that is at a path of the document, by which retired keys are found.
pub(crate) fn with_all_forms(mut schema: Value, within: fn(&str) -> &str) -> String {
    let mut groups = BTreeMap::new();
    gather(&schema, &schema, "", within, &mut BTreeSet::new(), &mut groups);
    let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut).map(std::mem::take);
    relax(&mut schema, groups.get("").cloned().unwrap_or_default());
    if let Some(mut definitions) = definitions {
        for (name, definition) in &mut definitions {
            relax(definition, groups.get(name).cloned().unwrap_or_default());
        }
        schema["$defs"] = Value::Object(definitions);
    }
    base::encode::json_text(&schema)
}

/// Finds at which paths each definition is used, and with them its retired keys.
fn gather(
    root: &Value,
    schema: &Value,
    path: &str,
    within: fn(&str) -> &str,
    seen: &mut BTreeSet<(String, String)>,
    groups: &mut BTreeMap<String, BTreeSet<&'static str>>,
) {
    if path.is_empty() {
        groups.entry(String::new()).or_default().extend(retired::names(within("")));
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"))
        && seen.insert((name.to_owned(), path.to_owned()))
    {
        groups.entry(name.to_owned()).or_default().extend(retired::names(within(path)));
        gather(root, &root["$defs"][name], path, within, seen, groups);
    }
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        gather(root, below, &join(path, key), within, seen, groups);
    }
    for option in ["anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten() {
        gather(root, option, path, within, seen, groups);
    }
    if schema["items"].is_object() {
        gather(root, &schema["items"], &format!("{path}[0]"), within, seen, groups);
    }
    if schema["additionalProperties"].is_object() {
        gather(root, &schema["additionalProperties"], &join(path, "*"), within, seen, groups);
    }
}

/// Takes all forms where the schema has one.
fn relax(schema: &mut Value, retired: BTreeSet<&'static str>) {
    if let Some(words) = words(schema) {
        return choice(schema, &words);
    }
    for key in ["anyOf", "oneOf"] {
        for option in schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
            relax(option, BTreeSet::new());
        }
    }
    let kinds: Vec<String> = match &schema["type"] {
        Value::String(kind) => vec![kind.clone()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return,
    };
    let Some(kind) = kinds.iter().find(|kind| *kind != "null") else { return };
    match kind.as_str() {
        "string" => schema["type"] = json!(["string", "number", "boolean", "null"]),
        "integer" => {
            schema["type"] = json!(["integer", "string", "null"]);
            schema["pattern"] = json!("^[0-9]*$");
            // No number at all where 0 is none.
            if schema["minimum"].is_number() {
                schema["minimum"] = json!(0);
            }
        }
        "boolean" => {
            schema["type"] = json!(["boolean", "integer", "string", "null"]);
            schema["minimum"] = json!(0);
            schema["maximum"] = json!(1);
            schema["pattern"] = json!(truths());
        }
        "array" => list(schema),
        "object" => group(schema, &retired),
        _ => {}
    }
}

/// Every word that stands for truth, in any capitals, and nothing at all.
fn truths() -> String {
    let either = |c: char| format!("[{}{c}]", c.to_ascii_uppercase());
    let words: Vec<String> = TRUTHS.iter().map(|word| word.chars().map(either).collect()).collect();
    format!("^({}|1|0)?$", words.join("|"))
}

/// One of several words. It may be left out, and some are numbered as the kernel numbers them; YAML 1.1 takes some for truth
/// values.
fn choice(schema: &mut Value, words: &[String]) {
    let mut options = vec![forms_of_choice(schema), json!({ "enum": ["", null] })];
    if schema["x-numbered"] == true {
        let most = words.len().saturating_sub(1);
        options.push(json!({ "type": "integer", "minimum": 0, "maximum": most }));
        options.push(json!({ "type": "string", "pattern": "^[0-9]+$" }));
    }
    if words.iter().any(|word| accepted_spellings::truth(word).is_some()) {
        options.push(json!({ "type": "boolean" }));
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("anyOf".into(), options.into());
    }
}

/// Takes out of the schema what says which words.
fn forms_of_choice(schema: &mut Value) -> Value {
    let mut taken = Map::new();
    if let Some(schema) = schema.as_object_mut() {
        for key in ["type", "enum", "oneOf"] {
            taken.extend(schema.remove(key).map(|value| (key.to_owned(), value)));
        }
    }
    Value::Object(taken)
}

/// A list, of which a single word can be the only element, or nothing.
fn list(schema: &mut Value) {
    relax(&mut schema["items"], BTreeSet::new());
    schema["type"] = json!(["array", "string", "number", "boolean", "null"]);
}

/// A group, with its keys in every spelling. A card can also be one text.
fn group(schema: &mut Value, retired: &BTreeSet<&'static str>) {
    let is_card = schema["properties"]["hw_addr"].is_object() && schema["properties"]["name"].is_object();
    schema["type"] = if is_card { json!(["object", "string", "null"]) } else { json!(["object", "null"]) };
    if schema["additionalProperties"].is_object() {
        relax(&mut schema["additionalProperties"], BTreeSet::new());
    }
    let Some(keys) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    let mut spelt: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, key) in keys.iter_mut() {
        relax(key, BTreeSet::new());
        let mut bare = key.clone();
        if let Some(bare) = bare.as_object_mut() {
            bare.remove("description");
            bare.remove("default");
        }
        for pattern in accepted_spellings::patterns(name, ALIASES) {
            spelt.entry(pattern).or_default().push(bare.clone());
        }
    }
    // The reader reports a retired key with its value.
    for name in retired {
        for pattern in accepted_spellings::patterns(name, ALIASES) {
            spelt.entry(pattern).or_insert_with(|| vec![json!(true)]);
        }
    }
    let one = |(pattern, mut schemas): (String, Vec<Value>)| match schemas.len() {
        1 => (pattern, schemas.swap_remove(0)),
        _ => (pattern, json!({ "anyOf": schemas })),
    };
    schema["patternProperties"] = Value::Object(spelt.into_iter().map(one).collect());
}
