//! The interactive installer: asks what an install configuration has to say, shows the plan, and shows the install.
//!
//! It only collects answers and shows events. What a value must be is for [`model::config`] to say, what an install does
//! for [`crate::plan`], whether the machine will do for [`crate::preflight`]; the work is done behind [`InstallMachine`].
//!
//! | Module | What it does |
//! |---|---|
//! | [`screens`] | the questions of each screen, from the answers |
//! | [`state`] | keys and events to the next state and to effects; pure |
//! | [`work`] | the install under way and its end; pure |
//! | [`brief`] | a failure in as few words as a QR code has room for; pure |
//! | [`draw`] | a state as a picture |
//! | [`run`] | consoles, and threads for what takes time |

pub mod brief;
pub mod draw;
pub mod run;
pub mod screens;
pub mod state;
pub mod work;

#[cfg(test)]
mod tests;

use std::fs::File;

use anyhow::Result;

use crate::inventory::Inventory;
use crate::live::help::Access;
use crate::plan::Plan;
use crate::preflight::PreflightReport;
use crate::report::UploadMethod;
use crate::usb_stick::{Survey, Volume};
use base::failure::{Class, causes, class_of, hints};
use base::progress::Progress;
use model::config::redact::Secrets;
use model::config::sources::Combined;
use model::config::text::HttpUrl;
use model::config::{InstallConfig, Secret};

/// What the machine is and does; a rehearsal has another one. Every call may take its time.
pub trait InstallMachine: Sync {
    /// Disks and network cards as they are now.
    fn inventory(&self) -> Result<Inventory>;
    /// The configuration that somebody has brought along, checked, on top of what was found before.
    fn fetch(&self, from: &ConfigOrigin) -> Result<Combined>;
    /// Sets up the management network; says what came of it in a sentence.
    fn try_network(&self, config: &InstallConfig) -> Result<String>;
    /// Asks the cluster to join whether it would have this machine; says so in a sentence.
    fn try_cluster(&self, config: &InstallConfig) -> Result<String>;
    /// What the checks say that an install makes first.
    fn check(&self, config: &InstallConfig) -> Result<PreflightReport>;
    /// The finished nodes on the disks that an install would write.
    fn present(&self, config: &InstallConfig) -> Result<Vec<ShownNode>>;
    /// Starts the first of those that were found last from its disk. When it comes back, the machine goes down.
    fn start_node(&self) -> Result<()>;
    /// What an install would do.
    fn plan(&self, config: &InstallConfig) -> Result<Plan>;
    /// Installs.
    fn install(&self, config: &InstallConfig, progress: &Progress) -> Result<()>;
    /// Ends an install that is under way as soon as that is safe.
    fn stop(&self);
    /// Keeps a record of the answers; says where it is.
    fn record(&self, config: &InstallConfig) -> Result<Option<String>>;
    /// The answers as a configuration that installs a machine unattended.
    fn configuration(&self, config: &InstallConfig) -> Result<Secret>;
    /// Volumes on sticks that can take a file now.
    fn volumes(&self) -> Result<Survey>;
    /// Saves the answers as a configuration; says where it is.
    fn save_configuration(&self, config: &InstallConfig, volume: &Volume) -> Result<String>;
    /// Saves the logs of the install that has failed, without secrets; says where they are.
    fn save_logs(&self, destination: &Destination) -> Result<String>;
    /// Lets somebody log in to this system who helps.
    fn open_access(&self) -> Result<Access>;
    /// Takes that away again.
    fn close_access(&self) -> Result<()>;
    /// Lets somebody log in on a terminal with this password, and comes back when they have logged out. `term` is what
    /// the terminal is (`TERM`).
    fn shell(&self, terminal: File, term: &str, password: &Secret) -> Result<()>;
    /// Ends: the machine restarts, goes off, or only this program ends.
    fn end(&self, how: ConversationEnd) -> Result<()>;
}

/// Where a configuration is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// On the volume with the label that one has.
    Volume,
    /// Behind a URL.
    Url(String),
}

/// Where logs are saved.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// On a stick.
    Volume(Volume),
    /// On a server.
    Url(HttpUrl, UploadMethod),
}

/// How it all ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationEnd {
    /// The machine restarts.
    Restart,
    /// The machine goes off.
    PowerOff,
    /// The program ends.
    Quit,
}

/// What is known before the first question.
#[derive(Clone, Debug)]
pub struct ConversationFacts {
    /// Product name and version.
    pub product: String,
    /// Maker, model, processors and memory, as far as they are known.
    pub hardware: String,
    /// The machine.
    pub inventory: Inventory,
    /// Whether nothing is done in the end.
    pub rehearsal: bool,
    /// Whether the program can end and leave the terminal to whoever started it.
    pub can_quit: bool,
    /// Whether this is a system that somebody can be let in to, to help.
    pub can_help: bool,
    /// A token that nobody guesses, for who wants one.
    pub fresh_token: Secret,
    /// Finished nodes that an automatic install has left as they are; the conversation begins with them.
    pub left: Option<ShownNodes>,
}

/// A finished node that is on a disk already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownNode {
    /// What is where, in one line.
    pub headline: String,
    /// What is known of it: names and values.
    pub facts: Vec<(&'static str, String)>,
}

/// Finished nodes that an automatic install has left as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownNodes {
    /// The nodes.
    pub nodes: Vec<ShownNode>,
    /// Why it has.
    pub why: String,
}

/// Something that did not work, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownTrouble {
    /// What, and why, outermost first.
    pub causes: Vec<String>,
    /// What to do about it.
    pub hints: Vec<String>,
    /// What kind of failure it is.
    pub class: Class,
}

impl ShownTrouble {
    /// What an error says, without the secrets of a configuration.
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

    /// All of it as one text.
    #[must_use]
    pub fn text(&self) -> String {
        let hints = self.hints.iter().map(|hint| format!("\nnext: {hint}"));
        format!("{}{}", self.causes.join("\nbecause: "), hints.collect::<String>())
    }

    /// What this kind of failure means for the machine.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        match self.class {
            Class::Unexpected => "An unexpected error occurred.",
            Class::Invalid => "An answer or the configuration is not valid.",
            Class::Hardware => "This machine does not meet the requirements.",
            Class::Verification => "Something on the medium is not what its manifest says: it is damaged.",
            Class::Network => "Something on the network did not answer, or not as it should.",
            Class::DiskIo => "A disk could not be read or written.",
            Class::Join => "The cluster refused this machine, or did not answer.",
            Class::Cancelled => "The installation was stopped.",
        }
    }
}
