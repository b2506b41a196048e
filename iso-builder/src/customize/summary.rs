//! What an install configuration on a medium is about, without its secrets.

use model::config::{Mode, Role};
use serde::Serialize;

/// What an install configuration is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigSummary {
    /// Host name.
    pub hostname: Option<String>,
    /// What the node is to its cluster.
    pub mode: Mode,
    /// Which part it plays there.
    pub role: Role,
    /// The disk it is installed on.
    pub device: Option<String>,
    /// Whether it installs without questions.
    pub automatic: bool,
}

impl ConfigSummary {
    /// What the document is about; none where it is not readable as an install configuration.
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
