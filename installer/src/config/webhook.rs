//! Calls to other systems when something happens to an install.

use std::collections::BTreeMap;

use schemars::JsonSchema;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
