//! The layout of the keyboard at the screen: chosen from those that the system has, tried, and written to the node.

use serde_json::Value;

use super::{Conversation, ConversationEffect, ConversationPlace};
use crate::questions::ShownTrouble;
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use machine::keyboard::DEFAULT;

/// The key of the configuration, and the id of its choice.
const KEYBOARD: &str = "os.keyboard";
/// The id of the line to try the keys in, which is no answer.
const TRIAL: &str = "trial";

impl Conversation {
    /// Shows the keyboard layouts, if this system has any.
    pub(super) fn keyboard(&mut self) {
        if self.facts.keyboards.is_empty() {
            self.message = Some((Tone::Warning, NONE_HERE.into()));
            return;
        }
        if let ConversationPlace::Asking(screen) = self.place {
            self.take(screen, self.form.focus());
        }
        self.message = None;
        let back = self.take_place();
        self.show_keyboard(back);
    }

    pub(super) fn show_keyboard(&mut self, back: Box<ConversationPlace>) {
        let keyboards = &self.facts.keyboards;
        let now = self.keyboard_layout();
        let chosen = keyboards.iter().position(|keyboard| keyboard.name.eq_ignore_ascii_case(&now));
        let options = keyboards.iter().map(|keyboard| Choice::new(&keyboard.label)).collect();
        self.form = Form::new(vec![
            Field::text("", WHAT_FOR),
            Field::choice(KEYBOARD, "Keyboard layout", options, chosen),
            Field::line(TRIAL, "Try it here", ""),
        ]);
        self.place = ConversationPlace::Keyboard(back);
    }

    /// The layout of the answers, or that of a kernel that was told of none.
    #[must_use]
    pub fn keyboard_layout(&self) -> String {
        let answered = self.answers.text(KEYBOARD);
        if answered.is_empty() { DEFAULT.to_owned() } else { answered }
    }

    /// The effects with which a conversation begins: the configuration that was found may have a keyboard layout.
    pub(crate) fn begin(&self) -> Vec<ConversationEffect> {
        let found = Some(self.answers.text(KEYBOARD)).filter(|name| !name.is_empty());
        found.map(ConversationEffect::SetKeyboard).into_iter().collect()
    }

    pub(super) fn keyboard_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        if matches!(key, Key::Escape | Key::Function(2)) {
            return self.back_from();
        }
        let at_choice = self.form.focused().is_some_and(|field| field.id == KEYBOARD);
        let did = self.form.key(key);
        let took = at_choice && matches!(key, Key::Enter | Key::Char(' '));
        let chosen = self.form.field(KEYBOARD).and_then(Field::chosen).filter(|_| took);
        match chosen.and_then(|at| self.facts.keyboards.get(at)) {
            Some(keyboard) => {
                let name = keyboard.name.clone();
                self.message = None;
                self.wait("Setting the keyboard layout", ConversationEffect::SetKeyboard(name))
            }
            None if did == KeyEffect::Accepted => self.back_from(),
            None => Vec::new(),
        }
    }

    /// Whether the user is choosing a layout, or thinks of leaving meanwhile.
    pub(super) fn chooses_keyboard(&self) -> bool {
        match &self.place {
            ConversationPlace::Leave(back) => matches!(**back, ConversationPlace::Keyboard(_)),
            place => matches!(place, ConversationPlace::Keyboard(_)),
        }
    }

    /// The screen has the layout, or kept the one that it had.
    pub(super) fn keyboard_set(&mut self, name: String, set: Result<String, ShownTrouble>) {
        let choosing = self.chooses_keyboard();
        self.message = match set {
            Ok(told) if choosing => {
                self.answers.give(KEYBOARD, Some(Value::from(name)));
                self.form.focus_on(TRIAL);
                Some((Tone::Good, format!("{told} Type something to try it; Esc goes back.")))
            }
            Ok(told) => Some((Tone::Good, told)),
            Err(trouble) => Some((Tone::Error, trouble.text())),
        };
        if let ConversationPlace::Asking(screen) = self.place {
            self.form.replace(self.kept_fields(screen));
        }
    }
}

const WHAT_FOR: &str = "For the keyboard at this machine's screen, now and on the installed node. A serial console has the \
    layout of its terminal.";
const NONE_HERE: &str = "This system has no keymaps, so the keyboard layout stays as it is.";
