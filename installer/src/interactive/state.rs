//! Where the conversation is, and what keys and events do to it. Nothing here has an effect: those are returned.

use std::collections::BTreeSet;
use std::time::Duration;

use super::answers::{Answers, is_mistake};
use super::screens::{REPETITION, Screen, order, suggest};
use super::work::Work;
use super::{End, Facts, Trouble};
use crate::config::sources::Combined;
use crate::config::{InstallConfig, Mode};
use crate::inventory::Inventory;
use crate::plan::choose_disk;
use crate::progress::Event;
use crate::terminal::Key;
use crate::terminal::form::{Choice, Did, Field, Form, Kind};
use crate::terminal::page::Tone;
use crate::terminal::text::Scroll;

/// What is on the screen.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Place {
    /// Questions.
    Asking(Screen),
    /// Where a configuration is to be had.
    Load,
    /// The whole plan, or what is still missing.
    Review(Review),
    /// The last word before disks are erased.
    Confirm(Review),
    /// The install goes on.
    Working {
        /// Whether the log is shown in place of the steps.
        log: Option<Scroll>,
    },
    /// It failed.
    Failed(Trouble, Scroll),
    /// It is done.
    Done {
        /// Where the answers are recorded.
        record: Option<String>,
    },
    /// How to end, and where to go back to.
    Leave(Box<Place>),
}

/// The plan as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// The plan as text; none while it is made, or cannot be.
    pub plan: Option<String>,
    /// What will be erased, a line a disk.
    pub erased: Vec<String>,
    /// Ids of the steps.
    pub steps: Vec<String>,
    /// Mistakes, with the screen where they are put right.
    pub mistakes: Vec<(Option<Screen>, String)>,
    /// How far the text is scrolled.
    pub scroll: Scroll,
}

/// What happens to the conversation.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Input {
    /// Somebody presses a key.
    Key(Key),
    /// Time passes.
    Tick,
    /// The install tells of itself.
    Event(Event),
    /// An effect has come to its end.
    Ended(Outcome),
}

/// What came of an effect.
#[derive(Debug)]
pub enum Outcome {
    /// Of [`Effect::LookAgain`].
    Inventory(Result<Inventory, Trouble>),
    /// Of [`Effect::Fetch`].
    Fetched(Result<Box<Combined>, Trouble>),
    /// Of [`Effect::Try`].
    Tried(Screen, Result<String, Trouble>),
    /// Of [`Effect::Plan`].
    Planned(Result<Review, Trouble>),
    /// Of [`Effect::Install`]; where the answers are recorded.
    Installed(Result<Option<String>, Trouble>),
    /// Of [`Effect::End`], which should not come back.
    NotEnded(Trouble),
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Look at disks and network cards again.
    LookAgain,
    /// Fetch a configuration.
    Fetch(String),
    /// Try what has been answered on a screen.
    Try(Screen, Box<InstallConfig>),
    /// Make the plan.
    Plan(Box<InstallConfig>),
    /// Install.
    Install(Box<InstallConfig>),
    /// End.
    End(End),
}

/// The conversation.
#[derive(Clone, Debug)]
pub struct State {
    /// What is known of the machine.
    pub facts: Facts,
    /// What has been answered.
    pub answers: Answers,
    /// What is on the screen.
    pub place: Place,
    /// The fields of the screen.
    pub form: Form,
    /// Something to say.
    pub message: Option<(Tone, String)>,
    /// What is waited for.
    pub busy: Option<String>,
    /// The install under way.
    pub work: Work,
    visited: BTreeSet<String>,
    /// The answers that were tried last, and with what success.
    tried: Option<(Screen, Box<InstallConfig>, bool)>,
    config: Option<Box<InstallConfig>>,
    review: Review,
    /// Why the last install failed, until it is tried again.
    failure: Option<Trouble>,
}

impl State {
    /// The first screen.
    #[must_use]
    pub fn new(facts: Facts, answers: Answers) -> Self {
        let mut state = Self {
            facts,
            answers,
            place: Place::Asking(Screen::Welcome),
            form: Form::default(),
            message: None,
            busy: None,
            work: Work::default(),
            visited: BTreeSet::new(),
            tried: None,
            config: None,
            review: Review::default(),
            failure: None,
        };
        state.ask(Screen::Welcome);
        state
    }

    /// The mode that has been answered.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.answers.understood().install.mode
    }

    /// The next state.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Effect> {
        match input {
            Input::Tick => {
                self.work.tick(now);
                Vec::new()
            }
            Input::Event(event) => {
                self.work.event(&event, now);
                Vec::new()
            }
            Input::Ended(outcome) => self.ended(outcome),
            Input::Key(key) => self.key(key, now),
        }
    }

    fn key(&mut self, key: Key, now: Duration) -> Vec<Effect> {
        let key = function(key);
        match (&mut self.place, key) {
            (Place::Leave(_), _) => return self.leave_key(key),
            (_, Key::Function(10)) => {
                let place = std::mem::replace(&mut self.place, Place::Load);
                self.place = Place::Leave(Box::new(place));
                self.form = Form::new(vec![leaving(&self.facts, self.is_working())]);
                return Vec::new();
            }
            _ if self.busy.is_some() => return Vec::new(),
            (Place::Asking(screen), _) => {
                let screen = *screen;
                return self.asking_key(screen, key);
            }
            (Place::Load, _) => return self.load_key(key),
            (Place::Review(_), _) => return self.review_key(key),
            (Place::Confirm(_), _) => return self.confirm_key(key, now),
            (Place::Working { .. }, Key::Escape | Key::Function(7)) if self.failure.is_some() => {
                self.failure.clone().into_iter().for_each(|trouble| self.fail(trouble));
            }
            (Place::Working { log }, Key::Function(7)) => {
                *log = if log.is_some() { None } else { Some(Scroll::at_end()) };
            }
            (Place::Working { log: Some(scroll) }, _) => {
                scroll.key(key);
            }
            (Place::Working { .. }, _) => {}
            (Place::Failed(..), _) => return self.failed_key(key, now),
            (Place::Done { .. }, _) => return self.done_key(key),
        }
        Vec::new()
    }

    /// Whether disks are being written.
    #[must_use]
    pub fn is_working(&self) -> bool {
        let working = |place: &Place| matches!(place, Place::Working { .. });
        working(&self.place) || matches!(&self.place, Place::Leave(back) if working(back))
    }

    // The screens with questions.

    /// Shows a screen.
    fn ask(&mut self, screen: Screen) {
        suggest(screen, &mut self.answers, &self.facts);
        self.place = Place::Asking(screen);
        self.form = Form::new(screen.fields(&self.answers, &self.facts));
        self.say_mistakes(screen);
    }

    /// Takes over what stands in a field, and makes the fields anew, which may be others now.
    fn take(&mut self, screen: Screen, field: usize) {
        let Some(field) = self.form.fields.get(field).cloned() else { return };
        let repeated = self.form.field(REPETITION).cloned();
        if field.id != REPETITION {
            screen.take(&field, &mut self.answers, &self.facts);
        }
        self.visited.insert(field.id);
        let mut fields = screen.fields(&self.answers, &self.facts);
        // What is typed a second time is no answer, and stays what it is.
        if let (Some(new), Some(old)) = (fields.iter_mut().find(|field| field.id == REPETITION), repeated) {
            new.kind = old.kind;
        }
        self.form.replace(fields);
        self.say_mistakes(screen);
    }

    /// Says at each field that has been left what is wrong with it.
    fn say_mistakes(&mut self, screen: Screen) {
        let checked = self.answers.check(false);
        for field in &mut self.form.fields {
            if field.id.is_empty() || !self.visited.contains(&field.id) {
                continue;
            }
            for said in checked.about(&field.id).filter(|said| said.code != "clear-text-password") {
                let said_too = said.suggestion.as_ref().map(|better| format!("; try {better}"));
                let text = format!("{}{}", said.message, said_too.unwrap_or_default());
                let list = if is_mistake(said) { &mut field.errors } else { &mut field.warnings };
                list.push(text);
            }
        }
        if screen == Screen::Access {
            self.compare_passwords();
        }
    }

    fn compare_passwords(&mut self) {
        let typed = |id: &str| self.form.field(id).and_then(Field::typed).unwrap_or_default();
        let differ = typed("os.password") != typed(REPETITION);
        let visited = self.visited.contains(REPETITION);
        if let Some(field) = self.form.fields.iter_mut().find(|field| field.id == REPETITION)
            && differ
            && visited
        {
            field.errors = vec!["this is not the same password".to_owned()];
        }
    }

    fn asking_key(&mut self, screen: Screen, key: Key) -> Vec<Effect> {
        match key {
            Key::Escape => {
                self.take(screen, self.form.focus());
                self.message = None;
                self.back(screen);
            }
            Key::Function(3) if screen == Screen::Welcome => {
                self.message = None;
                self.place = Place::Load;
                let url = Field::line("url", "URL", &self.answers.text("install.config_url"));
                self.form = Form::new(vec![Field::text("", LOADING), url]);
            }
            Key::Function(4) => self.form.shows_secrets = !self.form.shows_secrets,
            Key::Function(5) if matches!(screen, Screen::Welcome | Screen::Disks) => {
                self.take(screen, self.form.focus());
                return self.wait("Looking at disks and network cards", Effect::LookAgain);
            }
            Key::Function(5) if is_tried(screen, self.mode()) => {
                self.take(screen, self.form.focus());
                self.tried = None;
                return self.attempt(screen).unwrap_or_default();
            }
            Key::Function(6) if screen == Screen::Cluster && self.mode() == Mode::Create => {
                self.take(screen, self.form.focus());
                let token = self.facts.fresh_token.expose();
                self.answers.give("token", Some(token.into()));
                self.visited.insert("token".into());
                self.form.replace(screen.fields(&self.answers, &self.facts));
                self.say_mistakes(screen);
                self.form.shows_secrets = true;
                self.message = Some((Tone::Plain, NOTE_TOKEN.into()));
            }
            Key::Function(8) => {
                self.take(screen, self.form.focus());
                return self.forward(screen);
            }
            _ => match self.form.key(key) {
                Did::Left(field) => {
                    self.message = None;
                    self.take(screen, field);
                }
                Did::Changed
                    if !matches!(
                        self.form.focused().map(|field| &field.kind),
                        Some(Kind::Line(_) | Kind::Secret(_))
                    ) =>
                {
                    self.take(screen, self.form.focus());
                    // Enter takes an option and goes on.
                    if key == Key::Enter {
                        return self.asking_key(screen, Key::Enter);
                    }
                }
                Did::Accepted => {
                    self.take(screen, self.form.focus());
                    return self.forward(screen);
                }
                _ => {}
            },
        }
        Vec::new()
    }

    fn back(&mut self, screen: Screen) {
        let order = order(self.mode());
        match order.iter().position(|one| *one == screen) {
            Some(at) if at > 0 => self.ask(order[at - 1]),
            _ => self.message = Some((Tone::Plain, "This is the first screen. F10 leaves.".into())),
        }
    }

    /// Goes to the next screen, if this one has no mistakes and what it says works.
    fn forward(&mut self, screen: Screen) -> Vec<Effect> {
        self.visited.extend(self.form.fields.iter().map(|field| field.id.clone()));
        self.form.replace(self.kept_fields(screen));
        self.say_mistakes(screen);
        if !self.is_clean(screen) {
            return Vec::new();
        }
        if let Some(effects) = self.attempt(screen) {
            return effects;
        }
        self.message = None;
        self.go_on(screen)
    }

    /// The fields made anew, with what has been typed a second time.
    fn kept_fields(&self, screen: Screen) -> Vec<Field> {
        let mut fields = screen.fields(&self.answers, &self.facts);
        let old = self.form.field(REPETITION).cloned();
        if let (Some(new), Some(old)) = (fields.iter_mut().find(|field| field.id == REPETITION), old) {
            new.kind = old.kind;
        }
        fields
    }

    /// Whether the screen can be left; says why not, and goes to the field.
    fn is_clean(&mut self, screen: Screen) -> bool {
        let whole = self.answers.check(true);
        for field in &mut self.form.fields {
            if field.id.is_empty() || !field.errors.is_empty() {
                continue;
            }
            field.errors.extend(
                whole.about(&field.id).filter(|said| is_mistake(said)).map(|said| said.message.clone()),
            );
        }
        if screen == Screen::Disks {
            self.find_disk();
        }
        if let Some(field) = self.form.fields.iter().find(|field| !field.errors.is_empty()) {
            let id = field.id.clone();
            let text = format!(
                "Put right what is marked with ! under \"{}\", or press Esc to go back.",
                field.label
            );
            self.message = Some((Tone::Error, text));
            self.form.focus_on(&id);
            return false;
        }
        let mut groups = screen.groups().iter().flat_map(|group| {
            whole.diagnostics.iter().filter(move |said| is_mistake(said) && said.path == *group)
        });
        if let Some(said) = groups.next() {
            self.message = Some((Tone::Error, said.message.clone()));
            return false;
        }
        true
    }

    /// Says at once what the plan would say later of the disk for the system.
    fn find_disk(&mut self) {
        let install = self.answers.understood().install;
        let (device, data) = (install.device.as_ref(), install.data_disk.as_ref());
        let Err(failure) = choose_disk(&self.facts.inventory, device, data) else { return };
        if let Some(field) = self.form.fields.iter_mut().find(|field| field.id == "install.device") {
            field.errors.push(failure.to_string());
        }
    }

    /// Tries what has been answered, where that can be tried and has not been yet.
    fn attempt(&mut self, screen: Screen) -> Option<Vec<Effect>> {
        if !is_tried(screen, self.mode()) || !self.is_clean(screen) {
            return None;
        }
        let config = Box::new(self.answers.understood());
        if matches!(&self.tried, Some((at, before, _)) if *at == screen && *before == config) {
            return None;
        }
        let what = match screen {
            Screen::Network => "Setting up the network; this can take a minute",
            _ => "Asking the cluster",
        };
        self.tried = Some((screen, config.clone(), false));
        Some(self.wait(what, Effect::Try(screen, config)))
    }

    fn go_on(&mut self, screen: Screen) -> Vec<Effect> {
        let order = order(self.mode());
        let next = order.iter().position(|one| *one == screen).and_then(|at| order.get(at + 1));
        match next {
            Some(next) => {
                self.ask(*next);
                Vec::new()
            }
            None => self.review(),
        }
    }

    fn wait(&mut self, what: &str, effect: Effect) -> Vec<Effect> {
        self.busy = Some(what.to_owned());
        vec![effect]
    }

    fn load_key(&mut self, key: Key) -> Vec<Effect> {
        match (key, self.form.key(key)) {
            (Key::Escape, _) => self.ask(Screen::Welcome),
            (_, Did::Accepted) => {
                let url = self.form.field("url").and_then(Field::typed).unwrap_or_default().trim().to_owned();
                match crate::config::formats::network::http_url(&url) {
                    Ok(()) => return self.wait("Fetching the configuration", Effect::Fetch(url)),
                    Err(fault) => self.message = Some((Tone::Error, format!("the URL {}", fault.message))),
                }
            }
            _ => {}
        }
        Vec::new()
    }

    // From the plan to the end.

    /// Shows the plan, or what is still missing.
    fn review(&mut self) -> Vec<Effect> {
        let checked = self.answers.check(true);
        let mistakes: Vec<_> = checked.diagnostics.iter().filter(|said| is_mistake(said)).collect();
        let mode = self.mode();
        let told = mistakes
            .iter()
            .map(|said| (self.screen_of(mode, &said.path), format!("{}: {}", said.path, said.message)));
        let mistakes: Vec<_> = told.collect();
        self.form = Form::default();
        self.config = checked.config.map(|mut config| {
            config.install.automatic = false;
            Box::new(config)
        });
        self.place = Place::Review(Review { mistakes, ..Review::default() });
        match self.config.clone() {
            Some(config) => self.wait("Making the plan", Effect::Plan(config)),
            None => Vec::new(),
        }
    }

    /// The screen on which a value is asked for.
    fn screen_of(&self, mode: Mode, path: &str) -> Option<Screen> {
        order(mode).iter().copied().find(|screen| {
            let fields = screen.fields(&self.answers, &self.facts);
            let mut ids = fields.iter().map(|field| field.id.as_str()).filter(|id| !id.is_empty());
            ids.any(|id| path.starts_with(id)) || screen.groups().contains(&path)
        })
    }

    fn review_key(&mut self, key: Key) -> Vec<Effect> {
        let Place::Review(review) = &mut self.place else { return Vec::new() };
        match key {
            Key::Escape => {
                let last = order(self.mode()).last().copied().unwrap_or(Screen::Welcome);
                self.message = None;
                self.ask(last);
            }
            Key::Enter | Key::Function(8) if review.plan.is_some() => {
                let review = review.clone();
                self.message = None;
                self.form = Form::new(vec![Field::line("word", "Type yes to go on", "")]);
                self.place = Place::Confirm(review);
            }
            Key::Enter | Key::Function(8) => {
                if let Some(screen) = review.mistakes.iter().find_map(|(screen, _)| *screen) {
                    self.ask(screen);
                }
            }
            _ => {
                review.scroll.key(key);
            }
        }
        Vec::new()
    }

    fn confirm_key(&mut self, key: Key, now: Duration) -> Vec<Effect> {
        let Place::Confirm(review) = &self.place else { return Vec::new() };
        match (key, self.form.key(key)) {
            (Key::Escape, _) => {
                self.message = None;
                self.place = Place::Review(review.clone());
            }
            (_, Did::Accepted) => {
                let word = self.form.field("word").and_then(Field::typed).unwrap_or_default();
                if word.trim().eq_ignore_ascii_case("yes") {
                    self.review = review.clone();
                    return self.install(now);
                }
                self.message =
                    Some((Tone::Warning, "Type the word yes to go on, or press Esc to go back.".into()));
            }
            _ => {}
        }
        Vec::new()
    }

    fn install(&mut self, now: Duration) -> Vec<Effect> {
        self.message = None;
        if self.facts.rehearsal {
            self.place = Place::Done { record: None };
            return Vec::new();
        }
        self.failure = None;
        self.work = Work::of(self.review.steps.clone(), now);
        self.place = Place::Working { log: None };
        self.config.clone().map(Effect::Install).into_iter().collect()
    }

    fn failed_key(&mut self, key: Key, now: Duration) -> Vec<Effect> {
        let Place::Failed(_, scroll) = &mut self.place else { return Vec::new() };
        if matches!(key, Key::PageUp | Key::PageDown) {
            scroll.key(key);
            return Vec::new();
        }
        let did = self.form.key(key);
        let took = did == Did::Accepted || (did == Did::Changed && key == Key::Enter);
        let chosen = self.form.field("next").and_then(Field::chosen).filter(|_| took);
        match chosen.and_then(|at| AFTER_FAILURE.get(at)) {
            Some((Next::Again, _)) => return self.install(now),
            Some((Next::Change, _)) => self.ask(Screen::Welcome),
            Some((Next::Log, _)) => self.place = Place::Working { log: Some(Scroll::at_end()) },
            Some((Next::PowerOff, _)) if self.facts.can_quit => {
                return self.wait("Ending", Effect::End(End::Quit));
            }
            Some((Next::PowerOff, _)) => return self.wait("Ending", Effect::End(End::PowerOff)),
            None => {}
        }
        Vec::new()
    }

    /// Shows why it failed, and what can be done now.
    fn fail(&mut self, trouble: Trouble) {
        let options = AFTER_FAILURE.iter().map(|(_, name)| Choice::new(*name)).collect();
        self.form = Form::new(vec![Field::choice("next", "What now?", options, Some(0))]);
        self.failure = Some(trouble.clone());
        self.place = Place::Failed(trouble, Scroll::default());
    }

    fn done_key(&mut self, key: Key) -> Vec<Effect> {
        match key {
            Key::Enter => {
                let end = self.end_when_done();
                self.wait("Ending", Effect::End(end))
            }
            _ => Vec::new(),
        }
    }

    /// What becomes of the machine after an install: nothing where somebody has started it from a shell.
    #[must_use]
    pub fn end_when_done(&self) -> End {
        match &self.config {
            _ if self.facts.rehearsal || self.facts.can_quit => End::Quit,
            Some(config) if config.install.poweroff => End::PowerOff,
            _ => End::Restart,
        }
    }

    fn leave_key(&mut self, key: Key) -> Vec<Effect> {
        let did = self.form.key(key);
        let chosen = self.form.field("leave").and_then(Field::chosen);
        let took = did == Did::Accepted || (did == Did::Changed && key == Key::Enter);
        let back = matches!(key, Key::Escape | Key::Function(10)) || (took && chosen == Some(0));
        if back {
            let Place::Leave(place) = std::mem::replace(&mut self.place, Place::Load) else {
                return Vec::new();
            };
            match *place {
                Place::Asking(screen) => self.ask(screen),
                Place::Load => self.ask(Screen::Welcome),
                Place::Confirm(review) => self.place = Place::Review(review),
                other => self.place = other,
            }
            return Vec::new();
        }
        let hows = ways_out(&self.facts);
        match chosen.filter(|_| took).and_then(|at| hows.get(at.checked_sub(1)?)) {
            Some((how, _)) => self.wait("Ending", Effect::End(*how)),
            None => Vec::new(),
        }
    }

    fn ended(&mut self, outcome: Outcome) -> Vec<Effect> {
        self.busy = None;
        let error = |trouble: &Trouble| Some((Tone::Error, trouble.text()));
        match outcome {
            Outcome::Inventory(Ok(inventory)) => {
                self.facts.inventory = inventory;
                if let Place::Asking(screen) = self.place {
                    self.form.replace(self.kept_fields(screen));
                    self.say_mistakes(screen);
                }
                self.message = Some((Tone::Good, "The machine has been looked at again.".into()));
            }
            Outcome::Fetched(Ok(found)) => {
                self.answers.found(&found);
                self.ask(Screen::Welcome);
                self.message =
                    Some((Tone::Good, "The configuration has been read; its values are filled in.".into()));
            }
            Outcome::Tried(screen, Ok(told)) => {
                if let Some((_, _, worked)) = &mut self.tried {
                    *worked = true;
                }
                let effects = if matches!(self.place, Place::Asking(at) if at == screen) {
                    self.go_on(screen)
                } else {
                    Vec::new()
                };
                self.message = Some((Tone::Good, told));
                return effects;
            }
            Outcome::Tried(_, Err(trouble)) => {
                let text = format!("{}\nChange the answers, or press F8 to go on without.", trouble.text());
                self.message = Some((Tone::Error, text));
            }
            Outcome::Planned(Ok(plan)) => {
                if let Place::Review(review) = &mut self.place {
                    *review = plan;
                }
            }
            Outcome::Planned(Err(trouble)) => {
                if let Place::Review(review) = &mut self.place {
                    let screen = Some(Screen::Disks);
                    review.mistakes = trouble.text().lines().map(|line| (screen, line.to_owned())).collect();
                }
            }
            Outcome::Installed(Ok(record)) => self.place = Place::Done { record },
            Outcome::Installed(Err(trouble)) => self.fail(trouble),
            Outcome::Inventory(Err(trouble))
            | Outcome::Fetched(Err(trouble))
            | Outcome::NotEnded(trouble) => {
                self.message = error(&trouble);
            }
        }
        Vec::new()
    }
}

/// What can be done after a failure.
#[derive(Clone, Copy, Debug)]
enum Next {
    Again,
    Change,
    Log,
    PowerOff,
}

const AFTER_FAILURE: [(Next, &str); 4] = [
    (Next::Again, "Try again with the same answers"),
    (Next::Change, "Change the answers"),
    (Next::Log, "Read the log"),
    (Next::PowerOff, "Power off"),
];

const LOADING: &str = "The configuration behind a URL fills in the answers, which can then be changed. A volume with the label \
                       NQRUST-CONFIG is read when the machine starts.";
const NOTE_TOKEN: &str = "This token is new. Whoever adds nodes to the cluster needs it: write it down.";

/// Whether the answers of a screen are tried before the next one.
fn is_tried(screen: Screen, mode: Mode) -> bool {
    screen == Screen::Network || screen == Screen::Cluster && mode == Mode::Join
}

/// Control and a letter for terminals without function keys.
fn function(key: Key) -> Key {
    match key {
        Key::Control('t') => Key::Function(4),
        Key::Control('r') => Key::Function(5),
        Key::Control('n') => Key::Function(8),
        Key::Control('o') => Key::Function(7),
        Key::Control('d') => Key::Function(3),
        Key::Control('f') => Key::Function(6),
        Key::Control('c' | 'g') => Key::Function(10),
        other => other,
    }
}

/// The ways to end, and what each is called.
fn ways_out(facts: &Facts) -> Vec<(End, &'static str)> {
    match facts.can_quit {
        true => vec![(End::Quit, "End the program")],
        false => vec![(End::Restart, "Restart the machine"), (End::PowerOff, "Power the machine off")],
    }
}

fn leaving(facts: &Facts, working: bool) -> Field {
    let back = if working { "Go on with the installation" } else { "Go back to the questions" };
    let ways = ways_out(facts).into_iter().map(|(_, name)| match working {
        true => {
            Choice::new(name).with("The installation ends in the middle; starting it again does it over.")
        }
        false => Choice::new(name),
    });
    let options = [Choice::new(back)].into_iter().chain(ways).collect();
    Field::choice("leave", "Leave?", options, Some(0))
}
