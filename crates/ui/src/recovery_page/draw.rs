//! Drawing a state; pure.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::state::{LOCKED, RESET, RecoveryPage, RecoveryView, UNLOCKED};
use crate::toolkit::Theme;
use crate::toolkit::line::TypedLine;
use crate::toolkit::page::{Page, Tone};
use crate::toolkit::text::{self, Rows, paragraph, styled};
use node::recovery::RecoveryFacts;
use node::recovery::tries::{ALONE, ROUNDS};

const TITLE: &str = "Recovery";

/// `time` is the time of day, for the title.
pub fn state(page: &mut RecoveryPage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    match &page.view {
        RecoveryView::Overview => overview(page, time, frame, theme),
        RecoveryView::Update(line) => update(line, time, frame, theme),
        RecoveryView::Reset => reset(time, frame, theme),
    }
}

fn overview(page: &mut RecoveryPage, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys =
        if page.administrator { UNLOCKED.labels(&[]) } else { LOCKED.labels(&[("Up/Down", "scroll")]) };
    let message = match &page.facts {
        Some(Err(why)) => Some((Tone::Error, why.as_str())),
        Some(Ok(facts)) => facts.notices.failed.as_deref().map(|failed| (Tone::Error, failed)),
        None => None,
    };
    let body = Page { title: TITLE, place: time, keys: &keys, message }.draw(frame, theme);
    let mut rows = Rows::new(body.width);
    match &page.facts {
        Some(Ok(facts)) => self::facts(facts, &mut rows, theme),
        Some(Err(_)) => {}
        None => rows.text("Reading the state of the node.", Style::new()),
    }
    text::draw(frame, body, &rows.rows, &mut page.scroll);
}

fn facts(facts: &RecoveryFacts, rows: &mut Rows, theme: Theme) {
    let plain = Style::new();
    rows.value("System", &format!("{}, recovery system; no data is mounted", facts.product), plain);
    rows.value("Why", &facts.why, theme.warning());
    for note in &facts.notices.notes {
        rows.value("Missing", note, theme.error());
    }
    if let Some(doing) = &facts.notices.doing {
        rows.value("Now", doing, theme.warning());
    }
    rows.blank();
    for [slot, version, state] in &facts.slots {
        rows.value(slot, &format!("{version:<20} {state}"), plain);
    }
    for (index, address) in facts.addresses.iter().enumerate() {
        rows.value(if index == 0 { "Address" } else { "" }, address, plain);
    }
    rows.blank();
    let minutes = ALONE.as_secs() / 60;
    let alone = format!(
        "Without a key or a login for {minutes} minutes, the machine starts a good slot again, each at most {ROUNDS} times."
    );
    rows.value("Alone", &alone, plain);
    rows.value("Commands", "sudo installer update --help", plain);
}

fn update(line: &TypedLine, time: &str, frame: &mut Frame<'_>, theme: Theme) {
    let keys = [("Enter", "update"), ("Esc", "back")];
    let body = Page { title: "Recovery: update", place: time, keys: &keys, message: None }.draw(frame, theme);
    let about = "Write a release into the slot that is not good, and start it. From: a drive or file with an ISO, \
        the URL of one, or registry/name:tag.";
    let mut rows = styled(about, usize::from(body.width), Style::new());
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
    let keys = RESET.labels(&[("Esc", "back")]);
    let body = Page { title: "Recovery: reset", place: time, keys: &keys, message: None }.draw(frame, theme);
    let text = "config    deletes the node document; the node asks for a new one\n\
        state     deletes all of /var: container images, cluster membership, logs\n\
        full      also deletes the data of virtual machines\n \n\
        Remove the node from its cluster first, on another server: the recovery system does not. \
        The name of the node has to be typed before anything is erased.";
    paragraph(text, Style::new(), frame, body);
}
