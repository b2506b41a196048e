//! The change of the network: questions with the present values filled in, then what changes; pure. The trial itself shows
//! a page of its own.

use std::collections::BTreeSet;

use crate::inventory::Nic;
use crate::node::network_trial::Networks;
use crate::ui::answers::{Answers, is_mistake};
use crate::ui::network_fields as screen;
use crate::ui::toolkit::Key;
use crate::ui::toolkit::form::{Did, Field, FieldKind, Form};
use crate::ui::toolkit::page::Tone;
use crate::ui::toolkit::text::Scroll;

/// What has to be typed where a change is a grave matter.
pub const WORD: &str = "change";

/// What the questions begin with.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentNetwork {
    /// The node document, in which the present networks are.
    pub answers: Answers,
    /// The node's network cards.
    pub nics: Vec<Nic>,
}

/// A change that can be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The networks.
    pub networks: Networks,
    /// What becomes different, a value a text.
    pub differences: Vec<String>,
    /// What somebody should know before.
    pub warnings: Vec<String>,
    /// Whether somebody has to say that it shall be so all the same.
    pub grave: bool,
}

/// What a key leads to outside of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkStep {
    /// Nothing.
    Stay,
    /// Back to the node.
    Leave,
    /// The answers are to be checked with the whole document.
    Propose(Box<Networks>),
    /// The change is to be tried; whether a grave matter was accepted.
    Try(Box<Networks>, bool),
}

/// The page.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkPage {
    present: PresentNetwork,
    /// The fields of what is in front: the questions, or the word.
    pub form: Form,
    visited: BTreeSet<String>,
    /// The change, once the questions are answered.
    pub proposal: Option<Proposal>,
    /// How far it is scrolled.
    pub scroll: Scroll,
    /// Something to say.
    pub message: Option<(Tone, String)>,
}

impl NetworkPage {
    /// The questions.
    #[must_use]
    pub fn new(present: PresentNetwork) -> Self {
        let (form, visited) = (Form::default(), BTreeSet::new());
        let mut page =
            Self { present, form, visited, proposal: None, scroll: Scroll::default(), message: None };
        page.form = Form::new(page.fields());
        page
    }

    /// Takes a key.
    pub fn key(&mut self, key: Key) -> NetworkStep {
        match &self.proposal {
            Some(proposal) => {
                let proposal = proposal.clone();
                self.review_key(key, proposal)
            }
            None => self.question_key(key),
        }
    }

    /// Takes what came of the check with the whole document.
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
            Did::Left(field) => self.take(field),
            Did::Changed if !self.types() => {
                self.take(self.form.focus());
                // Enter takes an option and goes on.
                if key == Key::Enter {
                    return self.question_key(Key::Enter);
                }
            }
            Did::Accepted => return self.propose(),
            _ => {}
        }
        NetworkStep::Stay
    }

    /// Whether the focus is on a line, which is taken when it is left.
    fn types(&self) -> bool {
        matches!(
            self.form.focused().map(|field| &field.kind),
            Some(FieldKind::Line(_) | FieldKind::Secret(_))
        )
    }

    /// Takes over what stands in a field, and makes the fields anew, which may be others now.
    fn take(&mut self, field: usize) {
        self.message = None;
        let Some(field) = self.form.fields.get(field).cloned() else { return };
        screen::answer(&field, &mut self.present.answers, &self.present.nics);
        self.visited.insert(field.id);
        self.renew();
    }

    /// Makes the fields anew, each that was left with what is wrong with it.
    fn renew(&mut self) {
        let checked = self.present.answers.check(false);
        let mut fields = self.fields();
        for field in fields.iter_mut().filter(|field| self.visited.contains(&field.id)) {
            checked.tell(field);
        }
        self.form.replace(fields);
    }

    /// Goes to the check with the whole document, if the fields have no mistakes.
    fn propose(&mut self) -> NetworkStep {
        self.take(self.form.focus());
        self.visited
            .extend(self.form.fields.iter().map(|field| field.id.clone()).filter(|id| !id.is_empty()));
        self.renew();
        if let Some(field) = self.form.fields.iter().find(|field| !field.errors.is_empty()) {
            let (id, label) = (field.id.clone(), field.label.clone());
            self.message = Some((Tone::Error, format!("Put right what is marked with ! under \"{label}\".")));
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
            (Did::Accepted, false) => NetworkStep::Try(Box::new(proposal.networks), false),
            (Did::Accepted, true) => {
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
