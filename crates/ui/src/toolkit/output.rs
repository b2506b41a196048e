//! Drawing: ratatui's cells as the few sequences that every terminal since the VT100 understands (ECMA-48): moving the cursor,
//! erasing, bold, underline, reverse video, and the colors that the terminal has.
//!
//! Characters that a terminal does not have become `?`, control characters too, for example in the model name of a disk.

use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier};

use super::{Capabilities, Characters, Colors};

/// The size of a terminal that does not report it, in columns and rows.
pub const USUAL: Size = Size { width: 80, height: 24 };

/// A terminal to draw on.
#[allow(missing_debug_implementations)]
pub struct Output<W: Write> {
    out: W,
    capabilities: Capabilities,
    measure: Box<dyn Fn() -> Option<Size> + Send>,
    waiting: Vec<u8>,
    cursor: Position,
    /// Whether the cursor is hidden, or in its corner, already.
    rests: bool,
}

impl<W: Write> Output<W> {
    /// Draws on `out`; `measure` returns the size of the terminal, if it knows.
    pub fn new(
        out: W,
        capabilities: Capabilities,
        measure: impl Fn() -> Option<Size> + Send + 'static,
    ) -> Self {
        let (waiting, cursor) = (Vec::new(), Position::ORIGIN);
        Self { out, capabilities, measure: Box::new(measure), waiting, cursor, rests: false }
    }

    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    fn say(&mut self, text: &str) {
        self.waiting.extend_from_slice(text.as_bytes());
    }

    fn go(&mut self, x: u16, y: u16) {
        self.say(&format!("\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1));
        // If it cannot be hidden it has left its corner.
        self.rests = self.rests && self.capabilities.hides_cursor;
    }

    /// Begins: clears the screen, on a second one if there is one.
    pub fn begin(&mut self) -> io::Result<()> {
        if self.capabilities.alternate_screen {
            self.say("\x1b[?1049h");
        }
        self.say("\x1b[0m\x1b[2J\x1b[H");
        self.rests = false;
        self.flush()
    }

    /// Ends: as [`Self::begin`] found the terminal, or with a clear screen.
    pub fn end(&mut self) -> io::Result<()> {
        let text = ending(self.capabilities);
        self.say(&text);
        self.flush()
    }
}

/// The sequences that restore a terminal.
pub(super) fn ending(capabilities: Capabilities) -> String {
    let mut text = String::from("\x1b[0m\x1b[2J\x1b[H");
    if capabilities.hides_cursor {
        text.push_str("\x1b[?25h");
    }
    if capabilities.alternate_screen {
        text.push_str("\x1b[?1049l");
    }
    text
}

/// The attributes and colors of a cell as one sequence that depends on nothing before it.
fn look(cell: &Cell, colors: Colors) -> String {
    let mut codes = String::from("0");
    let mut add = |code: u8| codes.push_str(&format!(";{code}"));
    let (foreground, background) = (color(cell.fg, colors), color(cell.bg, colors));
    let bright = matches!(foreground, Some((_, true)));
    if cell.modifier.contains(Modifier::BOLD) || (bright && colors == Colors::Eight) {
        add(1);
    }
    if cell.modifier.contains(Modifier::UNDERLINED) {
        add(4);
    }
    if cell.modifier.contains(Modifier::REVERSED) {
        add(7);
    }
    if let Some((number, bright)) = foreground {
        add(number + if bright && colors == Colors::Sixteen { 90 } else { 30 });
    }
    if let Some((number, bright)) = background {
        add(number + if bright && colors == Colors::Sixteen { 100 } else { 40 });
    }
    format!("\x1b[{codes}m")
}

/// The number of a color among eight, and whether it is the bright one. `None` for others than the sixteen.
fn color(color: Color, colors: Colors) -> Option<(u8, bool)> {
    if colors == Colors::None {
        return None;
    }
    Some(match color {
        Color::Black => (0, false),
        Color::Red => (1, false),
        Color::Green => (2, false),
        Color::Yellow => (3, false),
        Color::Blue => (4, false),
        Color::Magenta => (5, false),
        Color::Cyan => (6, false),
        Color::Gray => (7, false),
        Color::DarkGray => (0, true),
        Color::LightRed => (1, true),
        Color::LightGreen => (2, true),
        Color::LightYellow => (3, true),
        Color::LightBlue => (4, true),
        Color::LightMagenta => (5, true),
        Color::LightCyan => (6, true),
        Color::White => (7, true),
        _ => return None,
    })
}

/// Whether the terminal has the characters of `symbol`.
fn has(characters: Characters, symbol: &str) -> bool {
    symbol.chars().all(|c| match characters {
        _ if c.is_ascii() => !c.is_ascii_control(),
        Characters::Ascii => false,
        Characters::Lines => {
            matches!(c, '\u{a0}'..='\u{ff}' | '─' | '│' | '┌' | '┐' | '└' | '┘' | '█' | '▀' | '▄' | '░')
        }
        Characters::Unicode => !c.is_control(),
    })
}

impl<W: Write> Backend for Output<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut before = String::new();
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.go(x, y);
            }
            let look = look(cell, self.capabilities.colors);
            if look != before {
                self.say(&look);
                before = look;
            }
            let known = has(self.capabilities.characters, cell.symbol());
            self.say(if known { cell.symbol() } else { "?" });
            // The position of the cursor afterwards is certain only for one byte in one column.
            next = (known && cell.symbol().is_ascii()).then(|| (x.saturating_add(1), y));
        }
        if !before.is_empty() {
            self.say("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        // Every picture requests it, most of which change nothing.
        if !self.rests {
            match self.capabilities.hides_cursor {
                true => self.say("\x1b[?25l"),
                // The corner is where it disturbs least.
                false => self.go(0, 0),
            }
            self.rests = true;
        }
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        if self.capabilities.hides_cursor {
            self.say("\x1b[?25h");
        }
        self.rests = false;
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        self.go(self.cursor.x, self.cursor.y);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.say("\x1b[0m\x1b[2J");
        // Something else may have written on the screen, and shown the cursor.
        self.rests = false;
        Ok(())
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.say(match region {
            ClearType::All => "\x1b[2J",
            ClearType::AfterCursor => "\x1b[J",
            ClearType::BeforeCursor => "\x1b[1J",
            ClearType::CurrentLine => "\x1b[2K",
            ClearType::UntilNewLine => "\x1b[K",
        });
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        let measured = (self.measure)().filter(|size| size.width > 0 && size.height > 0);
        Ok(measured.unwrap_or(USUAL))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    /// Writes what has been drawn in one piece, so that half a picture is never seen.
    fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        self.out.write_all(&waiting)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::style::Style;
    use ratatui::text::Span;

    fn drawn(term: &str, utf8: bool, span: Span<'static>) -> String {
        let mut bytes = Vec::new();
        let output = Output::new(&mut bytes, Capabilities::of_term(term, utf8), || Some(Size::new(20, 1)));
        let mut terminal = Terminal::new(output).unwrap();
        terminal.draw(|frame| frame.render_widget(span, frame.area())).unwrap();
        drop(terminal);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_terminal_gets_only_the_colors_and_attributes_that_it_has() {
        let span = || Span::styled("a", Style::new().light_red().on_blue().bold());
        assert!(drawn("xterm", true, span()).contains("\x1b[0;1;91;44ma"));
        assert!(drawn("linux", true, span()).contains("\x1b[0;1;31;44ma"));
        assert!(drawn("vt100", true, span()).contains("\x1b[0;1ma"));
        let reversed = Span::styled("a", Style::new().reversed());
        assert!(drawn("vt100", true, reversed).contains("\x1b[0;7ma"));
    }

    #[test]
    fn characters_that_a_terminal_lacks_become_question_marks() {
        for (term, utf8, text) in [
            ("vt100", true, "?x??"),
            ("linux", true, "─x??"),
            ("linux", false, "?x??"),
            ("xterm", true, "─x✓€"),
        ] {
            let bytes = drawn(term, utf8, Span::raw("─x✓€"));
            let shown: String = strip(&bytes);
            assert!(shown.starts_with(text), "{term}: {bytes:?}");
        }
    }

    #[test]
    fn a_picture_like_the_one_before_sends_nothing() {
        for term in ["linux", "vt100"] {
            let output =
                Output::new(Vec::new(), Capabilities::of_term(term, true), || Some(Size::new(20, 1)));
            let mut terminal = Terminal::new(output).unwrap();
            let mut sent = Vec::new();
            for text in ["a", "a", "b"] {
                terminal.draw(|frame| frame.render_widget(Span::raw(text), frame.area())).unwrap();
                sent.push(terminal.backend().out.len());
            }
            assert!(sent[0] == sent[1] && sent[1] < sent[2], "{term}: {sent:?}");
        }
    }

    fn strip(text: &str) -> String {
        let mut parts = text.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
            all + &part[end..]
        })
    }

    #[test]
    fn an_old_terminal_sees_no_private_mode_and_nothing_but_the_known_sequences() {
        let bytes = drawn("vt100", true, Span::styled("model \u{7}\u{9b}2J", Style::new().green()));
        assert!(!bytes.contains('?') || !bytes.contains("[?"), "{bytes:?}");
        assert!(bytes.is_ascii() && !bytes.contains('\u{7}'), "{bytes:?}");
    }

    #[test]
    fn a_terminal_without_a_size_has_the_usual_one() {
        for told in [None, Some(Size::ZERO), Some(Size::new(0, 24))] {
            let output = Output::new(Vec::new(), Capabilities::LEAST, move || told);
            assert_eq!(output.size().unwrap(), USUAL);
        }
    }
}
