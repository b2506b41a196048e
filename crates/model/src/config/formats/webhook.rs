//! Placeholders of webhooks: `{{.Name}}`, spaces inside the braces allowed, as the reference product writes
//! them. Nothing else of its template language is known here.

use serde_json::Value;

use super::{network, text};
use base::percent;
use document::format::{FormatFault, FormatResult};
use document::nearest::nearest;

pub const NAMES: [&str; 8] =
    ["Hostname", "MACAddr", "IPAddrV4", "IPAddrV6", "Step", "Error", "Event", "Product"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WebhookValues {
    pub hostname: String,
    pub mac: String,
    pub ipv4: String,
    pub ipv6: String,
    /// The step that is done, or that failed.
    pub step: String,
    pub error: String,
    pub event: String,
    pub product: String,
}

impl WebhookValues {
    fn get(&self, name: &str) -> &str {
        match name {
            "Hostname" => &self.hostname,
            "MACAddr" => &self.mac,
            "IPAddrV4" => &self.ipv4,
            "IPAddrV6" => &self.ipv6,
            "Step" => &self.step,
            "Error" => &self.error,
            "Event" => &self.event,
            _ => &self.product,
        }
    }
}

/// How a value is written so that it stays a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    Plain,
    /// For URLs and forms (RFC 3986, 2.1).
    Percent,
    /// For JSON: inside of a string its content, elsewhere a string.
    Json,
}

enum TemplatePiece<'a> {
    Text(&'a str),
    Name(&'static str),
}

/// Checks that every placeholder of a text is known.
pub fn check(text: &str) -> FormatResult {
    pieces(text).map(drop)
}

/// The URL of a webhook: an `http` or `https` URL, with placeholders after its host.
pub fn url(text: &str) -> FormatResult {
    check(text)?;
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    if rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains("{{")) {
        return Err(FormatFault::new(
            "has a placeholder in the name of the server; placeholders come after it",
        ));
    }
    network::http_url(&render(text, &WebhookValues::default(), Escape::Percent))
}

pub fn payload(payload: &str) -> FormatResult {
    text::text(payload)?;
    check(payload)
}

/// True if a payload is JSON once its placeholders have values.
#[must_use]
pub fn is_json(payload: &str) -> bool {
    serde_json::from_str::<Value>(&render(payload, &WebhookValues::default(), Escape::Json)).is_ok()
}

/// The text with values in the place of placeholders. A text that [`check`] refuses stays as it is.
#[must_use]
pub fn render(text: &str, values: &WebhookValues, escape: Escape) -> String {
    let Ok(pieces) = pieces(text) else { return text.to_owned() };
    let mut rendered = String::new();
    let mut place = JsonPlace::default();
    for piece in pieces {
        match piece {
            TemplatePiece::Text(text) => {
                text.chars().for_each(|c| place.pass(c));
                rendered.push_str(text);
            }
            TemplatePiece::Name(name) => {
                let value = values.get(name);
                match escape {
                    Escape::Plain => rendered.push_str(value),
                    Escape::Percent => rendered.push_str(&percent::encode(value)),
                    Escape::Json => rendered.push_str(&place.fill(value)),
                }
            }
        }
    }
    rendered
}

/// Tracks whether a place in JSON is inside a string.
#[derive(Default)]
struct JsonPlace {
    string: bool,
    backslash: bool,
}

impl JsonPlace {
    fn pass(&mut self, c: char) {
        match c {
            _ if self.backslash => self.backslash = false,
            '\\' if self.string => self.backslash = true,
            '"' => self.string = !self.string,
            _ => {}
        }
    }

    fn fill(&self, value: &str) -> String {
        let quoted = Value::from(value).to_string();
        if self.string { quoted[1..quoted.len() - 1].to_owned() } else { quoted }
    }
}

fn pieces(text: &str) -> Result<Vec<TemplatePiece<'_>>, FormatFault> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after
            .split_once("}}")
            .ok_or_else(|| FormatFault::new("has a placeholder that does not end in '}}'"))?;
        pieces.extend([TemplatePiece::Text(before), TemplatePiece::Name(name(inside.trim())?)]);
        rest = after;
    }
    pieces.push(TemplatePiece::Text(rest));
    Ok(pieces)
}

fn name(inside: &str) -> Result<&'static str, FormatFault> {
    let bare = inside.trim_start_matches('.');
    if let Some(name) = NAMES.into_iter().find(|name| inside.strip_prefix('.') == Some(name)) {
        return Ok(name);
    }
    let known: Vec<_> = NAMES.iter().map(|name| format!("{{{{.{name}}}}}")).collect();
    let fault = FormatFault::new(format!("has a placeholder that is not one of {}", known.join(", ")));
    Err(fault.suggest(nearest(bare, NAMES.into_iter()).map(|name| format!("{{{{.{name}}}}}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(error: &str) -> WebhookValues {
        WebhookValues { hostname: "node-1".into(), error: error.into(), ..WebhookValues::default() }
    }

    #[test]
    fn placeholders_get_their_values_and_braces_of_json_stay() {
        let text = r#"{"a": {"host": "{{.Hostname}}", "why": {{ .Error }}}}"#;
        assert_eq!(check(text), Ok(()));
        assert!(is_json(text));
        assert_eq!(
            render(text, &with("a \"b\"\n"), Escape::Json),
            r#"{"a": {"host": "node-1", "why": "a \"b\"\n"}}"#
        );
        assert_eq!(render("{{.Hostname}}: {{.Error}}", &with("a b"), Escape::Plain), "node-1: a b");
        assert_eq!(render("?e={{.Error}}", &with("a&b/é"), Escape::Percent), "?e=a%26b%2F%C3%A9");
    }

    #[test]
    fn an_unknown_placeholder_is_answered_with_the_nearest() {
        for (text, suggestion) in [
            ("{{.Hostnam}}", Some("{{.Hostname}}")),
            ("{{Hostname}}", Some("{{.Hostname}}")),
            ("{{ .ipaddrv4 }}", Some("{{.IPAddrV4}}")),
            ("{{if .Step}}", None),
            ("{{.Hostname", None),
            ("{{}}", None),
        ] {
            assert_eq!(check(text).unwrap_err().suggestion.as_deref(), suggestion, "{text}");
        }
    }

    #[test]
    fn urls_have_placeholders_after_the_server() {
        for text in ["https://a/{{.Hostname}}?ip={{ .IPAddrV4 }}", "http://a:80"] {
            assert_eq!(url(text), Ok(()), "{text}");
        }
        for text in ["https://{{.Hostname}}/", "ftp://a/{{.Step}}", "https://u:p@a/{{.Step}}", "{{.Error}}"] {
            assert!(url(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_value_breaks_json_or_a_url(value in "\\PC{0,20}[\\x00-\\x1f\"\\\\{}]{0,4}\\PC{0,20}") {
            let values = with(&value);
            let json = render(r#"{"s\"": "x {{.Error}} y", "v": {{.Error}}}"#, &values, Escape::Json);
            let json: Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&json["v"], &Value::from(value.clone()));
            prop_assert_eq!(&json["s\""], &Value::from(format!("x {value} y")));
            let text = render("http://a/x?e={{.Error}}&f=1", &values, Escape::Percent);
            let url = reqwest::Url::parse(&text).unwrap();
            let pairs: Vec<_> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, [("e".to_owned(), value), ("f".to_owned(), "1".to_owned())]);
        }
    }
}
