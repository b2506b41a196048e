//! The name of a node.

use crate::machine_id::MachineId;
use model::config::InstallConfig;

/// The node's name: the document's, else one made from the machine id, so that two nodes never share one.
#[must_use]
pub fn hostname(config: &InstallConfig, machine: Option<&MachineId>) -> Option<String> {
    let configured = config.os.hostname.as_ref().map(ToString::to_string);
    configured.or_else(|| machine.map(|id| format!("nqrust-{}", id.short())))
}
