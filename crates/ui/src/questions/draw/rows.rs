//! Rows of text, and text above choices: common to all screens of the conversation.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::toolkit::Theme;
use crate::toolkit::form::Form;
use crate::toolkit::text::{self, Scroll, wrapped};

/// Text in rows of this width.
pub(super) fn styled(text: &str, width: usize, style: Style) -> Vec<(String, Style)> {
    wrapped(text, width).into_iter().map(|row| (row, style)).collect()
}

/// Draws text at the top; returns the area below it.
pub(super) fn paragraph(text: &str, style: Style, frame: &mut Frame<'_>, area: Rect) -> Rect {
    let rows = styled(text, usize::from(area.width), style);
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX).min(area.height);
    text::draw(frame, Rect { height, ..area }, &rows, &mut Scroll::default());
    Rect { y: area.y + height, height: area.height - height, ..area }
}

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
