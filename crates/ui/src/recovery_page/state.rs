//! Keys to the next state; pure.

use super::RecoveryPageEnd;
use crate::toolkit::Key;
use crate::toolkit::line::TypedLine;
use crate::toolkit::text::Scroll;
use node::pending_reset::ResetLevel;
use node::recovery::RecoveryFacts;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecoveryView {
    #[default]
    Overview,
    /// The source of an update is typed.
    Update(TypedLine),
    /// The level of a reset is chosen.
    Reset,
}

#[derive(Clone, Debug, Default)]
pub struct RecoveryPage {
    /// Whether there are actions.
    pub administrator: bool,
    /// What was seen last, or why nothing could be seen.
    pub facts: Option<Result<RecoveryFacts, String>>,
    pub view: RecoveryView,
    pub scroll: Scroll,
}

/// What a key leads to.
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
                let level = match key {
                    Key::Char('c' | 'C') => ResetLevel::Config,
                    Key::Char('s' | 'S') => ResetLevel::State,
                    Key::Char('f' | 'F') => ResetLevel::Full,
                    Key::Escape => return self.back(),
                    _ => return None,
                };
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
        let letter = match key {
            Key::Char(letter) => letter.to_ascii_lowercase(),
            Key::Function(5) | Key::Control('l') => return Some(RecoveryEffect::Look),
            key => {
                self.scroll.key(key);
                return None;
            }
        };
        match (letter, self.administrator) {
            ('l', false) => return Some(RecoveryEffect::End(RecoveryPageEnd::LogIn)),
            ('u', true) => self.view = RecoveryView::Update(TypedLine::default()),
            ('x', true) => self.view = RecoveryView::Reset,
            ('s', true) => return run(&["update", "status"]),
            ('c', true) => return run(&["update", "repair"]),
            ('r', true) => return run(&["update", "repair", "--yes"]),
            ('a', true) => return run(&["update", "start", "a"]),
            ('b', true) => return run(&["update", "start", "b"]),
            ('q', true) => return Some(RecoveryEffect::End(RecoveryPageEnd::Quit)),
            _ => {}
        }
        None
    }
}

fn run(arguments: &[&str]) -> Option<RecoveryEffect> {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Some(RecoveryEffect::End(RecoveryPageEnd::Run(arguments)))
}
