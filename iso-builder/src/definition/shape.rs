//! The shape of an image definition: the keys and kinds of values that its JSON Schema has, and the formats of its texts.

use std::sync::LazyLock;

use document::shape::{Shape, inline_schema};
use serde_json::{Value, json};

use super::Definition;
use super::formats::FORMATS;

/// The key that names the definition to build on.
pub(super) const EXTENDS: &str = "extends";
/// The key that has the variants.
pub(super) const VARIANTS: &str = "variants";

/// The JSON Schema of a definition after `extends`, with all references resolved, and with the deprecated `registries.auths`,
/// which is read and not published. It has `extends` and `variants` themselves, for hints.
pub(super) fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = inline_schema::<Definition>();
        let registries = &mut schema["properties"]["registries"]["properties"];
        let auth = registries["configs"]["additionalProperties"]["properties"]["auth"].clone();
        registries["auths"] = json!({ "type": "object", "additionalProperties": without_null(&auth) });
        schema["properties"][EXTENDS] = json!({ "type": ["string", "null"] });
        schema["properties"][VARIANTS] = json!({ "type": ["object", "null"] });
        schema
    });
    &SCHEMA
}

/// The JSON Schema of what people write: it has `extends` and `variants`, lists may be changed by `add` and `remove`, and a definition that
/// extends another one, or has variants, needs no key.
#[must_use]
pub fn published_schema() -> Value {
    let mut schema = inline_schema::<Definition>();
    let required = schema["required"].take();
    if let Some(keys) = schema["properties"].as_object_mut() {
        keys.values_mut().for_each(changeable);
    }
    let part = json!({ "type": ["object", "null"], "properties": schema["properties"], "additionalProperties": false });
    schema["properties"][VARIANTS] = json!({
        "type": ["object", "null"],
        "description": "Images that differ in a part, by their names: what each has in place of the rest of this definition, in the \
                        manner of `extends`. A build makes the outputs of each, in a directory with its name, and each has a lock \
                        file of its own, `DEFINITION.VARIANT.lock`. A definition that extends this one does not inherit them.",
        "propertyNames": { "pattern": "^[a-z0-9][a-z0-9-]{0,62}$" },
        "additionalProperties": part,
    });
    schema["properties"][EXTENDS] = json!({
        "type": ["string", "null"],
        "description": "The definition that this one builds on: a path relative to this file, or `minimal`, which the builder \
                        itself has. Groups are merged key by key, other values replace the inherited ones, and lists are \
                        replaced, or changed by `add` and `remove`.",
    });
    if let Some(keys) = schema.as_object_mut() {
        keys.remove("required");
    }
    schema["anyOf"] =
        json!([{ "required": [EXTENDS] }, { "required": [VARIANTS] }, { "required": required }]);
    schema
}

/// Lets the lists of a schema be changed by `add` and `remove`, and its groups be parts.
fn changeable(schema: &mut Value) {
    if is_type(schema, "array") {
        let items = schema["items"].clone();
        let description = schema.as_object_mut().and_then(|keys| keys.remove("description"));
        let default = schema.as_object_mut().and_then(|keys| keys.remove("default"));
        let list = json!({ "type": "array", "items": items });
        let changes = json!({
            "type": "object",
            "properties": { "add": list, "remove": { "type": "array" } },
            "additionalProperties": false,
        });
        let mut whole = std::mem::take(schema);
        let single = whole.as_object_mut().and_then(|keys| keys.remove("x-single"));
        *schema = match single {
            Some(_) => json!({ "anyOf": [items, whole, changes] }),
            None => json!({ "anyOf": [whole, changes] }),
        };
        for (key, value) in [("description", description), ("default", default)] {
            if let Some(value) = value {
                schema[key] = value;
            }
        }
        return;
    }
    for options in ["anyOf", "oneOf"] {
        if let Some(options) = schema[options].as_array_mut() {
            options.iter_mut().filter(|option| option["properties"].is_object()).for_each(changeable);
        }
    }
    if schema["properties"].is_object() {
        // One of several groups has exactly its own key.
        let is_option = schema["properties"].as_object().is_some_and(|keys| keys.len() == 1);
        if let Some(keys) = schema.as_object_mut().filter(|_| !is_option) {
            keys.remove("required");
        }
        if let Some(keys) = schema["properties"].as_object_mut() {
            keys.values_mut().for_each(changeable);
        }
    }
    if schema["additionalProperties"].is_object() {
        changeable(&mut schema["additionalProperties"]);
    }
}

pub(super) fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let mut shape = Shape::of(schema(), model::config::formats::FORMATS);
        for (path, format) in &FORMATS {
            shape.attach(path, format);
        }
        shape
    });
    &SHAPE
}

/// The schema of a value other than null.
pub(super) fn without_null(schema: &Value) -> &Value {
    let options = schema["anyOf"].as_array();
    options.and_then(|options| options.iter().find(|option| option["type"] != "null")).unwrap_or(schema)
}

/// True if the value of a key may be null, which is the same as leaving out the key.
pub(super) fn is_optional(schema: &Value) -> bool {
    let has_null = |kinds: &Vec<Value>| kinds.iter().any(|kind| kind == "null");
    let options = schema["anyOf"].as_array();
    schema["type"].as_array().is_some_and(has_null)
        || options.is_some_and(|options| options.iter().any(|option| option["type"] == "null"))
}

/// True if a schema has this type, alone or beside `null`.
pub(super) fn is_type(schema: &Value, name: &str) -> bool {
    let kinds = schema["type"].as_array();
    schema["type"] == name || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == name))
}

#[cfg(test)]
mod tests {
    use document::shape::join;

    use super::*;

    #[test]
    fn every_format_has_its_place_and_the_texts_without_one_are_known() {
        let mut fresh = Shape::of(schema(), model::config::formats::FORMATS);
        for (path, format) in &FORMATS {
            assert!(fresh.attach(path, format), "{path}");
        }
        fn texts(shape: &Shape, path: &str, free: &mut Vec<String>) {
            match shape {
                Shape::Record(keys, _) | Shape::OneOf(keys) => {
                    keys.iter().for_each(|(key, shape)| texts(shape, &join(path, key), free));
                }
                Shape::Dictionary { values, .. } => texts(values, &join(path, "*"), free),
                Shape::List(item) => texts(item, &format!("{path}[]"), free),
                Shape::Text { format: None, .. } => free.push(path.to_owned()),
                Shape::Either(_) => panic!("{path}"),
                _ => {}
            }
        }
        let mut free = Vec::new();
        texts(shape(), "", &mut free);
        free.retain(|path| !path.starts_with("registries."));
        free.sort();
        let expected = [
            "base.oci.reference",
            "charts[].version",
            "extends",
            "images.preload[].cmd[]",
            "images.preload[].entrypoint[]",
            "packages.suite",
            "variants.*",
        ];
        assert_eq!(free, expected);
    }
}
