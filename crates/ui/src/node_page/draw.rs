//! Drawing a state; pure.

mod network;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::state::{LOCKED, NodePage, NodeView, UNLOCKED};
use super::{Cluster, NodePageFacts, Power};
use crate::toolkit::Theme;
use crate::toolkit::page::{Page, Tone};
use crate::toolkit::qr::Code;
use crate::toolkit::text::{self, Rows, UNBROKEN, paragraph, styled};
use cluster::images::BlobCount;
use cluster::stages::{self, Stage, StageState as UpdateStage};
use machine::arrays;
use machine::network_disks::sessions::SessionState;
use machine::nics::MissingCards;
use model::network_disks::DiskProtocol;

/// A code is drawn only if this many columns remain beside it.
const TEXT_COLUMNS_MIN: u16 = 48;

/// `time` is the time of day, for the title.
pub fn state(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    match &state.view {
        NodeView::Node => node(state, time, frame, theme),
        NodeView::Confirm(power) => confirm(state, *power, frame, theme),
        NodeView::Network(_) => network::change(state, time, frame, theme),
        NodeView::Bundle(_) => bundle(state, time, frame, theme),
        NodeView::Trial => network::trial(state, time, frame, theme),
        NodeView::Logs(lines) => {
            let keys = [("Esc", "back"), ("Up/Down", "scroll"), ("End", "newest"), ("F5", "read again")];
            let body = Page { title: "Journal of this boot", place: time, keys: &keys, message: None };
            let body = body.draw(frame, theme);
            let lines = lines.as_ref().map_or("Reading the journal.".to_owned(), |lines| lines.join("\n"));
            text::draw(frame, body, &styled(&lines, usize::from(body.width), Style::new()), &mut state.logs);
        }
    }
}

fn bundle(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let NodeView::Bundle(places) = &mut state.view else { return };
    let keys = [("Enter", "write it there"), ("F5", "look again"), ("Esc", "back")];
    let body = Page { title: "Support bundle", place: time, keys: &keys, message: None }.draw(frame, theme);
    match places {
        Some(places) => places.form.draw(frame, body, theme),
        None => drop(paragraph("Looking for sticks.", Style::new(), frame, body)),
    }
}

fn title(state: &NodePage) -> String {
    let name = |facts: &NodePageFacts| format!("{} {}", facts.status.product, facts.status.version);
    state.facts.as_ref().map_or_else(|| "This node".to_owned(), name)
}

fn node(state: &mut NodePage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let title = title(state);
    let trouble = state.trouble.as_ref().map(|why| (Tone::Error, why.as_str()));
    let said = state.message.as_ref().map(|(tone, text)| (*tone, text.as_str()));
    let keys =
        if state.administrator { UNLOCKED.labels(&[]) } else { LOCKED.labels(&[("Up/Down", "scroll")]) };
    let page = Page { title: &title, place: time, keys: &keys, message: said.or(trouble) };
    let body = page.draw(frame, theme);
    let Some(facts) = &state.facts else {
        if state.trouble.is_none() {
            paragraph("Reading the state of the node.", Style::new(), frame, body);
        }
        return;
    };
    let body = code(facts, frame, body, theme);
    let mut table = Rows::new(body.width);
    if let Some(now) = state.now() {
        let text = format!("other networks are on trial, for another {} seconds", now.left);
        table.value("Network", &text, theme.warning());
    }
    rows(facts, &mut table, theme);
    text::draw(frame, body, &table.rows, &mut state.node);
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

/// The facts about a node; the most important come first.
fn rows(facts: &NodePageFacts, table: &mut Rows, theme: Theme) {
    let plain = Style::new();
    let status = &facts.status;
    if let Some(missing) = &status.missing_cards {
        missing_cards(missing, table, theme);
    }
    let role = status.role.beside(&format!("mode {}", status.mode));
    table.value("Node", &format!("{}: {role}", status.hostname), plain);
    table.list("Address", &facts.addresses, "none", plain);
    if let Some(cluster) = &facts.cluster {
        self::cluster(cluster, table);
    }
    table.blank();
    stage_rows(&status.stages, table, theme);
    table.blank();
    let slot = status.slot.map_or("none: not an installed system".to_owned(), |slot| format!("{slot} runs"));
    table.value("Slot", &slot, plain);
    if let Some(update) = &status.update {
        table.value("Update", &update.text, if update.bad { theme.error() } else { theme.warning() });
    }
    for (index, warning) in status.image.warnings().iter().enumerate() {
        table.value(if index == 0 { "OS image" } else { "" }, warning, theme.warning());
    }
    for (index, warning) in status.trust.warnings.iter().enumerate() {
        table.value(if index == 0 { "Release" } else { "" }, warning, theme.warning());
    }
    if status.pending {
        table.value("Pending", "the node document has changes that are not applied", theme.warning());
    }
    let BlobCount { present, expected, deferred } = status.images;
    if present < expected && !deferred {
        table.value("Images", &format!("{present} of {expected} blobs are in the store"), theme.error());
    }
    for (index, array) in status.arrays.iter().enumerate() {
        let style = match array.state {
            arrays::ArrayState::Whole => theme.good(),
            arrays::ArrayState::Rebuilding => theme.warning(),
            arrays::ArrayState::Degraded => theme.error(),
        };
        table.value(if index == 0 { "Mirror" } else { "" }, &array.to_string(), style);
    }
    let mut shown = None;
    for session in &status.network_disks {
        let style = if session.state == SessionState::Up { theme.good() } else { theme.error() };
        let label = match session.protocol {
            _ if shown == Some(session.protocol) => "",
            DiskProtocol::Iscsi => "iSCSI",
            DiskProtocol::NvmeTcp => "NVMe",
        };
        shown = Some(session.protocol);
        table.value(label, &session.to_string(), style);
    }
    for (index, paths) in status.paths.iter().enumerate() {
        let style = if paths.is_redundant() { theme.good() } else { theme.error() };
        table.value(if index == 0 { "Paths" } else { "" }, &paths.to_string(), style);
    }
    table.list("Disks", &facts.disks, "none", plain);
}

/// Missing network cards, and the present ones: first of all, because nothing works without them.
fn missing_cards(missing: &MissingCards, table: &mut Rows, theme: Theme) {
    table.value("MISSING", "Network cards of the node document are missing in this machine:", theme.error());
    missing.missing().iter().for_each(|card| table.value("", card, theme.error()));
    table.list("Cards", &missing.there(), "none", Style::new());
    table.value("", &format!("next: {}", MissingCards::next()), Style::new());
    table.blank();
}

fn cluster(cluster: &Cluster, table: &mut Rows) {
    let Cluster { distribution, address, vip, management } = cluster;
    let at = address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
    table.value("Cluster", &format!("{distribution}{at}"), Style::new());
    if let Some(vip) = vip {
        table.value("VIP", vip, Style::new());
    }
    if let Some(url) = management {
        table.value("Manage at", url, Style::new());
    }
}

/// The stages of joining its cluster.
fn stage_rows(stages: &[Stage], table: &mut Rows, theme: Theme) {
    if stages.is_empty() {
        return table.value("State", "no cluster is configured", Style::new());
    }
    match stages::current(stages) {
        None => {
            let ready = stages.last().and_then(|stage| stage.since.as_ref());
            let since = ready.map(|since| format!(" since {since}")).unwrap_or_default();
            table.value("State", &format!("READY{since}"), theme.good());
        }
        Some(stage) => {
            let style = if stage.state == UpdateStage::Failed { theme.error() } else { theme.warning() };
            table.value("State", &format!("NOT READY: {}", stage_text(stage)), style);
            table.value("", &stage.detail, style);
            if let Some(next) = &stage.next {
                table.value("", &format!("next: {next}"), Style::new());
            }
        }
    }
    let marks: Vec<_> = stages.iter().map(|stage| stages::mark(stage).replace(' ', UNBROKEN)).collect();
    table.value("", &marks.join("  "), Style::new());
}
/// The current stage of a node, without its detail.
fn stage_text(stage: &Stage) -> String {
    let since = stage.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    match stage.state {
        UpdateStage::Failed => format!("{} has failed{since}", stage.name.text()),
        _ => format!("waiting for {}{since}", stage.name.text()),
    }
}

fn confirm(state: &NodePage, power: Power, frame: &mut Frame<'_>, theme: Theme) {
    let name = state.facts.as_ref().map_or("this node", |facts| facts.status.hostname.as_str());
    let (what, keys) = match power {
        Power::Restart => ("restarts", [("Y", "restart"), ("any other", "back")]),
        Power::Off => ("is powered off", [("Y", "power off"), ("any other", "back")]),
    };
    let page = Page { title: &title(state), place: "", keys: &keys, message: None };
    let body = page.draw(frame, theme);
    let text = format!(
        "{name} {what}.\n\nIts pods stop, and so do virtual machines that have not been moved to another node.\n\nPress Y to \
         continue, or any other key to go back."
    );
    paragraph(&text, Style::new(), frame, body);
}
