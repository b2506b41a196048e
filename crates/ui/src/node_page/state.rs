//! Keys and news to the next state and to effects; pure.

use super::look::BUNDLES;
use super::network::{self, NetworkStep, PresentNetwork, Proposal};
use super::{Action, NodePageFacts, Power};
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use crate::toolkit::text::Scroll;
use install::usb_stick::{StickSurvey, StickVolume};
use node::network_trial::{CurrentTrial, Networks, TrialState as Stage, TrialStatus};

#[derive(Clone, Debug, PartialEq)]
pub enum View {
    Node,
    Confirm(Power),
    /// The journal's last lines; `None` while they are read.
    Logs(Option<Vec<String>>),
    /// The place of a support bundle; `None` while sticks are looked for.
    Bundle(Option<Box<BundlePlaces>>),
    /// The change of the network; `None` while the present one is read.
    Network(Option<Box<network::NetworkPage>>),
    Trial,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BundlePlaces {
    /// The choice among them: the node, then the volumes.
    pub form: Form,
    volumes: Vec<StickVolume>,
}

impl BundlePlaces {
    fn new(survey: StickSurvey) -> Self {
        let node = Choice::new(format!("This node, in {BUNDLES}"));
        let volume = |volume: &StickVolume| Choice::new(volume.describe()).with(volume.disk.clone());
        let places = std::iter::once(node).chain(survey.volumes.iter().map(volume)).collect();
        let mut fields = vec![Field::choice("place", "Where to", places, Some(0))];
        if !survey.others.is_empty() {
            fields.push(Field::text("Other volumes cannot be used", &survey.others.join("\n")));
        }
        Self { form: Form::new(fields), volumes: survey.volumes }
    }

    /// The chosen volume; `None` for the node.
    fn volume(&self) -> Option<StickVolume> {
        let place = self.form.field("place").and_then(Field::chosen)?;
        place.checked_sub(1).and_then(|at| self.volumes.get(at)).cloned()
    }
}

/// News for a console.
#[derive(Clone, Debug)]
pub enum NodePageInput {
    Key(Key),
    /// The facts about the node, or the error.
    Seen(Result<Box<NodePageFacts>, String>),
    /// The last lines of the journal, or the error.
    Logs(Result<Vec<String>, String>),
    /// The result of an action, in a sentence.
    Done(Result<String, String>),
    /// The sticks, or the error.
    Sticks(Result<StickSurvey, String>),
    /// The present networks, or the error.
    Network(Result<Box<PresentNetwork>, String>),
    /// The change of the network, or the error.
    Proposed(Result<Box<Proposal>, String>),
    Began(Result<(), String>),
    /// The state of the node's trials.
    Trial(TrialStatus),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum NodePageEffect {
    Look,
    /// Send the whole picture again: something may have written over it.
    Redraw,
    Logs,
    /// Run this action.
    Act(Action),
    Sticks,
    /// Read the present networks.
    Network,
    /// Check these networks.
    Propose(Box<Networks>),
    /// Try these networks; whether a grave problem was accepted.
    Try(Box<Networks>, bool),
    /// End: the user wants to log in.
    LogIn,
    Quit,
}

#[derive(Clone, Debug)]
pub struct NodePage {
    /// Whether the user has logged in.
    pub administrator: bool,
    pub view: View,
    pub facts: Option<NodePageFacts>,
    /// The error of the last observation.
    pub trouble: Option<String>,
    /// The state of the node's trials.
    pub trial: TrialStatus,
    /// Whether the trial is being confirmed or reverted.
    ending: bool,
    /// The result of the last action.
    pub message: Option<(Tone, String)>,
    /// The scroll position of the node's page.
    pub node: Scroll,
    /// The scroll position of the journal.
    pub logs: Scroll,
}

impl NodePage {
    /// The first state.
    #[must_use]
    pub fn new(administrator: bool) -> Self {
        Self {
            administrator,
            view: View::Node,
            facts: None,
            trouble: None,
            trial: TrialStatus::None,
            ending: false,
            message: None,
            node: Scroll::default(),
            logs: Scroll::at_end(),
        }
    }

    /// Takes news; returns what is to be done outside.
    pub fn take(&mut self, input: NodePageInput) -> Option<NodePageEffect> {
        match input {
            NodePageInput::Key(key) => return self.key(key),
            NodePageInput::Seen(Ok(facts)) => {
                self.facts = Some(*facts);
                self.trouble = None;
            }
            NodePageInput::Seen(Err(why)) => self.trouble = Some(why),
            NodePageInput::Logs(Ok(lines)) => {
                if let View::Logs(shown) = &mut self.view {
                    *shown = Some(lines);
                }
            }
            NodePageInput::Logs(Err(why)) => {
                self.view = View::Node;
                self.message = Some((Tone::Error, why));
            }
            NodePageInput::Done(came) => self.done(came),
            NodePageInput::Sticks(found) => return self.found_sticks(found),
            NodePageInput::Network(Ok(present)) => {
                if let View::Network(page @ None) = &mut self.view {
                    *page = Some(Box::new(network::NetworkPage::new(*present)));
                }
            }
            NodePageInput::Network(Err(why)) => {
                self.view = View::Node;
                self.message = Some((Tone::Error, why));
            }
            NodePageInput::Proposed(proposal) => {
                if let View::Network(Some(page)) = &mut self.view {
                    page.proposed(proposal.map(|proposal| *proposal));
                }
            }
            NodePageInput::Began(Ok(())) => (self.view, self.message) = (View::Trial, None),
            NodePageInput::Began(Err(why)) => match &mut self.view {
                View::Network(Some(page)) => page.message = Some((Tone::Error, why)),
                _ => self.message = Some((Tone::Error, why)),
            },
            NodePageInput::Trial(standing) => self.tried(standing),
        }
        None
    }

    /// Asks where a bundle goes if there is a choice, or something to say about sticks.
    fn found_sticks(&mut self, found: Result<StickSurvey, String>) -> Option<NodePageEffect> {
        let View::Bundle(places @ None) = &mut self.view else { return None };
        match found {
            Ok(survey) if survey != StickSurvey::default() => {
                *places = Some(Box::new(BundlePlaces::new(survey)));
                None
            }
            // A bundle on the node is better than none.
            _ => {
                self.view = View::Node;
                Some(self.act(Action::Bundle(None)))
            }
        }
    }

    fn bundle_key(&mut self, key: Key) -> Option<NodePageEffect> {
        let View::Bundle(places) = &mut self.view else { return None };
        match (key, places) {
            (Key::Escape, _) => self.view = View::Node,
            (Key::Function(5), _) => return Some(self.look_for_sticks()),
            (_, Some(places)) => {
                let did = places.form.key(key);
                // Enter takes the option under the cursor, and that is the only answer.
                if did == KeyEffect::Accepted || (did == KeyEffect::Changed && key == Key::Enter) {
                    let volume = places.volume();
                    self.view = View::Node;
                    return Some(self.act(Action::Bundle(volume)));
                }
            }
            (_, None) => {}
        }
        None
    }

    fn look_for_sticks(&mut self) -> NodePageEffect {
        self.view = View::Bundle(None);
        NodePageEffect::Sticks
    }

    #[must_use]
    pub fn now(&self) -> Option<&CurrentTrial> {
        match &self.trial {
            TrialStatus::Now(now) => Some(now),
            _ => None,
        }
    }

    fn done(&mut self, came: Result<String, String>) {
        if std::mem::take(&mut self.ending) && came.is_ok() {
            // The result is shown here, and need not be shown again by the next state.
            self.trial = TrialStatus::None;
            if self.view == View::Trial {
                self.view = View::Node;
            }
        }
        self.message = Some(match came {
            Ok(what) => (Tone::Good, what),
            Err(why) => (Tone::Error, why),
        });
    }

    /// Follows a trial, which may be that of another console, and shows how it ended.
    fn tried(&mut self, standing: TrialStatus) {
        let before = std::mem::replace(&mut self.trial, standing);
        if self.ending {
            return;
        }
        if let (TrialStatus::Now(_), TrialStatus::Ended(ended)) = (before, &self.trial) {
            self.message = Some((Tone::Plain, ended.to_string()));
        }
        if self.view == View::Trial && matches!(self.trial, TrialStatus::Ended(_)) {
            self.view = View::Node;
        }
    }

    fn key(&mut self, key: Key) -> Option<NodePageEffect> {
        if key == Key::Control('l') {
            return Some(NodePageEffect::Redraw);
        }
        match &mut self.view {
            View::Node => self.node_key(key),
            View::Network(None) => {
                if key == Key::Escape {
                    self.view = View::Node;
                }
                None
            }
            View::Network(Some(page)) => match page.key(key) {
                NetworkStep::Stay => None,
                NetworkStep::Leave => {
                    self.view = View::Node;
                    None
                }
                NetworkStep::Propose(networks) => Some(NodePageEffect::Propose(networks)),
                NetworkStep::Try(networks, accepted) => {
                    page.message = Some((Tone::Plain, "Beginning the trial.".to_owned()));
                    Some(NodePageEffect::Try(networks, accepted))
                }
            },
            View::Trial => self.trial_key(key),
            View::Bundle(_) => self.bundle_key(key),
            View::Confirm(power) => {
                let power = *power;
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

    fn node_key(&mut self, key: Key) -> Option<NodePageEffect> {
        if self.node.key(key) {
            return None;
        }
        match (key, self.administrator) {
            (Key::Function(5), _) => return Some(NodePageEffect::Look),
            (Key::Char('l' | 'L') | Key::Enter, false) => return Some(NodePageEffect::LogIn),
            (Key::Char('q' | 'Q') | Key::Control('c'), true) => return Some(NodePageEffect::Quit),
            (Key::Char('j' | 'J'), true) => return Some(self.read_logs()),
            (Key::Char('s' | 'S'), true) => return Some(self.look_for_sticks()),
            (Key::Char('n' | 'N'), true) if self.now().is_some() => self.view = View::Trial,
            (Key::Char('n' | 'N'), true) => {
                self.view = View::Network(None);
                return Some(NodePageEffect::Network);
            }
            (Key::Char('r' | 'R'), true) => self.view = View::Confirm(Power::Restart),
            (Key::Char('p' | 'P'), true) => self.view = View::Confirm(Power::Off),
            // The user has read the message.
            _ => self.message = None,
        }
        None
    }

    fn trial_key(&mut self, key: Key) -> Option<NodePageEffect> {
        let running = self.now().is_some_and(|now| now.state == Stage::Running);
        match key {
            Key::Char('b' | 'B') => self.view = View::Node,
            _ if self.ending => {}
            Key::Char('k' | 'K') if running => return Some(self.act(Action::Confirm)),
            Key::Char('k' | 'K') => {
                let text = "The new network is still being set up: wait a moment.";
                self.message = Some((Tone::Plain, text.to_owned()));
            }
            Key::Escape => return Some(self.act(Action::Revert)),
            _ => self.message = None,
        }
        None
    }

    fn read_logs(&mut self) -> NodePageEffect {
        self.view = View::Logs(None);
        self.logs = Scroll::at_end();
        NodePageEffect::Logs
    }

    fn act(&mut self, action: Action) -> NodePageEffect {
        let begun = match &action {
            Action::Power(Power::Restart) => "The machine restarts.",
            Action::Power(Power::Off) => "The machine is powered off.",
            Action::Bundle(_) => "Collecting the support bundle; this can take a minute.",
            Action::Confirm => "Keeping the new network.",
            Action::Revert => "Bringing the old network back.",
        };
        self.ending = self.ending || matches!(action, Action::Confirm | Action::Revert);
        self.message = Some((Tone::Plain, begun.to_owned()));
        NodePageEffect::Act(action)
    }
}
