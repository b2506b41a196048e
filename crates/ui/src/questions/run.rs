//! Consoles, and threads for slow work.
//!
//! Every console has a thread that waits for its keys; every effect has one of its own; all of them send to the one loop here,
//! which alone draws. One console leads: keys of the others only count when they ask for the lead.

mod effects;
mod loop_console;
mod loop_event;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::state::{Conversation, ConversationEffect, ConversationInput, EffectOutcome};
use super::{ConversationEnd, ConversationFacts, InstallMachine, draw};
use crate::answers::Answers;
use crate::toolkit::{Console, Key, Screen};
use base::failure::{Class, Failure};
use loop_console::LoopConsole;
use loop_event::LoopEvent;

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
        let (mut taken, mut trouble) = (Vec::new(), None);
        for console in consoles {
            match LoopConsole::take(console, taken.len()) {
                Ok((console, listener)) => {
                    taken.push(console);
                    let (sender, over) = (sender.clone(), &over);
                    scope.spawn(move || listener.listen(&sender, over, machine));
                }
                // The kernel names serial lines that the machine does not have.
                Err(error) => trouble = Some(error),
            }
        }
        if taken.is_empty() {
            return Err(trouble.unwrap_or_else(|| consoles_gone().into()));
        }
        let (devices, watched) = (sender.clone(), &over);
        scope.spawn(move || {
            // The loop may have ended.
            let changed = || drop(devices.send(LoopEvent::Input(ConversationInput::DevicesChanged)));
            machine.watch(watched, &changed);
        });
        let mut console_loop = ConsoleLoop {
            consoles: taken,
            lead: None,
            state: Conversation::new(facts, answers),
            begun: Instant::now(),
            scope,
            sender,
            machine,
        };
        console_loop.state.begin().into_iter().for_each(|effect| console_loop.begin(effect));
        let end = console_loop.play(&receiver);
        over.store(true, Ordering::Relaxed);
        end
    })
}

struct ConsoleLoop<'scope, 'env> {
    /// Consoles by number.
    consoles: Vec<LoopConsole>,
    lead: Option<usize>,
    state: Conversation,
    begun: Instant,
    scope: &'scope Scope<'scope, 'env>,
    sender: Sender<LoopEvent>,
    machine: &'env dyn InstallMachine,
}

impl<'scope> ConsoleLoop<'scope, '_> {
    fn play(&mut self, receiver: &Receiver<LoopEvent>) -> Result<ConversationEnd> {
        loop {
            self.draw();
            let behind =
                self.consoles.iter_mut().any(|console| console.screen().is_some_and(Screen::is_behind));
            let first =
                match receiver.recv_timeout(if behind { SLOW_TERMINAL_INTERVAL } else { TICK_INTERVAL }) {
                    Ok(heard) => heard,
                    Err(RecvTimeoutError::Timeout) => LoopEvent::Input(ConversationInput::Tick),
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
        let several = self.consoles.iter().filter(|console| !console.is_gone()).count() > 1;
        let leader =
            self.lead.and_then(|lead| self.consoles.get(lead)).map(|console| console.name().to_owned());
        for (number, console) in self.consoles.iter_mut().enumerate() {
            let Some(screen) = console.screen() else { continue };
            let theme = screen.theme();
            let follows = several && self.lead.is_some_and(|lead| lead != number);
            let state = &mut self.state;
            let drawn = match leader.as_deref().filter(|_| follows) {
                Some(leader) => screen.draw(|frame| draw::follower(state, leader, frame, theme)),
                None => screen.draw(|frame| draw::state(state, frame, theme)),
            };
            if drawn.is_err() {
                console.lose();
            }
        }
    }

    fn hear(&mut self, heard: LoopEvent) -> Result<Option<ConversationEnd>> {
        let inputs = match heard {
            LoopEvent::Gone(number) => {
                self.lose(number)?;
                return Ok(None);
            }
            LoopEvent::Back(number, screen, came) => {
                match screen {
                    Some(screen) => self.consoles[number].come_back(*screen),
                    None => self.lose(number)?,
                }
                vec![ConversationInput::Ended(EffectOutcome::Returned(came))]
            }
            LoopEvent::Keys(number, keys) => self.lead_with(number, keys),
            LoopEvent::Input(input) => vec![input],
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
                    self.consoles.iter_mut().filter_map(LoopConsole::screen).for_each(Screen::forget);
                }
                key => inputs.push(ConversationInput::Key(key)),
            }
        }
        inputs
    }

    /// A console that is gone no longer leads, and with the last one everything ends.
    fn lose(&mut self, number: usize) -> Result<()> {
        self.consoles[number].lose();
        if self.lead == Some(number) {
            self.lead = None;
        }
        let nobody = self.consoles.iter().all(LoopConsole::is_gone);
        if nobody { Err(consoles_gone().into()) } else { Ok(()) }
    }

    /// Lends the console that leads to a shell.
    fn lend(&mut self) {
        let console = self.lead.and_then(|lead| self.consoles.get_mut(lead));
        let password = self.state.access.as_ref().map(|access| access.password.clone());
        if !console.zip(password).is_some_and(|(console, password)| console.lend(password)) {
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
                .for_each(|outcome| drop(sender.send(LoopEvent::Input(ConversationInput::Ended(outcome)))));
        });
    }
}

fn consoles_gone() -> Failure {
    Failure::new(Class::Cancelled, "the console is gone")
}
