//! Text above choices: common to several screens of the conversation.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::toolkit::Theme;
use crate::toolkit::form::Form;
use crate::toolkit::text::{self, Scroll};

/// Text, and below it choices that take this many rows. With little room the choices come first.
pub(super) fn above(
    rows: &[(String, Style)],
    scroll: &mut Scroll,
    choices: u16,
    form: &mut Form,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let choices = choices.min(body.height);
    let height = u16::try_from(rows.len() + 1).unwrap_or(u16::MAX).min(body.height - choices);
    text::draw(frame, Rect { height, ..body }, rows, scroll);
    form.draw(frame, Rect { y: body.y + height, height: body.height - height, ..body }, theme);
}
