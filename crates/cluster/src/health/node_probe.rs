//! Makes every check on the running node.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::check::{ADDRESS, CHECKS, CheckResult, Finding, GATEWAY};
use super::probe::{HealthProbe, Observation};
use super::{kubernetes, local, network, own_checks};
use base::command::Runner;
use base::failure::causes;
use base::files::read_text;
use machine::installed_node::InstalledNode;
use machine::node_release as release;
use model::boot::BootParameters;
use model::config::InstallConfig;
use model::config::redact::Secrets;

/// The node at `root`.
#[allow(missing_debug_implementations)]
pub struct NodeProbe<'a> {
    root: PathBuf,
    runner: &'a dyn Runner,
    begun: Instant,
}

impl<'a> NodeProbe<'a> {
    #[must_use]
    pub fn new(root: &Path, runner: &'a dyn Runner) -> Self {
        Self { root: root.to_owned(), runner, begun: Instant::now() }
    }

    fn node(&self) -> Result<InstalledNode, Finding> {
        InstalledNode::open(&self.root).map_err(|error| {
            let lines = causes(&error).join(": ");
            Finding::cannot_say(lines.lines().next().unwrap_or_default())
        })
    }
}

impl HealthProbe for NodeProbe<'_> {
    fn look(&self) -> Observation {
        let (root, runner) = (self.root.as_path(), self.runner);
        let node = self.node();
        let (mut results, (kubernetes, alone)) = thread::scope(|scope| {
            let kubernetes = scope.spawn(|| match &node {
                Ok(node) => kubernetes::look(root, runner, &node.config, node.hostname().as_deref()),
                Err(finding) => (kubernetes::none(finding), false),
            });
            let network = scope.spawn(|| match &node {
                Ok(node) => network::results(runner, &node.config),
                Err(finding) => [&ADDRESS, &GATEWAY].map(|check| check.found(finding.clone())).into(),
            });
            let own = scope.spawn(|| own_checks::results(root));
            let mut results = local::results(root, runner);
            results.extend(network.join().unwrap_or_default());
            results.extend(own.join().unwrap_or_default());
            (results, kubernetes.join().unwrap_or_default())
        });
        results.extend(kubernetes);
        Observation {
            results: complete(results, node.as_ref().ok().map(|node| &node.config)),
            alone,
            release: release::read(root).ok().map(|release| release.version),
            slot: slot(root),
        }
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// The results in the order of the registry, without the secrets of the document. A check without a result cannot say.
fn complete(results: Vec<CheckResult>, config: Option<&InstallConfig>) -> Vec<CheckResult> {
    let mut secrets = Secrets::default();
    config.into_iter().for_each(|config| secrets.add(config));
    let mut all = Vec::new();
    for check in CHECKS {
        let before = all.len();
        all.extend(results.iter().filter(|result| result.check.id == check.id).cloned());
        if all.len() == before {
            all.push(check.found(Finding::cannot_say("internal error: the check ended early")));
        }
    }
    for result in &mut all {
        if let Finding::Failing { reason } | Finding::CannotSay { reason } = &mut result.finding {
            *reason = secrets.hide(reason);
        }
    }
    all
}

/// The slot of the kernel command line.
fn slot(root: &Path) -> Option<String> {
    let line = read_text(&root.join("proc/cmdline")).ok()?;
    Some(BootParameters::parse(&line).ok().flatten()?.slot.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::check::{OWN_WANTED, ROOT};
    use model::config;
    use std::fs;
    use testing::runner::ScriptedRunner;

    /// A machine without any program.
    fn bare() -> ScriptedRunner {
        ScriptedRunner::failing("there is no such program")
    }

    #[test]
    fn a_machine_that_is_no_node_has_no_check_that_condemns_or_praises_it() {
        let root = tempfile::tempdir().unwrap();
        let seen = NodeProbe::new(root.path(), &bare()).look();
        let ids: Vec<_> = seen.results.iter().map(|result| result.check.id).collect();
        let all: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids, all, "every check, in the order of the registry");
        for result in seen.results.iter().filter(|result| result.check.id != "watchdog") {
            assert!(matches!(result.finding, Finding::CannotSay { .. } | Finding::NotApplicable), "{result}");
        }
        assert_eq!((seen.release, seen.slot, seen.alone), (None, None, false));
    }

    #[test]
    fn a_document_with_mistakes_is_told_by_the_checks_that_need_it() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("oem")).unwrap();
        fs::write(root.path().join("oem/node.yaml"), "install: {mode: odd}").unwrap();
        let seen = NodeProbe::new(root.path(), &bare()).look();
        let address = seen.results.iter().find(|result| result.check.id == "address").unwrap();
        let reason = address.finding.reason().unwrap();
        assert!(reason.contains("node.yaml has a mistake"), "{reason}");
    }

    #[test]
    fn results_are_complete_and_tell_no_secret() {
        let config = config::parse("token: marked-token\ninstall: {mode: create}", "f").unwrap();
        let results = vec![OWN_WANTED.found_at("x", Finding::failing("marked-token is odd"))];
        let all = complete(results, Some(&config));
        assert_eq!(all[0], ROOT.found(Finding::cannot_say("internal error: the check ended early")));
        assert_eq!(all.last().unwrap().finding.reason(), Some("[hidden] is odd"));
    }
}
