//! A whole rollout: each node leaves its cluster, loses its power, comes back and says what became of its release, while somebody
//! writes to the API once a second. The release after it is taken back by the first node, and no other one leaves for it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cluster::rollout::report::ReportedState;
use cluster::rollout::{Drain, UpdateOutcome};
use nqrust_tests::native_cluster::TestCluster;

use super::figures::Figures;
use super::rollout::{Departure, GIVEN, departure, given, holder, is_cordoned, leave, tell, undo};
use super::writes;

/// Servers, the witness, the worker.
const ORDER: [&str; 4] = ["node-1", "node-2", "node-3", "node-4"];
/// For a node to be missed no more, and for its pods to leave.
const WAIT: Duration = Duration::from_secs(120);

pub(super) fn check(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    for name in ORDER {
        tell(cluster, name, ReportedState::Good, "running")?;
    }
    let access = cluster.node("node-1")?.run("cat /etc/kubernetes/admin.conf")?;
    let writer = writes::begin(cluster, figures.path("rolling-writes.txt"));
    for (place, name) in ORDER.into_iter().enumerate() {
        leaves(cluster, name, &access, "next")?;
        tell(cluster, name, ReportedState::PendingReboot, "next")?;
        cluster.start_again(name, &|_| Ok(()))?;
        tell(cluster, name, ReportedState::Trial, "next")?;
        // The next node waits for the verdict.
        let next = ORDER[(place + 1) % ORDER.len()];
        give(cluster, next, &access)?;
        let (code, told) = leave(cluster, next, &departure_of(next), "next")?;
        ensure!(code == 8 && told.contains(&format!("{name} is being updated")), "{next}: {code} {told}");
        tell(cluster, name, ReportedState::Good, "next")?;
        undo(cluster, name, &UpdateOutcome::Good)?;
        ensure!(!is_cordoned(cluster, name)? && holder(cluster)?.is_null(), "{name} is not back");
        figures.done(&format!("{name} has left, restarted, and is good"))?;
    }
    leaves(cluster, "node-1", &access, "broken")?;
    cluster.start_again("node-1", &|_| Ok(()))?;
    tell(cluster, "node-1", ReportedState::RolledBack, "broken")?;
    undo(cluster, "node-1", &UpdateOutcome::RolledBack("it was started 3 times".into()))?;
    ensure!(!is_cordoned(cluster, "node-1")?, "a node that has rolled back takes pods");
    for name in ["node-2", "node-3", "node-4"] {
        give(cluster, name, &access)?;
        let (code, told) = leave(cluster, name, &departure_of(name), "broken")?;
        ensure!(code == 3 && told.contains("node-1 took it back"), "{name}: {code} {told}");
        ensure!(!is_cordoned(cluster, name)?, "{name} is cordoned for a release that nobody shall try");
    }
    figures.done("the broken release has stopped at node-1")?;
    writes::end(writer, figures)
}

fn departure_of(name: &str) -> Departure {
    let own = departure(Drain::Own, WAIT);
    if has_access(name) { own } else { given(own) }
}

/// Servers have an administrator's access of their own.
fn has_access(name: &str) -> bool {
    ["node-1", "node-2"].contains(&name)
}

/// Gives a node access that has none; a restart takes it away.
fn give(cluster: &TestCluster, name: &str, access: &str) -> Result<()> {
    if has_access(name) {
        return Ok(());
    }
    let node = cluster.node(name)?;
    node.within(|| base::files::write_atomically(Path::new(GIVEN), access.as_bytes(), 0o600))?
}

/// Lets a node leave as soon as the others can run without it.
fn leaves(cluster: &TestCluster, name: &str, access: &str, about: &str) -> Result<()> {
    give(cluster, name, access)?;
    let mut departure = departure_of(name);
    departure.request.wait = WAIT;
    let (code, told) = leave(cluster, name, &departure, about).with_context(|| format!("{name} leaving"))?;
    ensure!(code == 0, "{name}: {code} {told}");
    ensure!(is_cordoned(cluster, name)? && holder(cluster)? == *name, "{name} has left");
    Ok(())
}
