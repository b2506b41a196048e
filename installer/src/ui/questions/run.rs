//! Consoles, and threads for slow work.
//!
//! Every console has a thread that waits for its keys; every effect has one of its own; all of them send to the one loop here,
//! which alone draws. One console leads: keys of the others only count when they ask for the lead.

mod effects;
mod heard;
mod seat;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::state::{Conversation, ConversationEffect, ConversationInput, EffectOutcome};
use super::{ConversationEnd, ConversationFacts, InstallMachine, draw};
use crate::ui::answers::Answers;
use crate::ui::toolkit::{Console, Key, Screen};
use base::failure::{Class, Failure};
use heard::Heard;
use seat::Seat;

/// The interval of drawing without news: clocks run.
const TICK_INTERVAL: Duration = Duration::from_millis(500);
/// The same while a slow terminal still takes a picture.
const SLOW_TERMINAL_INTERVAL: Duration = Duration::from_millis(50);

/// Asks, shows and installs until the user ends it; returns how it ended.
pub fn run(
    consoles: Vec<Console>,
    facts: ConversationFacts,
    answers: Answers,
    machine: &dyn InstallMachine,
) -> Result<ConversationEnd> {
    let (sender, receiver) = channel();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut seats, mut trouble) = (Vec::new(), None);
        for console in consoles {
            match Seat::take(console, seats.len()) {
                Ok((seat, listener)) => {
                    seats.push(seat);
                    let (sender, over) = (sender.clone(), &over);
                    scope.spawn(move || listener.listen(&sender, over, machine));
                }
                // The kernel names serial lines that the machine does not have.
                Err(error) => trouble = Some(error),
            }
        }
        if seats.is_empty() {
            return Err(trouble.unwrap_or_else(|| gone().into()));
        }
        let mut stage = Stage {
            seats,
            lead: None,
            state: Conversation::new(facts, answers),
            begun: Instant::now(),
            scope,
            sender,
            machine,
        };
        let end = stage.play(&receiver);
        over.store(true, Ordering::Relaxed);
        end
    })
}

struct Stage<'scope, 'env> {
    /// Consoles by number.
    seats: Vec<Seat>,
    lead: Option<usize>,
    state: Conversation,
    begun: Instant,
    scope: &'scope Scope<'scope, 'env>,
    sender: Sender<Heard>,
    machine: &'env dyn InstallMachine,
}

impl<'scope> Stage<'scope, '_> {
    fn play(&mut self, receiver: &Receiver<Heard>) -> Result<ConversationEnd> {
        loop {
            self.draw();
            let behind = self.seats.iter_mut().any(|seat| seat.screen().is_some_and(Screen::is_behind));
            let first =
                match receiver.recv_timeout(if behind { SLOW_TERMINAL_INTERVAL } else { TICK_INTERVAL }) {
                    Ok(heard) => heard,
                    Err(RecvTimeoutError::Timeout) => Heard::Input(ConversationInput::Tick),
                    Err(RecvTimeoutError::Disconnected) => return Ok(ConversationEnd::Quit),
                };
            // All news that has arrived makes one picture.
            for heard in std::iter::once(first).chain(receiver.try_iter().take(256)) {
                if let Some(end) = self.hear(heard)? {
                    return Ok(end);
                }
            }
        }
    }

    fn draw(&mut self) {
        let several = self.seats.iter().filter(|seat| !seat.is_gone()).count() > 1;
        let leader = self.lead.and_then(|lead| self.seats.get(lead)).map(|seat| seat.name().to_owned());
        for (number, seat) in self.seats.iter_mut().enumerate() {
            let Some(screen) = seat.screen() else { continue };
            let theme = screen.theme();
            let follows = several && self.lead.is_some_and(|lead| lead != number);
            let state = &mut self.state;
            let drawn = match leader.as_deref().filter(|_| follows) {
                Some(leader) => screen.draw(|frame| draw::follower(state, leader, frame, theme)),
                None => screen.draw(|frame| draw::state(state, frame, theme)),
            };
            if drawn.is_err() {
                seat.lose();
            }
        }
    }

    fn hear(&mut self, heard: Heard) -> Result<Option<ConversationEnd>> {
        let inputs = match heard {
            Heard::Gone(number) => {
                self.lose(number)?;
                return Ok(None);
            }
            Heard::Back(number, screen, came) => {
                match screen {
                    Some(screen) => self.seats[number].come_back(*screen),
                    None => self.lose(number)?,
                }
                vec![ConversationInput::Ended(EffectOutcome::Returned(came))]
            }
            Heard::Keys(number, keys) => self.lead_with(number, keys),
            Heard::Input(input) => vec![input],
        };
        for input in inputs {
            for effect in self.state.step(input, self.begun.elapsed()) {
                match effect {
                    ConversationEffect::End(end @ ConversationEnd::Quit) => {
                        self.machine.stop();
                        return Ok(Some(end));
                    }
                    ConversationEffect::Shell => self.lend(),
                    effect => self.begin(effect),
                }
            }
        }
        Ok(None)
    }

    /// The keys that count: those of the console that leads, which is the first one that is used.
    fn lead_with(&mut self, number: usize, keys: Vec<Key>) -> Vec<ConversationInput> {
        let leads = *self.lead.get_or_insert(number) == number;
        let mut keys = keys.into_iter();
        if !leads {
            if !keys.any(|key| key == Key::Enter) {
                return Vec::new();
            }
            self.lead = Some(number);
        }
        let mut inputs = Vec::new();
        for key in keys {
            match key {
                Key::Control('l') => {
                    self.seats.iter_mut().filter_map(Seat::screen).for_each(Screen::forget);
                }
                key => inputs.push(ConversationInput::Key(key)),
            }
        }
        inputs
    }

    /// A console that is gone no longer leads, and with the last one everything ends.
    fn lose(&mut self, number: usize) -> Result<()> {
        self.seats[number].lose();
        if self.lead == Some(number) {
            self.lead = None;
        }
        let nobody = self.seats.iter().all(Seat::is_gone);
        if nobody { Err(gone().into()) } else { Ok(()) }
    }

    /// Lends the console that leads to a shell.
    fn lend(&mut self) {
        let seat = self.lead.and_then(|lead| self.seats.get_mut(lead));
        let password = self.state.access.as_ref().map(|access| access.password.clone());
        if !seat.zip(password).is_some_and(|(seat, password)| seat.lend(password)) {
            self.state.step(ConversationInput::Ended(EffectOutcome::Returned(Ok(()))), self.begun.elapsed());
        }
    }

    /// Runs an effect on a thread of its own.
    fn begin(&self, effect: ConversationEffect) {
        let (machine, sender) = (self.machine, self.sender.clone());
        self.scope.spawn(move || {
            let outcome = effects::carry_out(machine, effect, &sender);
            // The loop may have ended.
            outcome
                .into_iter()
                .for_each(|outcome| drop(sender.send(Heard::Input(ConversationInput::Ended(outcome)))));
        });
    }
}

fn gone() -> Failure {
    Failure::new(Class::Cancelled, "the console is gone")
}
