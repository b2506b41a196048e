//! The results of the checks, and the list of checks, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::check::{Check, CheckOutcome, Severity, profile_name};
use super::checks::CHECKS;
use base::failure::{Class, Failure};
use base::progress::Progress;
use cluster::join_query::Authority;
use model::config::{Profile, Role};

#[derive(Clone, Debug, Serialize)]
pub struct PreflightReport {
    pub role: Role,
    pub profile: Profile,
    pub checks: Vec<Verdict>,
    /// The certificate authority of the cluster to join, as far as its server proved to have it.
    #[serde(skip)]
    pub authority: Option<Authority>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    pub check: &'static str,
    pub title: &'static str,
    pub severity: Severity,
    /// Whether an install can begin without the check.
    #[serde(skip)]
    pub waivable: bool,
    /// The class of the failure if it stops an install.
    #[serde(skip)]
    pub class: Class,
    #[serde(flatten)]
    pub outcome: CheckOutcome,
}

impl Verdict {
    /// Whether an install waits for the end of the finding, which comes when the cluster to join is up.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        matches!(&self.outcome, CheckOutcome::Found(finding) if finding.awaited)
    }

    #[must_use]
    pub fn stops(&self) -> bool {
        matches!(self.outcome, CheckOutcome::Found(_)) && self.severity == Severity::Error
    }

    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.outcome {
            CheckOutcome::Passed { .. } => "passed",
            CheckOutcome::Found(_) => self.severity.name(),
            CheckOutcome::CouldNotRun { .. } => "could not run",
            CheckOutcome::Skipped { .. } => "skipped",
        }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        match &self.outcome {
            CheckOutcome::Passed { detail } => detail,
            CheckOutcome::Found(finding) => &finding.message,
            CheckOutcome::CouldNotRun { why } | CheckOutcome::Skipped { why } => why,
        }
    }

    /// What to do about a finding.
    #[must_use]
    pub fn next(&self) -> Option<&str> {
        match &self.outcome {
            CheckOutcome::Found(finding) => Some(&finding.next),
            _ => None,
        }
    }
}

impl PreflightReport {
    pub fn stops(&self) -> impl Iterator<Item = &Verdict> {
        self.checks.iter().filter(|verdict| verdict.stops())
    }

    /// What an install has to wait for, where waiting is all that it needs.
    #[must_use]
    pub fn awaited(&self) -> Option<&str> {
        let first = self.stops().next()?;
        self.stops().all(Verdict::is_awaited).then(|| first.text())
    }

    /// Reports everything that is not as it should be, or not known, in the step `preflight`.
    pub fn tell(&self, progress: &Progress) {
        for verdict in &self.checks {
            let line = format!("{}: {}: {}", verdict.word(), verdict.check, verdict.text());
            match verdict.outcome {
                CheckOutcome::Passed { .. } | CheckOutcome::Skipped { .. } => {}
                _ => progress.note("preflight", line),
            }
        }
    }

    /// An error that names every check that stops an install, and how to skip them; for callers that print the report too.
    ///
    /// # Errors
    /// The class of such a check: [`Class::Join`] before any other.
    pub fn verdict(&self) -> Result<(), Failure> {
        self.refusal(|names, _| format!(": {}", names.join(", ")))
    }

    /// The same with every finding, for callers that do not print the report.
    ///
    /// # Errors
    /// Like [`Self::verdict`].
    pub fn verdict_in_full(&self) -> Result<(), Failure> {
        self.refusal(|_, stops| {
            let line = |verdict: &&Verdict| {
                let next = verdict.next().unwrap_or_default();
                format!("\n  {}: {}\n    {next}", verdict.check, verdict.text())
            };
            stops.iter().map(line).collect()
        })
    }

    fn refusal(&self, details: impl Fn(&[&str], &[&Verdict]) -> String) -> Result<(), Failure> {
        let stops: Vec<_> = self.stops().collect();
        let names: Vec<_> = stops.iter().map(|verdict| verdict.check).collect();
        let noun = match names.len() {
            0 => return Ok(()),
            1 => "check",
            _ => "checks",
        };
        let (role, profile) = (self.role.name(), profile_name(self.profile));
        let details = details(&names, &stops);
        let what = format!(
            "this machine does not pass {} {noun} for role {role} in profile {profile}{details}",
            names.len()
        );
        let waivable: Vec<_> = stops.iter().filter(|stop| stop.waivable).map(|stop| stop.check).collect();
        let hint = match waivable.is_empty() {
            true => "Correct this first: an install is not possible without it.".to_owned(),
            false => format!("To skip them, set install.skip_checks: [{}].", waivable.join(", ")),
        };
        let join = stops.iter().any(|stop| stop.class == Class::Join);
        let class = if join { Class::Join } else { Class::Hardware };
        Err(Failure::new(class, what).hint(hint))
    }

    #[must_use]
    pub fn to_text(&self) -> String {
        let (role, profile) = (self.role.name(), profile_name(self.profile));
        let mut text = format!("Checks for role {role} in profile {profile}\n\n");
        for verdict in &self.checks {
            let _ = writeln!(text, "{:<13}  {:<16}  {}", verdict.word(), verdict.check, verdict.text());
            if let Some(next) = verdict.next() {
                let _ = writeln!(text, "{:<13}  {:<16}  next: {next}", "", "");
            }
        }
        text
    }
}

const PROFILES: [Profile; 2] = [Profile::Production, Profile::Trial];

#[must_use]
pub fn list_text() -> String {
    let mut text = format!("{:<16}  {:<10}  {:<10}  {}\n", "NAME", "PRODUCTION", "TRIAL", "CONDITION");
    for check in CHECKS {
        let [production, trial] = [check.levels.production, check.levels.trial].map(Severity::name);
        let off = match check.levels.off_for {
            [] => String::new(),
            roles => {
                format!(" (not of {})", roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", "))
            }
        };
        let _ = writeln!(text, "{:<16}  {production:<10}  {trial:<10}  {}{off}", check.name, check.title);
    }
    text
}

#[must_use]
pub fn list_json() -> Value {
    let severity = |check: &Check| {
        let role = |role: Role| {
            let levels =
                PROFILES.map(|profile| (profile_name(profile), check.severity(role, profile).name()));
            (role.name().to_owned(), json!(std::collections::BTreeMap::from(levels)))
        };
        Value::Object(Role::ALL.map(role).into_iter().collect())
    };
    let check = |check: &Check| {
        json!({
            "name": check.name, "title": check.title, "looks_at": check.looks_at, "severity": severity(check),
        })
    };
    CHECKS.iter().map(check).collect()
}
