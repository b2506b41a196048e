//! Pictures of screens as text.

use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};

use super::{Capabilities, Theme};

/// The theme of a terminal without colours and characters.
pub(crate) fn theme() -> Theme {
    Theme::of(Capabilities::LEAST)
}

/// The picture as lines without trailing spaces.
pub(crate) fn shown(size: Size, draw: impl FnOnce(&mut Frame<'_>)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(size.width, size.height)).unwrap();
    terminal.draw(draw).unwrap();
    let buffer = terminal.backend().buffer();
    let width = usize::from(size.width.max(1));
    let rows = buffer.content().chunks(width).map(|row| {
        let row: String = row.iter().map(|cell| cell.symbol()).collect();
        format!("{}\n", row.trim_end())
    });
    rows.collect()
}
