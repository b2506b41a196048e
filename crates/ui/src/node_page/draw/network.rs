//! The change of the network, and its trial.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::super::network::{self, Proposal};
use super::super::state::{NodePage, NodeView};
use crate::toolkit::Theme;
use crate::toolkit::page::{Page, Tone};
use crate::toolkit::text::{self, Rows, paragraph};
use node::network_trial::{CurrentTrial, TrialSpan, TrialState as Stage};

const ASKING: &[(&str, &str)] =
    &[("Tab", "move"), ("Space/Enter", "choose"), ("F8", "what changes"), ("Esc", "back")];
const REVIEW: &[(&str, &str)] = &[("Enter", "try it"), ("Esc", "change answers")];
const TRIAL: &[(&str, &str)] =
    &[("K", "keep it"), ("Esc", "bring the old one back"), ("B", "the node's page")];

/// The questions, or the differences.
pub(super) fn change(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let NodeView::Network(page) = &mut state.view else { return };
    let Some(page) = page else {
        let keys = [("Esc", "back")];
        let page = Page { title: "Network of this node", place: time, keys: &keys, message: None };
        let body = page.draw(frame, theme);
        paragraph("Reading the present network.", Style::new(), frame, body);
        return;
    };
    let message = page.message.clone();
    let message = message.as_ref().map(|(tone, text)| (*tone, text.as_str()));
    match page.proposal.clone() {
        None => {
            let around = Page { title: "Network of this node", place: time, keys: ASKING, message };
            let body = around.draw(frame, theme);
            page.form.draw(frame, body, theme);
        }
        Some(proposal) => {
            let title = "Network of this node: what changes";
            let body = Page { title, place: time, keys: REVIEW, message }.draw(frame, theme);
            review(page, &proposal, frame, body, theme);
        }
    }
}

fn review(
    page: &mut network::NetworkPage,
    proposal: &Proposal,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let mut rows = Rows::new(body.width);
    for difference in &proposal.differences {
        rows.text(difference, Style::new());
    }
    rows.blank();
    let tone = if proposal.grave { theme.error() } else { theme.warning() };
    for warning in &proposal.warnings {
        rows.text(&format!("Note: {warning}."), tone);
        rows.blank();
    }
    let text = format!(
        "The new network is set up now. Unless you keep it within {} seconds, the old one comes back, even if this \
         console is cut off or the machine restarts.",
        TrialSpan::USUAL
    );
    rows.text(&text, Style::new());
    let below = u16::from(proposal.grave) * 2;
    let above = Rect { height: body.height.saturating_sub(below), ..body };
    text::draw(frame, above, &rows.rows, &mut page.scroll);
    if proposal.grave {
        let line = Rect { y: body.bottom().saturating_sub(1), height: 1, ..body }.intersection(body);
        page.form.draw(frame, line, theme);
    }
}

/// Draws the trial: the values on trial, the remaining time, and messages.
pub(super) fn trial(state: &NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let message = state.message.as_ref().map(|(tone, text)| (*tone, text.as_str()));
    let page = Page { title: "Network of this node: on trial", place: time, keys: TRIAL, message };
    let body = page.draw(frame, theme);
    let mut rows = Rows::new(body.width);
    match state.now() {
        None => rows.text("Beginning.", Style::new()),
        Some(now) => on_trial(now, &mut rows, theme),
    }
    text::draw(frame, body, &rows.rows, &mut text::Scroll::default());
}

fn on_trial(now: &CurrentTrial, rows: &mut Rows, theme: Theme) {
    let left = format!("{} seconds until the old network comes back by itself.", now.left);
    rows.text(&left, theme.heading());
    rows.blank();
    for difference in &now.differences {
        rows.text(&difference.to_string(), Style::new());
    }
    rows.blank();
    if now.state == Stage::SettingUp {
        rows.text("The new network is being set up.", Style::new());
    }
    for note in &now.notes {
        let tone = if note.starts_with("warning") { Tone::Warning } else { Tone::Good };
        rows.text(note, tone.style(theme));
    }
    if now.state == Stage::Running {
        rows.blank();
        rows.text("If everything works, press K.", Style::new());
    }
}
