//! Compares JSON with a JSON Schema (2020-12), as far as the schemas of our own types go. A keyword that is not known here ends
//! the test: it is never passed over.

use serde_json::Value;

/// Keywords that say nothing about what is valid here. `format` is an annotation (JSON Schema Validation, section 7.2.1).
const ANNOTATIONS: [&str; 6] = ["description", "format", "default", "title", "examples", "deprecated"];

/// The mistakes of `value` by `schema`, each with its place. References lead into `root`.
#[must_use]
pub fn mistakes(value: &Value, schema: &Value, root: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(value, schema, root, "", &mut found);
    found
}

fn check(value: &Value, schema: &Value, root: &Value, place: &str, found: &mut Vec<String>) {
    let keys = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return found.push(format!("{place}: nothing is allowed here")),
        schema => schema.as_object().unwrap_or_else(|| panic!("{schema} is no schema")),
    };
    let mut told = |mistake: String| found.push(format!("{place}: {mistake}"));
    for (key, wanted) in keys {
        match key.as_str() {
            "type" => {
                let kinds = wanted.as_array().cloned().unwrap_or_else(|| vec![wanted.clone()]);
                if !kinds.iter().any(|kind| is_of(value, kind.as_str().unwrap())) {
                    told(format!("{value} is not of type {wanted}"));
                }
            }
            "enum" if !wanted.as_array().unwrap().contains(value) => {
                told(format!("{value} is not one of {wanted}"))
            }
            "const" if wanted != value => told(format!("{value} is not {wanted}")),
            "minimum" if value.as_f64().is_some_and(|number| number < wanted.as_f64().unwrap()) => {
                told(format!("{value} is less than {wanted}"));
            }
            "maximum" if value.as_f64().is_some_and(|number| number > wanted.as_f64().unwrap()) => {
                told(format!("{value} is more than {wanted}"));
            }
            "required" => {
                for name in wanted.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
                    if value.as_object().is_some_and(|object| !object.contains_key(name)) {
                        told(format!("{name} is missing"));
                    }
                }
            }
            "enum"
            | "const"
            | "minimum"
            | "maximum"
            | "properties"
            | "additionalProperties"
            | "items"
            | "anyOf"
            | "oneOf"
            | "allOf"
            | "$ref" => {}
            key if ANNOTATIONS.contains(&key) => {}
            key => panic!("{place}: {key} is not known to this check"),
        }
    }
    below(value, keys, root, place, found);
}

/// The parts of a value, and the schemas that one refers to.
fn below(
    value: &Value,
    keys: &serde_json::Map<String, Value>,
    root: &Value,
    place: &str,
    found: &mut Vec<String>,
) {
    let properties = keys.get("properties").and_then(Value::as_object);
    for (name, part) in value.as_object().into_iter().flatten() {
        let place = format!("{place}/{name}");
        match (properties.and_then(|known| known.get(name)), keys.get("additionalProperties")) {
            (Some(schema), _) | (None, Some(schema)) => check(part, schema, root, &place, found),
            // Readers ignore what they do not know, but what we send is described. A choice describes the rest.
            (None, None)
                if properties.is_some()
                    && !["oneOf", "anyOf", "allOf"].iter().any(|key| keys.contains_key(*key)) =>
            {
                found.push(format!("{place}: it is not described"));
            }
            _ => {}
        }
    }
    if let Some(items) = keys.get("items") {
        for (number, part) in value.as_array().into_iter().flatten().enumerate() {
            check(part, items, root, &format!("{place}/{number}"), found);
        }
    }
    if let Some(reference) = keys.get("$ref") {
        let pointer = reference.as_str().unwrap().trim_start_matches('#');
        let schema = root.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"));
        check(value, schema, root, place, found);
    }
    for all in keys.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        check(value, all, root, place, found);
    }
    for (key, one) in [("anyOf", false), ("oneOf", true)] {
        let Some(choices) = keys.get(key).and_then(Value::as_array) else { continue };
        // A choice beside properties describes only its own.
        let own: Vec<String> = properties.into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let mut part = value.clone();
        if let Some(object) = part.as_object_mut() {
            object.retain(|name, _| !own.contains(name));
        }
        let fits = choices.iter().filter(|choice| mistakes(&part, choice, root).is_empty()).count();
        if fits == 0 || one && fits > 1 {
            found.push(format!("{place}: {part} fits {fits} of the schemas of {key}"));
        }
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        kind => panic!("{kind} is no type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_does_not_fit_is_told_with_its_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "type": ["string", "null"] },
                "b": { "type": "array", "items": { "$ref": "#/defs/word" } },
                "c": { "type": "integer", "minimum": 1, "maximum": 3 },
            },
            "required": ["a"],
            "oneOf": [
                { "type": "object", "properties": { "x": { "const": 1 } }, "required": ["x"] },
                { "type": "object", "properties": { "y": true }, "required": ["y"] },
            ],
        });
        let root = json!({ "defs": { "word": { "enum": ["one", "two"], "description": "a word" } } });
        for (value, mistake) in [
            (json!({ "a": null, "b": ["one"], "c": 3, "x": 1 }), None),
            (json!({ "a": "z", "y": {} }), None),
            (json!([]), Some(": [] is not of type \"object\"")),
            (json!({ "x": 1 }), Some(": a is missing")),
            (json!({ "a": 1, "x": 1 }), Some("/a: 1 is not of type")),
            (json!({ "a": null, "b": ["three"], "x": 1 }), Some("/b/0: \"three\" is not one of")),
            (json!({ "a": null, "c": 0, "x": 1 }), Some("/c: 0 is less than 1")),
            (json!({ "a": null, "c": 4, "x": 1 }), Some("/c: 4 is more than 3")),
            (json!({ "a": null, "c": 1.5, "x": 1 }), Some("/c: 1.5 is not of type")),
            (json!({ "a": null, "x": 2 }), Some("fits 0 of the schemas of oneOf")),
            (json!({ "a": null }), Some("fits 0 of the schemas of oneOf")),
            (json!({ "a": null, "x": 1, "odd": 1 }), Some("fits 0 of the schemas of oneOf")),
        ] {
            let found = mistakes(&value, &schema, &root);
            match mistake {
                None => assert!(found.is_empty(), "{value}: {found:?}"),
                Some(mistake) => assert!(found.iter().any(|one| one.contains(mistake)), "{value}: {found:?}"),
            }
        }
        let closed = json!({ "type": "object", "properties": { "a": true } });
        assert_eq!(mistakes(&json!({ "b": 1 }), &closed, &root), ["/b: it is not described"]);
    }

    #[test]
    #[should_panic(expected = "pattern is not known to this check")]
    fn an_unknown_keyword_is_not_passed_over() {
        let _ = mistakes(&json!("a"), &json!({ "type": "string", "pattern": "b" }), &Value::Null);
    }
}
