//! The interactive installer: asks for an install configuration, shows the plan, and shows the install.
//!
//! It only collects answers and shows events. Values are judged by [`model::config`], an install is defined by [`install::plan`],
//! and the machine is judged by [`preflight`]; the work is done behind [`InstallMachine`].
//!
//! | Module | What it is for |
//! |---|---|
//! | [`screens`] | the questions of each screen, from the answers |
//! | [`state`] | keys and events to the next state and to effects; pure |
//! | [`install_progress`] | the install and its end; pure |
//! | [`brief`] | a failure in as few words as a QR code has room for; pure |
//! | [`draw`] | drawing a state |
//! | [`run`] | consoles, and threads for slow work |

pub mod brief;
pub mod draw;
pub mod install_progress;
pub mod run;
pub mod screens;
pub mod state;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::sync::atomic::AtomicBool;

use anyhow::Result;

use base::failure::{Class, causes, class_of, hints};
use base::progress::Progress;
use install::plan::{Losses, Plan, PlanReview};
use install::usb_stick::{StickSurvey, StickVolume};
use machine::inventory::Inventory;
use machine::keyboard::KeyboardLayout;
use machine::live::help::HelpAccess;
use model::config::redact::Secrets;
use model::config::sources::CombinedConfig;
use model::config::text::HttpUrl;
use model::config::{InstallConfig, Secret};
use preflight::PreflightReport;
use reporting::archive::UploadMethod;

/// The machine and its actions. Every call may be slow.
pub trait InstallMachine: Sync {
    /// Disks and network cards as they are now.
    fn inventory(&self) -> Result<Inventory>;
    /// Calls `tell` each time that there is news, until it is over.
    fn watch(&self, over: &AtomicBool, tell: &(dyn Fn(MachineNews) + Sync));
    /// Gives the screen the keyboard layout of this name; returns the result in a sentence.
    fn set_keyboard(&self, name: &str) -> Result<String>;
    /// A configuration of the user, checked, on top of what was found before.
    fn fetch(&self, from: &ConfigOrigin) -> Result<CombinedConfig>;
    /// Sets up the management network; returns the result in a sentence.
    fn try_network(&self, config: &InstallConfig) -> Result<String>;
    /// Asks the cluster to join whether it would accept this machine; returns the answer in a sentence.
    fn try_cluster(&self, config: &InstallConfig) -> Result<String>;
    fn check(&self, config: &InstallConfig) -> Result<PreflightReport>;
    /// The finished nodes on the disks that an install would write.
    fn present(&self, config: &InstallConfig) -> Result<Vec<ShownNode>>;
    /// Starts the first of those that were found last from its disk. When it returns, the machine goes down.
    fn start_node(&self) -> Result<()>;
    fn plan(&self, config: &InstallConfig) -> Result<ShownPlan>;
    fn install(&self, config: &InstallConfig, progress: &Progress) -> Result<()>;
    /// Stops a running install as soon as that is safe.
    fn stop(&self);
    /// Keeps a record of the answers; returns its place.
    fn record(&self, config: &InstallConfig) -> Result<Option<String>>;
    /// The answers as a configuration that installs a machine unattended.
    fn configuration(&self, config: &InstallConfig) -> Result<Secret>;
    fn volumes(&self) -> Result<StickSurvey>;
    /// Saves the answers as a configuration; returns its place in words.
    fn save_configuration(&self, config: &InstallConfig, volume: &StickVolume) -> Result<String>;
    /// Saves the logs of the failed install, without secrets; returns their place in words.
    fn save_logs(&self, destination: &Destination) -> Result<String>;
    fn open_access(&self) -> Result<HelpAccess>;
    fn close_access(&self) -> Result<()>;
    /// Runs a login on a terminal with this password, and returns after the logout. `term` is the type of the terminal (`TERM`).
    fn shell(&self, terminal: File, term: &str, password: &Secret) -> Result<()>;
    /// Ends: the machine restarts, is powered off, or only this program ends.
    fn end(&self, how: ConversationEnd) -> Result<()>;
}

/// What happens to a machine without anybody having asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineNews {
    /// Disks or network cards have come or gone.
    DevicesChanged,
    /// The kernel has found a damaged block in the OS image of this live system: what is damaged and what to do, in sentences.
    ImageDamaged(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// On the volume with the label for configurations.
    Volume,
    Url(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    Volume(StickVolume),
    Url(HttpUrl, UploadMethod),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationEnd {
    Restart,
    PowerOff,
    Quit,
}

/// The facts before the first question.
#[derive(Clone, Debug)]
pub struct ConversationFacts {
    pub product: String,
    /// Maker, model, processors and memory, as far as they are known.
    pub hardware: String,
    pub inventory: Inventory,
    pub keyboards: Vec<KeyboardLayout>,
    /// Whether this is a rehearsal, which writes nothing.
    pub rehearsal: bool,
    /// Whether this is the first start of a disk image: the disks are as they are, and nothing is asked about them.
    pub first_start: bool,
    /// Whether the program can end and leave the terminal to its caller.
    pub can_quit: bool,
    /// Whether this system can open help access.
    pub can_help: bool,
    /// A random token that the user may choose.
    pub fresh_token: Secret,
    /// Finished nodes that an automatic install has left as they are; the conversation begins with them.
    pub left: Option<ShownNodes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownPlan {
    pub text: String,
    /// One line for each disk.
    pub erased: Vec<String>,
    pub steps: Vec<String>,
}

impl From<&Plan> for ShownPlan {
    fn from(plan: &Plan) -> Self {
        Self {
            text: PlanReview(plan).to_string(),
            erased: Losses(plan).to_string().lines().map(str::to_owned).collect(),
            steps: plan.steps.iter().map(|step| step.id().to_owned()).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownNode {
    pub headline: String,
    pub facts: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownNodes {
    pub nodes: Vec<ShownNode>,
    /// Why they were left.
    pub why: String,
}

/// An error, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownTrouble {
    /// The causes, outermost first.
    pub causes: Vec<String>,
    pub hints: Vec<String>,
    pub class: Class,
}

impl ShownTrouble {
    /// The text of an error, without the secrets of a configuration.
    #[must_use]
    pub fn of(error: &anyhow::Error, config: Option<&InstallConfig>) -> Self {
        let mut secrets = Secrets::default();
        config.iter().for_each(|config| secrets.add(config));
        let hide = |text: &str| secrets.hide(text);
        Self {
            causes: causes(error).iter().map(|cause| hide(cause)).collect(),
            hints: hints(error).map(hide).collect(),
            class: class_of(error),
        }
    }

    #[must_use]
    pub fn text(&self) -> String {
        let hints = self.hints.iter().map(|hint| format!("\nnext: {hint}"));
        format!("{}{}", self.causes.join("\nbecause: "), hints.collect::<String>())
    }

    #[must_use]
    pub fn meaning(&self) -> &'static str {
        match self.class {
            Class::Unexpected => "An unexpected error occurred.",
            Class::Invalid => "An answer or the configuration is not valid.",
            Class::Hardware => "This machine does not meet the requirements.",
            Class::Verification => "The medium is damaged: its content does not match its manifest.",
            Class::Network => "A server did not answer, or its answer is not valid.",
            Class::DiskIo => "A disk could not be read or written.",
            Class::Join => "The cluster refused this machine, or did not answer.",
            Class::Busy => "Another run is in progress.",
            Class::RolledBack => "The update was rolled back.",
            Class::Cancelled => "The installation was stopped.",
        }
    }
}
