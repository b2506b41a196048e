//! Requests to the servers of clusters that tests make, and their answers.

use serde_json::{Value, json};

/// What is asked, and by whom.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) authorization: String,
    /// The kind of answer that is wanted.
    pub(crate) accept: String,
    /// Whether a client certificate came along.
    pub(crate) certified: bool,
}

/// What is answered.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind: "text/plain", body: body.into() }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self { status: 200, kind: "application/json", body: value.to_string().into_bytes() }
    }

    /// As Kubernetes writes errors.
    pub(crate) fn error(status: u16, message: &str) -> Self {
        let value = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status });
        Self { status, ..Self::json(&value) }
    }
}
