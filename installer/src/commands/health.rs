//! `installer health`: whether this node is good, check by check.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::Context;
use cluster::health::{self, CHECKS, CheckClass, CheckGroup, CheckResult, Finding, NodeProbe};

#[derive(Debug, clap::Args)]
pub(super) struct HealthArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// List every check with what its failure means, and make none.
    #[arg(long, conflicts_with = "root")]
    list: bool,
}

impl HealthArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.list { list_checks(context) } else { show_health(&self.root, context) }
    }
}

/// Makes every check once and prints the results; an error if something required does not hold.
fn show_health(root: &Path, context: &Context) -> Result<()> {
    let results = health::current(&NodeProbe::new(root, &SystemRunner));
    let good = health::all_required_hold(&results);
    context.show(&json!({ "good": good, "checks": results }), || told(&results))?;
    if good { Ok(()) } else { Err(failure(&results).into()) }
}

fn list_checks(context: &Context) -> Result<()> {
    context.show(&CHECKS, || {
        let line = |check: &&health::HealthCheck| {
            format!("{:13} {:9} {:11} {}\n", check.id, class(check.class), group(check.group), check.means)
        };
        CHECKS.iter().map(line).collect()
    })
}

fn told(results: &[CheckResult]) -> String {
    let line = |result: &CheckResult| {
        let reason = result.finding.reason().map(|reason| format!("  {reason}")).unwrap_or_default();
        let subject = result.subject.as_ref().map(|subject| format!("  {subject}")).unwrap_or_default();
        let CheckResult { check, finding, .. } = result;
        let line = format!("{:13} {:9} {:14}{subject}{reason}", check.id, class(check.class), finding.word());
        line.trim_end().to_owned() + "\n"
    };
    results.iter().map(line).collect()
}

/// The first required check that does not hold gives the class.
fn failure(results: &[CheckResult]) -> Failure {
    let wrong: Vec<_> = results
        .iter()
        .filter(|result| result.check.class == CheckClass::Required && !result.finding.holds())
        .collect();
    let class = match wrong.first().map(|result| result.check.group) {
        Some(CheckGroup::Network) => Class::Network,
        Some(CheckGroup::Kubernetes) => Class::Join,
        Some(CheckGroup::Local | CheckGroup::Own) | None => Class::Hardware,
    };
    let names: Vec<_> = wrong.iter().map(|result| result.name()).collect();
    let no_node = wrong.iter().all(|result| matches!(result.finding, Finding::CannotSay { .. }));
    let hint = match no_node {
        true => "Run this on an installed node, as root.",
        false => "What a failure of each check means: installer health --list",
    };
    let what = format!("{} of the required checks do not hold: {}", names.len(), names.join(", "));
    Failure::new(class, what).hint(hint)
}

fn class(class: CheckClass) -> &'static str {
    match class {
        CheckClass::Required => "required",
        CheckClass::Wanted => "wanted",
    }
}

fn group(group: CheckGroup) -> &'static str {
    match group {
        CheckGroup::Local => "local",
        CheckGroup::Network => "network",
        CheckGroup::Kubernetes => "kubernetes",
        CheckGroup::Own => "own",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;

    fn found(id: &str, finding: Finding) -> CheckResult {
        let check = CHECKS.iter().find(|check| check.id == id).unwrap();
        CheckResult { check, subject: None, finding }
    }

    fn failing() -> Finding {
        Finding::Failing { reason: "it is refused".into() }
    }

    #[test]
    fn results_are_told_a_line_each_and_the_first_that_fails_gives_the_exit_code() {
        let subject = Some("nqrust-x.service".into());
        let unit = CheckResult { subject, ..found("units", failing()) };
        let text = told(&[found("root", Finding::Healthy), unit]);
        assert_eq!(
            text,
            "root          required  healthy\n\
             units         required  failing         nqrust-x.service  it is refused\n"
        );
        for (id, code) in [("root", 3), ("address", 5), ("kubelet", 7), ("own-required", 3)] {
            let results = [found("watchdog", failing()), found(id, failing()), found("node", failing())];
            assert_eq!(failure(&results).class().exit_code(), code, "{id}");
        }
    }

    #[test]
    fn a_machine_that_is_no_node_is_told_where_to_run_it() {
        let silent = || Finding::CannotSay { reason: "no node".into() };
        let text = render(&failure(&[found("root", silent()), found("kubelet", silent())]).into());
        assert!(text.contains("2 of the required checks do not hold: root, kubelet"), "{text}");
        assert!(text.contains("next: Run this on an installed node"), "{text}");
    }
}
