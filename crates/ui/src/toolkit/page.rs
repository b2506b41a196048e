//! The frame of every screen: title line, body, a line of messages, a line of keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::{Key, Theme};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warning,
    Error,
}

impl Tone {
    #[must_use]
    pub fn style(self, theme: Theme) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => theme.good(),
            Self::Warning => theme.warning(),
            Self::Error => theme.error(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// Stable, so that programs and people find the screen again.
    pub title: &'a str,
    /// At the right of the title: the progress. It is left out if it is longer than [`room_for_place`].
    pub place: &'a str,
    /// Keys and their effects, the most important first: the last ones are left out if there is no room.
    pub keys: &'a [(&'a str, &'a str)],
    pub message: Option<(Tone, &'a str)>,
}

/// The actions of a page: for each its key, its label in the line of keys, and the action.
#[derive(Debug)]
pub struct KeyTable<A: 'static>(pub &'static [(&'static str, &'static str, A)]);

impl<A: Copy> KeyTable<A> {
    /// The action of a key; upper and lower case are the same.
    #[must_use]
    pub fn action(&self, key: Key) -> Option<A> {
        let name = match key {
            Key::Char(letter) => letter.to_ascii_uppercase().to_string(),
            Key::Function(number) => format!("F{number}"),
            _ => return None,
        };
        self.0.iter().find(|(key, ..)| *key == name).map(|(.., action)| *action)
    }

    /// The line of keys, with `more` keys at its end.
    #[must_use]
    pub fn labels(&self, more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        self.0.iter().map(|(key, label, _)| (*key, *label)).chain(more.iter().copied()).collect()
    }
}

/// How many characters fit at the right of a title on a terminal of this width.
#[must_use]
pub fn room_for_place(title: &str, width: u16) -> usize {
    usize::from(width).saturating_sub(title.chars().count() + 3)
}

const MESSAGE_ROWS_MAX: u16 = 3;

impl Page<'_> {
    /// Draws the frame; returns the area of the body, which can be empty on a tiny terminal.
    pub fn draw(&self, frame: &mut Frame<'_>, theme: Theme) -> Rect {
        let area = frame.area();
        frame.render_widget(Clear, area);
        let row = |y: u16, height: u16| Rect::new(area.x, area.y + y, area.width, height).intersection(area);
        self.bar(frame, theme, row(0, 1));
        let last = area.height.saturating_sub(1);
        if last > 0 {
            self.keys(frame, theme, row(last, 1));
        }
        let mut end = last;
        if let Some((tone, text)) = self.message {
            let inner = area.width.saturating_sub(2);
            let height = rows(text, inner).min(MESSAGE_ROWS_MAX).min(last.saturating_sub(1));
            end = last - height;
            let place = Rect { x: area.x + 1.min(area.width), width: inner, ..row(end, height) };
            let text = Paragraph::new(text.to_owned()).style(tone.style(theme)).wrap(Wrap { trim: false });
            frame.render_widget(text, place.intersection(area));
        }
        let body = row(2, end.saturating_sub(3));
        Rect { x: body.x + 1.min(body.width), width: body.width.saturating_sub(2), ..body }
    }

    fn bar(&self, frame: &mut Frame<'_>, theme: Theme, area: Rect) {
        frame.render_widget(Block::new().style(theme.bar()), area);
        frame.render_widget(Line::raw(format!(" {}", self.title)).style(theme.bar()), area);
        if self.place.chars().count() <= room_for_place(self.title, area.width) {
            frame.render_widget(
                Line::raw(format!("{} ", self.place)).style(theme.bar()).right_aligned(),
                area,
            );
        }
    }

    fn keys(&self, frame: &mut Frame<'_>, theme: Theme, area: Rect) {
        let mut spans = vec![Span::raw(" ")];
        let mut width = 1;
        for (key, does) in self.keys {
            let more = key.chars().count() + does.chars().count() + 3;
            // Two spaces between keys, and none needed after the last.
            if width + more - 2 > usize::from(area.width) {
                break;
            }
            width += more;
            spans.push(Span::styled((*key).to_owned(), theme.heading()));
            spans.push(Span::raw(format!(" {does}  ")));
        }
        frame.render_widget(Block::new().style(theme.bar()), area);
        frame.render_widget(Line::from(spans).style(theme.bar()), area);
    }
}

fn rows(text: &str, width: u16) -> u16 {
    let lines = super::text::wrapped(text, usize::from(width.max(1))).len();
    u16::try_from(lines).unwrap_or(u16::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{shown, theme};
    use super::*;
    use ratatui::layout::Size;

    fn page() -> Page<'static> {
        Page {
            title: "Disks",
            place: "3 of 9",
            keys: &[("Enter", "next"), ("Esc", "back"), ("F5", "look again")],
            message: Some((Tone::Error, "there is no disk /dev/sdb; it has been taken out since")),
        }
    }

    #[test]
    fn what_matters_most_stays_where_there_is_little_room() {
        let draw = |width, height| {
            shown(Size::new(width, height), |frame| {
                let body = page().draw(frame, theme());
                frame.render_widget(Line::raw("BODY"), body);
            })
        };
        assert_eq!(
            draw(40, 8),
            " Disks                           3 of 9\n\n BODY\n\n\n there is no disk /dev/sdb; it has been\n \
             taken out since\n Enter next  Esc back  F5 look again\n"
        );
        assert_eq!(draw(12, 4), " Disks\n there is\n no disk\n Enter next\n");
    }

    #[test]
    fn no_size_of_a_terminal_is_too_small_to_draw() {
        for width in 0..14 {
            for height in 0..8 {
                shown(Size::new(width, height), |frame| {
                    let body = page().draw(frame, theme());
                    assert_eq!(body.intersection(frame.area()), body);
                });
            }
        }
    }
}
