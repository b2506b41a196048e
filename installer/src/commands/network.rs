//! `installer network`: the networks of a running node, changed on trial.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::app::root_only;
use base::command::SystemRunner;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::program::{Context, Format, print};
use machine::{nic_setup, node_release as release};
use model::config::Diagnostic;
use node::network_trial::{
    ClusterConcern, CurrentTrial, EndedTrial, NetworkChange, NetworkDifference, Networks, TrialEnding,
    TrialSpan, TrialState, TrialStatus, Trials, trial_status,
};

/// Show the networks of this node, or change them on trial: unless they are confirmed in time, the old ones come
/// back.
#[derive(Debug, clap::Args)]
pub(super) struct NetworkArgs {
    #[command(subcommand)]
    command: NetworkCommand,
}

#[derive(Debug, clap::Subcommand)]
enum NetworkCommand {
    /// Print the networks of the node document as YAML, to be changed and tried, and whether a trial is running.
    Show,
    /// Set up other networks on trial.
    Try(TryArgs),
    /// Keep the networks on trial: they become part of the node document.
    Confirm,
    /// Bring the old networks back now.
    Revert {
        /// Only if the trial has reached its time limit; for the timer of a trial.
        #[arg(long, hide = true)]
        expired: bool,
    },
    /// Find the network cards that the node document names; for the unit that runs before the network.
    #[command(hide = true)]
    Settle,
    /// Set up the networks on trial; for the service of a trial.
    #[command(hide = true)]
    SetUp,
}

#[derive(Debug, clap::Args)]
struct TryArgs {
    /// A document with any of `install.management_interface`, `install.networks` and `os.dns_nameservers`, each of
    /// which replaces that of the node document; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Time until the old networks come back unless the new ones are confirmed; 30 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = TrialSpan::USUAL)]
    seconds: TrialSpan,
    /// Change the address of this node even if it is a server of its cluster.
    #[arg(long)]
    accept_address_change: bool,
}

/// Between two checks of a trial that is being set up.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl NetworkArgs {
    /// # Errors
    /// `Class::Invalid` for users other than root, and on a machine that is no node; errors of the trial.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        root_only::require("`installer network`", "network")?;
        let root = Path::new("/");
        // Only a node has something to change.
        release::read(root)?;
        let trials = Trials::new(root, &SystemRunner);
        match self.command {
            NetworkCommand::Show => show(&trials, root, context),
            NetworkCommand::Try(trial) => trial.run(&trials, root, context),
            NetworkCommand::Confirm => {
                let warnings = trials.confirm()?.warnings;
                tell(&EndedTrial { how: TrialEnding::Confirmed, notes: warned(&warnings) }, context)
            }
            NetworkCommand::Revert { expired } => tell(&trials.revert(expired)?, context),
            NetworkCommand::SetUp => trials.set_up(),
            NetworkCommand::Settle => {
                context.tell("network", &settled(&nic_setup::settle(root, &SystemRunner)?));
                Ok(())
            }
        }
    }
}

fn settled(notes: &[String]) -> String {
    if notes.is_empty() { "Every network card is where it was.".to_owned() } else { notes.join("\n") }
}

fn warned(warnings: &[String]) -> Vec<String> {
    warnings.iter().map(|warning| format!("warning: {warning}")).collect()
}

fn tell(ended: &EndedTrial, context: &Context) -> Result<()> {
    context.show(ended, || ended.to_string())
}

fn show(trials: &Trials<'_>, root: &Path, context: &Context) -> Result<()> {
    let networks = Networks::of(&trials.config()?);
    let status = trial_status(root)?;
    context.show(&json!({ "networks": networks, "trial": status }), || shown(&networks, &status))
}

/// The networks as a document; remarks are in comments, so that it can be tried as it is.
fn shown(networks: &Networks, status: &TrialStatus) -> String {
    let remarks = match status {
        TrialStatus::None => String::new(),
        TrialStatus::Ended(ended) => ended.to_string(),
        TrialStatus::Now(now) => {
            let changes: String = now.differences.iter().map(|change| format!("\n{change}")).collect();
            format!("On trial for another {} seconds:{changes}", now.left)
        }
    };
    let comment: String = remarks.lines().map(|line| format!("# {line}\n")).collect();
    format!("{comment}{}", networks.to_yaml())
}

impl TryArgs {
    fn run(&self, trials: &Trials<'_>, root: &Path, context: &Context) -> Result<()> {
        let (text, name) = self.read()?;
        let change = trials.change(&text, &name)?;
        trials.begin(&change, self.seconds, self.accept_address_change)?;
        let concerns = change.concerns(&trials.present());
        if context.format == Format::Text {
            print(&begun(&change, &concerns, self.seconds))?;
        }
        let status = self.wait(root)?;
        let all = json!({ "trial": status, "remarks": change.remarks, "concerns": concerns });
        context.show(&all, || trial_state(&status))?;
        match status {
            TrialStatus::Ended(EndedTrial { how: TrialEnding::Failed, .. }) => {
                let what = "the new network could not be set up, and the old one is back";
                Err(Failure::new(Class::Network, what)
                    .hint("See: journalctl -u nqrust-network-set-up")
                    .into())
            }
            _ => Ok(()),
        }
    }

    fn read(&self) -> Result<(String, String)> {
        let name = named::told(&self.file);
        let text = named::read_text(&self.file).class(Class::Invalid, || format!("reading {name}"))?;
        Ok((text, name))
    }

    /// Waits until the new network is set up, or the trial has ended. The trial does not need this program.
    fn wait(&self, root: &Path) -> Result<TrialStatus> {
        loop {
            let status = trial_status(root)?;
            if !matches!(
                status,
                TrialStatus::Now(CurrentTrial { state: TrialState::SettingUp, left: 1.., .. })
            ) {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The message when a trial has begun.
fn begun(change: &NetworkChange, concerns: &[ClusterConcern], span: TrialSpan) -> String {
    let changes: String =
        change.differences().iter().map(|change: &NetworkDifference| format!("{change}\n")).collect();
    let remarks = change.remarks.iter().map(|remark: &Diagnostic| format!("{remark}\n"));
    let concerns = concerns.iter().map(|concern| format!("warning: {}\n", concern.text));
    let warnings: String = remarks.chain(concerns).collect();
    format!(
        "{changes}{warnings}\nOn trial for {span} seconds; then the old network comes back by itself.\n  \
         keep it:  sudo installer network confirm\n  go back:  sudo installer network revert\n"
    )
}

fn trial_state(status: &TrialStatus) -> String {
    match status {
        TrialStatus::Now(now) => {
            let notes: String = now.notes.iter().map(|note| format!("{note}\n")).collect();
            format!("{notes}Set up. {} seconds are left.", now.left)
        }
        TrialStatus::Ended(ended) => ended.to_string(),
        TrialStatus::None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    #[test]
    fn what_is_shown_can_be_tried_as_it_is() {
        let text = "install: {management_interface: {interfaces: [{name: a}], vlan_id: 7}}";
        let networks = Networks::of(&parse(text, "f").unwrap());
        let changes = networks.differences(&Networks::default());
        let now = CurrentTrial {
            left: 9,
            span: TrialSpan::USUAL,
            state: TrialState::Running,
            notes: vec![],
            differences: changes,
        };
        let shown = shown(&networks, &TrialStatus::Now(now));
        assert!(
            shown.starts_with("# On trial for another 9 seconds:\n# install.management_interface."),
            "{shown}"
        );
        assert_eq!(Networks::of(&parse(&shown, "f").unwrap()), networks);
    }

    #[test]
    fn who_begins_a_trial_is_told_what_changes_and_what_to_do() {
        let document = "install: {mode: install, management_interface: {interfaces: [{name: a}]}}";
        let part = "install: {management_interface: {interfaces: [{name: a}], mtu: 9000}}";
        let change = NetworkChange::read(document, part, ("node.yaml", "new.yaml")).unwrap();
        let text = begun(&change, &[], TrialSpan::USUAL);
        assert!(text.starts_with("install.management_interface.mtu: 0 -> 9000\nnew.yaml:1:"), "{text}");
        assert!(text.contains("warning: ") && text.contains("On trial for 120 seconds"), "{text}");
    }
}
