//! The cluster's part in the update of a node: reports to it, and how the node leaves it and comes back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::pod::is_of_pod;
use super::report::tell_fleet;
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::digest::Digest;
use base::failure::{Class, Failure, causes, class_of};
use base::program::Context;
use base::progress::Progress;
use cluster::node_object::NodeObject;
use cluster::rollout::report::{ReportedState, tell_until};
use cluster::rollout::{DepartureRequest, Drain, NodeDeparture, NodeReport, RolloutRecord, UpdateOutcome};
use machine::update_state::ReleaseId;
use node::update::UpdatedNode;
use node::update::cluster_report::{report_of, report_of_failure};

/// Between two attempts to tell the cluster, which may still be starting.
const RETRY: Duration = Duration::from_secs(10);
/// How long a boot goes on with that; the next one begins anew.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);
/// Between two looks at what runs.
const POLL: Duration = Duration::from_secs(5);

/// How a node leaves its cluster for an update.
#[derive(Debug)]
pub(crate) struct ClusterRequest {
    /// Who drains it; none if the cluster is not asked.
    pub(crate) drain: Option<Drain>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) drain_timeout: Duration,
    /// How long to wait for the verdict on what runs already.
    pub(crate) wait_good: Duration,
    pub(crate) retry: bool,
}

impl ClusterRequest {
    /// Whether a pod runs this update. Its controller must see it fail by the restart, not end with success before it.
    pub(super) fn is_of_pod(&self) -> bool {
        self.kubeconfig.as_deref().and_then(Path::to_str).is_some_and(is_of_pod)
    }

    /// Access to the cluster, if the node is to leave it.
    pub(super) fn node_departure<'a>(&self, tell: &'a dyn Fn(&str)) -> Result<Option<NodeDeparture<'a>>> {
        let open = |_| NodeDeparture::open(Path::new("/"), &SystemRunner, self.kubeconfig.as_deref(), tell);
        self.drain.map(open).transpose()
    }

    fn departure(&self, wait: Duration) -> Option<DepartureRequest> {
        let Self { drain, drain_timeout, retry, .. } = *self;
        drain.map(|drain| DepartureRequest { drain, timeout: drain_timeout, wait, retry })
    }
}

/// Does a part of an update, and reports the result to the cluster and to the fleet server. `about` is the requested release, if that is
/// known before it is read.
pub(super) fn telling<T>(
    node: &mut UpdatedNode,
    about: Option<Digest>,
    context: &Context,
    work: impl FnOnce(&mut UpdatedNode) -> Result<T>,
) -> Result<T> {
    let before = report_of(node);
    let done = work(node);
    let report = match &done {
        Ok(_) => report_of(node),
        // A refused request is no failed update.
        Err(error) if matches!(class_of(error), Class::Verification | Class::Network | Class::DiskIo) => {
            report_of_failure(node, about, causes(error).join(": "))
        }
        Err(_) => report_of(node),
    };
    if report != before {
        if let Err(why) = report.tell(Path::new("/")) {
            context.progress.note("update", format!("The report to the cluster is sent later: {why}"));
        }
        tell_fleet(node, &context.progress);
    }
    done
}

/// Fails if it is known before staging that the node may not leave its cluster for the release.
pub(super) fn may_leave(
    release: &ReleaseId,
    request: &ClusterRequest,
    node_departure: Option<&NodeDeparture<'_>>,
) -> Result<()> {
    let (Some(departure), Some(node_departure)) = (request.departure(Duration::ZERO), node_departure) else {
        return Ok(());
    };
    node_departure.may_leave(&departure, release)
}

/// Takes the node out of its cluster, if requested.
pub(super) fn leave(
    node: &UpdatedNode,
    request: &ClusterRequest,
    node_departure: Option<&NodeDeparture<'_>>,
    wait: Duration,
) -> Result<()> {
    let (Some(departure), Some(node_departure)) = (request.departure(wait), node_departure) else {
        return Ok(());
    };
    let Some(staged) = &node.memory.staged else {
        return Err(Failure::new(Class::Invalid, "nothing is staged")
            .hint("Name a release: installer update apply --from MEDIUM")
            .into());
    };
    node_departure.leave(&departure, &staged.release, &Cancel::on_signals())
}

/// The result of the update for which the node has left its cluster; `None` while that is open.
fn outcome(record: &RolloutRecord, report: NodeReport) -> Option<UpdateOutcome> {
    match report.state {
        ReportedState::Trial | ReportedState::PendingReboot => None,
        ReportedState::Good if report.about == record.release => Some(UpdateOutcome::Good),
        ReportedState::RolledBack if report.about == record.release => {
            Some(UpdateOutcome::RolledBack(report.reason))
        }
        _ => Some(UpdateOutcome::Untried),
    }
}

/// Undoes what the node has changed in its cluster for an update that has ended, if there is anything.
fn undo(node: &UpdatedNode, kubeconfig: Option<&Path>, tell: &dyn Fn(&str)) -> Result<()> {
    let root = Path::new("/");
    let Some(record) = RolloutRecord::read(root) else { return Ok(()) };
    let Some(outcome) = outcome(&record, report_of(node)) else { return Ok(()) };
    NodeDeparture::open(root, &SystemRunner, kubeconfig, tell)?.undo(&outcome)
}

/// Undoes what an earlier run has left.
pub(super) fn resume(node: &UpdatedNode, request: &ClusterRequest, context: &Context) {
    let tell = |line: &str| context.tell("update", line);
    if let Err(error) = undo(node, request.kubeconfig.as_deref(), &tell) {
        context.progress.warn("update", &format!("the node is not back in its cluster yet: {error:#}"));
    }
}

/// Waits for the verdict on the running release, which is the requested one.
pub(super) fn await_good(request: &ClusterRequest, context: &Context) -> Result<()> {
    let (deadline, cancel) = (Instant::now() + request.wait_good, Cancel::on_signals());
    loop {
        let node = UpdatedNode::read(Path::new("/"))?;
        if !node.on_trial() {
            resume(&node, request, context);
            return Ok(());
        }
        if request.wait_good.is_zero() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new(
                Class::Hardware,
                "the release runs, but has not passed its health check yet",
            )
            .hint("See `installer health`; ask again later, or wait longer: --wait-good SECONDS")
            .into());
        }
        cancel.pause(POLL)?;
    }
}

/// Tells the cluster of a node while the node does something else.
#[derive(Debug)]
pub(crate) struct Announcement {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Announcement {
    pub(crate) fn begin(node: &UpdatedNode) -> Self {
        let report = report_of(node);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            tell_until(Path::new("/"), &report, POLL, &|| stop.load(Ordering::Relaxed));
        });
        Self { over, thread: Some(thread) }
    }

    /// Ends it, so that no older report follows a newer one.
    pub(crate) fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Reports the verdict on the node to the cluster, and undoes what the node has changed there; whether that is done. Tries again for
/// `patience` while the cluster does not answer.
pub(crate) fn come_back(
    node: &UpdatedNode,
    patience: Duration,
    cancel: &Cancel,
    progress: &Progress,
) -> bool {
    if NodeObject::read(Path::new("/")).is_none() {
        return true;
    }
    let deadline = Instant::now() + patience;
    let report = report_of(node);
    let mut told = false;
    loop {
        let said = if told { Ok(()) } else { report.tell(Path::new("/")) };
        told |= said.is_ok();
        let undone = undo(node, None, &|line| progress.note("bless", line));
        let trouble = match (said, undone) {
            (Ok(()), Ok(())) => return true,
            (Err(why), _) => why,
            (Ok(()), Err(error)) => format!("{error:#}"),
        };
        if Instant::now() >= deadline || cancel.pause(RETRY).is_err() {
            progress.note("bless", format!("The cluster has no report of this node yet: {trouble}"));
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_ends_with_the_verdict_on_its_release() {
        let release = |name: &str| ReleaseId { digest: Digest::of(name.as_bytes()), version: name.into() };
        let record =
            RolloutRecord { node: "n1".into(), release: release("2"), cordoned: true, tainted: false };
        let ended = |state, about: &str| {
            let (version, slot) = ("1".into(), "a".into());
            let report = NodeReport { version, slot, state, about: release(about), reason: "it hung".into() };
            outcome(&record, report)
        };
        use ReportedState::*;
        assert_eq!(ended(Trial, "2"), None);
        assert_eq!(ended(PendingReboot, "2"), None);
        assert_eq!(ended(Good, "2"), Some(UpdateOutcome::Good));
        assert_eq!(ended(RolledBack, "2"), Some(UpdateOutcome::RolledBack("it hung".into())));
        // It was cut off before it was armed: what runs tells of an older update.
        assert_eq!(ended(RolledBack, "1"), Some(UpdateOutcome::Untried));
        assert_eq!(ended(Good, "1"), Some(UpdateOutcome::Untried));
        assert_eq!(ended(Staged, "2"), Some(UpdateOutcome::Untried));
        assert_eq!(ended(Idle, "1"), Some(UpdateOutcome::Untried));
    }
}
