//! The screens of a finished node on a disk.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::rows::above;
use crate::questions::state::FinishedNodes;
use crate::toolkit::Theme;
use crate::toolkit::form::Form;
use crate::toolkit::text::{self, Scroll, styled};
use machine::inventory::{FoundPartition, Inventory};

/// Rows of the choices: a heading, the choices with words below, and an empty one.
const CHOICE_ROWS: u16 = 9;
const NAME_COLUMNS: usize = 14;

pub(super) fn finished_nodes(
    finished: &mut FinishedNodes,
    form: &mut Form,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let width = usize::from(body.width);
    let styled = |text: &str, style: Style| styled(text, width, style);
    let mut rows = Vec::new();
    if let Some(left) = finished.left {
        let unit = if left == 1 { "second" } else { "seconds" };
        let text = format!("The node starts from its disk in {left} {unit}. Any key stops that.");
        rows.extend(styled(&text, theme.warning()));
        rows.extend(styled(" ", Style::new()));
    }
    for node in &finished.nodes {
        rows.extend(styled(&node.headline, theme.heading()));
        let facts = node
            .facts
            .iter()
            .flat_map(|(name, value)| styled(&format!("{name:<NAME_COLUMNS$} {value}"), Style::new()));
        rows.extend(facts);
    }
    rows.extend(finished.why.iter().flat_map(|why| styled(why, Style::new())));
    match finished.left {
        Some(_) => text::draw(frame, body, &rows, &mut finished.scroll),
        None => above(&rows, &mut finished.scroll, CHOICE_ROWS, form, frame, body, theme),
    }
}

pub(super) fn disks(
    inventory: &Inventory,
    scroll: &mut Scroll,
    frame: &mut Frame<'_>,
    body: Rect,
    theme: Theme,
) {
    let width = usize::from(body.width);
    let mut rows = Vec::new();
    for disk in &inventory.disks {
        rows.extend(styled(&disk.describe(), width, theme.heading()));
        for partition in disk.partitions.iter().map(FoundPartition::describe) {
            rows.extend(styled(&format!("  {partition}"), width, Style::new()));
        }
        rows.extend(
            disk.unread
                .iter()
                .flat_map(|why| styled(&format!("  not all could be read: {why}"), width, theme.warning())),
        );
    }
    text::draw(frame, body, &rows, scroll);
}
