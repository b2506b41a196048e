//! The types of the conversation: places, inputs, effects and their outcomes.

use std::time::Duration;

use crate::questions::screens::QuestionScreen;
use crate::questions::{ConfigOrigin, ConversationEnd, Destination, MachineNews, ShownNode, ShownTrouble};
use crate::toolkit::Key;
use crate::toolkit::text::Scroll;
use base::progress::Event;
use install::usb_stick::{StickSurvey, StickVolume};
use machine::inventory::Inventory;
use machine::live::help::HelpAccess;
use model::config::sources::CombinedConfig;
use model::config::{InstallConfig, Secret};
use reporting::archive::UploadMethod;

/// How long the user has to press a key before the node starts.
pub const COUNTDOWN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum ConversationPlace {
    Asking(QuestionScreen),
    Load,
    Keyboard(Box<ConversationPlace>),
    /// The whole plan, or what is still missing.
    Review(Review),
    /// The findings for which an install would refuse this machine, before the plan.
    Unfit(Review),
    /// Finished nodes on the disks, before the plan that overwrites them, or in place of an automatic install.
    FinishedNodes(FinishedNodes),
    Disks(Scroll, Box<ConversationPlace>),
    Confirm(Review),
    /// The token of the new cluster, to be written down, and the place to go back to.
    Token(Secret, Box<ConversationPlace>),
    Working {
        /// Whether the log is shown in place of the steps.
        log: Option<Scroll>,
    },
    Failed(ShownTrouble, Scroll),
    Done {
        /// Where the answers are recorded.
        record: Option<String>,
    },
    /// Where to save something, and the place to go back to.
    Save(Saving, Box<ConversationPlace>),
    /// The short report of a failure as a QR code, and the place to go back to.
    Code(Box<ConversationPlace>),
    /// The answers as a configuration, and the place to go back to.
    Recorded(Secret, Scroll, Box<ConversationPlace>),
    Help(Box<ConversationPlace>),
    Leave(Box<ConversationPlace>),
}

impl ConversationPlace {
    /// The place to go back to.
    pub(super) fn back(&self) -> Option<&Self> {
        match self {
            Self::Save(_, back)
            | Self::Code(back)
            | Self::Recorded(_, _, back)
            | Self::Disks(_, back)
            | Self::Help(back)
            | Self::Leave(back)
            | Self::Token(_, back)
            | Self::Keyboard(back) => Some(back),
            _ => None,
        }
    }

    /// The place below those in front of it.
    #[must_use]
    pub fn base(&self) -> &Self {
        self.back().map_or(self, Self::base)
    }
}

#[derive(Clone, Debug)]
pub struct FinishedNodes {
    pub nodes: Vec<ShownNode>,
    /// Why an automatic install does not overwrite them.
    pub why: Option<String>,
    /// Seconds until the first of them starts; `None` without a countdown.
    pub left: Option<u64>,
    /// When it starts; `None` until the time is known.
    pub ends: Option<Duration>,
    /// Whether it was started in vain.
    pub tried: bool,
    pub review: Option<Box<Review>>,
    pub scroll: Scroll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedFile {
    Logs,
    Configuration,
}

#[derive(Clone, Debug)]
pub struct Saving {
    pub what: SavedFile,
    /// The sticks; `None` while they are looked for.
    pub found: Option<StickSurvey>,
    /// The chosen volume; the number after the last is a URL.
    pub chosen: Option<usize>,
    pub url: String,
    pub method: UploadMethod,
    /// The error of the last attempt.
    pub trouble: Option<ShownTrouble>,
}

#[derive(Clone, Debug, Default)]
pub struct Review {
    /// The plan as text; `None` while it is made, or after an error.
    pub plan: Option<String>,
    /// One line for each disk.
    pub erased: Vec<String>,
    pub steps: Vec<String>,
    /// Mistakes, with the screen where they are corrected.
    pub mistakes: Vec<(Option<QuestionScreen>, String)>,
    /// The findings of the checks that an install makes first.
    pub findings: Vec<ShownFinding>,
    pub present: Vec<ShownNode>,
    pub left_out: Vec<String>,
    pub scroll: Scroll,
}

impl Review {
    /// The findings for which an install would refuse the machine.
    pub fn stops(&self) -> impl Iterator<Item = &ShownFinding> {
        self.findings.iter().filter(|finding| finding.stops)
    }
}

/// A finding of a check, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFinding {
    pub check: &'static str,
    /// The present state and the requirement.
    pub text: String,
    pub next: String,
    /// Whether an install would stop because of it.
    pub stops: bool,
    /// Whether an install can begin without the check.
    pub waivable: bool,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum ConversationInput {
    Key(Key),
    Tick,
    Event(Event),
    News(MachineNews),
    Ended(EffectOutcome),
}

#[derive(Debug)]
pub enum EffectOutcome {
    /// Of [`ConversationEffect::LookAgain`].
    Inventory(Result<Inventory, ShownTrouble>),
    /// Of [`ConversationEffect::FollowDevices`].
    Devices(Result<Inventory, ShownTrouble>),
    KeyboardSet(String, Result<String, ShownTrouble>),
    Fetched(Result<Box<CombinedConfig>, ShownTrouble>),
    /// Of [`ConversationEffect::Try`].
    Tried(QuestionScreen, Result<String, ShownTrouble>),
    Planned(Result<Review, ShownTrouble>),
    /// Of [`ConversationEffect::Install`]; where the answers are recorded.
    Installed(Result<Option<String>, ShownTrouble>),
    Surveyed(Result<StickSurvey, ShownTrouble>),
    /// Of [`ConversationEffect::SaveLogs`] and [`ConversationEffect::SaveConfiguration`]; where it is.
    Saved(Result<String, ShownTrouble>),
    Shown(Result<Secret, ShownTrouble>),
    Opened(Result<Box<HelpAccess>, ShownTrouble>),
    Closed(Result<(), ShownTrouble>),
    /// Of [`ConversationEffect::Shell`].
    Returned(Result<(), ShownTrouble>),
    /// Of [`ConversationEffect::End`] and [`ConversationEffect::StartNode`], which should not come back.
    NotEnded(ShownTrouble),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ConversationEffect {
    LookAgain,
    /// Look again because something has changed, while the user goes on.
    FollowDevices,
    SetKeyboard(String),
    Fetch(ConfigOrigin),
    /// Try the answers of a screen.
    Try(QuestionScreen, Box<InstallConfig>),
    /// Make the plan, and run the checks that an install makes first.
    Plan(Box<InstallConfig>),
    Install(Box<InstallConfig>),
    /// Keep the answers at the end of a rehearsal, which installs nothing.
    Record(Box<InstallConfig>),
    Survey,
    SaveLogs(Box<Destination>),
    SaveConfiguration(Box<InstallConfig>, Box<StickVolume>),
    /// Make a configuration of the answers, to show it.
    Show(Box<InstallConfig>),
    OpenAccess,
    CloseAccess,
    /// Lend the console that leads to a login.
    Shell,
    StartNode,
    End(ConversationEnd),
}
