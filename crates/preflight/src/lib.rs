//! Preflight: checks that this machine can become the node that a configuration describes.
//!
//! The checks are a registry, [`CHECKS`]: each has a stable name, a severity for each role and profile, and a function of a
//! [`CheckSubject`]. Its result is a [`CheckOutcome`]: a machine that passed, a finding, and a check that could not run are three
//! different things, and none is ever shown as another. Nothing here writes.
//!
//! [`machine_facts`] reads the properties of the machine, [`network`] asks servers and neighbours, [`checks`] judge, [`report`] prints.
//! Callers are `installer preflight` and `installer install`, the latter before its first write.

mod check;
pub mod checks;
mod dmi;
mod dns;
mod echo;
pub mod limits;
pub mod machine_facts;
pub mod network;
mod ntp;
mod path;
pub mod planned_node;
pub mod report;
mod socket_errors;
#[cfg(test)]
mod tests;
pub mod wait;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use check::profile_name;
pub use check::{Check, CheckFinding, CheckOutcome, CheckSubject, Severity, SeverityLevels};
pub use checks::CHECKS;
use machine::inventory::{Inventory, Nic, Roots};
pub use machine_facts::MachineFacts;
pub use network::{Network, SystemNetwork};
pub use planned_node::PlannedNode;
pub use report::{PreflightReport, Verdict};

/// All checks together end within this.
pub const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long a card may take to get a link.
pub const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// Scans the disks and cards of this machine once every management card has a link; without one, after `timeout`. A card that has
/// just come up takes seconds to negotiate a speed with the switch.
pub fn inventory(roots: &Roots, node: &PlannedNode, timeout: Duration) -> anyhow::Result<Inventory> {
    let until = Instant::now() + timeout;
    loop {
        let inventory = Inventory::scan(roots)?;
        let linked = |nic: &Nic| nic.carrier == Some(true);
        // Missing cards are not waited for.
        let settled = match node.cards.is_empty() {
            true => inventory.nics.is_empty() || inventory.nics.iter().any(linked),
            false => node.cards.iter().all(|card| checks::devices::card(&inventory, card).is_none_or(linked)),
        };
        if settled || Instant::now() >= until {
            return Ok(inventory);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Makes every check that `node` asks for. Those that ask the network run in parallel, and end within [`TIME_LIMIT`].
#[must_use]
pub fn run(facts: &MachineFacts, node: &PlannedNode, network: &dyn Network) -> PreflightReport {
    let cluster = OnceLock::new();
    let (now, until) = (SystemTime::now(), Instant::now() + TIME_LIMIT);
    let subject = CheckSubject { facts, node, network, cluster: &cluster, now, until };
    let outcomes = std::thread::scope(|scope| {
        let begun: Vec<_> = CHECKS
            .iter()
            .map(|check| match not_asked(check, &subject) {
                Some(outcome) => StartedCheck::Done(outcome),
                None if check.asks_network => StartedCheck::Running(scope.spawn(|| (check.run)(&subject))),
                None => StartedCheck::Done((check.run)(&subject)),
            })
            .collect();
        begun.into_iter().map(StartedCheck::outcome).collect::<Vec<_>>()
    });
    let verdicts = CHECKS.iter().zip(outcomes).map(|(check, outcome)| Verdict {
        check: check.name,
        title: check.title,
        waivable: check.waivable,
        class: check.class,
        severity: effective(check, node, &outcome),
        outcome,
    });
    let checks: Vec<_> = verdicts.collect();
    let authority = cluster.into_inner().and_then(|seen| seen.authority.ok()).map(|found| found.authority);
    // A skipped check is not counted as passed.
    let told = |verdict: &Verdict| {
        verdict.check == "join-authority" && !matches!(verdict.outcome, CheckOutcome::Skipped { .. })
    };
    let authority = authority.filter(|_| checks.iter().any(told));
    PreflightReport { role: node.role, profile: node.profile, checks, authority }
}

/// Asks only the cluster to join. Returns why it cannot take the node yet, if waiting may be enough.
#[must_use]
pub fn cluster_is_awaited(facts: &MachineFacts, node: &PlannedNode, network: &dyn Network) -> Option<String> {
    let cluster = OnceLock::new();
    let (now, until) = (SystemTime::now(), Instant::now() + TIME_LIMIT);
    checks::join::awaited(&CheckSubject { facts, node, network, cluster: &cluster, now, until })
}

enum StartedCheck<'scope> {
    Done(CheckOutcome),
    Running(std::thread::ScopedJoinHandle<'scope, CheckOutcome>),
}

impl StartedCheck<'_> {
    fn outcome(self) -> CheckOutcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Running(thread) => {
                thread.join().unwrap_or_else(|_| CheckOutcome::could_not_run("the check crashed"))
            }
        }
    }
}

/// The outcome of a check that is not made.
fn not_asked(check: &Check, subject: &CheckSubject<'_>) -> Option<CheckOutcome> {
    let node = subject.node;
    if node.skip.iter().any(|name| name == check.name) {
        return Some(CheckOutcome::skipped("install.skip_checks names it"));
    }
    if check.severity(node.role, node.profile) == Severity::Off {
        let (role, profile) = (node.role.name(), profile_name(node.profile));
        return Some(CheckOutcome::skipped(format!("does not apply to role {role} in profile {profile}")));
    }
    let linked = subject.facts.inventory.nics.iter().any(|nic| nic.carrier == Some(true));
    (check.asks_network && !linked).then(|| CheckOutcome::could_not_run("no network card has a link"))
}

/// The severity of this finding for this install.
fn effective(check: &Check, node: &PlannedNode, outcome: &CheckOutcome) -> Severity {
    let severity = check.severity(node.role, node.profile);
    let mild = matches!(outcome, CheckOutcome::Found(finding) if finding.mild);
    if mild || node.stop_for_nothing { severity.min(Severity::Warning) } else { severity }
}
