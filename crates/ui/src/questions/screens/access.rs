//! Who may log in.

use crate::answers::{AnswerOrigin, Answers};
use crate::fields::{line, secret};
use crate::toolkit::form::Field;

pub const REPETITION: &str = "repetition";

pub(super) fn fields(answers: &Answers) -> Vec<Field> {
    let id = "os.password";
    let text = match answers.origin(id) {
        Some(AnswerOrigin::Answered) => answers.text(id),
        _ => String::new(),
    };
    vec![
        Field::text("", "At least one login is needed: with a password, with SSH keys, or with both."),
        secret(answers, id, "Password of rancher", "8 characters or more"),
        Field::secret(REPETITION, "Again", &text),
        line(answers, "os.ssh_authorized_keys", "SSH keys", "a key, github:NAME or a URL"),
    ]
}
