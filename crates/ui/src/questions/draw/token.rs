//! The token of a new cluster, to be written down: in full, and as a QR code beside it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::toolkit::Theme;
use crate::toolkit::qr::Code;
use crate::toolkit::text::paragraph;
use model::config::Secret;

/// The least columns beside the code, for the text.
const TEXT_COLUMNS: u16 = 40;

pub(super) fn token(token: &Secret, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let code = Code::of(token.expose());
    let width = code.as_ref().map_or(0, |code| code.size(theme).width + 2);
    let room = body.width.saturating_sub(width);
    let is_drawn = room >= TEXT_COLUMNS && code.is_some_and(|code| code.draw(frame, body, theme));
    let right = if is_drawn { Rect { x: body.x + width, width: room, ..body } } else { body };
    let rest = paragraph(PURPOSE, Style::new(), frame, right);
    let rest = paragraph(&format!("\n{}\n\n", token.expose()), theme.heading(), frame, rest);
    let dots = if token.expose().contains('.') { "The dots are part of it. " } else { "" };
    let code = if is_drawn { "\n\nThe code has the same text." } else { "" };
    paragraph(&format!("{dots}{ADVICE}{code}"), Style::new(), frame, rest);
}

const PURPOSE: &str =
    "With this token a node joins the cluster. Write it down now: it is typed on each node that joins.";
const ADVICE: &str = "Keep it secret: any machine that has it can join.";
