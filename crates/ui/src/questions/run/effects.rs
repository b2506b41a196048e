//! Running effects on the machine.

use crate::questions::screens::QuestionScreen;
use crate::questions::state::{ConversationEffect, ConversationInput, EffectOutcome, Review, ShownFinding};
use crate::questions::{InstallMachine, ShownPlan, ShownTrouble};
use crate::toolkit::page_loop::EventSender;
use base::progress::{Event, Progress, Sink};
use model::config::InstallConfig;
use model::config::redact::Secrets;
use preflight::PreflightReport;
use preflight::report::Verdict;

/// Runs an effect; returns its outcome, if there is one.
pub(super) fn carry_out(
    machine: &dyn InstallMachine,
    effect: ConversationEffect,
    sender: &EventSender<ConversationInput>,
) -> Option<EffectOutcome> {
    let plain = |error: anyhow::Error| ShownTrouble::of(&error, None);
    let about = |config: &InstallConfig| {
        let config = config.clone();
        move |error: anyhow::Error| ShownTrouble::of(&error, Some(&config))
    };
    Some(match effect {
        ConversationEffect::LookAgain => EffectOutcome::Inventory(machine.inventory().map_err(plain)),
        ConversationEffect::FollowDevices => EffectOutcome::Devices(machine.inventory().map_err(plain)),
        ConversationEffect::SetKeyboard(name) => {
            let set = machine.set_keyboard(&name).map_err(plain);
            EffectOutcome::KeyboardSet(name, set)
        }
        ConversationEffect::Fetch(from) => {
            EffectOutcome::Fetched(machine.fetch(&from).map(Box::new).map_err(plain))
        }
        ConversationEffect::Try(screen, config) => {
            let tried = match screen {
                QuestionScreen::Network => machine.try_network(&config),
                _ => machine.try_cluster(&config),
            };
            EffectOutcome::Tried(screen, tried.map_err(about(&config)))
        }
        ConversationEffect::Plan(config) => {
            let planned = machine.plan(&config).and_then(|plan| {
                let report = machine.check(&config)?;
                Ok(Review { present: machine.present(&config)?, ..review(plan, &report, &config) })
            });
            EffectOutcome::Planned(planned.map_err(about(&config)))
        }
        ConversationEffect::Install(config) => {
            let progress = Progress::new(vec![Box::new(InstallEvents(sender.clone()))]);
            let installed = machine.install(&config, &progress).and_then(|()| machine.record(&config));
            EffectOutcome::Installed(installed.map_err(about(&config)))
        }
        ConversationEffect::Record(config) => {
            EffectOutcome::Installed(machine.record(&config).map_err(about(&config)))
        }
        ConversationEffect::Survey => EffectOutcome::Surveyed(machine.volumes().map_err(plain)),
        ConversationEffect::SaveLogs(destination) => {
            EffectOutcome::Saved(machine.save_logs(&destination).map_err(plain))
        }
        ConversationEffect::SaveConfiguration(config, volume) => {
            EffectOutcome::Saved(machine.save_configuration(&config, &volume).map_err(about(&config)))
        }
        ConversationEffect::Show(config) => {
            EffectOutcome::Shown(machine.configuration(&config).map_err(about(&config)))
        }
        ConversationEffect::OpenAccess => {
            EffectOutcome::Opened(machine.open_access().map(Box::new).map_err(plain))
        }
        ConversationEffect::CloseAccess => EffectOutcome::Closed(machine.close_access().map_err(plain)),
        // A shell needs a console, which the loop has.
        ConversationEffect::Shell => return None,
        ConversationEffect::StartNode => EffectOutcome::NotEnded(machine.start_node().err().map(plain)?),
        ConversationEffect::End(how) => EffectOutcome::NotEnded(machine.end(how).err().map(plain)?),
    })
}

/// A plan for review, with the findings of the checks that an install makes first.
fn review(plan: ShownPlan, report: &PreflightReport, config: &InstallConfig) -> Review {
    let mut secrets = Secrets::default();
    secrets.add(config);
    let finding = |verdict: &Verdict| {
        let next = secrets.hide(verdict.next()?);
        // The install itself waits for a cluster that is not up yet.
        let (text, stops) = (secrets.hide(verdict.text()), verdict.stops() && !verdict.is_awaited());
        Some(ShownFinding { check: verdict.check, text, next, stops, waivable: verdict.waivable })
    };
    Review {
        findings: report.checks.iter().filter_map(finding).collect(),
        left_out: config.install.skip_checks.iter().map(ToString::to_string).collect(),
        plan: Some(plan.text),
        erased: plan.erased,
        steps: plan.steps,
        ..Review::default()
    }
}

struct InstallEvents(EventSender<ConversationInput>);

impl Sink for InstallEvents {
    fn show(&mut self, event: &Event) {
        self.0.send(ConversationInput::Event(event.clone()));
    }
}
