//! Opening and closing help access.

use super::{Conversation, ConversationEffect, ConversationPlace};
use crate::questions::ShownTrouble;
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form};
use crate::toolkit::page::Tone;
use machine::live::help::{ACCOUNT, HelpAccess};

#[derive(Clone, Copy, Debug)]
enum HelpChoice {
    Open,
    Shell,
    Close,
    Back,
}

const CLOSED: [(HelpChoice, &str); 2] =
    [(HelpChoice::Open, "Open help access"), (HelpChoice::Back, "Go back")];
const OPEN: [(HelpChoice, &str); 3] = [
    (HelpChoice::Shell, "Open a shell on this console"),
    (HelpChoice::Close, "Close help access"),
    (HelpChoice::Back, "Go back, and leave it open"),
];

impl Conversation {
    /// Shows the help access, if this system can open one.
    pub(super) fn help(&mut self) -> Vec<ConversationEffect> {
        if !self.facts.can_help {
            self.message = Some((Tone::Warning, NOT_HERE.into()));
            return Vec::new();
        }
        if let ConversationPlace::Asking(screen) = self.place {
            self.take(screen, self.form.focus());
        }
        self.message = None;
        let back = self.take_place();
        self.show_help(back);
        Vec::new()
    }

    pub(super) fn show_help(&mut self, back: Box<ConversationPlace>) {
        self.form = Form::new(fields(self.access.as_ref()));
        self.place = ConversationPlace::Help(back);
    }

    pub(super) fn help_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        if matches!(key, Key::Escape | Key::Function(9)) {
            return self.back_from();
        }
        match self.form.decide(key).and_then(|at| choices(self.access.as_ref()).get(at)) {
            Some((HelpChoice::Open, _)) => {
                self.message = None;
                self.wait("Making a password and starting the SSH server", ConversationEffect::OpenAccess)
            }
            Some((HelpChoice::Close, _)) => {
                self.message = None;
                self.wait("Closing", ConversationEffect::CloseAccess)
            }
            Some((HelpChoice::Shell, _)) => self.wait("A shell has the console", ConversationEffect::Shell),
            Some((HelpChoice::Back, _)) => self.back_from(),
            None => Vec::new(),
        }
    }

    pub(super) fn opened(&mut self, opened: Result<Box<HelpAccess>, ShownTrouble>) {
        match opened {
            Ok(access) => self.access = Some(*access),
            Err(trouble) => self.message = Some((Tone::Error, trouble.text())),
        }
        self.show_help_again();
    }

    pub(super) fn closed(&mut self, closed: Result<(), ShownTrouble>) {
        // Leftovers cannot be used without a password, or can be closed again.
        self.message = match closed {
            Ok(()) => {
                self.access = None;
                Some((Tone::Good, "Help access is closed.".into()))
            }
            Err(trouble) => Some((Tone::Error, trouble.text())),
        };
        self.show_help_again();
    }

    fn show_help_again(&mut self) {
        if matches!(self.place, ConversationPlace::Help(_)) {
            self.form = Form::new(fields(self.access.as_ref()));
        }
    }
}

fn choices(access: Option<&HelpAccess>) -> &'static [(HelpChoice, &'static str)] {
    if access.is_some() { &OPEN } else { &CLOSED }
}

fn fields(access: Option<&HelpAccess>) -> Vec<Field> {
    let options = choices(access).iter().map(|(_, name)| Choice::new(*name)).collect();
    let choice = Field::choice("access", "What now?", options, Some(0));
    let Some(access) = access else { return vec![Field::text("", SHUT), choice] };
    let way_in = format!("User      {ACCOUNT}\nPassword  {}", access.password.expose());
    let mut fields = vec![Field::text("Help access is open", &way_in)];
    match &access.trouble {
        Some(why) => fields.push(Field::text("Only on this machine's consoles", why)),
        None => {
            let none = "This system has no address yet.".to_owned();
            let addresses = if access.addresses.is_empty() { none } else { access.addresses.join("\n") };
            let key = access.host_key.as_ref().map(|key| format!("\nHost key {key}")).unwrap_or_default();
            fields.push(Field::text("With ssh, at", &format!("{addresses}{key}")));
        }
    }
    fields.extend([Field::text("", CAN), choice]);
    fields
}

const NOT_HERE: &str =
    "Help access is not possible here: it is for the consoles of a system that runs from a medium.";
const SHUT: &str = "Help access is closed. Opening it gives root a new password, which is shown here, and \
    starts an SSH server. Both are gone after a restart, and nothing of them gets onto the installed node.";
const CAN: &str =
    "Anyone who logs in has full control of this machine and can see all answers, including secrets.";
