//! What there is to say and to do: places, inputs, effects and what comes of them.

use std::time::Duration;

use crate::inventory::Inventory;
use crate::live::help::Access;
use crate::report::UploadMethod;
use crate::ui::questions::screens::QuestionScreen;
use crate::ui::questions::{ConfigOrigin, ConversationEnd, Destination, ShownNode, ShownTrouble};
use crate::ui::toolkit::Key;
use crate::ui::toolkit::text::Scroll;
use crate::usb_stick::{Survey, Volume};
use base::progress::Event;
use model::config::sources::Combined;
use model::config::{InstallConfig, Secret};

/// How long somebody has to press a key before the node starts.
pub const COUNTDOWN: Duration = Duration::from_secs(30);

/// What is on the screen.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum ConversationPlace {
    /// Questions.
    Asking(QuestionScreen),
    /// Where a configuration is to be had.
    Load,
    /// The whole plan, or what is still missing.
    Review(Review),
    /// What an install would refuse this machine for, before the plan.
    Unfit(Review),
    /// Finished nodes that are on the disks, before the plan that goes over them, or in place of an automatic install.
    Standing(StandingNodes),
    /// The disks of the machine, and where to go back to.
    Disks(Scroll, Box<ConversationPlace>),
    /// The last word before disks are erased.
    Confirm(Review),
    /// The install goes on.
    Working {
        /// Whether the log is shown in place of the steps.
        log: Option<Scroll>,
    },
    /// It failed.
    Failed(ShownTrouble, Scroll),
    /// It is done.
    Done {
        /// Where the answers are recorded.
        record: Option<String>,
    },
    /// Where to save something, and where to go back to.
    Save(Saving, Box<ConversationPlace>),
    /// The short report of a failure as a QR code, and where to go back to.
    Code(Box<ConversationPlace>),
    /// The answers as a configuration, and where to go back to.
    Recorded(Secret, Scroll, Box<ConversationPlace>),
    /// The way in for somebody who helps, and where to go back to.
    Help(Box<ConversationPlace>),
    /// How to end, and where to go back to.
    Leave(Box<ConversationPlace>),
}

impl ConversationPlace {
    /// Where one is when nothing lies in front of it.
    #[must_use]
    pub fn base(&self) -> &Self {
        match self {
            Self::Save(_, back) | Self::Code(back) | Self::Recorded(_, _, back) => back.base(),
            Self::Disks(_, back) => back.base(),
            Self::Help(back) | Self::Leave(back) => back.base(),
            _ => self,
        }
    }
}

/// Nodes that are there, and what may become of them.
#[derive(Clone, Debug)]
pub struct StandingNodes {
    /// The nodes.
    pub nodes: Vec<ShownNode>,
    /// Why an automatic install does not go over them.
    pub why: Option<String>,
    /// Seconds until the first of them starts; none where a decision is waited for.
    pub left: Option<u64>,
    /// When it starts; none until the time is known.
    pub ends: Option<Duration>,
    /// Whether it has been started, which did not work.
    pub tried: bool,
    /// The plan that goes over them, where there is one.
    pub review: Option<Box<Review>>,
    /// How far the text is scrolled.
    pub scroll: Scroll,
}

/// What is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepsake {
    /// The logs of the install that has failed.
    Logs,
    /// The answers as a configuration.
    Configuration,
}

/// What has been said of saving something.
#[derive(Clone, Debug)]
pub struct Saving {
    /// What is saved.
    pub what: Keepsake,
    /// What was found of sticks; none while there is a look.
    pub found: Option<Survey>,
    /// Which volume; the number after the last is a URL.
    pub chosen: Option<usize>,
    /// The URL as it is typed.
    pub url: String,
    /// How it takes files.
    pub method: UploadMethod,
    /// Why it did not work the last time.
    pub trouble: Option<ShownTrouble>,
}

/// The plan as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// The plan as text; none while it is made, or cannot be.
    pub plan: Option<String>,
    /// What will be erased, a line a disk.
    pub erased: Vec<String>,
    /// Ids of the steps.
    pub steps: Vec<String>,
    /// Mistakes, with the screen where they are put right.
    pub mistakes: Vec<(Option<QuestionScreen>, String)>,
    /// What the checks that an install makes first have found.
    pub findings: Vec<ShownFinding>,
    /// The finished nodes that are on its disks.
    pub present: Vec<ShownNode>,
    /// The checks that are left out.
    pub left_out: Vec<String>,
    /// How far the text is scrolled.
    pub scroll: Scroll,
}

impl Review {
    /// What an install would refuse the machine for.
    pub fn stops(&self) -> impl Iterator<Item = &ShownFinding> {
        self.findings.iter().filter(|finding| finding.stops)
    }
}

/// Something about the machine that should be otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFinding {
    /// The check's name.
    pub check: &'static str,
    /// What was seen, and what should be.
    pub text: String,
    /// What to do about it.
    pub next: String,
    /// Whether an install would end with it.
    pub stops: bool,
    /// Whether an install can begin without the check.
    pub waivable: bool,
}

/// What happens to the conversation.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum ConversationInput {
    /// Somebody presses a key.
    Key(Key),
    /// Time passes.
    Tick,
    /// The install tells of itself.
    Event(Event),
    /// An effect has come to its end.
    Ended(EffectOutcome),
}

/// What came of an effect.
#[derive(Debug)]
pub enum EffectOutcome {
    /// Of [`ConversationEffect::LookAgain`].
    Inventory(Result<Inventory, ShownTrouble>),
    /// Of [`ConversationEffect::Fetch`].
    Fetched(Result<Box<Combined>, ShownTrouble>),
    /// Of [`ConversationEffect::Try`].
    Tried(QuestionScreen, Result<String, ShownTrouble>),
    /// Of [`ConversationEffect::Plan`].
    Planned(Result<Review, ShownTrouble>),
    /// Of [`ConversationEffect::Install`]; where the answers are recorded.
    Installed(Result<Option<String>, ShownTrouble>),
    /// Of [`ConversationEffect::Survey`].
    Surveyed(Result<Survey, ShownTrouble>),
    /// Of [`ConversationEffect::SaveLogs`] and [`ConversationEffect::SaveConfiguration`]; where it is.
    Saved(Result<String, ShownTrouble>),
    /// Of [`ConversationEffect::Show`].
    Shown(Result<Secret, ShownTrouble>),
    /// Of [`ConversationEffect::OpenAccess`].
    Opened(Result<Box<Access>, ShownTrouble>),
    /// Of [`ConversationEffect::CloseAccess`].
    Closed(Result<(), ShownTrouble>),
    /// Of [`ConversationEffect::Shell`].
    Returned(Result<(), ShownTrouble>),
    /// Of [`ConversationEffect::End`] and [`ConversationEffect::StartNode`], which should not come back.
    NotEnded(ShownTrouble),
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq)]
pub enum ConversationEffect {
    /// Look at disks and network cards again.
    LookAgain,
    /// Fetch a configuration.
    Fetch(ConfigOrigin),
    /// Try what has been answered on a screen.
    Try(QuestionScreen, Box<InstallConfig>),
    /// Make the plan, and hold the machine against what an install checks first.
    Plan(Box<InstallConfig>),
    /// Install.
    Install(Box<InstallConfig>),
    /// Look for volumes on sticks.
    Survey,
    /// Save the logs.
    SaveLogs(Box<Destination>),
    /// Save the answers.
    SaveConfiguration(Box<InstallConfig>, Box<Volume>),
    /// Make a configuration of the answers, to show it.
    Show(Box<InstallConfig>),
    /// Let somebody log in.
    OpenAccess,
    /// Let nobody log in any more.
    CloseAccess,
    /// Give the console that leads to somebody who logs in.
    Shell,
    /// Start the finished node from its disk.
    StartNode,
    /// End.
    End(ConversationEnd),
}
