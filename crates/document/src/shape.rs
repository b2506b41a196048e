//! The shape that a document must have: which keys, which kinds of values.
//!
//! Taken from the JSON Schema of the Rust types, so that the types, the published schema and the checks are
//! one thing. A `format` in the schema names one of the [`Format`]s of the document.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::format::Format;

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

/// The JSON Schema of a type, with those of its parts in their places instead of references.
pub fn inline_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

impl Shape {
    /// The shape that a schema describes, with the checks of its `formats`. A schema of an unknown kind counts as text.
    pub fn of(schema: &Value, formats: &'static [Format]) -> Self {
        let format = |schema: &Value| named(formats, schema["format"].as_str()?);
        let below = |schema: &Value| Self::of(schema, formats);
        if let Some(options) = schema["anyOf"].as_array() {
            // An optional value: the type, or null.
            let mut shapes: Vec<_> =
                options.iter().filter(|option| option["type"] != "null").map(below).collect();
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
        if let Some(variants) = schema["oneOf"].as_array().and_then(|options| variants(options, formats)) {
            return Self::OneOf(variants);
        }
        if let Some(words) = words(schema) {
            return Self::Choice { words, numbered: schema["x-numbered"] == true };
        }
        match kind(schema) {
            "object" => Self::object(schema, formats),
            "array" => Self::List(Box::new(below(&schema["items"]))),
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

    fn object(schema: &Value, formats: &'static [Format]) -> Self {
        let below = |schema: &Value| Self::of(schema, formats);
        match schema["properties"].as_object() {
            Some(keys) => {
                let required = schema["required"].as_array().into_iter().flatten();
                let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
                Self::Record(keys.iter().map(|(name, key)| (name.clone(), below(key))).collect(), required)
            }
            None => Self::Dictionary {
                keys: schema["propertyNames"]["format"].as_str().and_then(|name| named(formats, name)),
                values: Box::new(below(&schema["additionalProperties"])),
            },
        }
    }

    /// True if a document has a list or keys here, which it may also leave empty.
    #[must_use]
    pub fn is_group(&self) -> bool {
        matches!(self, Self::Record(..) | Self::Dictionary { .. } | Self::List(_))
    }

    /// True if it is a secret, or a list of them.
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

    /// The dotted paths of every key with this canonical name, the shallowest first: most people mean that one.
    pub fn places(&self, name: &str) -> Vec<String> {
        let mut places = self.places_below(name, "");
        places.sort_by_key(|place| place.matches(['.', '[']).count());
        places
    }

    fn places_below(&self, name: &str, at: &str) -> Vec<String> {
        match self {
            Self::Record(keys, _) | Self::OneOf(keys) => keys
                .iter()
                .flat_map(|(key, shape)| {
                    let path = join(at, key);
                    let deeper = shape.places_below(name, &path);
                    (key == name).then_some(path).into_iter().chain(deeper)
                })
                .collect(),
            Self::List(item) => item.places_below(name, &format!("{at}[]")),
            Self::Either(shapes) => shapes.iter().flat_map(|shape| shape.places_below(name, at)).collect(),
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

impl Shape {
    /// Visits every single value of a document in canonical spelling, with its dotted path and whether it is a secret.
    pub fn visit(&self, document: &mut Value, visit: &mut dyn FnMut(&str, &mut Value, bool)) {
        self.visit_below(document, "", visit);
    }

    fn visit_below(&self, value: &mut Value, path: &str, visit: &mut dyn FnMut(&str, &mut Value, bool)) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    // A key that the types have and the shape does not know is no secret by its type.
                    self.at(key).unwrap_or(&Self::Truth).visit_below(value, &join(path, key), visit);
                }
            }
            Value::Array(items) => {
                let item = self.item().unwrap_or(&Self::Truth);
                for (index, value) in items.iter_mut().enumerate() {
                    item.visit_below(value, &format!("{path}[{index}]"), visit);
                }
            }
            value => visit(path, value, matches!(self, Self::Text { secret: true, .. })),
        }
    }
}

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
fn variants(options: &[Value], formats: &'static [Format]) -> Option<Vec<(String, Shape)>> {
    let variant = |option: &Value| {
        let keys = option["properties"].as_object().filter(|keys| keys.len() == 1)?;
        let (name, value) = keys.iter().next()?;
        Some((name.clone(), Shape::of(value, formats)))
    };
    options.iter().map(variant).collect()
}

/// The words that a value of this schema can be; none where it is not a choice.
pub fn words(schema: &Value) -> Option<Vec<String>> {
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

pub fn named(formats: &'static [Format], name: &str) -> Option<&'static Format> {
    formats.iter().find(|format| format.name == name)
}
