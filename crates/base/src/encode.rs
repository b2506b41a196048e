//! Values of this program's own types as JSON and YAML.
//!
//! They are structures, maps with keys of text, lists, texts, numbers and truth values, and those always serialize. Should
//! a type ever be otherwise, the program ends here: an empty document in its place would be believed.

use serde::Serialize;
use serde_json::Value;

#[must_use]
#[expect(
    clippy::expect_used,
    reason = "types of this program serialize, and an empty value would be believed"
)]
pub fn json<T: Serialize + ?Sized>(value: &T) -> Value {
    serde_json::to_value(value).expect("a type of this program serializes as JSON")
}

/// The value as text in several lines.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "types of this program serialize, and an empty text would be believed"
)]
pub fn json_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("a type of this program serializes as JSON")
}

/// The value as text in one line, without an end of line.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "types of this program serialize, and an empty text would be believed"
)]
pub fn json_line<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("a type of this program serializes as JSON")
}

/// The value as a YAML document, every text that could be taken for something else in quotes.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "types of this program serialize, and an empty document would be believed"
)]
pub fn yaml<T: Serialize>(value: &T) -> String {
    serde_saphyr::to_string(value).expect("a type of this program serializes as YAML")
}
