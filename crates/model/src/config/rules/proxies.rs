//! Destinations without a proxy: a node that reaches its own cluster through one cannot join it.

use serde_json::{Value, json};

use crate::config::proxies::{SETTING, uncovered, with_internal};
use crate::config::{InstallConfig, Mode};
use document::finding::Finding;

/// The variables of the node's environment except the node and its cluster from their proxies.
pub(super) fn environment_leaves_the_cluster_out(config: &InstallConfig) -> Vec<Finding> {
    let Some((proxy, _)) = config.proxy_variables().next() else { return Vec::new() };
    let hosts = config.internal_hosts();
    let finding = |path: &str, name: &str, list: &str, suggestion: &dyn Fn(Value) -> String| {
        let lacking = uncovered(list, &hosts);
        let message = format!(
            "`{name}` lacks {}: sessions and programs that read /etc/environment send requests for these to the proxy; containerd, the kubelet, RKE2, K3s and the installer add them automatically{}",
            lacking.join(", "),
            unknown(config)
        );
        let finding = Finding::warning(format!("os.environment.{path}"), "incomplete-no-proxy", message);
        let whole = json!(with_internal(list, &hosts));
        (!lacking.is_empty()).then(|| finding.suggest(suggestion(whole)))
    };
    let mut findings: Vec<_> = config
        .exceptions()
        .map(|(name, list)| finding(name, name, list, &|whole| whole.to_string()))
        .collect();
    if findings.is_empty() {
        let name = if proxy.starts_with(char::is_uppercase) { "NO_PROXY" } else { "no_proxy" };
        findings.push(finding(proxy, name, "", &|whole| format!("{name}: {whole}")));
    }
    findings.into_iter().flatten().collect()
}

/// The cluster's setting `http-proxy` must leave the cluster out as well.
pub(super) fn setting_leaves_the_cluster_out(config: &InstallConfig) -> Vec<Finding> {
    let setting = config.system_settings.get(SETTING);
    let setting: Option<Value> = setting.and_then(|value| serde_json::from_str(value.expose()).ok());
    let Some(setting) = setting else { return Vec::new() };
    let text = |key: &str| setting[key].as_str().unwrap_or_default();
    let (hosts, list) = (config.internal_hosts(), text("noProxy"));
    let lacking = uncovered(list, &hosts);
    if ["httpProxy", "httpsProxy"].iter().all(|key| text(key).is_empty()) || lacking.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "`noProxy` lacks {}: programs that use this setting send requests for these to the proxy; the installer adds them automatically{}",
        lacking.join(", "),
        unknown(config)
    );
    let finding = Finding::warning(format!("system_settings.{SETTING}"), "incomplete-no-proxy", message);
    vec![finding.suggest(format!("\"noProxy\": {}", json!(with_internal(list, &hosts))))]
}

/// A hint for addresses that are not known before the node runs.
fn unknown(config: &InstallConfig) -> &'static str {
    match config.static_subnet() {
        None if config.install.mode != Mode::Install => {
            "; the subnet of the nodes comes from DHCP and is not known here: add it yourself"
        }
        _ => "",
    }
}
