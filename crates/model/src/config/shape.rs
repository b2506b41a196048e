//! The shape that a document must have: which keys, which kinds of values.
//!
//! Taken from the JSON Schema of the Rust types, so that the types, the published schema and the checks are
//! one thing. A `format` in the schema names a check of [`super::formats`].

use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::InstallConfig;
use super::formats::{self, Format};

/// The shape of one value.
#[derive(Debug)]
pub enum Shape {
    /// Named keys, by their canonical names, and those of them that no group can be without.
    Record(Vec<(String, Shape)>, Vec<String>),
    /// Exactly one of these keys, each with its value.
    OneOf(Vec<(String, Shape)>),
    /// Any keys that `keys` accepts, all with values of one shape.
    Dictionary { keys: Option<&'static Format>, values: Box<Shape> },
    /// Any number of values of one shape.
    List(Box<Shape>),
    /// Text, perhaps of a format; a secret is never shown.
    Text { format: Option<&'static Format>, secret: bool },
    /// One of these words; where they are `numbered`, as the kernel numbers them, also by the place of one from 0 on.
    Choice { words: Vec<String>, numbered: bool },
    /// A whole number, not negative, with its least and its largest value.
    Number { least: u32, most: u32 },
    /// One of several shapes, told apart by whether a document has a value, a list or a group.
    Either(Vec<Shape>),
    /// `true` or `false`.
    Truth,
}

/// The shape of an install configuration.
pub fn install_config() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::of(&inline_schema::<InstallConfig>()));
    &SHAPE
}

/// The JSON Schema of a type, with those of its parts in their places instead of references.
pub fn inline_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

impl Shape {
    /// The shape that a schema describes. A schema of a kind that no type here has counts as text.
    pub fn of(schema: &Value) -> Self {
        if let Some(options) = schema["anyOf"].as_array() {
            // An optional value: the type, or null.
            let mut shapes: Vec<_> =
                options.iter().filter(|option| option["type"] != "null").map(Self::of).collect();
            if shapes.len() > 1 {
                return Self::Either(shapes);
            }
            return match (shapes.pop(), format(schema)) {
                (Some(Self::Text { secret, .. }), Some(format)) => {
                    Self::Text { format: Some(format), secret }
                }
                (Some(shape), _) => shape,
                (None, format) => Self::Text { format, secret: false },
            };
        }
        if let Some(variants) = schema["oneOf"].as_array().and_then(|options| variants(options)) {
            return Self::OneOf(variants);
        }
        if let Some(words) = words(schema) {
            return Self::Choice { words, numbered: schema["x-numbered"] == true };
        }
        match kind(schema) {
            "object" => Self::object(schema),
            "array" => Self::List(Box::new(Self::of(&schema["items"]))),
            "integer" => {
                let bound = |name: &str| schema[name].as_u64().and_then(|value| u32::try_from(value).ok());
                Self::Number {
                    least: bound("minimum").unwrap_or(0),
                    most: bound("maximum").unwrap_or(u32::MAX),
                }
            }
            "boolean" => Self::Truth,
            _ => Self::Text { format: format(schema), secret: schema["writeOnly"] == true },
        }
    }

    fn object(schema: &Value) -> Self {
        match schema["properties"].as_object() {
            Some(keys) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
                Self::Record(keys.iter().map(|(name, key)| (name.clone(), Self::of(key))).collect(), required)
            }
            None => Self::Dictionary {
                keys: format(&schema["propertyNames"]),
                values: Box::new(Self::of(&schema["additionalProperties"])),
            },
        }
    }

    /// Whether a document has a list or keys here, which it may also leave empty.
    #[must_use]
    pub fn is_group(&self) -> bool {
        matches!(self, Self::Record(..) | Self::Dictionary { .. } | Self::List(_))
    }

    /// Whether it is a group that says which network card.
    #[must_use]
    pub fn is_card(&self) -> bool {
        let Self::Record(keys, _) = self else { return false };
        let has = |key: &str| keys.iter().any(|(name, _)| name == key);
        has("name") && has("hw_addr")
    }

    /// Whether it is a secret, or a list of them.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        match self {
            Self::Text { secret, .. } => *secret,
            Self::List(item) => item.is_secret(),
            _ => false,
        }
    }

    /// The shape of the elements of a list.
    #[must_use]
    pub fn item(&self) -> Option<&Self> {
        match self {
            Self::List(item) => Some(item),
            Self::Either(shapes) => shapes.iter().find_map(Self::item),
            _ => None,
        }
    }

    /// The shape of a key of a group.
    #[must_use]
    pub fn at(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Record(keys, _) | Self::OneOf(keys) => {
                keys.iter().find(|(name, _)| name == key).map(|(_, shape)| shape)
            }
            Self::Dictionary { values, .. } => Some(values),
            Self::Either(shapes) => shapes.iter().find_map(|shape| shape.at(key)),
            _ => None,
        }
    }

    /// The dotted paths below `at` of every key with this canonical name.
    pub fn places(&self, name: &str, at: &str) -> Vec<String> {
        match self {
            Self::Record(keys, _) | Self::OneOf(keys) => keys
                .iter()
                .flat_map(|(key, shape)| {
                    let path = join(at, key);
                    let deeper = shape.places(name, &path);
                    (key == name).then_some(path).into_iter().chain(deeper)
                })
                .collect(),
            Self::List(item) => item.places(name, &format!("{at}[]")),
            Self::Either(shapes) => shapes.iter().flat_map(|shape| shape.places(name, at)).collect(),
            _ => Vec::new(),
        }
    }
}

impl Shape {
    /// Attaches `format` to every text of the shape; `path` is where it is, such as `base.debian.include[]`, with
    /// `*` for any key of a dictionary. For formats
    /// of one kind of document, which are not in the table of all and not in the published schema. Whether there is
    /// a text at this path.
    pub fn attach(&mut self, path: &str, format: &'static Format) -> bool {
        if let Some(path) = path.strip_prefix("[]") {
            let Self::List(item) = self else { return false };
            return item.attach(path.trim_start_matches('.'), format);
        }
        if path.is_empty() {
            let Self::Text { format: own, .. } = self else { return false };
            *own = Some(format);
            return true;
        }
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (key, rest) = path.split_at(end);
        let rest = rest.trim_start_matches('.');
        match self {
            Self::Record(keys, _) | Self::OneOf(keys) => {
                let found = keys.iter_mut().find(|(name, _)| name == key);
                found.is_some_and(|(_, shape)| shape.attach(rest, format))
            }
            Self::Dictionary { values, .. } if key == "*" => values.attach(rest, format),
            _ => false,
        }
    }
}

/// The path of `key` below `path`.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The `camelCase` spelling of a `snake_case` name.
pub fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut text, word| {
        let mut letters = word.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.push_str(letters.as_str());
        text
    })
}

/// The `snake_case` spelling of a `camelCase` name.
pub fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, letter| {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}

/// The type, without the `null` of an optional one.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or("string")
        }
        other => other.as_str().unwrap_or("string"),
    }
}

/// The keys and shapes of an enum whose variants have values: in JSON each is a group with one key. None where the
/// options are something else.
fn variants(options: &[Value]) -> Option<Vec<(String, Shape)>> {
    let variant = |option: &Value| {
        let keys = option["properties"].as_object().filter(|keys| keys.len() == 1)?;
        let (name, value) = keys.iter().next()?;
        Some((name.clone(), Shape::of(value)))
    };
    options.iter().map(variant).collect()
}

/// The words that a value of this schema can be; none where it is not a choice.
pub(super) fn words(schema: &Value) -> Option<Vec<String>> {
    let word = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(options) = schema["oneOf"].as_array() {
        let plain = options.iter().filter_map(|option| option["enum"].as_array()).flatten();
        return options
            .iter()
            .filter_map(|option| word(&option["const"]))
            .chain(plain.filter_map(word))
            .map(Some)
            .collect();
    }
    schema["enum"].as_array()?.iter().filter(|value| !value.is_null()).map(word).collect()
}

fn format(schema: &Value) -> Option<&'static Format> {
    formats::named(schema["format"].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(shape: &'a Shape, path: &str) -> &'a Shape {
        path.split('.').fold(shape, |shape, key| match shape {
            Shape::Record(keys, _) => &keys.iter().find(|(name, _)| name == key).unwrap().1,
            other => panic!("{key} of {other:?}"),
        })
    }

    #[test]
    fn the_shape_says_what_the_types_say() {
        let shape = install_config();
        assert!(
            matches!(at(shape, "token"), Shape::Text { secret: true, format: Some(f) } if f.name == "token")
        );
        assert!(
            matches!(at(shape, "os.hostname"), Shape::Text { format: Some(f), .. } if f.name == "hostname")
        );
        assert!(matches!(at(shape, "os.sysctls"), Shape::Dictionary { keys: Some(_), .. }));
        assert!(matches!(at(shape, "install.automatic"), Shape::Truth));
        assert!(matches!(
            at(shape, "install.management_interface.vlan_id"),
            Shape::Number { least: 0, most: 4094 }
        ));
        assert!(matches!(at(shape, "install.management_interface.ip"), Shape::Text { format: Some(_), .. }));
        assert!(
            matches!(at(shape, "install.mode"), Shape::Choice { words, .. } if words == &["create", "join", "install"])
        );
        let Shape::Text { format: Some(size), .. } = at(shape, "install.persistent_partition_size") else {
            panic!()
        };
        assert_eq!(size.name, "byte-size");
    }

    #[test]
    fn every_text_of_the_document_has_a_format() {
        fn texts(shape: &Shape, path: &str) {
            match shape {
                Shape::Record(keys, _) => keys.iter().for_each(|(key, shape)| texts(shape, &join(path, key))),
                Shape::Dictionary { keys, values } => {
                    assert!(keys.is_some(), "{path}");
                    texts(values, path);
                }
                Shape::List(item) => texts(item, path),
                Shape::Either(shapes) => shapes.iter().for_each(|shape| texts(shape, path)),
                Shape::Text { format, .. } => assert!(format.is_some(), "{path} accepts any text"),
                _ => {}
            }
        }
        texts(install_config(), "");
    }

    #[test]
    fn both_spellings_and_all_places_of_a_key_are_known() {
        assert_eq!(camel("ssh_authorized_keys"), "sshAuthorizedKeys");
        assert_eq!(install_config().places("hostname", ""), ["os.hostname"]);
        assert_eq!(
            install_config().places("hw_addr", ""),
            ["install.management_interface.interfaces[].hw_addr", "install.networks[].interfaces[].hw_addr"]
        );
    }
}
