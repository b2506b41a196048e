//! The step of this node to another version of Kubernetes, while no other node of its cluster is away: it restarts etcd and the API server,
//! of which the cluster needs those of the others meanwhile.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};

use super::admin::{AdminAccess, may_pass, own_kubeconfig};
use super::departure::{POLL, busy};
use super::lock::LockDecision;
use crate::node_object::NodeObject;
use crate::version_step::{MoveRecord, move_this_node};
use base::command::Runner;
use base::digest::Digest;
use base::failure::{Class, Failure};
use machine::paths::below;
use model::kubernetes::KubernetesVersion;

/// Longer than the parts of the step may take together.
const LOCK_TIME: SignedDuration = SignedDuration::from_mins(120);

/// Moves the node at `root` as [`move_this_node`] does. One that has an administrator's access, as servers do, holds the cluster's lock
/// from before anything changes until it is healthy again; for the lock it waits at most `wait`. A step that fails once
/// it has begun keeps the lock: with one server half moved the next one must not begin. It goes on with it, or the lock expires.
///
/// # Errors
/// [`Class::Busy`] if another node has the lock, and those of [`move_this_node`].
pub fn move_alone(
    root: &Path,
    runner: &dyn Runner,
    wait: Duration,
    say: &mut dyn FnMut(&str),
) -> Result<Option<MoveRecord>> {
    let turn = StepTurn::of(root, runner);
    let take = |to: &KubernetesVersion, begun, say: &mut dyn FnMut(&str)| match &turn {
        Some(turn) => turn.take(to, begun, wait, say),
        None => Ok(()),
    };
    let done = move_this_node(root, runner, &take, say);
    if let Some(turn) = &turn
        && MoveRecord::read(root).is_none()
        && let Err(error) = turn.give_back()
    {
        say(&format!("This node still has the lock of the cluster's updates until it expires: {error:#}"));
    }
    done
}

/// The lock of the cluster for a node that may take it.
struct StepTurn<'a> {
    node: String,
    admin: AdminAccess<'a>,
    taken: Cell<Option<Digest>>,
}

impl<'a> StepTurn<'a> {
    fn of(root: &Path, runner: &'a dyn Runner) -> Option<Self> {
        let own = NodeObject::read(root)?;
        let access = below(root, own_kubeconfig(own.distribution));
        let admin = access.exists().then(|| AdminAccess::new(runner, own.distribution, access))?;
        Some(Self { node: own.name, admin, taken: Cell::default() })
    }

    /// Takes or renews the lock. Where the step has `begun`, the API may be what it has stopped.
    fn take(
        &self,
        to: &KubernetesVersion,
        begun: bool,
        wait: Duration,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let deadline = Instant::now() + wait;
        let mut told = false;
        loop {
            let is_over = Instant::now() >= deadline;
            let refusal = match self.try_take(to) {
                Ok(None) => return Ok(()),
                Ok(Some(holder)) if is_over => return Err(busy(&holder).into()),
                Ok(Some(holder)) => busy(&holder).to_string(),
                Err(error) if begun => {
                    say(&format!("The step goes on without the lock of the cluster's updates: {error:#}"));
                    return Ok(());
                }
                Err(error) if !is_over && may_pass(&error) => {
                    format!("the cluster cannot be asked: {error:#}")
                }
                Err(error) => {
                    let what = "the lock of the cluster's updates cannot be taken";
                    return Err(Failure::new(Class::Hardware, what)
                        .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
                        .hint("Start it again when the cluster answers; see `installer health`.")
                        .into());
                }
            };
            if !std::mem::replace(&mut told, true) {
                say(&format!("Waiting: {refusal}"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Returns the node that has it instead.
    fn try_take(&self, to: &KubernetesVersion) -> Result<Option<String>> {
        let lock = self.admin.lock()?;
        // A rollout that has stopped stays stopped, and no node leaves for it.
        if lock.failed.is_some() {
            return Ok(None);
        }
        let now = Timestamp::now();
        if let LockDecision::Busy { holder } = lock.decide(&self.node, about(to), false, now) {
            return Ok(Some(holder));
        }
        let lease = lock.taken(&self.node, about(to), LOCK_TIME, now);
        let faster = self.admin.take_lock(&self.node, &lock, &lease)?;
        if faster.is_none() {
            self.taken.set(Some(about(to)));
        }
        Ok(faster)
    }

    fn give_back(&self) -> Result<()> {
        let Some(taken) = self.taken.take() else { return Ok(()) };
        let lock = self.admin.lock()?;
        let own = lock.is_held_by(&self.node) && lock.release == Some(taken) && lock.failed.is_none();
        if own { self.admin.write_lock(&lock, &lock.free()) } else { Ok(()) }
    }
}

/// What the lock is about: no release of the OS has this digest.
fn about(to: &KubernetesVersion) -> Digest {
    Digest::of(format!("kubernetes {to}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rollout::departure::tests::{FakeCluster, SERVER, root};
    use crate::rollout::lock::RolloutLock;
    use base::failure::{class_of, render};
    use machine::paths::DOCUMENT;
    use serde_json::Value;

    const TO: &str = "v1.37.2";

    fn take(turn: &StepTurn<'_>, begun: bool) -> Result<String> {
        let mut said = String::new();
        turn.take(&TO.parse().unwrap(), begun, Duration::ZERO, &mut |line| said.push_str(line))?;
        Ok(said)
    }

    #[test]
    fn two_servers_are_not_moved_at_once() {
        let (first, second, cluster) = (root(), root(), FakeCluster::new());
        fs::write(below(second.path(), DOCUMENT), SERVER.replace("n1", "n2")).unwrap();
        let of = |root: &tempfile::TempDir| StepTurn::of(root.path(), &cluster).unwrap();
        let one = of(&first);
        assert_eq!(take(&one, false).unwrap(), "");
        assert_eq!(cluster.holder(), "n1");
        for begun in [false, true] {
            let error = take(&of(&second), begun).unwrap_err();
            assert_eq!(class_of(&error).exit_code(), 8);
            assert!(render(&error).contains("n1 is being updated"), "{}", render(&error));
        }
        of(&second).give_back().unwrap();
        assert_eq!(cluster.holder(), "n1", "nobody gives back what another one holds");
        // After a power cut it is another process that goes on, and has it still.
        let again = of(&first);
        take(&again, true).unwrap();
        again.give_back().unwrap();
        assert_eq!(cluster.holder(), Value::Null);
        take(&of(&second), false).unwrap();
        assert_eq!(cluster.holder(), "n2");
    }

    #[test]
    fn a_cluster_that_does_not_answer_keeps_a_step_from_beginning_and_none_from_going_on() {
        let (root, cluster) = (root(), FakeCluster::new());
        let turn = StepTurn::of(root.path(), &cluster).unwrap();
        for fails in ["get", "create"] {
            cluster.fail(Some(fails));
            let error = take(&turn, false).unwrap_err();
            assert_eq!(class_of(&error).exit_code(), 3, "{fails}");
            assert!(take(&turn, true).unwrap().contains("goes on without the lock"), "{fails}");
        }
        cluster.fail(None);
        turn.give_back().unwrap();
        assert_eq!(cluster.holder(), Value::Null);
        for fails in ["get", "--filename"] {
            cluster.fail_for(3, fails);
            let (to, wait) = (TO.parse().unwrap(), Duration::from_secs(60));
            let mut said = String::new();
            turn.take(&to, false, wait, &mut |line| said.push_str(line)).unwrap();
            assert!(said.contains("the cluster cannot be asked"), "{said}");
            turn.give_back().unwrap();
        }
    }

    #[test]
    fn a_rollout_that_has_stopped_stays_stopped() {
        let (root, cluster) = (root(), FakeCluster::new());
        let stopped = RolloutLock::absent().stopped("n2", Digest::of(b"new"), "it hangs", Timestamp::now());
        cluster.hold(stopped.clone());
        let turn = StepTurn::of(root.path(), &cluster).unwrap();
        take(&turn, false).unwrap();
        turn.give_back().unwrap();
        assert_eq!(cluster.lease(), stopped);
    }

    #[test]
    fn a_node_without_the_access_of_an_administrator_takes_no_turn() {
        let (root, cluster) = (root(), FakeCluster::new());
        fs::remove_file(below(root.path(), "/etc/kubernetes/admin.conf")).unwrap();
        assert!(StepTurn::of(root.path(), &cluster).is_none());
    }
}
