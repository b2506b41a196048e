//! Forms of definitions that the reader of documents does not know: null as the value of an optional key, a
//! word as a key without a value, the truth values of YAML 1.1, and the key names that clusters use in `registries`.
//! They are turned into the forms that the reader knows, in place.

use document::tree::{NodeKind, TreeNode};
use serde_json::Value;

use super::shape::{is_optional, is_type, without_null};

/// The names of keys of `registries` that are accepted beside the published ones: those of the cluster's setting. A test
/// compares them with the aliases in `model::config::registries`, of which serde tells no more than the names.
const REGISTRY_KEYS: [(&str, &[&str]); 14] = [
    ("mirrors", &["Mirrors"]),
    ("configs", &["Configs"]),
    ("auths", &["Auths"]),
    ("endpoint", &["Endpoint", "Endpoints", "endpoints"]),
    ("rewrite", &["Rewrite", "Rewrites", "rewrites"]),
    ("auth", &["Auth"]),
    ("tls", &["TLS", "Tls"]),
    ("username", &["Username"]),
    ("password", &["Password"]),
    ("identity_token", &["IdentityToken", "identityToken"]),
    ("ca_file", &["CAFile", "caFile"]),
    ("cert_file", &["CertFile", "certFile"]),
    ("key_file", &["KeyFile", "keyFile"]),
    ("insecure_skip_verify", &["InsecureSkipVerify", "insecureSkipVerify"]),
];

/// Makes lists of single values where the schema lets one element be written without the list, and an empty list of `none`.
pub(super) fn list_singles(node: &mut TreeNode, schema: &Value) {
    let schema = without_null(schema);
    if schema["x-single"] == true {
        if let NodeKind::Scalar { .. } = node.kind {
            let items = if node.is_nothing() { Vec::new() } else { vec![node.clone()] };
            node.kind = NodeKind::List(items);
        }
        if let NodeKind::List(items) = &mut node.kind
            && matches!(&items[..], [TreeNode { kind: NodeKind::Scalar { text, .. }, .. }] if text == "none")
        {
            items.clear();
        }
    } else if let NodeKind::Map(entries) = &mut node.kind {
        for (key, value) in entries {
            list_singles(value, property(schema, &key.text));
        }
    }
}

/// Gives the keys of `registries` in the document `root`, of this JSON Schema, their published names.
pub(super) fn publish_names(root: &mut TreeNode, schema: &Value) {
    let NodeKind::Map(entries) = &mut root.kind else { return };
    for (key, node) in entries.iter_mut().filter(|(key, _)| key.text == "registries") {
        publish_below(node, property(schema, &key.text));
    }
}

fn publish_below(node: &mut TreeNode, schema: &Value) {
    let schema = without_null(schema);
    match &mut node.kind {
        NodeKind::Scalar { .. } => {}
        NodeKind::List(items) => items.iter_mut().for_each(|item| publish_below(item, &schema["items"])),
        NodeKind::Map(entries) => {
            for (key, value) in entries {
                published(&mut key.text, schema);
                publish_below(value, property(schema, &key.text));
            }
        }
    }
}

/// Turns the document `root`, of this JSON Schema, into the forms that the reader knows.
pub(super) fn settle(node: &mut TreeNode, schema: &Value) {
    let schema = without_null(schema);
    if let NodeKind::Scalar { text, plain: true } = &mut node.kind
        && text.eq_ignore_ascii_case("null")
    {
        "null".clone_into(text);
    }
    if node.is_nothing() && is_type(schema, "object") && schema["oneOf"].is_null() {
        node.kind = NodeKind::Map(Vec::new());
    } else if node.is_nothing() && is_type(schema, "array") {
        node.kind = NodeKind::List(Vec::new());
    }
    if let NodeKind::Map(entries) = &node.kind
        && let [(word, nothing)] = &entries[..]
        && nothing.is_nothing()
        && is_choice(schema)
    {
        node.kind = NodeKind::Scalar { text: word.text.clone(), plain: false };
    }
    match &mut node.kind {
        NodeKind::Scalar { text, plain } if is_type(schema, "boolean") => {
            if let Some(truth) = truth(text) {
                (*text, *plain) = (truth.to_owned(), true);
            }
        }
        NodeKind::Scalar { .. } => {}
        NodeKind::List(items) => items.iter_mut().for_each(|item| settle(item, &schema["items"])),
        NodeKind::Map(entries) => entries.retain_mut(|(key, value)| {
            let below = property(schema, &key.text);
            let empty = value.is_nothing() && is_optional(below);
            if !empty {
                settle(value, below);
            }
            !empty
        }),
    }
}

/// The schema of this key's value; null if there is no such key.
pub(super) fn property<'s>(schema: &'s Value, key: &str) -> &'s Value {
    let options = schema["oneOf"].as_array().into_iter().flatten();
    let groups = std::iter::once(schema).chain(options);
    let found = groups.map(|group| &group["properties"][key]).find(|property| !property.is_null());
    found.unwrap_or(&schema["additionalProperties"])
}

/// Replaces another accepted name of a key, which a map of this schema has, by the published one.
fn published(key: &mut String, schema: &Value) {
    let mut known = REGISTRY_KEYS.iter().filter(|(name, _)| !schema["properties"][name].is_null());
    if let Some((name, _)) = known.find(|(_, others)| others.contains(&key.as_str())) {
        (*name).clone_into(key);
    }
}

/// True if values of this schema are words of a list. Such a word may be written as a key without a value.
fn is_choice(schema: &Value) -> bool {
    let is_word = |option: &Value| !option["const"].is_null() || !option["enum"].is_null();
    is_word(schema) || schema["oneOf"].as_array().is_some_and(|options| options.iter().all(is_word))
}

/// The truth values of YAML 1.1.
fn truth(text: &str) -> Option<&'static str> {
    match text.trim_matches([' ', '\t', '\r', '\n']).to_ascii_lowercase().as_str() {
        "true" | "yes" | "y" | "on" => Some("true"),
        "false" | "no" | "n" | "off" => Some("false"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::config::registries::{Auth, Mirror, Registries, Registry, Tls};
    use serde::de::value::Error;
    use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

    use super::*;

    /// Collects the key names, aliases among them, by which a struct is read.
    struct KeyNames<'a>(&'a mut BTreeSet<&'static str>);

    impl<'de> Deserializer<'de> for KeyNames<'_> {
        type Error = Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            names: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Error> {
            self.0.extend(names);
            Err(Error::custom("only the names are read"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
            Err(Error::custom("not a struct"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    #[test]
    fn the_names_of_registries_are_those_that_the_types_accept() {
        let mut accepted = BTreeSet::new();
        assert!(Registries::deserialize(KeyNames(&mut accepted)).is_err());
        assert!(Mirror::deserialize(KeyNames(&mut accepted)).is_err());
        assert!(Registry::deserialize(KeyNames(&mut accepted)).is_err());
        assert!(Auth::deserialize(KeyNames(&mut accepted)).is_err());
        assert!(Tls::deserialize(KeyNames(&mut accepted)).is_err());
        let listed: BTreeSet<_> =
            REGISTRY_KEYS.iter().flat_map(|(name, others)| others.iter().chain([name])).copied().collect();
        assert_eq!(listed, accepted);
    }
}
