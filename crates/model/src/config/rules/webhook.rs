//! Calls to other systems.

use super::finding::Finding;
use crate::config::InstallConfig;

/// No server is called twice for one event.
pub(super) fn each_once(config: &InstallConfig) -> Vec<Finding> {
    let hooks: Vec<_> = config
        .install
        .webhooks
        .iter()
        .map(|hook| (hook.event, hook.method, &hook.url, &hook.payload))
        .collect();
    let message = "the same call is listed already";
    let repeated = super::finding::repeated(&hooks);
    repeated
        .map(|(later, _)| Finding::new(format!("install.webhooks[{later}]"), "duplicate-webhook", message))
        .collect()
}
