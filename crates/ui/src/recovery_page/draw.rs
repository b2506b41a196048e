//! Drawing a state; pure.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::state::{RecoveryPage, RecoveryView};
use crate::toolkit::Theme;
use crate::toolkit::line::TypedLine;
use crate::toolkit::page::{Page, Tone};
use crate::toolkit::text::{self, wrapped};
use node::recovery::RecoveryFacts;
use node::recovery::tries::{ALONE, ROUNDS};

const TITLE: &str = "Recovery";
const NAME_COLUMNS: usize = 10;
const LOCKED: &[(&str, &str)] = &[("L", "log in"), ("F5", "look again"), ("Up/Down", "scroll")];
const UNLOCKED: &[(&str, &str)] = &[
    ("U", "update"),
    ("C", "check"),
    ("R", "repair"),
    ("X", "reset"),
    ("A", "start a"),
    ("B", "start b"),
    ("S", "status"),
    ("Q", "quit"),
];

/// `time` is the time of day, for the title.
pub fn state(page: &mut RecoveryPage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    match &page.view {
        RecoveryView::Overview => overview(page, time, frame, theme),
        RecoveryView::Update(line) => update(line, time, frame, theme),
        RecoveryView::Reset => reset(time, frame, theme),
    }
}

fn overview(page: &mut RecoveryPage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys = if page.administrator { UNLOCKED } else { LOCKED };
    let message = match &page.facts {
        Some(Err(why)) => Some((Tone::Error, why.as_str())),
        Some(Ok(facts)) => facts.news.failed.as_deref().map(|failed| (Tone::Error, failed)),
        None => None,
    };
    let body = Page { title: TITLE, place: time, keys, message }.draw(frame, theme);
    let rows = match &page.facts {
        Some(Ok(facts)) => rows(facts, usize::from(body.width), theme),
        Some(Err(_)) => Vec::new(),
        None => vec![("Reading the state of the node.".to_owned(), Style::new())],
    };
    text::draw(frame, body, &rows, &mut page.scroll);
}

fn rows(facts: &RecoveryFacts, width: usize, theme: Theme) -> Vec<(String, Style)> {
    let mut rows = Vec::new();
    let mut row = |name: &str, text: &str, style: Style| {
        let lines = wrapped(text, width.saturating_sub(NAME_COLUMNS));
        for (index, line) in lines.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            rows.push((format!("{name:<NAME_COLUMNS$}{line}").trim_end().to_owned(), style));
        }
    };
    row("System", &format!("{}, recovery system; no data is mounted", facts.product), Style::new());
    row("Why", &facts.why, theme.warning());
    for note in &facts.news.notes {
        row("Missing", note, theme.error());
    }
    if let Some(doing) = &facts.news.doing {
        row("Now", doing, theme.warning());
    }
    row("", " ", Style::new());
    for [slot, version, state] in &facts.slots {
        row(slot, &format!("{version:<20} {state}"), Style::new());
    }
    for (index, address) in facts.addresses.iter().enumerate() {
        row(if index == 0 { "Address" } else { "" }, address, Style::new());
    }
    row("", " ", Style::new());
    let minutes = ALONE.as_secs() / 60;
    let alone = format!(
        "When nobody presses a key or logs in for {minutes} minutes, a good slot is tried again, each at most {ROUNDS} times."
    );
    row("Alone", &alone, Style::new());
    row("Commands", "sudo installer update --help", Style::new());
    rows
}

fn update(line: &TypedLine, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys = [("Enter", "update"), ("Esc", "back")];
    let body = Page { title: "Recovery: update", place: time, keys: &keys, message: None }.draw(frame, theme);
    let about = "Write a release into the slot that is not good, and start it. From: a drive or file with an ISO, \
        the URL of one, or registry/name:tag.";
    let mut rows: Vec<_> =
        wrapped(about, usize::from(body.width)).into_iter().map(|row| (row, Style::new())).collect();
    rows.push((String::new(), Style::new()));
    let place = u16::try_from(rows.len()).unwrap_or_default();
    let (shown, column) = line.window(usize::from(body.width), None);
    rows.push((format!("{shown:_<width$}", width = usize::from(body.width)), theme.focus()));
    text::draw(frame, body, &rows, &mut text::Scroll::default());
    cursor(frame, body, u16::try_from(column).unwrap_or_default(), place);
}

fn cursor(frame: &mut Frame<'_>, body: Rect, column: u16, row: u16) {
    if column < body.width && row < body.height {
        frame.set_cursor_position(Position::new(body.x + column, body.y + row));
    }
}

fn reset(time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys = [("C", "config"), ("S", "state"), ("F", "full"), ("Esc", "back")];
    let body = Page { title: "Recovery: reset", place: time, keys: &keys, message: None }.draw(frame, theme);
    let text = "config    the node document goes; the node asks for one again\n\
        state     all of /var goes: container images, membership in the cluster, logs\n\
        full      the data of virtual machines goes too\n \n\
        Take the node out of its cluster first, on another server: the recovery system does not ask the cluster. \
        The name of the node has to be typed before anything is erased.";
    let rows: Vec<_> =
        wrapped(text, usize::from(body.width)).into_iter().map(|row| (row, Style::new())).collect();
    text::draw(frame, body, &rows, &mut text::Scroll::default());
}
