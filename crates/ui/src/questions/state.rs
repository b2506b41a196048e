//! The state of the conversation, and the effects of keys and events on it. Nothing here has an effect: those are returned.

mod devices;
mod ending;
mod finished_nodes;
mod fitness;
mod help;
mod keyboard;
mod leaving;
mod loading;
mod saving;
mod types;

use std::collections::BTreeSet;
use std::time::Duration;

use super::install_progress::InstallProgress;
use super::screens::{QuestionScreen, REPETITION, order, suggest};
use super::{ConversationFacts, MachineNews, ShownNode, ShownTrouble};
use crate::answers::{Answers, in_words, is_mistake};
use crate::toolkit::Key;
use crate::toolkit::form::{Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use crate::toolkit::text::Scroll;
use install::plan::choose_disk;
use leaving::leaving;
use machine::inventory::changes;
use machine::live::help::HelpAccess;
use model::config::{InstallConfig, Mode};
pub use types::{
    COUNTDOWN, ConversationEffect, ConversationInput, ConversationPlace, EffectOutcome, FinishedNodes,
    Review, SavedFile, Saving, ShownFinding,
};

#[derive(Clone, Debug)]
pub struct Conversation {
    pub facts: ConversationFacts,
    pub answers: Answers,
    pub place: ConversationPlace,
    pub form: Form,
    pub message: Option<(Tone, String)>,
    /// The effect that the conversation waits for, in words.
    pub busy: Option<String>,
    pub work: InstallProgress,
    pub access: Option<HelpAccess>,
    /// What [`MachineNews::ImageDamaged`] said.
    pub image_damage: Option<String>,
    visited: BTreeSet<String>,
    /// The answers that were tried last.
    tried: Option<(QuestionScreen, Box<InstallConfig>)>,
    /// Whether the next screen follows if they work.
    goes_on: bool,
    config: Option<Box<InstallConfig>>,
    review: Review,
    /// The finished nodes that the user agreed to overwrite.
    accepted: Vec<ShownNode>,
    /// Why the last install failed, until it is tried again.
    failure: Option<ShownTrouble>,
}

impl Conversation {
    #[must_use]
    pub fn new(facts: ConversationFacts, answers: Answers) -> Self {
        let mut state = Self {
            facts,
            answers,
            place: ConversationPlace::Asking(QuestionScreen::Welcome),
            form: Form::default(),
            message: None,
            busy: None,
            work: InstallProgress::default(),
            access: None,
            image_damage: None,
            visited: BTreeSet::new(),
            tried: None,
            goes_on: false,
            config: None,
            review: Review::default(),
            accepted: Vec::new(),
            failure: None,
        };
        match state.facts.left.clone() {
            Some(left) => state.leave_as_it_is(left),
            None => state.ask(QuestionScreen::Welcome),
        }
        state
    }

    #[must_use]
    pub fn mode(&self) -> Mode {
        self.answers.understood().install.mode
    }

    #[must_use]
    pub fn order(&self) -> &'static [QuestionScreen] {
        order(self.mode(), self.facts.first_start)
    }

    pub fn step(&mut self, input: ConversationInput, now: Duration) -> Vec<ConversationEffect> {
        match input {
            ConversationInput::Tick => {
                self.work.tick(now);
                self.count(now)
            }
            ConversationInput::Event(event) => {
                self.work.event(&event, now);
                Vec::new()
            }
            ConversationInput::News(MachineNews::DevicesChanged) => self.devices_changed(),
            ConversationInput::News(MachineNews::ImageDamaged(text)) => {
                self.image_damage = Some(text);
                Vec::new()
            }
            ConversationInput::Ended(outcome) => self.ended(outcome),
            ConversationInput::Key(key) => self.key(key, now),
        }
    }

    fn key(&mut self, key: Key, now: Duration) -> Vec<ConversationEffect> {
        if self.stop_counting() {
            return Vec::new();
        }
        let key = function(key);
        match (&mut self.place, key) {
            (ConversationPlace::Leave(_), _) => return self.leave_key(key),
            (_, Key::Function(10)) => {
                self.place = ConversationPlace::Leave(self.take_place());
                self.form = Form::new(vec![leaving(&self.facts, self.is_working())]);
                return Vec::new();
            }
            _ if self.busy.is_some() => return Vec::new(),
            (ConversationPlace::Help(_), _) => return self.help_key(key),
            (_, Key::Function(9)) => return self.help(),
            (ConversationPlace::Keyboard(_), _) => return self.keyboard_key(key),
            (ConversationPlace::Asking(_), Key::Function(2)) => self.keyboard(),
            (ConversationPlace::Asking(screen), _) => {
                let screen = *screen;
                return self.asking_key(screen, key);
            }
            (ConversationPlace::Load, _) => return self.load_key(key),
            (ConversationPlace::Review(_), _) => return self.review_key(key),
            (ConversationPlace::Unfit(_), _) => return self.unfit_key(key),
            (ConversationPlace::FinishedNodes(_), _) => return self.finished_nodes_key(key),
            (ConversationPlace::Confirm(_), _) => return self.confirm_key(key, now),
            (ConversationPlace::Working { .. }, Key::Escape | Key::Function(7)) if self.failure.is_some() => {
                self.failure.clone().into_iter().for_each(|trouble| self.fail(trouble));
            }
            (ConversationPlace::Working { log }, Key::Function(7)) => {
                *log = if log.is_some() { None } else { Some(Scroll::at_end()) };
            }
            (ConversationPlace::Working { log: Some(scroll) }, _) => {
                scroll.key(key);
            }
            (ConversationPlace::Working { .. }, _) => {}
            (ConversationPlace::Failed(..), _) => return self.failed_key(key, now),
            (ConversationPlace::Done { .. }, _) => return self.done_key(key),
            (ConversationPlace::Save(..), _) => return self.save_key(key),
            (ConversationPlace::Code(_), Key::Escape | Key::Enter) => return self.back_from(),
            (ConversationPlace::Recorded(..), Key::Escape | Key::Enter) => return self.back_from(),
            (ConversationPlace::Disks(..), Key::Escape | Key::Enter) => return self.back_from(),
            (ConversationPlace::Recorded(_, scroll, _) | ConversationPlace::Disks(scroll, _), _) => {
                scroll.key(key);
            }
            (ConversationPlace::Token(..), Key::Escape | Key::Enter) => return self.back_from(),
            (ConversationPlace::Token(..), Key::Function(8)) => {
                let mut effects = self.back_from();
                if let ConversationPlace::Asking(screen) = self.place {
                    effects.extend(self.forward(screen));
                }
                return effects;
            }
            (ConversationPlace::Code(_) | ConversationPlace::Token(..), _) => {}
        }
        Vec::new()
    }

    /// Whether disks are being written.
    #[must_use]
    pub fn is_working(&self) -> bool {
        matches!(self.place.base(), ConversationPlace::Working { .. })
    }

    // The screens with questions.

    fn ask(&mut self, screen: QuestionScreen) {
        suggest(screen, &mut self.answers, &self.facts);
        self.place = ConversationPlace::Asking(screen);
        self.form = Form::new(screen.fields(&self.answers, &self.facts));
        self.say_mistakes(screen);
    }

    /// Takes the value of a field, and makes the fields again, because others may be needed now.
    fn take(&mut self, screen: QuestionScreen, field: usize) {
        let Some(field) = self.form.fields.get(field).cloned() else { return };
        let repeated = self.form.field(REPETITION).cloned();
        if field.id != REPETITION {
            screen.take(&field, &mut self.answers, &self.facts);
        }
        self.visited.insert(field.id);
        let mut fields = screen.fields(&self.answers, &self.facts);
        // A repetition of a password is no answer, and is kept.
        if let (Some(new), Some(old)) = (fields.iter_mut().find(|field| field.id == REPETITION), repeated) {
            new.kind = old.kind;
        }
        self.form.replace(fields);
        self.say_mistakes(screen);
    }

    /// Shows mistakes at each field that has been left.
    fn say_mistakes(&mut self, screen: QuestionScreen) {
        let checked = self.answers.check(false);
        for field in &mut self.form.fields {
            if !field.id.is_empty() && self.visited.contains(&field.id) {
                checked.tell(field);
            }
        }
        if screen == QuestionScreen::Access {
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
            field.errors = vec!["the passwords differ".to_owned()];
        }
    }

    fn asking_key(&mut self, screen: QuestionScreen, key: Key) -> Vec<ConversationEffect> {
        match key {
            Key::Escape => {
                self.take(screen, self.form.focus());
                self.message = None;
                self.back(screen);
            }
            Key::Function(3) if screen == QuestionScreen::Welcome => {
                self.load();
            }
            Key::Function(4) => self.form.shows_secrets = !self.form.shows_secrets,
            Key::Function(5) if matches!(screen, QuestionScreen::Welcome | QuestionScreen::Disks) => {
                self.take(screen, self.form.focus());
                return self.wait("Reading disks and network cards", ConversationEffect::LookAgain);
            }
            Key::Function(5) if is_tried(screen, self.mode()) => {
                self.take(screen, self.form.focus());
                self.tried = None;
                return self.attempt(screen, false).unwrap_or_default();
            }
            Key::Function(6) if screen == QuestionScreen::Cluster && self.mode() == Mode::Create => {
                self.take(screen, self.form.focus());
                let token = self.facts.fresh_token.clone();
                self.answers.give("token", Some(token.expose().into()));
                self.visited.insert("token".into());
                self.message = None;
                self.show_token(token);
            }
            Key::Function(8) => {
                self.form.take_highlighted();
                self.take(screen, self.form.focus());
                return self.forward(screen);
            }
            _ => match self.form.key(key) {
                KeyEffect::Left(field) => {
                    self.message = None;
                    self.take(screen, field);
                }
                KeyEffect::Changed if !self.form.is_typing() => {
                    self.take(screen, self.form.focus());
                    // Enter takes an option and goes on.
                    if key == Key::Enter {
                        return self.asking_key(screen, Key::Enter);
                    }
                }
                KeyEffect::Accepted => {
                    self.take(screen, self.form.focus());
                    return self.forward(screen);
                }
                _ => {}
            },
        }
        Vec::new()
    }

    fn back(&mut self, screen: QuestionScreen) {
        let order = self.order();
        match order.iter().position(|one| *one == screen) {
            Some(at) if at > 0 => self.ask(order[at - 1]),
            _ => self.message = Some((Tone::Plain, "This is the first screen. F10 leaves.".into())),
        }
    }

    /// Goes to the next screen, if this one has no mistakes and its answers work.
    fn forward(&mut self, screen: QuestionScreen) -> Vec<ConversationEffect> {
        self.visited.extend(self.form.fields.iter().map(|field| field.id.clone()));
        self.form.replace(self.kept_fields(screen));
        self.say_mistakes(screen);
        if !self.is_clean(screen) {
            return Vec::new();
        }
        if let Some(effects) = self.attempt(screen, true) {
            return effects;
        }
        self.message = None;
        self.go_on(screen)
    }

    /// The fields made again, with the repetition of a password.
    fn kept_fields(&self, screen: QuestionScreen) -> Vec<Field> {
        let mut fields = screen.fields(&self.answers, &self.facts);
        let old = self.form.field(REPETITION).cloned();
        if let (Some(new), Some(old)) = (fields.iter_mut().find(|field| field.id == REPETITION), old) {
            new.kind = old.kind;
        }
        fields
    }

    /// Whether the screen can be left; if not, shows why, and goes to the field.
    fn is_clean(&mut self, screen: QuestionScreen) -> bool {
        let whole = self.answers.check(true);
        for field in &mut self.form.fields {
            if field.id.is_empty() || !field.errors.is_empty() {
                continue;
            }
            field.errors.extend(whole.about(&field.id).filter(|said| is_mistake(said)).map(in_words));
        }
        if screen == QuestionScreen::Disks {
            self.find_disk();
        }
        if let Some(field) = self.form.fields.iter().find(|field| !field.errors.is_empty()) {
            let id = field.id.clone();
            let text = format!(
                "Correct the entry that is marked with ! under \"{}\", or press Esc to go back.",
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
            self.message = Some((Tone::Error, in_words(said)));
            return false;
        }
        true
    }

    /// Shows errors of the plan about the system's disk already here.
    fn find_disk(&mut self) {
        let install = self.answers.understood().install;
        let (device, data) = (install.device.as_ref(), install.data_disk.as_ref());
        let Err(failure) = choose_disk(&self.facts.inventory, device, data) else { return };
        if let Some(field) = self.form.fields.iter_mut().find(|field| field.id == "install.device") {
            field.errors.push(failure.to_string());
        }
    }

    /// Tries the answers, if they can be tried and have not been yet.
    fn attempt(&mut self, screen: QuestionScreen, goes_on: bool) -> Option<Vec<ConversationEffect>> {
        if !is_tried(screen, self.mode()) || !self.is_clean(screen) {
            return None;
        }
        let config = Box::new(self.answers.understood());
        if matches!(&self.tried, Some((at, before)) if *at == screen && *before == config) {
            return None;
        }
        let what = match screen {
            QuestionScreen::Network => "Setting up the network; this can take a minute",
            _ => "Asking the cluster",
        };
        (self.tried, self.goes_on) = (Some((screen, config.clone())), goes_on);
        Some(self.wait(what, ConversationEffect::Try(screen, config)))
    }

    fn go_on(&mut self, screen: QuestionScreen) -> Vec<ConversationEffect> {
        let order = self.order();
        let next = order.iter().position(|one| *one == screen).and_then(|at| order.get(at + 1));
        match next {
            Some(next) => {
                self.ask(*next);
                Vec::new()
            }
            None => self.review(),
        }
    }

    fn wait(&mut self, what: &str, effect: ConversationEffect) -> Vec<ConversationEffect> {
        self.busy = Some(what.to_owned());
        vec![effect]
    }

    fn ended(&mut self, outcome: EffectOutcome) -> Vec<ConversationEffect> {
        // These effects, unlike others, run while keys are handled.
        let aside = match outcome {
            EffectOutcome::Installed(_) | EffectOutcome::Devices(_) => true,
            EffectOutcome::KeyboardSet(..) => !self.chooses_keyboard(),
            _ => false,
        };
        if !aside {
            self.busy = None;
        }
        let error = |trouble: &ShownTrouble| Some((Tone::Error, trouble.text()));
        match outcome {
            EffectOutcome::Devices(looked) => return self.follow_devices(looked),
            EffectOutcome::Inventory(Ok(inventory)) => {
                let changes = changes(&self.facts.inventory, &inventory).unwrap_or_default();
                self.facts.inventory = inventory;
                if let ConversationPlace::Asking(screen) = self.place {
                    self.form.replace(self.kept_fields(screen));
                    self.say_mistakes(screen);
                }
                let text = format!("Disks and network cards have been read again. {changes}");
                self.message = Some((Tone::Good, text.trim_end().to_owned()));
            }
            EffectOutcome::KeyboardSet(name, set) => self.keyboard_set(name, set),
            EffectOutcome::Fetched(Ok(found)) => {
                let keyboard = self.keyboard_layout();
                self.answers.found(&found);
                self.ask(QuestionScreen::Welcome);
                self.message =
                    Some((Tone::Good, "The configuration has been read; its values are filled in.".into()));
                if self.keyboard_layout() != keyboard {
                    return self.begin();
                }
            }
            EffectOutcome::Tried(screen, Ok(told)) => {
                let here = matches!(self.place, ConversationPlace::Asking(at) if at == screen);
                let effects = if here && self.goes_on { self.go_on(screen) } else { Vec::new() };
                self.message = Some((Tone::Good, told));
                return effects;
            }
            EffectOutcome::Tried(_, Err(trouble)) => {
                let text = format!("{}\nChange the answers, or press F8 to go on anyway.", trouble.text());
                self.message = Some((Tone::Error, text));
            }
            EffectOutcome::Planned(Ok(plan)) => self.planned(plan),
            EffectOutcome::Planned(Err(trouble)) => {
                if let ConversationPlace::Review(review) = &mut self.place {
                    let screen = self.facts.first_start.then_some(QuestionScreen::Welcome);
                    let screen = screen.or(Some(QuestionScreen::Disks));
                    review.mistakes = trouble.text().lines().map(|line| (screen, line.to_owned())).collect();
                }
            }
            EffectOutcome::Installed(Ok(record)) => self.settle(ConversationPlace::Done { record }),
            EffectOutcome::Installed(Err(trouble)) => {
                self.failure = Some(trouble.clone());
                self.settle(ConversationPlace::Failed(trouble, Scroll::default()));
            }
            EffectOutcome::Surveyed(found) => self.surveyed(found),
            EffectOutcome::Saved(saved) => return self.saved(saved),
            EffectOutcome::Shown(Ok(text)) => {
                self.place = ConversationPlace::Recorded(text, Scroll::default(), self.take_place());
            }
            EffectOutcome::Opened(opened) => self.opened(opened),
            EffectOutcome::Closed(closed) => self.closed(closed),
            EffectOutcome::Returned(returned) => self.message = returned.err().as_ref().and_then(error),
            EffectOutcome::Shown(Err(trouble))
            | EffectOutcome::Inventory(Err(trouble))
            | EffectOutcome::Fetched(Err(trouble))
            | EffectOutcome::NotEnded(trouble) => {
                self.message = error(&trouble);
            }
        }
        Vec::new()
    }
}

/// Whether the answers of a screen are tried before the next one.
fn is_tried(screen: QuestionScreen, mode: Mode) -> bool {
    screen == QuestionScreen::Network || screen == QuestionScreen::Cluster && mode == Mode::Join
}

/// Control and a letter for terminals without function keys.
fn function(key: Key) -> Key {
    match key {
        Key::Control('y') => Key::Function(2),
        Key::Control('t') => Key::Function(4),
        Key::Control('r') => Key::Function(5),
        Key::Control('n') => Key::Function(8),
        Key::Control('o') => Key::Function(7),
        Key::Control('d') => Key::Function(3),
        Key::Control('f') => Key::Function(6),
        Key::Control('p') => Key::Function(9),
        Key::Control('c' | 'g') => Key::Function(10),
        other => other,
    }
}
