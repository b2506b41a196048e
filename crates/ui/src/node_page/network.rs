//! The change of the network: questions with the present values filled in, then the differences; pure. The trial itself has a
//! page of its own.

use std::collections::BTreeSet;

use crate::answers::{Answers, is_mistake};
use crate::network_fields as screen;
use crate::toolkit::Key;
use crate::toolkit::form::{Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use crate::toolkit::text::Scroll;
use machine::inventory::Nic;
use node::network_trial::Networks;

/// The word to type for a grave change.
pub const WORD: &str = "change";

#[derive(Clone, Debug, PartialEq)]
pub struct PresentNetwork {
    /// The node document with the present networks.
    pub answers: Answers,
    pub nics: Vec<Nic>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub networks: Networks,
    /// One value a text.
    pub differences: Vec<String>,
    pub warnings: Vec<String>,
    /// Whether the user has to accept it explicitly.
    pub grave: bool,
}

/// The consequence of a key outside of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkStep {
    Stay,
    Leave,
    /// Check the answers with the whole document.
    Propose(Box<Networks>),
    /// Try the change; whether a grave problem was accepted.
    Try(Box<Networks>, bool),
}

#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPage {
    present: PresentNetwork,
    /// The fields in front: the questions, or the word.
    pub form: Form,
    visited: BTreeSet<String>,
    pub proposal: Option<Proposal>,
    pub scroll: Scroll,
    pub message: Option<(Tone, String)>,
}

impl NetworkPage {
    #[must_use]
    pub fn new(present: PresentNetwork) -> Self {
        let (form, visited) = (Form::default(), BTreeSet::new());
        let mut page =
            Self { present, form, visited, proposal: None, scroll: Scroll::default(), message: None };
        page.form = Form::new(page.fields());
        page
    }

    pub fn key(&mut self, key: Key) -> NetworkStep {
        match &self.proposal {
            Some(proposal) => {
                let proposal = proposal.clone();
                self.review_key(key, proposal)
            }
            None => self.question_key(key),
        }
    }

    /// Takes the result of the check with the whole document.
    pub fn proposed(&mut self, proposal: Result<Proposal, String>) {
        match proposal {
            Err(why) => self.message = Some((Tone::Error, why)),
            Ok(proposal) => {
                let word = Field::line("word", &format!("Type: {WORD}"), "");
                self.form = Form::new(if proposal.grave { vec![word] } else { Vec::new() });
                (self.proposal, self.message, self.scroll) = (Some(proposal), None, Scroll::default());
            }
        }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = screen::all_fields(&self.present.answers, &self.present.nics);
        let further = &self.present.answers.understood().install.networks;
        if !further.is_empty() {
            let names: Vec<_> = further.iter().map(|network| &*network.name).collect();
            let text = format!("{}: changed with `installer network try`", names.join(", "));
            fields.push(Field::text("Further networks stay as they are", &text));
        }
        fields
    }

    fn question_key(&mut self, key: Key) -> NetworkStep {
        match key {
            Key::Escape => return NetworkStep::Leave,
            Key::Function(8) | Key::Control('n') => return self.propose(),
            _ => {}
        }
        match self.form.key(key) {
            KeyEffect::Left(field) => self.take(field),
            KeyEffect::Changed if !self.form.is_typing() => {
                self.take(self.form.focus());
                // Enter takes an option and goes on.
                if key == Key::Enter {
                    return self.question_key(Key::Enter);
                }
            }
            KeyEffect::Accepted => return self.propose(),
            _ => {}
        }
        NetworkStep::Stay
    }

    /// Takes the value of a field, and makes the fields again, because others may be needed now.
    fn take(&mut self, field: usize) {
        self.message = None;
        let Some(field) = self.form.fields.get(field).cloned() else { return };
        screen::answer(&field, &mut self.present.answers, &self.present.nics);
        self.visited.insert(field.id);
        self.renew();
    }

    /// Makes the fields again, with mistakes at each that was left.
    fn renew(&mut self) {
        let checked = self.present.answers.check(false);
        let mut fields = self.fields();
        for field in fields.iter_mut().filter(|field| self.visited.contains(&field.id)) {
            checked.tell(field);
        }
        self.form.replace(fields);
    }

    /// Starts the check with the whole document, if the fields have no mistakes.
    fn propose(&mut self) -> NetworkStep {
        self.take(self.form.focus());
        self.visited
            .extend(self.form.fields.iter().map(|field| field.id.clone()).filter(|id| !id.is_empty()));
        self.renew();
        if let Some(field) = self.form.fields.iter().find(|field| !field.errors.is_empty()) {
            let (id, label) = (field.id.clone(), field.label.clone());
            self.message =
                Some((Tone::Error, format!("Correct the entry that is marked with ! under \"{label}\".")));
            self.form.focus_on(&id);
            return NetworkStep::Stay;
        }
        let checked = self.present.answers.check(false);
        match checked.config {
            Some(config) if config.install.management_interface.is_none() => {
                let text = "Mark the network cards that make up the management network.";
                self.message = Some((Tone::Error, text.to_owned()));
                NetworkStep::Stay
            }
            Some(config) => NetworkStep::Propose(Box::new(Networks::of(&config))),
            None => {
                let said = checked.diagnostics.iter().find(|said| is_mistake(said));
                self.message = said.map(|said| (Tone::Error, format!("{}: {}", said.path, said.message)));
                NetworkStep::Stay
            }
        }
    }

    fn review_key(&mut self, key: Key, proposal: Proposal) -> NetworkStep {
        if key == Key::Escape {
            (self.proposal, self.message) = (None, None);
            self.form = Form::new(self.fields());
            return NetworkStep::Stay;
        }
        if matches!(key, Key::Up | Key::Down | Key::PageUp | Key::PageDown) && self.scroll.key(key) {
            return NetworkStep::Stay;
        }
        match (self.form.key(key), proposal.grave) {
            (KeyEffect::Accepted, false) => NetworkStep::Try(Box::new(proposal.networks), false),
            (KeyEffect::Accepted, true) => {
                let typed = self.form.field("word").and_then(Field::typed).unwrap_or_default();
                if typed.trim().eq_ignore_ascii_case(WORD) {
                    return NetworkStep::Try(Box::new(proposal.networks), true);
                }
                self.message =
                    Some((Tone::Warning, format!("Type the word {WORD}, or press Esc to go back.")));
                NetworkStep::Stay
            }
            _ => NetworkStep::Stay,
        }
    }
}
