//! A machine that an install would refuse: the findings are shown before the plan, with choices.

use serde_json::Value;

use super::{Conversation, ConversationEffect, ConversationPlace, Review};
use crate::questions::screens::QuestionScreen;
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form};

/// The key with the checks that are left out.
const SKIP: &str = "install.skip_checks";

#[derive(Clone, Copy, Debug)]
enum UnfitChoice {
    Change,
    Again,
    Without,
}

impl Conversation {
    /// Shows the plan, or first the findings against it.
    pub(super) fn planned(&mut self, review: Review) {
        if !matches!(self.place, ConversationPlace::Review(_)) {
            return;
        }
        if review.stops().next().is_some() {
            self.show_unfit(review);
        } else if !review.present.is_empty() && review.present != self.accepted {
            self.ask_about(review);
        } else {
            self.place = ConversationPlace::Review(review);
        }
    }

    pub(super) fn show_unfit(&mut self, review: Review) {
        let options = options(&review).into_iter().map(|(_, option)| option).collect();
        self.form = Form::new(vec![Field::choice("next", "What now?", options, Some(0))]);
        self.place = ConversationPlace::Unfit(review);
    }

    pub(super) fn unfit_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        let ConversationPlace::Unfit(review) = &mut self.place else { return Vec::new() };
        match key {
            Key::Escape => {
                self.ask(self.order().last().copied().unwrap_or(QuestionScreen::Welcome));
                return Vec::new();
            }
            Key::PageUp | Key::PageDown => {
                review.scroll.key(key);
                return Vec::new();
            }
            _ => {}
        }
        let next = self.form.decide(key).and_then(|at| options(review).get(at).map(|(next, _)| *next));
        match next {
            Some(UnfitChoice::Change) => self.ask(QuestionScreen::Welcome),
            Some(UnfitChoice::Again) => return self.review(),
            Some(UnfitChoice::Without) => {
                let stops: Vec<_> = review.stops().map(|finding| Value::from(finding.check)).collect();
                let before = self.answers.value(SKIP).and_then(|value| value.as_array().cloned());
                let all = before.unwrap_or_default().into_iter().chain(stops).collect();
                self.answers.give(SKIP, Some(all));
                return self.review();
            }
            None => {}
        }
        Vec::new()
    }
}

/// The choices with their texts. A check that is needed cannot be left out.
fn options(review: &Review) -> Vec<(UnfitChoice, Choice)> {
    let mut all = vec![
        (
            UnfitChoice::Change,
            Choice::new("Change the answers").with("A trial asks for less than production."),
        ),
        (UnfitChoice::Again, Choice::new("Check the machine again")),
    ];
    if review.stops().all(|finding| finding.waivable) {
        let names: Vec<_> = review.stops().map(|finding| finding.check).collect();
        let checks = if names.len() == 1 { "check" } else { "checks" };
        let option = Choice::new(format!("Install anyway, without the {checks} {}", names.join(", ")));
        all.push((
            UnfitChoice::Without,
            option.with("The machine stays as it is. The recorded answers say so too."),
        ));
    }
    all
}
