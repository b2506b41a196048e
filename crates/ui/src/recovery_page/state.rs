//! Keys to the next state; pure.

use super::RecoveryPageEnd;
use crate::toolkit::Key;
use crate::toolkit::line::TypedLine;
use crate::toolkit::page::KeyTable;
use crate::toolkit::text::Scroll;
use node::pending_reset::ResetLevel;
use node::recovery::RecoveryFacts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecoveryView {
    #[default]
    Overview,
    /// The source of an update is typed.
    Update(TypedLine),
    Reset,
}

#[derive(Clone, Debug, Default)]
pub struct RecoveryPage {
    /// Whether there are actions.
    pub administrator: bool,
    /// The last facts, or why they could not be read.
    pub facts: Option<Result<RecoveryFacts, String>>,
    pub view: RecoveryView,
    pub scroll: Scroll,
}

#[derive(Clone, Copy, Debug)]
pub enum RecoveryAction {
    LogIn,
    Look,
    Update,
    Reset,
    /// Run a command of this program, with these arguments.
    Run(&'static [&'static str]),
    Quit,
}

pub const LOCKED: KeyTable<RecoveryAction> =
    KeyTable(&[("L", "log in", RecoveryAction::LogIn), ("F5", "look again", RecoveryAction::Look)]);
pub const UNLOCKED: KeyTable<RecoveryAction> = KeyTable(&[
    ("U", "update", RecoveryAction::Update),
    ("C", "check", RecoveryAction::Run(&["update", "repair"])),
    ("R", "repair", RecoveryAction::Run(&["update", "repair", "--yes"])),
    ("X", "reset", RecoveryAction::Reset),
    ("A", "start a", RecoveryAction::Run(&["update", "start", "a"])),
    ("B", "start b", RecoveryAction::Run(&["update", "start", "b"])),
    ("S", "status", RecoveryAction::Run(&["update", "status"])),
    ("Q", "quit", RecoveryAction::Quit),
]);
pub const RESET: KeyTable<ResetLevel> = KeyTable(&[
    ("C", "config", ResetLevel::Config),
    ("S", "state", ResetLevel::State),
    ("F", "full", ResetLevel::Full),
]);

/// The consequence of a key outside of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryEffect {
    Look,
    End(RecoveryPageEnd),
}

impl RecoveryPage {
    pub fn take(&mut self, key: Key) -> Option<RecoveryEffect> {
        match &mut self.view {
            RecoveryView::Overview => self.overview(key),
            RecoveryView::Update(line) => match key {
                Key::Escape => self.back(),
                Key::Enter if line.is_empty() => None,
                Key::Enter => {
                    let from = line.text();
                    self.view = RecoveryView::Overview;
                    run(&["update", "apply", "--from", &from])
                }
                key => {
                    line.key(key);
                    None
                }
            },
            RecoveryView::Reset => {
                if key == Key::Escape {
                    return self.back();
                }
                let level = RESET.action(key)?;
                self.view = RecoveryView::Overview;
                run(&["update", "reset", "--level", level.as_str()])
            }
        }
    }

    fn back(&mut self) -> Option<RecoveryEffect> {
        self.view = RecoveryView::Overview;
        None
    }

    fn overview(&mut self, key: Key) -> Option<RecoveryEffect> {
        if matches!(key, Key::Function(5) | Key::Control('l')) {
            return Some(RecoveryEffect::Look);
        }
        let actions = if self.administrator { UNLOCKED } else { LOCKED };
        match actions.action(key) {
            Some(RecoveryAction::LogIn) => return Some(RecoveryEffect::End(RecoveryPageEnd::LogIn)),
            Some(RecoveryAction::Quit) => return Some(RecoveryEffect::End(RecoveryPageEnd::Quit)),
            Some(RecoveryAction::Look) => return Some(RecoveryEffect::Look),
            Some(RecoveryAction::Run(arguments)) => return run(arguments),
            Some(RecoveryAction::Update) => self.view = RecoveryView::Update(TypedLine::default()),
            Some(RecoveryAction::Reset) => self.view = RecoveryView::Reset,
            None => {
                self.scroll.key(key);
            }
        }
        None
    }
}

fn run(arguments: &[&str]) -> Option<RecoveryEffect> {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Some(RecoveryEffect::End(RecoveryPageEnd::Run(arguments)))
}
