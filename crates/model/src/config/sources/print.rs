//! A configuration as kernel parameters, such that [`super::cmdline`] reads the same configuration from them.

use serde_json::Value;

use super::cmdline::{below, bracket, choices, element, wants};
use crate::config::harvester::card;
use crate::kernel_line::words;
use document::shape::{Shape, join};

/// A value that kernel parameters cannot express: some characters cannot be written there.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{path}` cannot be written as a kernel parameter; put it into a document")]
pub struct UnprintableKeyError {
    /// Dotted key.
    pub path: String,
}

/// `value`, a configuration of this `shape` with canonical keys, as words of a command line.
pub fn parameters(value: &Value, shape: &Shape) -> Result<Vec<String>, UnprintableKeyError> {
    let mut words = Vec::new();
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                print(value, below(shape, key), key, &mut words)?;
            }
            Ok(words)
        }
        _ => Err(UnprintableKeyError { path: String::new() }),
    }
}

fn print(
    value: &Value,
    shape: Option<&Shape>,
    path: &str,
    words: &mut Vec<String>,
) -> Result<(), UnprintableKeyError> {
    let shape = shape.ok_or_else(|| UnprintableKeyError { path: path.to_owned() })?;
    match value {
        Value::Object(map) if map.is_empty() => words.push(word(path, "{}")?),
        Value::Object(map) => {
            for (key, value) in map {
                // A group's name in a dictionary ends at its first dot.
                let group = below(shape, key).is_some_and(|shape| wants(shape, '{'));
                let path = join(path, key);
                if group && key.contains('.') {
                    return Err(UnprintableKeyError { path });
                }
                print(value, below(shape, key), &path, words)?;
            }
        }
        Value::Array(items) if items.is_empty() => words.push(word(path, "[]")?),
        Value::Array(items) => {
            let plain = |item: &Value| text(item).is_some_and(|text| bracket(&text).is_none());
            let repeats = items.iter().all(plain) && !element(shape).is_some_and(card::is_card);
            for (index, item) in items.iter().enumerate() {
                let path = if repeats { path.to_owned() } else { format!("{path}[{index}]") };
                print(item, element(shape), &path, words)?;
            }
        }
        single => {
            let text = text(single).unwrap_or_default();
            // Brackets would be read as YAML.
            if bracket(&text).is_some_and(|open| wants(shape, open)) || choices(shape).is_empty() {
                return Err(UnprintableKeyError { path: path.to_owned() });
            }
            words.push(word(path, &text)?);
        }
    }
    Ok(())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// `key=value` in the first way of quoting that the kernel reads back as it was.
fn word(path: &str, text: &str) -> Result<String, UnprintableKeyError> {
    let key = format!("nqrust.{path}");
    let ways = [format!("{key}={text}"), format!("{key}=\"{text}\""), format!("\"{key}={text}\"")];
    let survives = |way: &String| {
        let read = words(&format!("{way} next"));
        let [first, _] = read.as_slice() else { return false };
        first.key == key && first.value.as_ref().is_some_and(|(value, _)| value == text)
    };
    let plain = !key.chars().chain(text.chars()).any(char::is_control);
    let way = ways.into_iter().find(survives).filter(|_| plain);
    way.ok_or_else(|| UnprintableKeyError { path: path.to_owned() })
}
