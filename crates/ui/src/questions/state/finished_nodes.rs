//! A finished node on a disk of the install: it stays and is started, unless the user decides otherwise.
//!
//! An automatic install that leaves the node as it is begins here, with a countdown; the questions come here after the plan.

use std::time::Duration;

use super::types::{COUNTDOWN, FinishedNodes};
use super::{Conversation, ConversationEffect, ConversationPlace, Review};
use crate::questions::screens::QuestionScreen;
use crate::questions::{ConversationEnd, ShownNodes};
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form};
use crate::toolkit::text::Scroll;

/// After this long without a key the countdown begins again: the key may have been noise on a serial line, and an unattended node
/// has to start.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeChoice {
    Start,
    Disks,
    Over,
    Change,
    PowerOff,
}

impl Conversation {
    /// The nodes that an automatic install leaves as they are, with the countdown.
    pub(super) fn leave_as_it_is(&mut self, left: ShownNodes) {
        self.form = Form::default();
        self.place = ConversationPlace::FinishedNodes(FinishedNodes {
            nodes: left.nodes,
            why: Some(left.why),
            left: Some(COUNTDOWN.as_secs()),
            ends: Some(COUNTDOWN),
            tried: false,
            review: None,
            scroll: Scroll::default(),
        });
    }

    /// The nodes that a plan overwrites.
    pub(super) fn ask_about(&mut self, review: Review) {
        self.show_finished_nodes(FinishedNodes {
            nodes: review.present.clone(),
            why: None,
            left: None,
            ends: None,
            tried: false,
            review: Some(Box::new(review)),
            scroll: Scroll::default(),
        });
    }

    pub(super) fn show_finished_nodes(&mut self, finished: FinishedNodes) {
        let options = self.choices(&finished).into_iter().map(|(_, option)| option).collect();
        self.form = Form::new(vec![Field::choice("next", "What now?", options, Some(0))]);
        self.place = ConversationPlace::FinishedNodes(FinishedNodes { left: None, ends: None, ..finished });
    }

    /// Counts down. A node that did not start is not tried again, so that no machine restarts forever.
    pub(super) fn count(&mut self, now: Duration) -> Vec<ConversationEffect> {
        let busy = self.busy.is_some();
        let ConversationPlace::FinishedNodes(finished) = &mut self.place else { return Vec::new() };
        if busy || finished.why.is_none() || finished.tried {
            return Vec::new();
        }
        let rest = finished.ends.get_or_insert(now + IDLE_TIMEOUT + COUNTDOWN).saturating_sub(now);
        if rest > COUNTDOWN {
            return Vec::new();
        }
        // The last second is shown too.
        finished.left = Some((rest + Duration::from_millis(999)).as_secs());
        if rest.is_zero() { self.start_node() } else { Vec::new() }
    }

    /// A key during the countdown only ends that. Returns whether there was one.
    pub(super) fn stop_counting(&mut self) -> bool {
        match &self.place {
            ConversationPlace::FinishedNodes(finished) if finished.left.is_some() && self.busy.is_none() => {
                let finished = finished.clone();
                self.show_finished_nodes(finished);
                true
            }
            _ => false,
        }
    }

    fn start_node(&mut self) -> Vec<ConversationEffect> {
        if let ConversationPlace::FinishedNodes(finished) = &self.place {
            let finished = FinishedNodes { tried: true, ..finished.clone() };
            self.show_finished_nodes(finished);
        }
        if self.facts.can_quit || self.facts.rehearsal {
            return self.wait("Ending", ConversationEffect::End(ConversationEnd::Quit));
        }
        self.wait("Starting the node from its disk", ConversationEffect::StartNode)
    }

    pub(super) fn finished_nodes_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        let ConversationPlace::FinishedNodes(finished) = &mut self.place else { return Vec::new() };
        finished.ends = None;
        match key {
            Key::Escape if finished.review.is_some() => {
                self.ask(QuestionScreen::Welcome);
                return Vec::new();
            }
            Key::PageUp | Key::PageDown => {
                finished.scroll.key(key);
                return Vec::new();
            }
            _ => {}
        }
        let finished = finished.clone();
        let chosen = self.form.decide(key);
        let next = chosen.and_then(|at| self.choices(&finished).get(at).map(|(next, _)| *next));
        self.message = if next.is_some() { None } else { self.message.take() };
        match next {
            Some(NodeChoice::Start) => return self.start_node(),
            Some(NodeChoice::Disks) => {
                self.place = ConversationPlace::Disks(
                    Scroll::default(),
                    Box::new(ConversationPlace::FinishedNodes(finished)),
                )
            }
            Some(NodeChoice::Over) => {
                self.accepted = finished.nodes;
                match finished.review {
                    Some(review) => self.place = ConversationPlace::Review(*review),
                    None => return self.review(),
                }
            }
            Some(NodeChoice::Change) => self.ask(QuestionScreen::Welcome),
            Some(NodeChoice::PowerOff) => {
                return self.wait("Ending", ConversationEffect::End(ConversationEnd::PowerOff));
            }
            None => {}
        }
        Vec::new()
    }

    fn choices(&self, finished: &FinishedNodes) -> Vec<(NodeChoice, Choice)> {
        let quits = self.facts.can_quit || self.facts.rehearsal;
        let start = if quits { "Leave it as it is, and end" } else { "Start the node from its disk" };
        let over = Choice::new("Install over it").with("The plan comes first, and then the last question.");
        let all = [
            (NodeChoice::Start, Choice::new(start).with("Nothing is written.")),
            (NodeChoice::Disks, Choice::new("Look at the disks of this machine")),
            (NodeChoice::Over, over),
            (NodeChoice::Change, Choice::new("Change the answers")),
            (NodeChoice::PowerOff, Choice::new("Power off")),
        ];
        let wanted = |next: NodeChoice| match next {
            NodeChoice::Change => finished.review.is_some(),
            NodeChoice::PowerOff => !quits,
            _ => true,
        };
        all.into_iter().filter(|(next, _)| wanted(*next)).collect()
    }
}
