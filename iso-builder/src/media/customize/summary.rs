//! A summary of an install configuration on a medium, without its secrets.

use model::config::{Mode, Role};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigSummary {
    pub hostname: Option<String>,
    pub mode: Mode,
    pub role: Role,
    pub device: Option<String>,
    /// True if it installs without questions.
    pub automatic: bool,
}

impl ConfigSummary {
    /// The summary of a document; none if it is not readable as an install configuration.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let config = model::config::parse(text, "").ok()?;
        Some(Self {
            hostname: config.os.hostname.map(|name| name.to_string()),
            mode: config.install.mode,
            role: config.install.role,
            device: config.install.device.map(|device| device.to_string()),
            automatic: config.install.automatic,
        })
    }
}
