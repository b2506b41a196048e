//! The shape of an image definition: the keys and kinds of values that its JSON Schema has, and the formats of its texts.

use std::sync::LazyLock;

use model::config::shape::Shape;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::Definition;
use super::formats::FORMATS;

/// The JSON Schema with all references resolved, and with the deprecated `registries.auths`, which is read and not
/// published.
pub(super) fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut schema = settings.into_generator().into_root_schema_for::<Definition>().to_value();
        let registries = &mut schema["properties"]["registries"]["properties"];
        let auth = registries["configs"]["additionalProperties"]["properties"]["auth"].clone();
        registries["auths"] = json!({ "type": "object", "additionalProperties": without_null(&auth) });
        schema
    });
    &SCHEMA
}

pub(super) fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let mut shape = Shape::of(schema());
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

/// Whether the value of a key may be null, which is the same as leaving out the key.
pub(super) fn is_optional(schema: &Value) -> bool {
    let has_null = |kinds: &Vec<Value>| kinds.iter().any(|kind| kind == "null");
    let options = schema["anyOf"].as_array();
    schema["type"].as_array().is_some_and(has_null)
        || options.is_some_and(|options| options.iter().any(|option| option["type"] == "null"))
}

/// Whether a schema has this type, alone or beside `null`.
pub(super) fn is_type(schema: &Value, name: &str) -> bool {
    let kinds = schema["type"].as_array();
    schema["type"] == name || kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == name))
}

#[cfg(test)]
mod tests {
    use model::config::shape::join;

    use super::*;

    #[test]
    fn every_format_has_its_place_and_the_texts_without_one_are_known() {
        let mut fresh = Shape::of(schema());
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
            "images.preload[].cmd[]",
            "images.preload[].entrypoint[]",
            "packages.suite",
        ];
        assert_eq!(free, expected);
    }
}
