//! Inputs to the next state and to effects; pure.

use super::look::BUNDLES;
use super::network::{self, NetworkStep};
use super::{NodePageEnd, NodePageFacts, NodePageInput, NodeWork, Power};
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form};
use crate::toolkit::page::{KeyTable, Tone};
use crate::toolkit::text::Scroll;
use install::usb_stick::{StickSurvey, StickVolume};
use node::network_trial::{CurrentTrial, TrialState as Stage, TrialStatus};

#[derive(Clone, Debug, PartialEq)]
pub enum NodeView {
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAction {
    LogIn,
    Journal,
    Bundle,
    Network,
    Power(Power),
    Look,
    Quit,
}

pub const LOCKED: KeyTable<NodeAction> =
    KeyTable(&[("L", "log in", NodeAction::LogIn), ("F5", "look again", NodeAction::Look)]);
pub const UNLOCKED: KeyTable<NodeAction> = KeyTable(&[
    ("J", "journal", NodeAction::Journal),
    ("S", "bundle", NodeAction::Bundle),
    ("N", "network", NodeAction::Network),
    ("R", "restart", NodeAction::Power(Power::Restart)),
    ("P", "power off", NodeAction::Power(Power::Off)),
    ("F5", "look", NodeAction::Look),
    ("Q", "quit", NodeAction::Quit),
]);

/// The consequence of an input outside of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum NodePageEffect {
    Work(NodeWork),
    End(NodePageEnd),
}

impl From<NodeWork> for NodePageEffect {
    fn from(work: NodeWork) -> Self {
        Self::Work(work)
    }
}

#[derive(Clone, Debug)]
pub struct NodePage {
    /// Whether the user has logged in.
    pub administrator: bool,
    pub view: NodeView,
    pub facts: Option<NodePageFacts>,
    /// The error of the last observation.
    pub trouble: Option<String>,
    pub trial: TrialStatus,
    /// Whether the trial is being confirmed or reverted.
    ending: bool,
    /// The result of the last action.
    pub message: Option<(Tone, String)>,
    pub node: Scroll,
    pub logs: Scroll,
}

impl NodePage {
    #[must_use]
    pub fn new(administrator: bool) -> Self {
        Self {
            administrator,
            view: NodeView::Node,
            facts: None,
            trouble: None,
            trial: TrialStatus::None,
            ending: false,
            message: None,
            node: Scroll::default(),
            logs: Scroll::at_end(),
        }
    }

    /// Takes an input.
    pub fn take(&mut self, input: NodePageInput) -> Option<NodePageEffect> {
        match input {
            NodePageInput::Key(key) => return self.key(key),
            NodePageInput::Seen(Ok(facts)) => {
                self.facts = Some(*facts);
                self.trouble = None;
            }
            NodePageInput::Seen(Err(why)) => self.trouble = Some(why),
            NodePageInput::Logs(Ok(lines)) => {
                if let NodeView::Logs(shown) = &mut self.view {
                    *shown = Some(lines);
                }
            }
            NodePageInput::Done(result) => self.done(result),
            NodePageInput::Sticks(found) => return self.found_sticks(found),
            NodePageInput::Network(Ok(present)) => {
                if let NodeView::Network(page @ None) = &mut self.view {
                    *page = Some(Box::new(network::NetworkPage::new(*present)));
                }
            }
            NodePageInput::Logs(Err(why)) | NodePageInput::Network(Err(why)) => {
                self.view = NodeView::Node;
                self.message = Some((Tone::Error, why));
            }
            NodePageInput::Proposed(proposal) => {
                if let NodeView::Network(Some(page)) = &mut self.view {
                    page.proposed(proposal.map(|proposal| *proposal));
                }
            }
            NodePageInput::Began(Ok(())) => (self.view, self.message) = (NodeView::Trial, None),
            NodePageInput::Began(Err(why)) => match &mut self.view {
                NodeView::Network(Some(page)) => page.message = Some((Tone::Error, why)),
                _ => self.message = Some((Tone::Error, why)),
            },
            NodePageInput::Trial(status) => self.follow_trial(status),
        }
        None
    }

    /// Asks where a bundle goes if there is a choice, or something to say about sticks.
    fn found_sticks(&mut self, found: Result<StickSurvey, String>) -> Option<NodePageEffect> {
        let NodeView::Bundle(places @ None) = &mut self.view else { return None };
        match found {
            Ok(survey) if survey != StickSurvey::default() => {
                *places = Some(Box::new(BundlePlaces::new(survey)));
                None
            }
            // A bundle on the node is better than none.
            _ => {
                self.view = NodeView::Node;
                Some(self.collect_bundle(None))
            }
        }
    }

    fn bundle_key(&mut self, key: Key) -> Option<NodePageEffect> {
        let NodeView::Bundle(places) = &mut self.view else { return None };
        match (key, places) {
            (Key::Escape, _) => self.view = NodeView::Node,
            (Key::Function(5), _) => return Some(self.look_for_sticks()),
            (_, Some(places)) => {
                if let Some(place) = places.form.decide(key) {
                    let volume = place.checked_sub(1).and_then(|at| places.volumes.get(at)).cloned();
                    self.view = NodeView::Node;
                    return Some(self.collect_bundle(volume));
                }
            }
            (_, None) => {}
        }
        None
    }

    fn look_for_sticks(&mut self) -> NodePageEffect {
        self.view = NodeView::Bundle(None);
        NodeWork::Sticks.into()
    }

    #[must_use]
    pub fn now(&self) -> Option<&CurrentTrial> {
        match &self.trial {
            TrialStatus::Now(now) => Some(now),
            _ => None,
        }
    }

    fn done(&mut self, result: Result<String, String>) {
        if std::mem::take(&mut self.ending) && result.is_ok() {
            // The result is shown here, and need not be shown again by the next state.
            self.trial = TrialStatus::None;
            if self.view == NodeView::Trial {
                self.view = NodeView::Node;
            }
        }
        self.message = Some(match result {
            Ok(what) => (Tone::Good, what),
            Err(why) => (Tone::Error, why),
        });
    }

    /// Follows a trial, which may be that of another console, and shows how it ended.
    fn follow_trial(&mut self, status: TrialStatus) {
        let before = std::mem::replace(&mut self.trial, status);
        if self.ending {
            return;
        }
        if let (TrialStatus::Now(_), TrialStatus::Ended(ended)) = (before, &self.trial) {
            self.message = Some((Tone::Plain, ended.to_string()));
        }
        if self.view == NodeView::Trial && matches!(self.trial, TrialStatus::Ended(_)) {
            self.view = NodeView::Node;
        }
    }

    fn key(&mut self, key: Key) -> Option<NodePageEffect> {
        if key == Key::Control('l') {
            return None;
        }
        match &mut self.view {
            NodeView::Node => self.node_key(key),
            NodeView::Network(None) => {
                if key == Key::Escape {
                    self.view = NodeView::Node;
                }
                None
            }
            NodeView::Network(Some(page)) => match page.key(key) {
                NetworkStep::Stay => None,
                NetworkStep::Leave => {
                    self.view = NodeView::Node;
                    None
                }
                NetworkStep::Propose(networks) => Some(NodeWork::Propose(networks).into()),
                NetworkStep::Try(networks, accepted) => {
                    page.message = Some((Tone::Plain, "Beginning the trial.".to_owned()));
                    Some(NodeWork::Try(networks, accepted).into())
                }
            },
            NodeView::Trial => self.trial_key(key),
            NodeView::Bundle(_) => self.bundle_key(key),
            NodeView::Confirm(power) => {
                let power = *power;
                self.view = NodeView::Node;
                let begun = match power {
                    Power::Restart => "The machine restarts.",
                    Power::Off => "The machine is powered off.",
                };
                matches!(key, Key::Char('y' | 'Y')).then(|| self.begin(NodeWork::Power(power), begun))
            }
            NodeView::Logs(_) if self.logs.key(key) => None,
            NodeView::Logs(_) => match key {
                Key::Escape | Key::Char('q' | 'Q') => {
                    self.view = NodeView::Node;
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
        let actions = if self.administrator { UNLOCKED } else { LOCKED };
        let action = match key {
            Key::Enter => actions.action(Key::Char('l')),
            Key::Control('c') => actions.action(Key::Char('q')),
            key => actions.action(key),
        };
        match action {
            Some(NodeAction::LogIn) => return Some(NodePageEffect::End(NodePageEnd::LogIn)),
            Some(NodeAction::Quit) => return Some(NodePageEffect::End(NodePageEnd::Quit)),
            Some(NodeAction::Look) => return Some(NodeWork::Look.into()),
            Some(NodeAction::Journal) => return Some(self.read_logs()),
            Some(NodeAction::Bundle) => return Some(self.look_for_sticks()),
            Some(NodeAction::Network) if self.now().is_some() => self.view = NodeView::Trial,
            Some(NodeAction::Network) => {
                self.view = NodeView::Network(None);
                return Some(NodeWork::Network.into());
            }
            Some(NodeAction::Power(power)) => self.view = NodeView::Confirm(power),
            // The user has read the message.
            None => self.message = None,
        }
        None
    }

    fn trial_key(&mut self, key: Key) -> Option<NodePageEffect> {
        let running = self.now().is_some_and(|now| now.state == Stage::Running);
        match key {
            Key::Char('b' | 'B') => self.view = NodeView::Node,
            _ if self.ending => {}
            Key::Char('k' | 'K') if running => {
                return Some(self.end_trial(NodeWork::Confirm, "Keeping the new network."));
            }
            Key::Char('k' | 'K') => {
                let text = "The new network is still being set up: wait a moment.";
                self.message = Some((Tone::Plain, text.to_owned()));
            }
            Key::Escape => {
                return Some(self.end_trial(NodeWork::Revert, "Bringing the old network back."));
            }
            _ => self.message = None,
        }
        None
    }

    fn read_logs(&mut self) -> NodePageEffect {
        self.view = NodeView::Logs(None);
        self.logs = Scroll::at_end();
        NodeWork::Logs.into()
    }

    fn collect_bundle(&mut self, volume: Option<StickVolume>) -> NodePageEffect {
        self.begin(NodeWork::Bundle(volume), "Collecting the support bundle; this can take a minute.")
    }

    /// Confirms or reverts the trial.
    fn end_trial(&mut self, work: NodeWork, message: &str) -> NodePageEffect {
        self.ending = true;
        self.begin(work, message)
    }

    fn begin(&mut self, work: NodeWork, message: &str) -> NodePageEffect {
        self.message = Some((Tone::Plain, message.to_owned()));
        work.into()
    }
}
