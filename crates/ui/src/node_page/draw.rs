//! Drawing a state; pure.

mod network;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::state::{NodePage, View};
use super::{Cluster, NodePageFacts, Power};
use crate::toolkit::Theme;
use crate::toolkit::page::{Page, Tone};
use crate::toolkit::qr::Code;
use crate::toolkit::text::{self, wrapped};
use cluster::images::BlobCount;
use cluster::stages::{self, Stage, StageState as UpdateStage};
use machine::arrays;
use machine::nics::MissingCards;

const NAME_COLUMNS: usize = 10;
/// A no-break space.
const UNBROKEN: &str = "\u{a0}";
/// A code is drawn only if this many columns remain beside it.
const TEXT_COLUMNS_MIN: u16 = 48;

/// The keys of the node's page, before and after a login.
const LOCKED: &[(&str, &str)] = &[("L", "log in"), ("F5", "look again"), ("Up/Down", "scroll")];
const UNLOCKED: &[(&str, &str)] = &[
    ("J", "journal"),
    ("S", "bundle"),
    ("N", "network"),
    ("R", "restart"),
    ("P", "power off"),
    ("F5", "look"),
    ("Q", "quit"),
];

/// `time` is the time of day, for the title.
pub fn state(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    match &state.view {
        View::Node => node(state, time, frame, theme),
        View::Confirm(power) => confirm(state, *power, frame, theme),
        View::Network(_) => network::change(state, time, frame, theme),
        View::Bundle(_) => bundle(state, time, frame, theme),
        View::Trial => network::trial(state, time, frame, theme),
        View::Logs(lines) => {
            let rows: Vec<_> = match lines {
                None => vec![("Reading the journal.".to_owned(), Style::new())],
                Some(lines) => lines.iter().map(|line| (line.clone(), Style::new())).collect(),
            };
            let keys = [("Esc", "back"), ("Up/Down", "scroll"), ("End", "newest"), ("F5", "read again")];
            let body = Page { title: "Journal of this boot", place: time, keys: &keys, message: None };
            let body = body.draw(frame, theme);
            let width = usize::from(body.width);
            let folded = rows.into_iter().flat_map(|(row, style)| {
                wrapped(&row, width).into_iter().map(move |row| (row, style)).collect::<Vec<_>>()
            });
            text::draw(frame, body, &folded.collect::<Vec<_>>(), &mut state.logs);
        }
    }
}

fn bundle(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let View::Bundle(places) = &mut state.view else { return };
    let keys = [("Enter", "write it there"), ("F5", "look again"), ("Esc", "back")];
    let body = Page { title: "Support bundle", place: time, keys: &keys, message: None }.draw(frame, theme);
    match places {
        Some(places) => places.form.draw(frame, body, theme),
        None => {
            let rows = [("Looking for sticks.".to_owned(), Style::new())];
            text::draw(frame, body, &rows, &mut text::Scroll::default());
        }
    }
}

fn title(state: &NodePage) -> String {
    let told = |facts: &NodePageFacts| format!("{} {}", facts.status.product, facts.status.version);
    state.facts.as_ref().map_or_else(|| "This node".to_owned(), told)
}

fn node(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let title = title(state);
    let trouble = state.trouble.as_ref().map(|why| (Tone::Error, why.as_str()));
    let said = state.message.as_ref().map(|(tone, text)| (*tone, text.as_str()));
    let keys = if state.administrator { UNLOCKED } else { LOCKED };
    let page = Page { title: &title, place: time, keys, message: said.or(trouble) };
    let body = page.draw(frame, theme);
    let Some(facts) = &state.facts else {
        let rows = [("Reading the state of the node.".to_owned(), Style::new())];
        let rows = if state.trouble.is_some() { &[][..] } else { &rows[..] };
        return text::draw(frame, body, rows, &mut state.node);
    };
    let body = code(facts, frame, body, theme);
    let mut rows = rows(facts, usize::from(body.width), theme);
    if let Some(now) = state.now() {
        let text = format!("other networks are on trial, for another {} seconds", now.left);
        let mut table = Table { rows: Vec::new(), width: usize::from(body.width) };
        table.row("Network", &text, theme.warning());
        rows.splice(0..0, table.rows);
    }
    text::draw(frame, body, &rows, &mut state.node);
}

/// Draws the code of the management address at the right, if there is room; returns the remaining area.
fn code(facts: &NodePageFacts, frame: &mut Frame<'_>, body: Rect, theme: Theme) -> Rect {
    let url = facts.cluster.as_ref().and_then(|cluster| cluster.management.as_deref());
    let Some(code) = url.and_then(Code::of) else { return body };
    let size = code.size(theme);
    let left = body.width.saturating_sub(size.width + 1);
    if left < TEXT_COLUMNS_MIN {
        return body;
    }
    let place = Rect { x: body.x + left + 1, width: size.width, ..body };
    if code.draw(frame, place, theme) { Rect { width: left, ..body } } else { body }
}

/// The facts about a node in rows of at most `width` columns; the most important come first.
fn rows(facts: &NodePageFacts, width: usize, theme: Theme) -> Vec<(String, Style)> {
    let plain = Style::new();
    let mut table = Table { rows: Vec::new(), width };
    let status = &facts.status;
    if let Some(missing) = &status.missing_cards {
        table.missing(missing, theme);
    }
    let role = status.role.beside(&format!("mode {}", status.mode));
    table.row("Node", &format!("{}: {role}", status.hostname), plain);
    table.list("Address", &facts.addresses, "none", plain);
    if let Some(cluster) = &facts.cluster {
        table.cluster(cluster);
    }
    table.blank();
    table.standing(&status.stages, theme);
    table.blank();
    let slot = status.slot.map_or("none: not an installed system".to_owned(), |slot| format!("{slot} runs"));
    table.row("Slot", &slot, plain);
    if let Some(update) = &status.update {
        table.row("Update", &update.text, if update.bad { theme.error() } else { theme.warning() });
    }
    if status.pending {
        table.row("Pending", "the node document has changes that are not applied", theme.warning());
    }
    let BlobCount { present, expected, deferred } = status.images;
    if present < expected && !deferred {
        table.row("Images", &format!("{present} of {expected} blobs are in the store"), theme.error());
    }
    for (index, array) in status.arrays.iter().enumerate() {
        let style = match array.state {
            arrays::ArrayState::Whole => theme.good(),
            arrays::ArrayState::Rebuilding => theme.warning(),
            arrays::ArrayState::Degraded => theme.error(),
        };
        table.row(if index == 0 { "Mirror" } else { "" }, &array.to_string(), style);
    }
    table.list("Disks", &facts.disks, "none", plain);
    table.rows
}

struct Table {
    rows: Vec<(String, Style)>,
    width: usize,
}

impl Table {
    fn row(&mut self, name: &str, text: &str, style: Style) {
        for (index, row) in wrapped(text, self.width.saturating_sub(NAME_COLUMNS)).into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.rows.push((format!("{name:NAME_COLUMNS$}{}", row.replace(UNBROKEN, " ")), style));
        }
    }

    fn list(&mut self, name: &str, texts: &[String], none: &str, style: Style) {
        if texts.is_empty() {
            self.row(name, none, style);
        }
        for (index, text) in texts.iter().enumerate() {
            self.row(if index == 0 { name } else { "" }, text, style);
        }
    }

    /// Missing network cards, and the present ones: first of all, because nothing works without them.
    fn missing(&mut self, missing: &MissingCards, theme: Theme) {
        self.row(
            "MISSING",
            "Network cards that the node document has are not in this machine:",
            theme.error(),
        );
        missing.missing().iter().for_each(|card| self.row("", card, theme.error()));
        self.list("Cards", &missing.there(), "none", Style::new());
        self.row("", &format!("next: {}", MissingCards::next()), Style::new());
        self.blank();
    }

    fn blank(&mut self) {
        self.rows.push((String::new(), Style::new()));
    }

    fn cluster(&mut self, cluster: &Cluster) {
        let Cluster { distribution, address, vip, management } = cluster;
        let at = address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
        self.row("Cluster", &format!("{distribution}{at}"), Style::new());
        if let Some(vip) = vip {
            self.row("VIP", vip, Style::new());
        }
        if let Some(url) = management {
            self.row("Manage at", url, Style::new());
        }
    }

    /// The stages of joining its cluster.
    fn standing(&mut self, stages: &[Stage], theme: Theme) {
        if stages.is_empty() {
            return self.row("State", "on its own: no cluster is configured", Style::new());
        }
        match stages::current(stages) {
            None => {
                let ready = stages.last().and_then(|stage| stage.since.as_ref());
                let since = ready.map(|since| format!(" since {since}")).unwrap_or_default();
                self.row("State", &format!("READY{since}"), theme.good());
            }
            Some(stage) => {
                let style = if stage.state == UpdateStage::Failed { theme.error() } else { theme.warning() };
                self.row("State", &format!("NOT READY: {}", told(stage)), style);
                self.row("", &stage.detail, style);
                if let Some(next) = &stage.next {
                    self.row("", &format!("next: {next}"), Style::new());
                }
            }
        }
        let marks: Vec<_> = stages.iter().map(|stage| stages::mark(stage).replace(' ', UNBROKEN)).collect();
        self.row("", &marks.join("  "), Style::new());
    }
}

/// The current stage of a node, without its detail.
fn told(stage: &Stage) -> String {
    let stands = if stage.state == UpdateStage::Failed { "has failed" } else { "is waited for" };
    let since = stage.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    format!("{} {stands}{since}", stage.name.text())
}

fn confirm(state: &NodePage, power: Power, frame: &mut Frame<'_>, theme: Theme) {
    let name = state.facts.as_ref().map_or("this node", |facts| facts.status.hostname.as_str());
    let (what, keys) = match power {
        Power::Restart => ("restarts", [("Y", "restart"), ("any other", "back")]),
        Power::Off => ("is switched off", [("Y", "power off"), ("any other", "back")]),
    };
    let page = Page { title: &title(state), place: "", keys: &keys, message: None };
    let body = page.draw(frame, theme);
    let text = format!(
        "{name} {what}.\n\nWhat runs on it stops: its pods, and virtual machines that are not moved to another node \
         before.\n\nPress Y to go on, and any other key to go back."
    );
    let rows = wrapped(&text, usize::from(body.width)).into_iter().map(|row| (row, Style::new()));
    text::draw(frame, body, &rows.collect::<Vec<_>>(), &mut text::Scroll::default());
}
