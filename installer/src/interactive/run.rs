//! Consoles, and threads for what takes time.
//!
//! Every console has a thread that waits for its keys; every effect has one of its own; all of them tell the one loop
//! here, which alone draws. One console leads: keys of the others are heard only when they ask for the lead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::answers::Answers;
use super::state::{Effect, Input, Outcome, Review, State};
use super::{End, Facts, Machine, Trouble, draw};
use crate::config::InstallConfig;
use crate::plan::{Losses, Plan};
use crate::progress::{Event, Progress, Sink};
use crate::terminal::{Console, Key, Keyboard, Screen};

/// How often the picture is made anew where nothing happens: clocks run.
const TICK: Duration = Duration::from_millis(500);
/// How soon a thread that waits for keys sees that it is over.
const PATIENCE: Duration = Duration::from_millis(200);

/// What the loop hears.
enum Heard {
    /// Keys of the console of this number.
    Keys(usize, Vec<Key>),
    /// A console is gone.
    Gone(usize),
    /// Everything else.
    Input(Input),
}

/// Asks, shows and installs until somebody ends it; returns how it ended, and the configuration that was installed.
pub fn run(consoles: Vec<Console>, facts: Facts, answers: Answers, machine: &dyn Machine) -> Result<End> {
    let mut screens = Vec::new();
    let mut keyboards = Vec::new();
    let mut trouble = None;
    for console in consoles {
        let name = console.name().display().to_string();
        match console.take() {
            Ok((screen, keyboard)) => {
                screens.push(Some((name, screen)));
                keyboards.push(keyboard);
            }
            // The kernel names serial lines that the machine does not have.
            Err(error) => trouble = Some(error),
        }
    }
    if screens.is_empty() {
        return Err(trouble.unwrap_or_else(|| gone().into()));
    }
    let (sender, receiver) = channel();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, keyboard) in keyboards.into_iter().enumerate() {
            let (sender, over) = (sender.clone(), &over);
            scope.spawn(move || listen(number, keyboard, &sender, over));
        }
        let mut stage = Stage {
            screens,
            lead: None,
            state: State::new(facts, answers),
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

/// Tells of the keys of one console.
fn listen(number: usize, mut keyboard: Keyboard, sender: &Sender<Heard>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let heard = match keyboard.wait(PATIENCE) {
            Ok(keys) if keys.is_empty() => continue,
            Ok(keys) => Heard::Keys(number, keys),
            Err(_) => Heard::Gone(number),
        };
        let gone = matches!(heard, Heard::Gone(_));
        if sender.send(heard).is_err() || gone {
            return;
        }
    }
}

struct Stage<'scope, 'env> {
    /// Consoles by number; none in place of one that is gone.
    screens: Vec<Option<(String, Screen)>>,
    lead: Option<usize>,
    state: State,
    begun: Instant,
    scope: &'scope Scope<'scope, 'env>,
    sender: Sender<Heard>,
    machine: &'env dyn Machine,
}

impl<'scope> Stage<'scope, '_> {
    fn play(&mut self, receiver: &Receiver<Heard>) -> Result<End> {
        loop {
            self.draw();
            let first = match receiver.recv_timeout(TICK) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) => Heard::Input(Input::Tick),
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Quit),
            };
            // What has come in the meantime makes one picture.
            for heard in std::iter::once(first).chain(receiver.try_iter().take(256)) {
                if let Some(end) = self.hear(heard)? {
                    return Ok(end);
                }
            }
        }
    }

    fn draw(&mut self) {
        let several = self.screens.iter().flatten().count() > 1;
        let leader =
            self.lead.and_then(|lead| self.screens.get(lead)?.as_ref()).map(|(name, _)| name.clone());
        for (number, slot) in self.screens.iter_mut().enumerate() {
            let Some((_, screen)) = slot else { continue };
            let theme = screen.theme();
            let follows = several && self.lead.is_some_and(|lead| lead != number);
            let state = &mut self.state;
            let drawn = match leader.as_deref().filter(|_| follows) {
                Some(leader) => screen.draw(|frame| draw::follower(state, leader, frame, theme)),
                None => screen.draw(|frame| draw::state(state, frame, theme)),
            };
            if drawn.is_err() {
                *slot = None;
            }
        }
    }

    fn hear(&mut self, heard: Heard) -> Result<Option<End>> {
        let inputs = match heard {
            Heard::Gone(number) => {
                self.screens[number] = None;
                if self.lead == Some(number) {
                    self.lead = None;
                }
                let nobody = self.screens.iter().all(Option::is_none);
                return if nobody { Err(gone().into()) } else { Ok(None) };
            }
            Heard::Keys(number, keys) => self.lead_with(number, keys),
            Heard::Input(input) => vec![input],
        };
        for input in inputs {
            for effect in self.state.step(input, self.begun.elapsed()) {
                if let Effect::End(end @ End::Quit) = effect {
                    self.machine.stop();
                    return Ok(Some(end));
                }
                self.begin(effect);
            }
        }
        Ok(None)
    }

    /// The keys that count: those of the console that leads, which is the first one that somebody uses.
    fn lead_with(&mut self, number: usize, keys: Vec<Key>) -> Vec<Input> {
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
                    self.screens.iter_mut().flatten().for_each(|(_, screen)| drop(screen.forget()));
                }
                key => inputs.push(Input::Key(key)),
            }
        }
        inputs
    }

    /// Does what the state asks for, on a thread of its own.
    fn begin(&self, effect: Effect) {
        let (machine, sender) = (self.machine, self.sender.clone());
        self.scope.spawn(move || {
            let outcome = carry_out(machine, effect, &sender);
            // The loop may be over.
            outcome.into_iter().for_each(|outcome| drop(sender.send(Heard::Input(Input::Ended(outcome)))));
        });
    }
}

fn carry_out(machine: &dyn Machine, effect: Effect, sender: &Sender<Heard>) -> Option<Outcome> {
    let plain = |error: anyhow::Error| Trouble::of(&error, None);
    let about = |config: &InstallConfig| {
        let config = config.clone();
        move |error: anyhow::Error| Trouble::of(&error, Some(&config))
    };
    Some(match effect {
        Effect::LookAgain => Outcome::Inventory(machine.inventory().map_err(plain)),
        Effect::Fetch(url) => Outcome::Fetched(machine.fetch(&url).map(Box::new).map_err(plain)),
        Effect::Try(screen, config) => {
            let tried = match screen {
                super::screens::Screen::Network => machine.try_network(&config),
                _ => machine.try_cluster(&config),
            };
            Outcome::Tried(screen, tried.map_err(about(&config)))
        }
        Effect::Plan(config) => {
            Outcome::Planned(machine.plan(&config).map(|plan| shown(&plan)).map_err(about(&config)))
        }
        Effect::Install(config) => {
            let progress = Progress::new(vec![Box::new(Teller(sender.clone()))]);
            let installed = machine.install(&config, &progress).and_then(|()| machine.record(&config));
            Outcome::Installed(installed.map_err(about(&config)))
        }
        Effect::End(how) => Outcome::NotEnded(machine.end(how).err().map(plain)?),
    })
}

/// A plan as it is reviewed.
fn shown(plan: &Plan) -> Review {
    Review {
        plan: Some(plan.to_string()),
        erased: Losses(plan).to_string().lines().map(str::to_owned).collect(),
        steps: plan.steps.iter().map(|step| step.id().to_owned()).collect(),
        ..Review::default()
    }
}

fn gone() -> crate::failure::Failure {
    crate::failure::Failure::new(crate::failure::Class::Cancelled, "the console is gone")
}

/// Tells the loop of the events of an install.
struct Teller(Sender<Heard>);

impl Sink for Teller {
    fn show(&mut self, event: &Event) {
        let _ = self.0.send(Heard::Input(Input::Event(event.clone())));
    }
}
