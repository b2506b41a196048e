//! Consoles, and threads for slow work.
//!
//! Every effect has a thread of its own, and sends its outcome to the one loop, which alone draws.

mod effects;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

use anyhow::Result;
use ratatui::Frame;

use super::state::{Conversation, ConversationEffect, ConversationInput, EffectOutcome};
use super::{ConversationEnd, ConversationFacts, InstallMachine, ShownTrouble, draw};
use crate::answers::Answers;
use crate::toolkit::page_loop::{
    self, EventSender, InteractivePage, LentConsole, PageInput, PageStep, PictureContext,
};
use crate::toolkit::{Console, Key, Theme};

/// Asks, shows and installs until the user ends it; returns how it ended.
pub fn run(
    consoles: Vec<Console>,
    facts: ConversationFacts,
    answers: Answers,
    machine: &dyn InstallMachine,
) -> Result<ConversationEnd> {
    let (sender, events) = page_loop::event_channel()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (news, watched) = (sender.clone(), &over);
        scope.spawn(move || machine.watch(watched, &|what| news.send(ConversationInput::News(what))));
        let mut page = ConversationPage { state: Conversation::new(facts, answers), scope, sender, machine };
        page.state.begin().into_iter().for_each(|effect| page.begin(effect));
        let end = page_loop::run(consoles, &mut page, &events, None);
        over.store(true, Ordering::Relaxed);
        Ok(end?.unwrap_or(ConversationEnd::Quit))
    })
}

struct ConversationPage<'scope, 'env> {
    state: Conversation,
    scope: &'scope Scope<'scope, 'env>,
    sender: EventSender<ConversationInput>,
    machine: &'env dyn InstallMachine,
}

impl InteractivePage for ConversationPage<'_, '_> {
    type Event = ConversationInput;
    type End = ConversationEnd;
    /// Clocks run on the page.
    const TICK_INTERVAL: Duration = Duration::from_millis(500);

    fn draw(&mut self, context: &PictureContext<'_>, frame: &mut Frame<'_>, theme: Theme) {
        match context.leader {
            Some(leader) => draw::follower(&self.state, leader, frame, theme),
            None => draw::state(&mut self.state, frame, theme),
        }
    }

    fn take(&mut self, input: PageInput<ConversationInput>, now: Duration) -> PageStep<ConversationEnd> {
        let input = match input {
            PageInput::Tick => ConversationInput::Tick,
            // It only draws the page again, and does not stop a countdown.
            PageInput::Key(Key::Control('l')) => return PageStep::Stay,
            PageInput::Key(key) => ConversationInput::Key(key),
            PageInput::Event(event) => event,
        };
        let mut step = match input {
            ConversationInput::Ended(EffectOutcome::Returned(_)) => PageStep::TakeBack,
            _ => PageStep::Draw,
        };
        for effect in self.state.step(input, now) {
            match effect {
                ConversationEffect::End(end @ ConversationEnd::Quit) => {
                    self.machine.stop();
                    return PageStep::End(end);
                }
                ConversationEffect::Shell => step = PageStep::Lend,
                effect => self.begin(effect),
            }
        }
        step
    }

    fn lend(&mut self, console: Option<LentConsole>) {
        let password = self.state.access.as_ref().map(|access| access.password.clone());
        let (machine, sender) = (self.machine, self.sender.clone());
        self.scope.spawn(move || {
            let lent = console.zip(password);
            let ended = lent.map_or(Ok(()), |(console, password)| {
                machine.shell(console.terminal, console.term, &password)
            });
            let ended = ended.map_err(|error| ShownTrouble::of(&error, None));
            sender.send(ConversationInput::Ended(EffectOutcome::Returned(ended)));
        });
    }
}

impl ConversationPage<'_, '_> {
    fn begin(&self, effect: ConversationEffect) {
        let (machine, sender) = (self.machine, self.sender.clone());
        self.scope.spawn(move || {
            if let Some(outcome) = effects::carry_out(machine, effect, &sender) {
                sender.send(ConversationInput::Ended(outcome));
            }
        });
    }
}
