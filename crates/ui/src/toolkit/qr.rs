//! QR codes, for addresses that are tedious to type from a screen.

use qrcode::{Color, EcLevel, QrCode};
use ratatui::Frame;
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color as Ink, Style};
use ratatui::text::Line;

use super::Theme;

/// Light modules around the code (ISO/IEC 18004 asks for four; readers need two).
const QUIET_ZONE_MODULES: usize = 2;

/// The bytes that codes of the versions 1 to 20 hold at the lowest level of error correction (ISO/IEC 18004, table 7).
const VERSION_BYTES: [usize; 20] =
    [17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425, 458, 520, 586, 644, 718, 792, 858];

/// The bytes that a code drawn in `size` can hold; `None` if there is no room for any code.
#[must_use]
pub fn room(size: Size, theme: Theme) -> Option<usize> {
    let side = match theme.has_lines() {
        true => size.width.min(size.height.saturating_mul(2)),
        false => (size.width / 2).min(size.height),
    };
    // A code of version 1 has 21 modules a side, and each further version four more.
    let modules = usize::from(side).checked_sub(2 * QUIET_ZONE_MODULES)?;
    let version = modules.checked_sub(17)? / 4;
    VERSION_BYTES.get(version.checked_sub(1)?.min(VERSION_BYTES.len() - 1)).copied()
}

#[derive(Clone, Debug)]
pub struct Code {
    width: usize,
    dark: Vec<bool>,
}

impl Code {
    /// The code of a text; `None` if it is too long for any code.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
        let dark = code.to_colors().into_iter().map(|color| color == Color::Dark).collect();
        Some(Self { width: code.width(), dark })
    }

    fn is_dark(&self, x: usize, y: usize) -> bool {
        let inside = |at: usize| at.checked_sub(QUIET_ZONE_MODULES).filter(|at| *at < self.width);
        match (inside(x), inside(y)) {
            (Some(x), Some(y)) => self.dark.get(y * self.width + x).copied().unwrap_or(false),
            _ => false,
        }
    }

    /// The rows and columns of the code: two modules a character with half blocks, else two characters a module.
    #[must_use]
    pub fn size(&self, theme: Theme) -> Size {
        let side = u16::try_from(self.width + 2 * QUIET_ZONE_MODULES).unwrap_or(u16::MAX);
        if theme.has_lines() {
            Size::new(side, side.div_ceil(2))
        } else {
            Size::new(side.saturating_mul(2), side)
        }
    }

    /// Draws it at the upper left of `area` if it fits there as a whole; returns whether it did.
    pub fn draw(&self, frame: &mut Frame<'_>, area: Rect, theme: Theme) -> bool {
        let (size, side) = (self.size(theme), self.width + 2 * QUIET_ZONE_MODULES);
        if size.width > area.width || size.height > area.height {
            return false;
        }
        for y in 0..size.height {
            let place = Rect { y: area.y + y, height: 1, width: size.width, ..area };
            let row = usize::from(y);
            let line =
                if theme.has_lines() { self.halves(row * 2, side, theme) } else { self.pairs(row, side) };
            frame.render_widget(line, place);
        }
        true
    }

    /// Two rows of modules in one of characters. The light ones are drawn.
    fn halves(&self, y: usize, side: usize, theme: Theme) -> Line<'static> {
        let light = |x, y| y >= side || !self.is_dark(x, y);
        let text: String = (0..side)
            .map(|x| match (light(x, y), light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            })
            .collect();
        // A terminal may have dark letters on a light ground.
        let style =
            if theme.has_colors() { Style::new().fg(Ink::White).bg(Ink::Black) } else { Style::new() };
        Line::styled(text, style)
    }

    /// One row of modules, the light ones as reversed spaces.
    fn pairs(&self, y: usize, side: usize) -> Line<'static> {
        let spans = (0..side).map(|x| {
            let style = if self.is_dark(x, y) { Style::new() } else { Style::new().reversed() };
            ratatui::text::Span::styled("  ", style)
        });
        Line::from(spans.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{shown, theme};
    use super::super::{Capabilities, Theme};
    use super::*;

    #[test]
    fn an_address_fits_on_the_smallest_screen_as_half_blocks() {
        let code = Code::of("https://192.0.2.110/").unwrap();
        let linux = Theme::of(Capabilities::of_term("linux", true));
        let size = code.size(linux);
        assert!(size.height <= 20 && size.width <= 78, "{size}");
        let drawn = shown(Size::new(80, 24), |frame| assert!(code.draw(frame, frame.area(), linux)));
        // The upper left finder: a dark ring of seven modules in light ones.
        let rows: Vec<_> =
            drawn.lines().take(3).map(|row| row.chars().take(10).collect::<String>()).collect();
        assert_eq!(rows, ["██████████", "██ ▄▄▄▄▄ █", "██ █   █ █"]);
    }

    #[test]
    fn a_text_that_has_room_makes_a_code_that_fits_and_one_byte_more_does_not() {
        for theme in [Theme::of(Capabilities::of_term("linux", true)), theme()] {
            for height in 0..60 {
                for size in [Size::new(200, height), Size::new(height, 200)] {
                    let Some(room) = room(size, theme) else { continue };
                    let fits = |count: usize| {
                        let taken = Code::of(&"a/b ".repeat(300)[..count]).unwrap().size(theme);
                        taken.width <= size.width && taken.height <= size.height
                    };
                    assert!(fits(room) && (room == VERSION_BYTES[19] || !fits(room + 1)), "{size}: {room}");
                }
            }
        }
    }

    #[test]
    fn a_code_that_does_not_fit_is_not_drawn_in_part() {
        let code = Code::of("https://192.0.2.110/").unwrap();
        let drawn = shown(Size::new(30, 10), |frame| assert!(!code.draw(frame, frame.area(), theme())));
        assert!(drawn.trim().is_empty());
        assert!(Code::of(&"x".repeat(5000)).is_none());
    }
}
