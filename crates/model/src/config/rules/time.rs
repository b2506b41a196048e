//! Time servers. The nodes of a cluster must agree on the time, or etcd and certificates fail.

use super::finding::{Finding, is_unattended, repeated};
use crate::config::InstallConfig;

const SETTING: &str = "ntp-servers";

/// Time servers stand in one place, each once.
pub(super) fn servers_are_given_once(config: &InstallConfig) -> Vec<Finding> {
    let servers = &config.os.ntp_servers;
    let again = "this time server is listed already";
    let repeated = repeated(servers)
        .map(|(later, _)| Finding::warning(format!("os.ntp_servers[{later}]"), "repeated-entry", again));
    let both = !servers.is_empty() && config.system_settings.contains_key(SETTING);
    let message = "`os.ntp_servers` is given too, and sets this setting; keep one of them";
    let conflict =
        both.then(|| Finding::new(format!("system_settings.{SETTING}"), "conflicting-keys", message));
    repeated.chain(conflict).collect()
}

/// With one server alone, a wrong time cannot be recognised.
pub(super) fn enough_servers(config: &InstallConfig) -> Vec<Finding> {
    let path = "os.ntp_servers";
    let finding = match config.os.ntp_servers.len() {
        0 if is_unattended(config) && !config.system_settings.contains_key(SETTING) => Finding::warning(
            path,
            "time-servers",
            "there is no time server, and clusters need the same time on all nodes",
        ),
        1 => Finding::warning(
            path,
            "time-servers",
            "there is one time server only; without it the time drifts",
        ),
        _ => return Vec::new(),
    };
    vec![finding]
}
