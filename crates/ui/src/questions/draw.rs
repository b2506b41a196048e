//! Drawing a state, and a console that follows another one.

mod ending;
mod finished_nodes;
mod rows;
mod token;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::install_progress::{InstallProgress, StepRow};
use super::screens::QuestionScreen;
use super::state::{Conversation, ConversationPlace, FinishedNodes, Review, SavedFile};
use crate::toolkit::Theme;
use crate::toolkit::form::Form;
use crate::toolkit::page::{Page, Tone, room_for_place};
use crate::toolkit::text::{self, Scroll, paragraph, styled, wrapped};
use base::progress::{self, measure::percent};
use model::config::Mode;

/// The number of screens after those with questions: plan, confirmation, progress, result.
const AFTER: usize = 4;

pub fn state(state: &mut Conversation, frame: &mut Frame<'_>, theme: Theme) {
    let mode = state.mode();
    let (title, keys) = head(state, mode);
    let mut keys: Vec<_> = keys.split(", ").filter_map(|key| key.split_once(": ")).collect();
    let counts = matches!(state.place, ConversationPlace::FinishedNodes(FinishedNodes { left: Some(_), .. }));
    if !counts && !matches!(state.place, ConversationPlace::Leave(_)) {
        keys.push(("F10", "leave"));
        if state.facts.can_help && !matches!(state.place, ConversationPlace::Help(_)) {
            keys.push(("F9", "help access"));
        }
    }
    let place = place(state, &progress_text(state), room_for_place(title, frame.area().width));
    let message = match (&state.busy, &state.message) {
        (Some(what), _) => Some((Tone::Plain, format!("{what} ..."))),
        (None, Some((tone, text))) => Some((*tone, text.clone())),
        (None, None) => state.image_damage.clone().map(|text| (Tone::Error, text)),
    };
    let message = message.as_ref().map(|(tone, text)| (*tone, text.as_str()));
    let body = Page { title, place: &place, keys: &keys, message }.draw(frame, theme);
    match &mut state.place {
        ConversationPlace::Asking(_)
        | ConversationPlace::Load
        | ConversationPlace::Keyboard(_)
        | ConversationPlace::Leave(_)
        | ConversationPlace::Save(..)
        | ConversationPlace::Help(_) => {
            state.form.draw(frame, body, theme);
        }
        ConversationPlace::Review(review) => self::review(review, frame, body, theme),
        ConversationPlace::Unfit(review) => ending::unfit(review, &mut state.form, frame, body, theme),
        ConversationPlace::FinishedNodes(finished) => {
            finished_nodes::finished_nodes(finished, &mut state.form, frame, body, theme)
        }
        ConversationPlace::Disks(scroll, _) => {
            finished_nodes::disks(&state.facts.inventory, scroll, frame, body, theme)
        }
        ConversationPlace::Confirm(review) => confirm(review, &mut state.form, frame, body, theme),
        ConversationPlace::Working { log: Some(scroll) } => log(&state.work, scroll, frame, body),
        ConversationPlace::Working { log: None } => work(&state.work, frame, body, theme),
        ConversationPlace::Failed(trouble, scroll) => {
            ending::failed(trouble, scroll, &mut state.form, frame, body, theme);
        }
        ConversationPlace::Done { record } if state.facts.rehearsal => {
            let kept = record.as_ref().map(|path| format!(" The answers are in {path}.")).unwrap_or_default();
            let text = format!(
                "This was a rehearsal. No disk has been written; a real installation would begin now.{kept}"
            );
            paragraph(&text, theme.good(), frame, body);
        }
        ConversationPlace::Done { record } => {
            let record = record.clone();
            ending::done(record.as_deref(), state.end_when_done(), frame, body, theme);
        }
        ConversationPlace::Code(_) => ending::code(state, frame, body, theme),
        ConversationPlace::Token(token, _) => token::token(token, frame, body, theme),
        ConversationPlace::Recorded(text, scroll, _) => ending::recorded(text, scroll, frame, body, theme),
    }
}

/// What stands at the right of a title, with `progress` at its end, in at most `room` characters: warnings stay longest.
fn place(state: &Conversation, progress: &str, room: usize) -> String {
    let rehearsal = if state.facts.rehearsal { "REHEARSAL  " } else { "" };
    let damaged = if state.image_damage.is_some() { "DAMAGED  " } else { "" };
    let warnings = format!("{rehearsal}{damaged}");
    let places =
        [format!("{warnings}{}  {progress}", state.facts.product), format!("{warnings}{progress}"), warnings];
    let fits = |place: &&str| place.chars().count() <= room;
    places.iter().map(|place| place.trim()).find(fits).unwrap_or_default().to_owned()
}

/// Draws a console while another one leads.
pub fn follower(state: &Conversation, leader: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys = &[("Enter", "answer here")];
    let title = "Install: another console leads";
    let place = place(state, "", room_for_place(title, frame.area().width));
    let message = state.image_damage.as_deref().map(|text| (Tone::Error, text));
    let body = Page { title, place: &place, keys, message }.draw(frame, theme);
    let now = match state.place.base() {
        ConversationPlace::Working { .. } => format!(
            "The installation goes on: step {} of {}. {}",
            (state.work.steps.1 + 1).min(state.work.steps.0),
            state.work.steps.0,
            state.work.current().map(|row| row.message.clone()).unwrap_or_default()
        ),
        ConversationPlace::Failed(..) => "The installation has failed.".to_owned(),
        ConversationPlace::Done { .. } => "The installation is complete.".to_owned(),
        _ => {
            let title = head(state, state.mode()).0;
            format!("The questions are being answered: {}.", title.trim_start_matches("Install: "))
        }
    };
    let text = format!(
        "This machine is being set up on the console {leader}.\n\n{now}\n\nPress Enter to answer on this console. The answers are kept."
    );
    paragraph(&text, Style::new(), frame, body);
}

/// The title of the current screen, and its keys in the form `KEY: effect, KEY: effect`. F9 and F10 are everywhere.
fn head(state: &Conversation, mode: Mode) -> (&'static str, &'static str) {
    match &state.place {
        ConversationPlace::Asking(screen) => (screen.title(mode), asking_keys(*screen, mode)),
        ConversationPlace::Load => ("Install: a configuration", "Up/Down: choose, Enter: read it, Esc: back"),
        ConversationPlace::Keyboard(_) => {
            ("Install: keyboard layout", "Up/Down/Home/End: move, Enter: choose, Tab: try it, Esc: back")
        }
        ConversationPlace::Review(Review { plan: Some(_), .. }) => {
            ("Install: the plan", "Enter: go on, Esc: back, Up/Down/PgUp/PgDn: read")
        }
        ConversationPlace::Review(_) => ("Install: the plan", "Enter: correct it, Esc: back"),
        ConversationPlace::Unfit(_) => {
            ("Install: this machine", "Up/Down: choose, Enter: do it, Esc: back, PgUp/PgDn: read")
        }
        ConversationPlace::FinishedNodes(FinishedNodes { left: Some(_), .. }) => {
            ("Install: a finished node", "any key: stop")
        }
        ConversationPlace::FinishedNodes(_) => {
            ("Install: a finished node", "Up/Down: choose, Enter: do it, PgUp/PgDn: read")
        }
        ConversationPlace::Disks(..) => ("Install: the disks", "Up/Down/PgUp/PgDn: read, Esc: back"),
        ConversationPlace::Confirm(_) => ("Install: the last question", "Enter: go on, Esc: back"),
        ConversationPlace::Working { log: None } => ("Install: progress", "F7: log"),
        ConversationPlace::Working { .. } => ("Install: log", "F7: steps, Up/Down/PgUp/PgDn: read"),
        ConversationPlace::Failed(..) => {
            ("Install: it has failed", "Up/Down: choose, Enter: do it, F5: look again, PgUp/PgDn: read")
        }
        ConversationPlace::Done { .. } if state.facts.rehearsal => {
            ("Install: end of the rehearsal", "Enter: end")
        }
        ConversationPlace::Done { .. } => (
            "Install: complete",
            match state.created_token() {
                Some(_) => "Enter: go on, F6: save for the next node, F4: show it, F5: show token",
                None => "Enter: go on, F6: save for the next node, F4: show it",
            },
        ),
        ConversationPlace::Save(saving, _) => (
            match saving.what {
                SavedFile::Logs => "Install: save the logs",
                SavedFile::Configuration => "Install: the next node",
            },
            "Up/Down: choose, Enter: save, F5: look again, Esc: back",
        ),
        ConversationPlace::Token(..) => ("Install: the token of the cluster", "Enter: go on, Esc: back"),
        ConversationPlace::Code(_) => ("Install: short report", "Esc: back"),
        ConversationPlace::Recorded(..) => {
            ("Install: the configuration", "Up/Down/PgUp/PgDn: read, Esc: back")
        }
        ConversationPlace::Help(_) => ("Install: help access", "Up/Down: choose, Enter: do it, Esc: back"),
        ConversationPlace::Leave(_) => ("Install: leave", "Up/Down: choose, Enter: do it, Esc: back"),
    }
}

fn asking_keys(screen: QuestionScreen, mode: Mode) -> &'static str {
    match screen {
        QuestionScreen::Welcome => "Up/Down: move, Enter: choose, F3: load configuration, F5: look again",
        QuestionScreen::Disks => "Up/Down: move, Space/Enter: choose, F8: next, Esc: back, F5: look again",
        QuestionScreen::Network => "Up/Down: move, Space: mark, F8: next, Esc: back, F5: try",
        QuestionScreen::Cluster if mode == Mode::Create => {
            "Tab: move, F8: next, Esc: back, F4: show token, F6: make token"
        }
        QuestionScreen::Cluster => "Tab: move, F8: next, Esc: back, F4: show token, F5: ask cluster",
        QuestionScreen::Access => "Tab: move, F8: next, Esc: back, F4: show password",
        QuestionScreen::Names => "Tab: move, F8: next, Esc: back",
    }
}

fn progress_text(state: &Conversation) -> String {
    let order = state.order();
    let at = match &state.place {
        ConversationPlace::Asking(screen) => order.iter().position(|one| one == screen),
        ConversationPlace::Review(_) => Some(order.len()),
        ConversationPlace::Confirm(_) => Some(order.len() + 1),
        ConversationPlace::Working { .. } => Some(order.len() + 2),
        ConversationPlace::Done { .. } | ConversationPlace::Failed(..) => Some(order.len() + 3),
        _ => None,
    };
    at.map(|at| format!("{} of {}", at + 1, order.len() + AFTER)).unwrap_or_default()
}

fn review(review: &mut Review, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let width = usize::from(body.width);
    let styled = |text: &str, style: Style| styled(text, width, style);
    let mut rows = Vec::new();
    if let Some(plan) = &review.plan {
        // Warnings come before the plan: Enter on the first page goes on.
        for finding in &review.findings {
            rows.extend(styled(&format!("Warning: {}: {}", finding.check, finding.text), theme.warning()));
            rows.extend(styled(&format!("  {}", finding.next), Style::new()));
        }
        if !review.left_out.is_empty() {
            let text = format!("Left out of the checks: {}", review.left_out.join(", "));
            rows.extend(styled(&text, theme.warning()));
        }
        if !rows.is_empty() {
            rows.extend(styled(" ", Style::new()));
        }
        rows.extend(plan.lines().flat_map(|line| {
            let lost = review.erased.iter().any(|erased| erased == line);
            styled(if line.is_empty() { " " } else { line }, if lost { theme.error() } else { Style::new() })
        }));
    } else if !review.mistakes.is_empty() {
        rows.extend(styled("There is no plan yet:", theme.heading()));
        for (_, mistake) in &review.mistakes {
            rows.extend(styled(&format!("! {mistake}"), theme.error()));
        }
    }
    text::draw(frame, body, &rows, &mut review.scroll);
}

fn confirm(review: &Review, form: &mut Form, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    // The question must be visible even with little room.
    let room = usize::from(body.height.saturating_sub(6)).max(1);
    let mut lost = wrapped(&review.erased.join("\n"), usize::from(body.width));
    if lost.len() > room {
        let more = lost.len() - room + 1;
        lost.truncate(room - 1);
        lost.push(format!("and {more} more lines; Esc goes back to the plan"));
    }
    let rest = paragraph(&lost.join("\n"), theme.error(), frame, body);
    let end = match review.erased.is_empty() {
        true => "Nothing is erased. This machine restarts as the node that was described.\n\n",
        false => "\nThis cannot be undone.\n\n",
    };
    let rest = paragraph(end, Style::new(), frame, rest);
    form.draw(frame, rest, theme);
}

fn work(work: &InstallProgress, frame: &mut Frame<'_>, body: Rect, theme: Theme) {
    let (steps, done) = work.steps;
    let share = percent(u64::try_from(done).unwrap_or(0), u64::try_from(steps).unwrap_or(0));
    let heading = format!("Step {} of {steps}, {} so far", (done + 1).min(steps), work.elapsed());
    let rest = paragraph(&heading, theme.heading(), frame, body);
    let width = usize::from(body.width).saturating_sub(8).min(60);
    let (full, empty) = theme.gauge();
    let filled = width * usize::try_from(share).unwrap_or(0) / 100;
    let bar = format!("{}{} {share:3} %", full.repeat(filled), empty.repeat(width - filled));
    let rest = paragraph(&format!("{bar}\n\n"), Style::new(), frame, rest);
    let room = usize::from(rest.height);
    let room_for_text = usize::from(body.width).saturating_sub(INDENT);
    let mut rows: Vec<_> = work.rows.iter().flat_map(|row| step(work, row, room_for_text, theme)).collect();
    let more = rows.len().saturating_sub(room);
    rows.drain(..more);
    for (y, row) in rows.into_iter().enumerate() {
        let y = rest.y.saturating_add(u16::try_from(y).unwrap_or(u16::MAX));
        frame.render_widget(row, Rect { y, height: 1, ..rest }.intersection(rest));
    }
}

const INDENT: usize = 7;

/// The rows of one step, whose text has `width` columns.
fn step(work: &InstallProgress, row: &StepRow, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let (mark, style) = match row.state {
        Some(progress::StepState::Done) => ("[ ok ]", theme.good()),
        Some(progress::StepState::Failed) => ("[FAIL]", theme.error()),
        _ => ("[....]", theme.heading()),
    };
    let mut text = wrapped(&row.message, width).into_iter();
    let mut first = format!(" {}", text.next().unwrap_or_default());
    // The log has the whole message of a step that is done.
    if row.state == Some(progress::StepState::Done) && text.next().is_some() {
        first.push('…');
        text = Vec::new().into_iter();
    }
    let mut rows = vec![Line::from(vec![Span::styled(mark, style), Span::raw(first)])];
    rows.extend(text.map(|line| Line::raw(format!("{:INDENT$}{line}", ""))));
    let running = matches!(row.state, Some(progress::StepState::Started | progress::StepState::Progress));
    let measure = work.measure(row);
    if running && !measure.is_empty() {
        rows.push(Line::raw(format!("{:INDENT$}{measure}", "")));
    }
    rows
}

fn log(work: &InstallProgress, scroll: &mut Scroll, frame: &mut Frame<'_>, body: Rect) {
    let width = usize::from(body.width);
    let rows = work.log.iter().flat_map(|line| wrapped(if line.is_empty() { " " } else { line }, width));
    let rows: Vec<_> = rows.map(|row| (row, Style::new())).collect();
    text::draw(frame, body, &rows, scroll);
}
