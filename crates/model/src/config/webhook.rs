//! Calls to other systems when something happens to an install.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::Secret;
use super::text::{HookPayload, HookUrl, Line};

/// One call. `url` and `payload` may hold placeholders: `{{.Hostname}}`, `{{.MACAddr}}`, `{{.IPAddrV4}}`,
/// `{{.IPAddrV6}}`, `{{.Event}}`, `{{.Step}}`, `{{.Error}}` and `{{.Product}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// When.
    pub event: Event,
    /// HTTP method.
    pub method: HttpMethod,
    /// Where to. Placeholders come after the name of the server; their values are percent-encoded.
    pub url: HookUrl,
    /// Header fields; their values may be secrets and are never shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, Vec<HeaderValue>>")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "header-name" }))]
    pub headers: BTreeMap<String, Vec<Secret>>,
    /// The body; never shown in messages. In JSON the values of placeholders are escaped, outside of quotes they
    /// are strings; without a `Content-Type`, JSON is sent as `application/json`.
    #[serde(default)]
    #[schemars(extend("writeOnly" = true))]
    pub payload: HookPayload,
    /// Whether to do without a check of the server's certificate.
    #[serde(default)]
    pub insecure: bool,
    /// Name and password for the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
}

/// The value of a header field, for the schema: a secret that a header can carry.
struct HeaderValue;

impl JsonSchema for HeaderValue {
    fn schema_name() -> Cow<'static, str> {
        "HeaderValue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Secret::json_schema(generator);
        schema.insert("format".into(), "header-value".into());
        schema
    }
}

/// Name and password for a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicAuth {
    /// Name.
    pub user: Line,
    /// Password.
    pub password: Secret,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Event {
    /// The configuration has been read; nothing is written yet.
    Started,
    /// A step of the plan is done; `{{.Step}}` is its name.
    Step,
    /// The node is installed.
    Succeeded,
    /// The install has failed, in whatever stage, a mistake in the configuration included; `{{.Error}}` says why.
    Failed,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)]
pub enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Connect,
    Options,
    Trace,
}
