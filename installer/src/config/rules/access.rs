//! Who can log in.

use super::Finding;
use crate::config::{InstallConfig, Mode};

/// A node that installs itself and that nobody can log in to would have to be installed again.
pub(super) fn somebody_can_log_in(config: &InstallConfig) -> Vec<Finding> {
    let os = &config.os;
    let joins = matches!(config.install.mode, Mode::Create | Mode::Join);
    if !config.install.automatic || !joins || os.password.is_some() || !os.ssh_authorized_keys.is_empty() {
        return Vec::new();
    }
    let message = "an automatic installation needs `os.password` or `os.ssh_authorized_keys`, \
                   or nobody could log in";
    vec![Finding::new("os", "no-login", message)]
}
