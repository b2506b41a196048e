//! What an install reports when it ends: webhooks, the report of a failure, the last event, the fleet server.
//!
//! `installer install` and [`super::questions`] begin a record and end it. It is filled during the install, because a failure can come
//! at any time.

use std::path::PathBuf;

use anyhow::Result;

use base::command::{Runner, SystemRunner};
use base::failure::{Failure, causes, class_of, hints, render};
use base::progress::Progress;
use base::progress::json::JsonLines;
use base::progress::plain::PlainLines;
use base::progress::shared_bytes::SharedBytes;
use install::plan::Plan;
use machine::inventory::{Inventory, Roots};
use model::config::redact::Secrets;
use model::config::{InstallConfig, Secret};
use model::fleet::RunFailure;
use model::release::Release;
use reporting::archive::{self, Archive, FailedRun};
use reporting::fleet::Reporter;
use reporting::webhook::{self, Hooks, WebhookFacts, WebhookSetup};

pub(crate) struct RunRecord<'a> {
    progress: &'a Progress,
    runner: &'a dyn Runner,
    directory: PathBuf,
    events: SharedBytes,
    lines: SharedBytes,
    reporter: Option<Reporter>,
    config: Option<InstallConfig>,
    secrets: Secrets,
    product: String,
    inventory: Option<Inventory>,
    plan: Option<String>,
    hooks: Option<Hooks>,
}

impl<'a> RunRecord<'a> {
    /// Begins to listen. `tokens` are secrets that no configuration has.
    pub(crate) fn begin(progress: &'a Progress, reporter: Option<Reporter>, tokens: &[String]) -> Self {
        let (events, lines, mut secrets) =
            (SharedBytes::default(), SharedBytes::default(), Secrets::default());
        progress.add(Box::new(JsonLines::new(events.clone())));
        progress.add(Box::new(PlainLines::new(lines.clone())));
        secrets.add_texts(tokens.iter().map(String::as_str));
        reporter.iter().for_each(|reporter| reporter.hide(&secrets));
        Self {
            progress,
            runner: &SystemRunner,
            directory: archive::DIRECTORY.into(),
            events,
            lines,
            reporter,
            config: None,
            secrets,
            product: "NQRust Hypervisor".into(),
            inventory: None,
            plan: None,
            hooks: None,
        }
    }

    /// The configuration, or the usable part of one with mistakes. Nothing is sent yet.
    pub(crate) fn config(&mut self, config: &InstallConfig) {
        self.learn(config);
        self.trust(&config.install.ca_certificates.iter().map(ToString::to_string).collect::<Vec<_>>());
        self.reporter.iter().for_each(|reporter| reporter.hostname(config.os.hostname.as_deref()));
        self.config = Some(config.clone());
    }

    /// Further trusted authorities (PEM).
    pub(crate) fn trust(&self, authorities: &[String]) {
        self.reporter.iter().for_each(|reporter| reporter.trust(authorities));
    }

    fn learn(&mut self, config: &InstallConfig) {
        self.secrets.add(config);
        self.reporter.iter().for_each(|reporter| reporter.hide(&self.secrets));
    }

    /// The configuration is complete, and the install begins.
    pub(crate) fn started(&mut self, release: &Release) {
        self.product = format!("{} {}", release.name, release.version);
        self.reporter.iter().for_each(|reporter| reporter.product(&self.product));
        self.hooks = self.hooks();
        self.hooks.iter().for_each(Hooks::started);
    }

    /// The configuration with resolved references.
    pub(crate) fn resolved(&mut self, config: &InstallConfig) {
        self.learn(config);
    }

    pub(crate) fn inventory(&mut self, inventory: &Inventory) {
        self.inventory = Some(inventory.clone());
    }

    /// The plan. From now on its steps are reported.
    pub(crate) fn plan(&mut self, plan: &Plan) {
        self.plan = Some(plan.to_string());
        let ids = || plan.steps.iter().map(|step| step.id());
        self.hooks.iter().for_each(|hooks| hooks.follow(self.progress, ids()));
    }

    pub(crate) fn kept_by_node(&self) -> Result<Option<Secret>> {
        self.reporter.as_ref().map(Reporter::kept).transpose()
    }

    /// What the fleet server says of the machine that creates the cluster which this run waits for.
    pub(crate) fn creator_status(&self) -> Option<String> {
        self.reporter.as_ref().and_then(Reporter::wait_for_creator)
    }

    /// Calls the webhooks, writes the report if one is configured, sends the last event, and reports the error to the
    /// fleet server.
    pub(crate) fn end<T>(mut self, result: Result<T>) -> Result<T> {
        let result = result.map_err(|error| self.report(error));
        let failure = result.as_ref().err().map(|error| self.secrets.hide(&causes(error).join(": ")));
        if let Some(hooks) = self.hooks.take().or_else(|| self.hooks()) {
            hooks.conclude(failure.as_deref());
        }
        self.reporter.iter().for_each(Reporter::fall_silent);
        match &result {
            Ok(_) => self.progress.finish("Installation complete", 0),
            Err(error) => self.progress.finish("Installation failed", class_of(error).exit_code()),
        }
        if let Some(reporter) = self.reporter.take() {
            reporter.conclude(result.as_ref().err().map(|error| self.told(error)));
        }
        result
    }

    /// Ends a run that has left a node as it is. No install has begun, so webhooks are not called; the fleet server, which requested
    /// one, gets a report.
    pub(crate) fn leave(mut self, left: &anyhow::Error) {
        self.reporter.iter().for_each(Reporter::fall_silent);
        self.progress.finish("Nothing was installed", 0);
        if let Some(reporter) = self.reporter.take() {
            reporter.conclude(Some(self.told(left)));
        }
    }

    /// Why the run failed, and its log for people.
    fn told(&self, error: &anyhow::Error) -> (RunFailure, String) {
        let failed = RunFailure {
            causes: causes(error),
            hints: hints(error).map(str::to_owned).collect(),
            exit_code: class_of(error).exit_code(),
        };
        let lines = self.lines.bytes();
        let lines = format!("{}\n{}", String::from_utf8_lossy(&lines), render(error));
        (failed, archive::log(self.plan.as_deref(), &lines, self.runner))
    }

    fn hooks(&self) -> Option<Hooks> {
        let config = self.config.as_ref().filter(|config| !config.install.webhooks.is_empty())?;
        let hostname = config.os.hostname.clone();
        Some(Hooks::new(WebhookSetup {
            hooks: config.install.webhooks.clone(),
            authorities: config.install.ca_certificates.iter().map(ToString::to_string).collect(),
            policy: webhook::policy(),
            flush_end: webhook::FLUSH_END,
            facts: Box::new(move || WebhookFacts::gather(&Roots::default(), hostname.as_deref())),
            product: self.product.clone(),
            progress: self.progress.clone(),
        }))
    }

    /// The evidence of a failure; `None` without a configuration.
    pub(crate) fn evidence(&self, error: &anyhow::Error) -> Option<FailureDetails> {
        Some(FailureDetails {
            config: self.config.clone()?,
            inventory: self.inventory.clone(),
            plan: self.plan.clone(),
            events: String::from_utf8_lossy(&self.events.bytes()).into_owned(),
            error: render(error),
            secrets: self.secrets.clone(),
        })
    }

    /// Adds the place of the report to the error, if there is one.
    fn report(&self, error: anyhow::Error) -> anyhow::Error {
        let wanted = self.config.as_ref().is_some_and(|config| config.install.debug);
        let Some(evidence) = self.evidence(&error).filter(|_| wanted) else { return error };
        let path = match archive::write(&evidence.known(), self.runner, &self.directory) {
            Ok(path) => path,
            Err(trouble) => {
                let message = format!("warning: there is no report: {}", causes(&trouble).join(": "));
                self.progress.note("report", message);
                return error;
            }
        };
        let class = class_of(&error);
        let hint = format!(
            "A report for support is in {}, in memory; copy it before the machine restarts.",
            path.display()
        );
        let source = error.reallocate_into_boxed_dyn_error_without_backtrace();
        Failure::new(class, "the installation failed").because(source).hint(hint).into()
    }
}

/// What is known of a failed run. Contains secrets; its report does not.
pub(crate) struct FailureDetails {
    pub(crate) config: InstallConfig,
    inventory: Option<Inventory>,
    plan: Option<String>,
    events: String,
    error: String,
    secrets: Secrets,
}

impl FailureDetails {
    fn known(&self) -> FailedRun<'_> {
        FailedRun {
            config: &self.config,
            inventory: self.inventory.as_ref(),
            plan: self.plan.as_deref(),
            events: &self.events,
            error: &self.error,
            secrets: &self.secrets,
        }
    }

    /// The report, without secrets. The logs of kernel and system are collected now.
    pub(crate) fn archive(&self, runner: &dyn Runner) -> Result<Archive> {
        archive::report(&self.known(), runner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::Class;
    use model::machine::Identity;
    use std::path::Path;
    use testing::progress::Recorder;
    use testing::reports::{ReportServer, ServerReaction};
    use testing::runner::ScriptedRunner;

    fn no_programs() -> ScriptedRunner {
        ScriptedRunner::failing("no such program")
    }

    fn ended(text: &str, directory: &Path) -> (String, Recorder) {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        let mut record = RunRecord {
            runner: &no_programs(),
            directory: directory.into(),
            ..RunRecord::begin(&progress, None, &[])
        };
        record.config(&model::config::parse(text, "f").unwrap());
        let failure = Failure::new(Class::DiskIo, "writing to vda").hint("Replace it.");
        let error = record.end::<()>(Err(failure.into())).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        (render(&error), recorder)
    }

    #[test]
    fn the_report_is_named_with_the_error_and_only_where_it_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let (text, _) = ended("os: {hostname: a}", directory.path());
        assert_eq!(text, "error: writing to vda\n  next: Replace it.\n");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let (text, recorder) = ended("install: {debug: true}", directory.path());
        let report = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        assert!(text.contains(&format!("is in {}, in memory", report.display())), "{text}");
        assert!(text.ends_with("  next: Replace it.\n"), "{text}");
        assert_eq!(recorder.0.lock().unwrap().last().unwrap().exit_code, Some(6));
    }

    #[test]
    fn the_server_of_the_fleet_hears_why_a_run_failed_and_no_secret() {
        use reporting::fleet::{self, ReporterSetup};
        let server = ReportServer::new(&[ServerReaction::Status(204)]);
        let progress = Progress::silent();
        let url = format!("{}/MARK-path", server.url).parse().unwrap();
        let (machine, policy) = (Identity::default(), fleet::policy());
        let reporter = Reporter::begin(ReporterSetup { url, machine, policy, progress: progress.clone() });
        let tokens = ["MARK-path".to_owned()];
        let mut record =
            RunRecord { runner: &no_programs(), ..RunRecord::begin(&progress, Some(reporter), &tokens) };
        record.config(&model::config::parse("{token: MARK-cluster, os: {hostname: node-1}}", "f").unwrap());
        drop(progress.step("wipe", "Erasing the disk", None));
        let failure = Failure::new(Class::DiskIo, "writing MARK-cluster to vda").hint("Replace it.");
        record.end::<()>(Err(failure.into())).unwrap_err();
        let requests = server.requests();
        let bodies: String = requests.iter().map(|r| r.split_once("\r\n\r\n").unwrap().1).collect();
        assert!(!bodies.contains("MARK") && bodies.contains(r#""hostname":"node-1""#), "{bodies}");
        let failed =
            r#"{"failure":{"causes":["writing [hidden] to vda"],"hints":["Replace it."],"exit_code":6}}"#;
        assert!(bodies.contains(failed), "{bodies}");
        assert!(bodies.contains("[FAIL] Erasing the disk\\n"), "{bodies}");
    }

    #[test]
    fn a_report_that_cannot_be_written_does_not_hide_the_error() {
        let (text, recorder) = ended("install: {debug: true}", Path::new("/proc/nowhere"));
        assert_eq!(text, "error: writing to vda\n  next: Replace it.\n");
        assert!(recorder.0.lock().unwrap()[0].message.starts_with("warning: there is no report"));
    }
}
