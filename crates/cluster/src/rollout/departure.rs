//! A node leaves its cluster for a restart, and comes back.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use super::admin::{AdminAccess, may_pass, own_kubeconfig, unanswered};
use super::gate::{DepartingNode, Obstacle, disregarded, obstacles};
use super::lock::{LockDecision, RolloutLock};
use super::record::RolloutRecord;
use crate::node_object::NodeObject;
use base::cancel::Cancel;
use base::command::Runner;
use base::failure::{Class, Failure};
use machine::paths::below;
use machine::update_state::ReleaseId;

/// Between two observations.
pub(super) const POLL: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(5) };
/// The time of one run of kubectl, after which the lock is renewed.
const SLICE: Duration = Duration::from_secs(60);
/// How long the lock lasts after the drain: three starts with 15 minutes each to become good, and slow firmware.
const LOCK_TIME: SignedDuration = SignedDuration::from_mins(90);

/// Who empties the node before its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The node itself.
    Own,
    /// Whoever asked has done it.
    External,
}

#[derive(Debug)]
pub struct DepartureRequest {
    pub drain: Drain,
    /// How long pods, volumes and virtual machines may take to leave.
    pub timeout: Duration,
    /// How long to wait for what keeps the node from leaving and may pass, such as a cluster that does not answer.
    pub wait: Duration,
    /// Whether to go on where the release was taken back on another node.
    pub retry: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    Good,
    /// It was not tried.
    Untried,
    /// Why it was taken back.
    RolledBack(String),
}

/// The departure of this node, with the access of an administrator.
pub struct NodeDeparture<'a> {
    root: &'a Path,
    own: NodeObject,
    admin: AdminAccess<'a>,
    /// The access, where it is one that was named and the node would not find again.
    given: Option<Vec<u8>>,
    tell: &'a dyn Fn(&str),
    /// Which reports of workers were said to be disregarded.
    disregarded: RefCell<BTreeSet<String>>,
}

impl<'a> NodeDeparture<'a> {
    /// For the node at `root`, with the access at `kubeconfig`, or that which it was given earlier or has.
    ///
    /// # Errors
    /// [`Class::Hardware`] if the node has no part in a cluster, or no such access; [`Class::Invalid`] if `kubeconfig` is none.
    pub fn open(
        root: &'a Path,
        runner: &'a dyn Runner,
        kubeconfig: Option<&Path>,
        tell: &'a dyn Fn(&str),
    ) -> Result<Self> {
        let Some(own) = NodeObject::read(root) else {
            return Err(Failure::new(Class::Hardware, "this node is not in a cluster")
                .hint("Run it without --drain.")
                .into());
        };
        let administrators = below(root, own_kubeconfig(own.distribution));
        let found = kubeconfig
            .map(Path::to_owned)
            .or_else(|| RolloutRecord::kept_access(root))
            .or_else(|| administrators.exists().then_some(administrators));
        let Some(found) = found else {
            let what = "this node has no access to its cluster that may cordon nodes and evict pods";
            return Err(Failure::new(Class::Hardware, what)
                .hint("Only servers have one. Name another one with --kubeconfig FILE, or drain the node from a server and run it without --drain. See docs/how-to/cluster-updates.md.")
                .into());
        };
        let admin = AdminAccess::new(runner, own.distribution, found);
        let given = kubeconfig.is_some().then(|| admin.flattened()).transpose()?;
        Ok(Self { root, own, admin, given, tell, disregarded: RefCell::default() })
    }

    /// Asks once, before `release` is staged for minutes, for what would keep the node from leaving for it and does not pass by itself.
    /// A cluster that does not answer is left to [`Self::leave`].
    ///
    /// # Errors
    /// [`Class::Hardware`] if there is such an obstacle, or the access is refused.
    pub fn may_leave(&self, request: &DepartureRequest, release: &ReleaseId) -> Result<()> {
        match self.refusal(request, release) {
            Ok(Some(GateRefusal { failure, passes: false })) => Err(failure.into()),
            Err(error) if !may_pass(&error) => Err(unanswered(error)),
            _ => Ok(()),
        }
    }

    /// Takes the cluster's lock, asks whether the node may leave, and empties it. When this returns, the node can restart; on an
    /// error everything is as it was before.
    ///
    /// # Errors
    /// [`Class::Busy`] if another node is being updated, [`Class::Hardware`] if the node may not leave, or its drain takes too long.
    pub fn leave(&self, request: &DepartureRequest, release: &ReleaseId, cancel: &Cancel) -> Result<()> {
        let kept = RolloutRecord::read(self.root).filter(|record| record.node == self.own.name);
        let (cordoned, tainted) = kept.map_or((false, false), |kept| (kept.cordoned, kept.tainted));
        let node = self.own.name.clone();
        let mut record = RolloutRecord { node, release: release.clone(), cordoned, tainted };
        RolloutRecord::keep_access(self.root, self.given.as_deref())?;
        record.write(self.root)?;
        let left = self.pass_gate(request, release, cancel).and_then(|()| match request.drain {
            Drain::Own => self.drain(request, &mut record, cancel),
            Drain::External => Ok(()),
        });
        if left.is_err()
            && let Err(error) = self.undo(&UpdateOutcome::Untried)
        {
            (self.tell)(&format!(
                "The node is still cordoned or has the lock of the cluster's updates: {error:#}. The next start of the node, or of this command, changes that."
            ));
        }
        left
    }

    /// Changes back what the node has changed in order to leave, if there is anything; tells the others how its update has ended.
    ///
    /// # Errors
    /// If the cluster could not be asked; then it is to be done again.
    pub fn undo(&self, outcome: &UpdateOutcome) -> Result<()> {
        let Some(record) = RolloutRecord::read(self.root) else { return Ok(()) };
        let node = record.node.as_str();
        if record.tainted {
            self.admin.untaint(node)?;
        }
        if record.cordoned {
            self.admin.cordon(node, false)?;
        }
        let lock = self.admin.lock()?;
        let own = lock.is_held_by(node) && lock.failed.is_none();
        let lease = match outcome {
            UpdateOutcome::Good | UpdateOutcome::Untried => own.then(|| lock.free()),
            // Its time may have been over, and another one may have looked at it and given it back.
            UpdateOutcome::RolledBack(why) => (own || lock.holder.is_none())
                .then(|| lock.stopped(node, record.release.digest, why, Timestamp::now())),
        };
        if let Some(lease) = lease {
            self.admin.write_lock(&lock, &lease)?;
        }
        RolloutRecord::forget(self.root)
    }

    /// Asks the cluster until it answers: while its address moves, or etcd chooses a leader, questions stay without an answer.
    fn ask<T>(&self, patience: &Patience<'_>, question: impl Fn() -> Result<T>) -> Result<T> {
        let mut told = false;
        loop {
            patience.cancel.check()?;
            let error = match question() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if patience.is_over() || !may_pass(&error) {
                return Err(unanswered(error));
            }
            if !told {
                (self.tell)(&format!("Waiting for the cluster to answer: {error:#}"));
                told = true;
            }
            patience.cancel.pause(POLL)?;
        }
    }

    /// Returns with the lock, and with no obstacle.
    fn pass_gate(&self, request: &DepartureRequest, release: &ReleaseId, cancel: &Cancel) -> Result<()> {
        let patience = Patience { until: Instant::now() + request.wait, cancel };
        self.until_free(&patience, || self.try_gate(request, release, &patience))
    }

    fn until_free(
        &self,
        patience: &Patience<'_>,
        look: impl Fn() -> Result<Option<GateRefusal>>,
    ) -> Result<()> {
        let mut told = String::new();
        loop {
            let Some(GateRefusal { failure, passes }) = look()? else { return Ok(()) };
            if !passes || patience.is_over() {
                return Err(failure.into());
            }
            let why = failure.to_string();
            if why != told {
                (self.tell)(&format!("Waiting: {why}"));
                told = why;
            }
            patience.cancel.pause(POLL)?;
        }
    }

    /// Takes the lock if nothing keeps the node from leaving; says what does. Whoever only waits does not have the lock: those for whom
    /// it waits need it.
    fn try_gate(
        &self,
        request: &DepartureRequest,
        release: &ReleaseId,
        patience: &Patience<'_>,
    ) -> Result<Option<GateRefusal>> {
        if let Some(refusal) = self.ask(patience, || self.refusal(request, release))? {
            return Ok(Some(refusal));
        }
        if let Some(refusal) = self.ask(patience, || self.take_lock(request, release))? {
            return Ok(Some(refusal));
        }
        // What was seen before may have changed by the holder before.
        let refusal = self.ask(patience, || self.obstacles(request, release))?;
        if refusal.is_some() {
            self.ask(patience, || {
                let lock = self.admin.lock()?;
                self.admin.write_lock(&lock, &lock.free())
            })?;
        }
        Ok(refusal)
    }

    /// What keeps the node from leaving now.
    fn refusal(&self, request: &DepartureRequest, release: &ReleaseId) -> Result<Option<GateRefusal>> {
        match self.lock_refusal(&self.admin.lock()?, request, release) {
            None => self.obstacles(request, release),
            refused => Ok(refused),
        }
    }

    /// Takes or renews the lock; says why not.
    fn take_lock(&self, request: &DepartureRequest, release: &ReleaseId) -> Result<Option<GateRefusal>> {
        let lock = self.admin.lock()?;
        if let Some(refusal) = self.lock_refusal(&lock, request, release) {
            return Ok(Some(refusal));
        }
        let time = SignedDuration::try_from(request.timeout).unwrap_or_default().saturating_add(LOCK_TIME);
        let lease = lock.taken(&self.own.name, release.digest, time, Timestamp::now());
        let faster = self.admin.take_lock(&self.own.name, &lock, &lease)?;
        Ok(faster.map(|holder| GateRefusal { failure: busy(&holder), passes: true }))
    }

    /// Why the lock is not for this node.
    fn lock_refusal(
        &self,
        lock: &RolloutLock,
        request: &DepartureRequest,
        release: &ReleaseId,
    ) -> Option<GateRefusal> {
        match lock.decide(&self.own.name, release.digest, request.retry, Timestamp::now()) {
            LockDecision::Take => None,
            LockDecision::Busy { holder } => Some(GateRefusal { failure: busy(&holder), passes: true }),
            LockDecision::Stopped { holder, why } => {
                let what =
                    format!("the rollout of {} has stopped: {holder} took it back: {why}", release.version);
                let hint = "Use another release. To go on with this one: --retry, or kubectl -n kube-system delete lease nqrust-update";
                let failure = Failure::new(Class::Hardware, what).hint(hint);
                Some(GateRefusal { failure, passes: false })
            }
        }
    }

    fn obstacles(&self, request: &DepartureRequest, release: &ReleaseId) -> Result<Option<GateRefusal>> {
        let cluster = self.admin.look(self.root, &self.own.name)?;
        let (name, now) = (self.own.name.as_str(), Timestamp::now());
        let leaver = DepartingNode { name, now, release: release.digest, retry: request.retry };
        for doubt in disregarded(&cluster, leaver) {
            if self.disregarded.borrow_mut().insert(doubt.clone()) {
                (self.tell)(&format!("Disregarded: {doubt}."));
            }
        }
        Ok(refused(&obstacles(&cluster, leaver)))
    }

    fn drain(&self, request: &DepartureRequest, record: &mut RolloutRecord, cancel: &Cancel) -> Result<()> {
        let patience = Patience { until: Instant::now() + request.timeout, cancel };
        let node = self.own.name.as_str();
        if !self.ask(&patience, || self.admin.node(node))?.spec.unschedulable {
            record.cordoned = true;
            record.write(self.root)?;
            self.ask(&patience, || self.admin.cordon(node, true))?;
        }
        (self.tell)(&format!("{node} is cordoned; its pods are evicted."));
        let machines = self.ask(&patience, || self.admin.has_machines())?;
        if machines {
            record.tainted = true;
            record.write(self.root)?;
            self.ask(&patience, || self.admin.taint(node))?;
        }
        let scratch = self.ask(&patience, || self.admin.with_scratch(node))?;
        if !scratch.is_empty() {
            (self.tell)(&format!("These pods lose what is in their emptyDir: {}", scratch.join(", ")));
        }
        self.evict(request, &record.release, &patience)?;
        if machines {
            self.await_none(&patience, "virtual machines run", || self.admin.machines(node))?;
        }
        self.await_none(&patience, "volumes are attached", || self.admin.volumes(node))?;
        // Another node may have failed during the drain.
        self.until_free(&patience, || self.ask(&patience, || self.obstacles(request, &record.release)))
    }

    fn evict(&self, request: &DepartureRequest, release: &ReleaseId, patience: &Patience<'_>) -> Result<()> {
        let node = self.own.name.as_str();
        let mut refused_before = None;
        loop {
            patience.cancel.check()?;
            match self.admin.evict(node, patience.left().min(SLICE)) {
                Ok(true) => return Ok(()),
                Ok(false) => refused_before = None,
                // An eviction that is refused gives the same error again; a cluster that did not answer does not.
                Err(error) => {
                    let refused = format!("{error:#}");
                    if patience.is_over() || refused_before.as_ref() == Some(&refused) {
                        return Err(Failure::new(Class::Hardware, format!("draining {node}"))
                            .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
                            .hint("Delete pods that nothing would start again, then start this again.")
                            .into());
                    }
                    refused_before = Some(refused);
                }
            }
            if patience.is_over() {
                let (pods, budgets) = self.ask(patience, || self.admin.left(node))?;
                let why = if budgets.is_empty() { pods.join(", ") } else { budgets.join("; ") };
                return Err(Failure::new(Class::Hardware, format!("pods have not left {node} in time"))
                    .because(anyhow::anyhow!("{why}"))
                    .hint("The node is as it was before. Give the pods another place to run, or more time: --drain-timeout SECONDS")
                    .into());
            }
            if let Some(GateRefusal { failure, .. }) =
                self.ask(patience, || self.take_lock(request, release))?
            {
                return Err(failure.into());
            }
        }
    }

    fn await_none(
        &self,
        patience: &Patience<'_>,
        what: &str,
        look: impl Fn() -> Result<Vec<String>>,
    ) -> Result<()> {
        loop {
            let there = self.ask(patience, &look)?;
            if there.is_empty() {
                return Ok(());
            }
            if patience.is_over() {
                let what = format!("{what} still on {}", self.own.name);
                return Err(Failure::new(Class::Hardware, what)
                    .because(anyhow::anyhow!("{}", there.join(", ")))
                    .hint("The node is as it was before. More time: --drain-timeout SECONDS")
                    .into());
            }
            patience.cancel.pause(POLL)?;
        }
    }
}

struct Patience<'a> {
    until: Instant,
    cancel: &'a Cancel,
}

impl Patience<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }
}

impl std::fmt::Debug for NodeDeparture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeDeparture({}, {:?})", self.own.name, self.admin)
    }
}

struct GateRefusal {
    failure: Failure,
    /// Whether it may pass.
    passes: bool,
}

pub(super) fn busy(holder: &str) -> Failure {
    let what = format!("{holder} is being updated, and has the lock of the cluster's updates");
    let hint = "Wait for it: --wait SECONDS. If it is gone for good, the lock expires.";
    Failure::new(Class::Busy, what).hint(hint)
}

fn refused(found: &[Obstacle]) -> Option<GateRefusal> {
    if found.is_empty() {
        return None;
    }
    let why: Vec<_> = found.iter().map(|obstacle| obstacle.why.as_str()).collect();
    let failure = Failure::new(Class::Hardware, format!("this node may not leave its cluster now: {}", why.join("; ")))
        .hint("Fix that first. To wait for what may pass by itself: --wait SECONDS. To restart anyway: --drain none");
    Some(GateRefusal { failure, passes: found.iter().all(|obstacle| obstacle.passes) })
}

#[cfg(test)]
pub(super) mod tests;
