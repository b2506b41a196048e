//! Preflight: is this machine fit to become the node that a configuration describes?
//!
//! The checks are a registry, [`CHECKS`]: each has a stable name, a severity for each role and profile, and a
//! function that looks at a [`Subject`]. What a check says is an [`Outcome`]: a machine that passed, a finding, and
//! a check that could not run are three different things, and none is ever shown as another. Nothing here writes.
//!
//! [`machine`] reads what the kernel and the firmware tell, [`network`] asks servers and neighbours, [`checks`]
//! judge, [`report`] prints. Callers are `installer preflight` and `installer install`, the latter before its first
//! write.

pub mod checks;
mod dmi;
mod dns;
pub mod intent;
pub mod join;
pub mod limits;
pub mod machine;
pub mod network;
mod ntp;
pub mod report;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::inventory::{Inventory, Nic, Roots};
use base::failure::Class;
pub use checks::CHECKS;
pub use intent::Intent;
pub use machine::Facts;
use model::config::{Profile, Role};
pub use network::{Network, SystemNetwork};
pub use report::{Report, Verdict};

/// All checks together end within this.
pub const LIMIT: Duration = Duration::from_secs(30);

/// How long a card may take to get a link.
pub const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// One named check.
#[derive(Debug)]
pub struct Check {
    /// Stable name, as `install.skip_checks` takes it.
    pub name: &'static str,
    /// What a good machine is like, in a few words.
    pub title: &'static str,
    /// Where the answer comes from.
    pub looks_at: &'static str,
    /// What a finding means.
    pub levels: Levels,
    /// What kind of failure it is where it stops an install.
    pub class: Class,
    /// Whether an install can begin without it. What the plan cannot do without is not a matter of choice.
    pub waivable: bool,
    /// Whether it needs a link and may take seconds.
    pub asks_network: bool,
    /// The check.
    pub run: fn(&Subject<'_>) -> Outcome,
}

/// What a finding means, by profile; a check is off for the roles that it has nothing to say about.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// In production.
    pub production: Severity,
    /// In a trial.
    pub trial: Severity,
    /// The roles that it is off for.
    pub off_for: &'static [Role],
}

/// What a finding means for an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing: the check is not made.
    Off,
    /// It is told, and the install goes on.
    Warning,
    /// It is told, and the install does not begin.
    Error,
}

impl Severity {
    /// The word that people and programs read.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Check {
    /// What a finding means for a node of this role and profile.
    #[must_use]
    pub fn severity(&self, role: Role, profile: Profile) -> Severity {
        match profile {
            _ if self.levels.off_for.contains(&role) => Severity::Off,
            Profile::Production => self.levels.production,
            Profile::Trial => self.levels.trial,
        }
    }
}

/// What a check has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The machine is as it should be.
    Passed {
        /// What was seen.
        detail: String,
    },
    /// It is not.
    Found(Finding),
    /// Nobody knows.
    CouldNotRun {
        /// Why not.
        why: String,
    },
    /// Nobody asked.
    Skipped {
        /// Why not.
        why: String,
    },
}

/// Something that should be otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was seen, and what should be.
    pub message: String,
    /// What to do about it, a whole sentence.
    pub next: String,
    /// Whether it is a warning at most, whatever the check's severity.
    #[serde(skip)]
    pub mild: bool,
}

impl Outcome {
    fn passed(detail: impl Into<String>) -> Self {
        Self::Passed { detail: detail.into() }
    }

    fn found(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Found(Finding { message: message.into(), next: next.into(), mild: false })
    }

    fn could_not_run(why: impl Into<String>) -> Self {
        Self::CouldNotRun { why: why.into() }
    }

    fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }

    /// The same, but a finding is a warning at most.
    fn mild(self) -> Self {
        match self {
            Self::Found(finding) => Self::Found(Finding { mild: true, ..finding }),
            other => other,
        }
    }
}

/// What a check looks at.
#[allow(missing_debug_implementations)]
pub struct Subject<'a> {
    /// What the machine is like.
    pub facts: &'a Facts,
    /// What it shall become.
    pub intent: &'a Intent,
    /// Servers and neighbours.
    pub network: &'a dyn Network,
    /// What the cluster to join said, once one of the checks has asked.
    pub cluster: &'a OnceLock<join::Seen>,
    /// The machine's clock.
    pub now: SystemTime,
    /// Answers that come later are too late.
    pub until: Instant,
}

/// Looks at the disks and cards of this machine once every management card has a link; without one, after `patience`.
/// A card that has just come up takes seconds to agree on a speed with the switch.
pub fn inventory(roots: &Roots, intent: &Intent, patience: Duration) -> anyhow::Result<Inventory> {
    let until = Instant::now() + patience;
    loop {
        let inventory = Inventory::scan(roots)?;
        let linked = |nic: &Nic| nic.carrier == Some(true);
        // What is not there is not waited for.
        let settled = match intent.cards.is_empty() {
            true => inventory.nics.is_empty() || inventory.nics.iter().any(linked),
            false => {
                intent.cards.iter().all(|card| checks::devices::card(&inventory, card).is_none_or(linked))
            }
        };
        if settled || Instant::now() >= until {
            return Ok(inventory);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Makes every check that `intent` asks for. Those that ask the network run side by side, and end within [`LIMIT`].
#[must_use]
pub fn run(facts: &Facts, intent: &Intent, network: &dyn Network) -> Report {
    let cluster = OnceLock::new();
    let (now, until) = (SystemTime::now(), Instant::now() + LIMIT);
    let subject = Subject { facts, intent, network, cluster: &cluster, now, until };
    let outcomes = std::thread::scope(|scope| {
        let begun: Vec<_> = CHECKS
            .iter()
            .map(|check| match not_asked(check, &subject) {
                Some(outcome) => Begun::Done(outcome),
                None if check.asks_network => Begun::Running(scope.spawn(|| (check.run)(&subject))),
                None => Begun::Done((check.run)(&subject)),
            })
            .collect();
        begun.into_iter().map(Begun::outcome).collect::<Vec<_>>()
    });
    let verdicts = CHECKS.iter().zip(outcomes).map(|(check, outcome)| Verdict {
        check: check.name,
        title: check.title,
        waivable: check.waivable,
        class: check.class,
        severity: effective(check, intent, &outcome),
        outcome,
    });
    let checks: Vec<_> = verdicts.collect();
    let authority = cluster.into_inner().and_then(|seen| seen.authority.ok()).map(|(authority, _)| authority);
    // What nobody was told of is not taken for good.
    let told = |verdict: &Verdict| {
        verdict.check == "join-authority" && !matches!(verdict.outcome, Outcome::Skipped { .. })
    };
    let authority = authority.filter(|_| checks.iter().any(told));
    Report { role: intent.role, profile: intent.profile, checks, authority }
}

enum Begun<'scope> {
    Done(Outcome),
    Running(std::thread::ScopedJoinHandle<'scope, Outcome>),
}

impl Begun<'_> {
    fn outcome(self) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Running(thread) => {
                thread.join().unwrap_or_else(|_| Outcome::could_not_run("the check came to a bad end"))
            }
        }
    }
}

/// Why the check is not made, if it is not.
fn not_asked(check: &Check, subject: &Subject<'_>) -> Option<Outcome> {
    let intent = subject.intent;
    if intent.skip.iter().any(|name| name == check.name) {
        return Some(Outcome::skipped("install.skip_checks names it"));
    }
    if check.severity(intent.role, intent.profile) == Severity::Off {
        let (role, profile) = (intent.role.name(), profile_name(intent.profile));
        return Some(Outcome::skipped(format!("nothing is asked of role {role} in profile {profile}")));
    }
    let linked = subject.facts.inventory.nics.iter().any(|nic| nic.carrier == Some(true));
    (check.asks_network && !linked).then(|| Outcome::could_not_run("no network card has a link"))
}

/// The word of configurations.
fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Production => "production",
        Profile::Trial => "trial",
    }
}

/// What this finding means for this install.
fn effective(check: &Check, intent: &Intent, outcome: &Outcome) -> Severity {
    let severity = check.severity(intent.role, intent.profile);
    let mild = matches!(outcome, Outcome::Found(finding) if finding.mild);
    if mild || intent.stop_for_nothing { severity.min(Severity::Warning) } else { severity }
}
