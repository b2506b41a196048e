//! Calls to other systems.

use crate::config::InstallConfig;
use document::finding::Finding;

/// No server is called twice for one event.
pub(super) fn each_once(config: &InstallConfig) -> Vec<Finding> {
    let hooks: Vec<_> = config
        .install
        .webhooks
        .iter()
        .map(|hook| (hook.event, hook.method, &hook.url, &hook.payload))
        .collect();
    let message = "the same call is listed already";
    let repeated = super::shared::repeated(&hooks);
    repeated
        .map(|(later, _)| Finding::new(format!("install.webhooks[{later}]"), "duplicate-webhook", message))
        .collect()
}
