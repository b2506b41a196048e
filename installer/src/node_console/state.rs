//! Keys and news to the next state and to effects; pure.

use super::{Action, Facts, Power};
use crate::terminal::Key;
use crate::terminal::page::Tone;
use crate::terminal::text::Scroll;

/// What is in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The node.
    Node,
    /// The question whether this shall really be done.
    Confirm(Power),
    /// The journal's last lines; none while they are read.
    Logs(Option<Vec<String>>),
}

/// What has come.
#[derive(Clone, Debug)]
pub enum Input {
    /// A key.
    Key(Key),
    /// How the node is, or why it cannot be told.
    Seen(Result<Box<Facts>, String>),
    /// The last lines of the journal, or why there are none.
    Logs(Result<Vec<String>, String>),
    /// What came of an action, in a sentence.
    Done(Result<String, String>),
}

/// What is to be done outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look at the node.
    Look,
    /// Send the whole picture again: something may have written over it.
    Redraw,
    /// Read the journal.
    Logs,
    /// Do this.
    Act(Action),
    /// End: somebody wants to log in.
    LogIn,
    /// End.
    Quit,
}

/// A console.
#[derive(Clone, Debug)]
pub struct State {
    /// Whether somebody who has logged in sits in front.
    pub administrator: bool,
    /// What is in front.
    pub view: View,
    /// The node as it was seen last.
    pub facts: Option<Facts>,
    /// Why it could not be looked at the last time.
    pub trouble: Option<String>,
    /// What came of the last action.
    pub message: Option<(Tone, String)>,
    /// How far the node's page is scrolled.
    pub node: Scroll,
    /// How far the journal is scrolled.
    pub logs: Scroll,
}

impl State {
    /// The first one.
    #[must_use]
    pub fn new(administrator: bool) -> Self {
        Self {
            administrator,
            view: View::Node,
            facts: None,
            trouble: None,
            message: None,
            node: Scroll::default(),
            logs: Scroll::at_end(),
        }
    }

    /// Takes what has come; says what is to be done outside.
    pub fn take(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Key(key) => return self.key(key),
            Input::Seen(Ok(facts)) => {
                self.facts = Some(*facts);
                self.trouble = None;
            }
            Input::Seen(Err(why)) => self.trouble = Some(why),
            Input::Logs(Ok(lines)) => {
                if let View::Logs(shown) = &mut self.view {
                    *shown = Some(lines);
                }
            }
            Input::Logs(Err(why)) => {
                self.view = View::Node;
                self.message = Some((Tone::Error, why));
            }
            Input::Done(Ok(what)) => self.message = Some((Tone::Good, what)),
            Input::Done(Err(why)) => self.message = Some((Tone::Error, why)),
        }
        None
    }

    fn key(&mut self, key: Key) -> Option<Effect> {
        if key == Key::Control('l') {
            return Some(Effect::Redraw);
        }
        match self.view {
            View::Node => self.node_key(key),
            View::Confirm(power) => {
                self.view = View::Node;
                matches!(key, Key::Char('y' | 'Y')).then(|| self.act(Action::Power(power)))
            }
            View::Logs(_) if self.logs.key(key) => None,
            View::Logs(_) => match key {
                Key::Escape | Key::Char('q' | 'Q') => {
                    self.view = View::Node;
                    None
                }
                Key::Function(5) => Some(self.read_logs()),
                _ => None,
            },
        }
    }

    fn node_key(&mut self, key: Key) -> Option<Effect> {
        if self.node.key(key) {
            return None;
        }
        match (key, self.administrator) {
            (Key::Function(5), _) => return Some(Effect::Look),
            (Key::Char('l' | 'L') | Key::Enter, false) => return Some(Effect::LogIn),
            (Key::Char('q' | 'Q') | Key::Control('c'), true) => return Some(Effect::Quit),
            (Key::Char('j' | 'J'), true) => return Some(self.read_logs()),
            (Key::Char('s' | 'S'), true) => return Some(self.act(Action::Bundle)),
            (Key::Char('r' | 'R'), true) => self.view = View::Confirm(Power::Restart),
            (Key::Char('p' | 'P'), true) => self.view = View::Confirm(Power::Off),
            // What was said has been read.
            _ => self.message = None,
        }
        None
    }

    fn read_logs(&mut self) -> Effect {
        self.view = View::Logs(None);
        self.logs = Scroll::at_end();
        Effect::Logs
    }

    fn act(&mut self, action: Action) -> Effect {
        let begun = match action {
            Action::Power(Power::Restart) => "The machine starts again.",
            Action::Power(Power::Off) => "The machine goes off.",
            Action::Bundle => "Collecting what there is; this can take a minute.",
        };
        self.message = Some((Tone::Plain, begun.to_owned()));
        Effect::Act(action)
    }
}
