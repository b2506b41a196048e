//! The screens of the end: the failure, the success, and saving files.

use ratatui::Frame;
use ratatui::layout::{Rect, Size};
use ratatui::style::Style;

use super::rows::above;
use crate::questions::brief::brief;
use crate::questions::state::{Conversation, Review};
use crate::questions::{ConversationEnd, ShownTrouble};
use crate::toolkit::Theme;
use crate::toolkit::form::Form;
use crate::toolkit::qr::{self, Code};
use crate::toolkit::text::{self, Scroll, paragraph, styled, wrapped};
use base::progress;
use model::config::Secret;

/// Rows of the choices after a failure: a heading, the choices, and an empty one.
const CHOICE_ROWS: u16 = 9;
/// Rows of the choices for an unfit machine: the same with words below, and a name that is wrapped.
const UNFIT_ROWS: u16 = 8;
/// Columns beside a code, for its text.
const TEXT_COLUMNS: u16 = 30;
/// In bytes; a code with less text is not worth its room.
const CODE_BYTES_MIN: usize = 40;
/// In bytes; a larger code is hard to read from a screen.
const CODE_BYTES_MAX: usize = 400;

pub(super) fn failed(
    trouble: &ShownTrouble,
    scroll: &mut Scroll,
    form: &mut Form,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let width = usize::from(body.width);
    let styled = |text: &str, style: Style| styled(text, width, style);
    let mut rows = styled(trouble.meaning(), theme.heading());
    rows.extend(styled(&trouble.causes.join("\nbecause: "), theme.error()));
    for hint in &trouble.hints {
        rows.extend(styled(&format!("What to try: {hint}"), Style::new()));
    }
    above(&rows, scroll, CHOICE_ROWS, form, frame, body, theme);
}

pub(super) fn unfit(review: &mut Review, form: &mut Form, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let width = usize::from(body.width);
    let styled = |text: &str, style: Style| styled(text, width, style);
    let mut rows = styled("This machine does not meet the requirements:", theme.heading());
    for finding in review.stops() {
        rows.extend(styled(&format!("{}: {}", finding.check, finding.text), theme.error()));
        rows.extend(styled(&format!("  {}", finding.next), Style::new()));
    }
    above(&rows, &mut review.scroll, UNFIT_ROWS, form, frame, body, theme);
}

pub(super) fn done(
    record: Option<&str>,
    end: ConversationEnd,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let rest = paragraph("The installation is complete.\n\n", theme.good(), frame, body);
    let node = "The machine starts as the node that you have described.";
    let text = match end {
        ConversationEnd::Restart => {
            format!("Remove the medium, then press Enter to restart the machine. {node}")
        }
        ConversationEnd::PowerOff => {
            format!("Press Enter to power the machine off, and remove the medium. {node}")
        }
        ConversationEnd::Quit => format!("Press Enter to end. {node}"),
    };
    let rest = paragraph(&text, Style::new(), frame, rest);
    let rest = match record {
        Some(record) => {
            let text = format!(
                "\nThe answers are recorded in {record}. With that file the next machine installs unattended."
            );
            paragraph(&text, Style::new(), frame, rest)
        }
        None => rest,
    };
    paragraph(NEXT, Style::new(), frame, rest);
}

const NEXT: &str = "\nInstall the next node unattended with your answers: F6 saves them on a stick as a configuration, F4 shows it. It \
                    holds secrets.";

/// The short report of the failure, as a code and in words.
pub(super) fn code(state: &Conversation, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let Some(trouble) = state.trouble() else { return };
    let failed = state.work.rows.iter().rev().find(|row| row.state == Some(progress::StepState::Failed));
    let step = failed.or(state.work.current()).map(|row| &*row.id);
    let report = |room| brief(&state.facts.product, step, trouble, room);
    let beside = body.width.saturating_sub(TEXT_COLUMNS);
    let room = qr::room(Size::new(beside, body.height), theme).filter(|room| *room >= CODE_BYTES_MIN);
    let code = room.and_then(|room| Code::of(&report(room.min(CODE_BYTES_MAX))));
    let Some(code) = code else {
        let rest = paragraph(NO_ROOM, theme.warning(), frame, body);
        paragraph(&format!("\n{}", report(CODE_BYTES_MAX)), Style::new(), frame, rest);
        return;
    };
    code.draw(frame, body, theme);
    let width = code.size(theme).width + 2;
    let right = Rect { x: body.x + width, width: body.width.saturating_sub(width), ..body };
    let rest =
        paragraph("For support, as much of this as fits into the code:", theme.heading(), frame, right);
    paragraph(&format!("\n{}", report(CODE_BYTES_MAX)), Style::new(), frame, rest);
}

const NO_ROOM: &str = "This console is too small for a useful QR code: use more rows, or the screen of the \
    machine. In words:";

pub(super) fn recorded(text: &Secret, scroll: &mut Scroll, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let width = usize::from(body.width);
    let warned = wrapped(SECRETS, width).into_iter().map(|row| (row, theme.warning()));
    let lines = text.expose().lines();
    let lines = lines.flat_map(|line| wrapped(if line.is_empty() { " " } else { line }, width));
    let rows: Vec<_> = warned.chain(lines.map(|row| (row, Style::new()))).collect();
    text::draw(frame, body, &rows, scroll);
}

const SECRETS: &str =
    "This contains secrets, in a cluster its token: anyone who reads it can add machines to the cluster.";
