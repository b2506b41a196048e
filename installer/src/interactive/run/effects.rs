//! What the state asks for, done on the machine.

use std::sync::mpsc::Sender;

use super::Heard;
use crate::interactive::screens::Screen;
use crate::interactive::state::{Effect, Finding, Input, Outcome, Review};
use crate::interactive::{Machine, Trouble};
use crate::plan::{Losses, Plan};
use crate::preflight::PreflightReport;
use crate::preflight::report::Verdict;
use base::progress::{Event, Progress, Sink};
use model::config::InstallConfig;
use model::config::redact::Secrets;

/// Does it; says what came of it, if anybody waits for that.
pub(super) fn carry_out(machine: &dyn Machine, effect: Effect, sender: &Sender<Heard>) -> Option<Outcome> {
    let plain = |error: anyhow::Error| Trouble::of(&error, None);
    let about = |config: &InstallConfig| {
        let config = config.clone();
        move |error: anyhow::Error| Trouble::of(&error, Some(&config))
    };
    Some(match effect {
        Effect::LookAgain => Outcome::Inventory(machine.inventory().map_err(plain)),
        Effect::Fetch(from) => Outcome::Fetched(machine.fetch(&from).map(Box::new).map_err(plain)),
        Effect::Try(screen, config) => {
            let tried = match screen {
                Screen::Network => machine.try_network(&config),
                _ => machine.try_cluster(&config),
            };
            Outcome::Tried(screen, tried.map_err(about(&config)))
        }
        Effect::Plan(config) => {
            let planned = machine.plan(&config).and_then(|plan| {
                let report = machine.check(&config)?;
                Ok(Review { present: machine.present(&config)?, ..shown(&plan, &report, &config) })
            });
            Outcome::Planned(planned.map_err(about(&config)))
        }
        Effect::Install(config) => {
            let progress = Progress::new(vec![Box::new(Teller(sender.clone()))]);
            let installed = machine.install(&config, &progress).and_then(|()| machine.record(&config));
            Outcome::Installed(installed.map_err(about(&config)))
        }
        Effect::Survey => Outcome::Surveyed(machine.volumes().map_err(plain)),
        Effect::SaveLogs(destination) => Outcome::Saved(machine.save_logs(&destination).map_err(plain)),
        Effect::SaveConfiguration(config, volume) => {
            Outcome::Saved(machine.save_configuration(&config, &volume).map_err(about(&config)))
        }
        Effect::Show(config) => Outcome::Shown(machine.configuration(&config).map_err(about(&config))),
        Effect::OpenAccess => Outcome::Opened(machine.open_access().map(Box::new).map_err(plain)),
        Effect::CloseAccess => Outcome::Closed(machine.close_access().map_err(plain)),
        // A shell needs a console: the loop gives it one.
        Effect::Shell => return None,
        Effect::StartNode => Outcome::NotEnded(machine.start_node().err().map(plain)?),
        Effect::End(how) => Outcome::NotEnded(machine.end(how).err().map(plain)?),
    })
}

/// A plan as it is reviewed, with what the checks say that an install makes first.
fn shown(plan: &Plan, report: &PreflightReport, config: &InstallConfig) -> Review {
    let mut secrets = Secrets::default();
    secrets.add(config);
    let finding = |verdict: &Verdict| {
        let next = secrets.hide(verdict.next()?);
        let (text, stops) = (secrets.hide(verdict.text()), verdict.stops());
        Some(Finding { check: verdict.check, text, next, stops, waivable: verdict.waivable })
    };
    Review {
        findings: report.checks.iter().filter_map(finding).collect(),
        left_out: config.install.skip_checks.iter().map(ToString::to_string).collect(),
        plan: Some(plan.to_string()),
        erased: Losses(plan).to_string().lines().map(str::to_owned).collect(),
        steps: plan.steps.iter().map(|step| step.id().to_owned()).collect(),
        ..Review::default()
    }
}

/// Tells the loop of the events of an install.
struct Teller(Sender<Heard>);

impl Sink for Teller {
    fn show(&mut self, event: &Event) {
        let _ = self.0.send(Heard::Input(Input::Event(event.clone())));
    }
}
