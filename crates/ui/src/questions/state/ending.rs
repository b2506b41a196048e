//! From the plan to the end: the screens after the questions.

use std::time::Duration;

use super::leaving::ways_out;
use super::{Conversation, ConversationEffect, ConversationPlace, Review, SavedFile};
use crate::answers::{in_words, is_mistake};
use crate::questions::install_progress::InstallProgress;
use crate::questions::screens::QuestionScreen;
use crate::questions::{ConversationEnd, ConversationFacts, ShownTrouble};
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use crate::toolkit::text::Scroll;
use model::config::{Diagnostic, InstallConfig, Mode, Secret};

impl Conversation {
    /// The present place, for one in front of it.
    pub(super) fn take_place(&mut self) -> Box<ConversationPlace> {
        Box::new(std::mem::replace(&mut self.place, ConversationPlace::Load))
    }

    /// Goes back from a place in front of another one.
    pub(super) fn back_from(&mut self) -> Vec<ConversationEffect> {
        self.message = None;
        let place = self.take_place();
        let back = place.back().cloned();
        self.show(back.unwrap_or(*place))
    }

    pub(super) fn show(&mut self, place: ConversationPlace) -> Vec<ConversationEffect> {
        match place {
            ConversationPlace::Asking(screen) => self.ask(screen),
            ConversationPlace::Load => self.ask(QuestionScreen::Welcome),
            ConversationPlace::Confirm(review) => self.place = ConversationPlace::Review(review),
            // The plan arrived while another place was shown.
            ConversationPlace::Review(Review { plan: None, mistakes, .. })
                if mistakes.is_empty() && self.busy.is_none() =>
            {
                return self.review();
            }
            ConversationPlace::Unfit(review) => self.show_unfit(review),
            ConversationPlace::FinishedNodes(finished) => self.show_finished_nodes(finished),
            ConversationPlace::Failed(trouble, _) => self.fail(trouble),
            ConversationPlace::Save(saving, back) => self.show_saving(saving, back),
            ConversationPlace::Help(back) => self.show_help(back),
            ConversationPlace::Keyboard(back) => self.show_keyboard(back),
            other => self.place = other,
        }
        Vec::new()
    }

    /// Shows the plan, or what is still missing.
    pub(super) fn review(&mut self) -> Vec<ConversationEffect> {
        let checked = self.answers.check(true);
        let mistakes: Vec<_> = checked.diagnostics.iter().filter(|said| is_mistake(said)).collect();
        let told = mistakes.iter().map(|said| (self.screen_of(&said.path), self.told_on_screens(said)));
        let mistakes: Vec<_> = told.collect();
        self.form = Form::default();
        self.config = checked.config.map(|mut config| {
            config.install.automatic = false;
            Box::new(config)
        });
        self.place = ConversationPlace::Review(Review { mistakes, ..Review::default() });
        match self.config.clone() {
            Some(config) => {
                self.wait("Checking the machine and making the plan", ConversationEffect::Plan(config))
            }
            None => Vec::new(),
        }
    }

    /// A mistake, with the name of its field on the screens, or else the key of the document.
    fn told_on_screens(&self, said: &Diagnostic) -> String {
        let fields = |screen: &QuestionScreen| screen.fields(&self.answers, &self.facts);
        let asked = self.order().iter().flat_map(fields).find(|field| field.id == said.path);
        let name = asked.map(|field| field.label).filter(|label| !label.is_empty());
        format!("{}: {}", name.unwrap_or_else(|| said.path.clone()), in_words(said))
    }

    /// The screen on which a value is asked for.
    fn screen_of(&self, path: &str) -> Option<QuestionScreen> {
        self.order().iter().copied().find(|screen| {
            let fields = screen.fields(&self.answers, &self.facts);
            let mut ids = fields.iter().map(|field| field.id.as_str()).filter(|id| !id.is_empty());
            ids.any(|id| path.starts_with(id)) || screen.groups().contains(&path)
        })
    }

    pub(super) fn review_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        let ConversationPlace::Review(review) = &mut self.place else { return Vec::new() };
        match key {
            Key::Escape => {
                let last = self.order().last().copied().unwrap_or(QuestionScreen::Welcome);
                self.message = None;
                self.ask(last);
            }
            Key::Enter | Key::Function(8) if review.plan.is_some() => {
                let review = review.clone();
                self.message = None;
                self.form = Form::new(vec![Field::line("word", "Type yes to go on", "")]);
                self.place = ConversationPlace::Confirm(review);
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

    pub(super) fn confirm_key(&mut self, key: Key, now: Duration) -> Vec<ConversationEffect> {
        let ConversationPlace::Confirm(review) = &self.place else { return Vec::new() };
        match (key, self.form.key(key)) {
            (Key::Escape, _) => {
                self.message = None;
                self.place = ConversationPlace::Review(review.clone());
            }
            (_, KeyEffect::Accepted) => {
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

    fn install(&mut self, now: Duration) -> Vec<ConversationEffect> {
        self.message = None;
        if self.facts.rehearsal {
            self.place = ConversationPlace::Done { record: None };
            return self.config.clone().map(ConversationEffect::Record).into_iter().collect();
        }
        self.failure = None;
        self.work = InstallProgress::of(self.review.steps.clone(), now);
        self.place = ConversationPlace::Working { log: None };
        self.config.clone().map(ConversationEffect::Install).into_iter().collect()
    }

    pub(super) fn failed_key(&mut self, key: Key, now: Duration) -> Vec<ConversationEffect> {
        let ConversationPlace::Failed(_, scroll) = &mut self.place else { return Vec::new() };
        match key {
            Key::PageUp | Key::PageDown => {
                scroll.key(key);
                return Vec::new();
            }
            Key::Function(5) => {
                return self.wait("Reading disks and network cards", ConversationEffect::LookAgain);
            }
            _ => {}
        }
        match self.form.decide(key).and_then(|at| after_failure(&self.facts).get(at).copied()) {
            Some((FailureChoice::Again, _)) => return self.install(now),
            Some((FailureChoice::Change, _)) => self.ask(QuestionScreen::Welcome),
            Some((FailureChoice::Log, _)) => {
                self.place = ConversationPlace::Working { log: Some(Scroll::at_end()) }
            }
            Some((FailureChoice::Save, _)) => return self.keep(SavedFile::Logs),
            Some((FailureChoice::Code, _)) => self.place = ConversationPlace::Code(self.take_place()),
            Some((FailureChoice::Help, _)) => return self.help(),
            Some((FailureChoice::PowerOff, _)) if self.facts.can_quit => {
                return self.wait("Ending", ConversationEffect::End(ConversationEnd::Quit));
            }
            Some((FailureChoice::PowerOff, _)) => {
                return self.wait("Ending", ConversationEffect::End(ConversationEnd::PowerOff));
            }
            None => {}
        }
        Vec::new()
    }

    pub(super) fn fail(&mut self, trouble: ShownTrouble) {
        let options = after_failure(&self.facts).into_iter().map(|(_, name)| Choice::new(name)).collect();
        self.form = Form::new(vec![Field::choice("next", "What now?", options, Some(0))]);
        self.failure = Some(trouble.clone());
        self.place = ConversationPlace::Failed(trouble, Scroll::default());
    }

    /// The install has ended. If the user is at help access now, the end is shown afterwards.
    pub(super) fn settle(&mut self, place: ConversationPlace) {
        match &mut self.place {
            ConversationPlace::Help(back) => **back = place,
            _ => drop(self.show(place)),
        }
    }

    /// The failure, if the present place is about one.
    #[must_use]
    pub fn trouble(&self) -> Option<&ShownTrouble> {
        self.failure.as_ref()
    }

    pub(super) fn done_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        match (key, self.config.clone()) {
            (Key::Enter, _) => {
                let end = self.end_when_done();
                self.wait("Ending", ConversationEffect::End(end))
            }
            (Key::Function(4), Some(config)) if !self.facts.rehearsal => {
                self.wait("Making a configuration of the answers", ConversationEffect::Show(config))
            }
            (Key::Function(5), Some(config)) if created_token(&config).is_some() => {
                created_token(&config).into_iter().for_each(|token| self.show_token(token));
                Vec::new()
            }
            (Key::Function(6), Some(_)) if !self.facts.rehearsal => self.keep(SavedFile::Configuration),
            _ => Vec::new(),
        }
    }

    /// Shows a token in full, in front of the present place.
    pub(super) fn show_token(&mut self, token: Secret) {
        self.place = ConversationPlace::Token(token, self.take_place());
    }

    /// The token of the cluster that this install has created, if there is one.
    #[must_use]
    pub fn created_token(&self) -> Option<Secret> {
        self.config.as_deref().and_then(created_token)
    }

    /// How the program ends after an install. One that was started from a shell only quits.
    #[must_use]
    pub fn end_when_done(&self) -> ConversationEnd {
        match &self.config {
            _ if self.facts.rehearsal || self.facts.can_quit => ConversationEnd::Quit,
            Some(config) if config.install.poweroff => ConversationEnd::PowerOff,
            _ => ConversationEnd::Restart,
        }
    }

    pub(super) fn leave_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        let chosen = self.form.decide(key);
        if matches!(key, Key::Escape | Key::Function(10)) || chosen == Some(0) {
            return self.back_from();
        }
        match chosen.and_then(|at| ways_out(&self.facts).get(at.checked_sub(1)?).copied()) {
            Some((how, _)) => self.wait("Ending", ConversationEffect::End(how)),
            None => Vec::new(),
        }
    }
}

fn created_token(config: &InstallConfig) -> Option<Secret> {
    config.token.clone().filter(|_| config.install.mode == Mode::Create)
}

#[derive(Clone, Copy, Debug)]
enum FailureChoice {
    Again,
    Change,
    Log,
    Save,
    Code,
    Help,
    PowerOff,
}

fn after_failure(facts: &ConversationFacts) -> Vec<(FailureChoice, &'static str)> {
    let all = [
        (FailureChoice::Again, "Try again with the same answers"),
        (FailureChoice::Change, "Change the answers"),
        (FailureChoice::Log, "Read the log"),
        (FailureChoice::Save, "Save the logs on a stick, or send them to a server"),
        (FailureChoice::Code, "Show a short report as a QR code"),
        (FailureChoice::Help, "Open help access: a login to this system"),
        (FailureChoice::PowerOff, if facts.can_quit { "End the program" } else { "Power off" }),
    ];
    all.into_iter().filter(|(next, _)| facts.can_help || !matches!(next, FailureChoice::Help)).collect()
}
