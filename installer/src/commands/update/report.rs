//! Reports about the updates of this node to the fleet server.

use std::path::Path;

use super::status::UpdateStatus;
use base::progress::Progress;
use machine::image_health::ImageHealth;
use machine::installed_node::InstalledNode;
use model::fleet::{SlotReport, UpdateReport};
use node::reporter::{ReportedNode, tell_update};
use node::update::UpdatedNode;

/// Reports the state of the updates of `node`. Waits some seconds for a server that does not answer. A failure is only a warning: the
/// report is sent again after the next start.
pub(crate) fn tell_fleet(node: &UpdatedNode, progress: &Progress) {
    let root = Path::new("/");
    let installed = match InstalledNode::open(root) {
        Ok(installed) => installed,
        Err(error) => {
            progress.warn("report", &format!("the fleet server gets no report: {error:#}"));
            return;
        }
    };
    let (name, secrets) = (installed.hostname(), installed.secrets());
    let about = ReportedNode {
        hostname: name.as_deref(),
        product: format!("{} {}", node.release.name, node.release.version),
        secrets: &secrets,
    };
    let mut report = UpdateStatus::of(node).report();
    report.warnings.extend(ImageHealth::read(root).warnings());
    let told = tell_update(root, &about, report, progress);
    if let Err(error) = told {
        progress.warn("report", &format!("the fleet server gets no report: {error:#}"));
    }
}

impl UpdateStatus {
    fn report(&self) -> UpdateReport {
        let slot = |slot: &super::status::SlotStatus| SlotReport {
            slot: slot.slot.to_string(),
            state: slot.state.map(|state| state.name().to_owned()),
            version: slot.release.as_ref().map(|release| release.version.clone()),
        };
        UpdateReport {
            state: self.state.to_owned(),
            running: self.running.to_string(),
            slots: self.slots.iter().map(slot).collect(),
            offered: self.offered.clone(),
            tries_left: self.tries_left,
            reason: self.reason.clone(),
            trust: self.trust.as_ref().map(|trust| trust.text.clone()),
            warnings: self.trust.as_ref().map(|trust| trust.warnings.clone()).unwrap_or_default(),
        }
    }
}
