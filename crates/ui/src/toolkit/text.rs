//! Text to read: wrapped to the available width, and scrolled.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::Key;

/// The lines of a text, none longer than `width` characters. Lines break between words if possible, and a continuation is
/// indented like its line.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    text.lines().flat_map(|line| wrapped_line(line, width.max(1))).collect()
}

fn wrapped_line(line: &str, width: usize) -> Vec<String> {
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let indent = if indent.chars().count() * 2 > width { String::new() } else { indent };
    let mut rows: Vec<String> = Vec::new();
    let mut row: Vec<char> = Vec::new();
    for c in line.trim_end().chars() {
        row.push(if c.is_control() { ' ' } else { c });
        if row.len() <= width {
            continue;
        }
        let least = indent.chars().count();
        let cut = row.iter().rposition(|c| *c == ' ').filter(|at| *at > least).map_or(width, |at| at + 1);
        let rest: String = row[cut..].iter().collect();
        rows.push(row[..cut].iter().collect::<String>().trim_end().to_owned());
        row = format!("{indent}{}", rest.trim_start()).chars().collect();
    }
    rows.push(row.iter().collect());
    rows
}

/// A text in rows of at most `width` columns.
#[must_use]
pub fn styled(text: &str, width: usize, style: Style) -> Vec<(String, Style)> {
    wrapped(text, width).into_iter().map(|row| (row, style)).collect()
}

/// Draws a text at the top; returns the area below it.
pub fn paragraph(text: &str, style: Style, frame: &mut Frame<'_>, area: Rect) -> Rect {
    let rows = styled(text, usize::from(area.width), style);
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX).min(area.height);
    draw(frame, Rect { height, ..area }, &rows, &mut Scroll::default());
    Rect { y: area.y + height, height: area.height - height, ..area }
}

/// The columns of the names in [`Rows`].
const NAME_COLUMNS: usize = 10;
/// A no-break space: it is drawn as a space.
pub const UNBROKEN: &str = "\u{a0}";

/// Rows to draw: text, and values with their names at the left.
#[derive(Debug)]
pub struct Rows {
    pub rows: Vec<(String, Style)>,
    width: usize,
}

impl Rows {
    #[must_use]
    pub fn new(width: u16) -> Self {
        Self { rows: Vec::new(), width: usize::from(width) }
    }

    pub fn text(&mut self, text: &str, style: Style) {
        self.rows.extend(styled(text, self.width, style));
    }

    pub fn blank(&mut self) {
        self.rows.push((String::new(), Style::new()));
    }

    pub fn value(&mut self, name: &str, value: &str, style: Style) {
        for (index, row) in wrapped(value, self.width.saturating_sub(NAME_COLUMNS)).into_iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            self.rows.push((format!("{name:NAME_COLUMNS$}{}", row.replace(UNBROKEN, " ")), style));
        }
    }

    /// Several values of one name; `none` if there are none.
    pub fn list(&mut self, name: &str, values: &[String], none: &str, style: Style) {
        if values.is_empty() {
            self.value(name, none, style);
        }
        for (index, value) in values.iter().enumerate() {
            self.value(if index == 0 { name } else { "" }, value, style);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scroll {
    first: usize,
    /// Whether it follows the end as the text grows.
    follows: bool,
    /// Rows of the last picture, and its largest scroll position.
    page: usize,
    most: usize,
}

impl Scroll {
    /// At the end, and staying there as the text grows.
    #[must_use]
    pub fn at_end() -> Self {
        Self { follows: true, ..Self::default() }
    }

    /// Takes a key; returns whether it was one for scrolling.
    pub fn key(&mut self, key: Key) -> bool {
        let page = self.page.saturating_sub(1).max(1);
        let first = match key {
            Key::Up => self.first.saturating_sub(1),
            Key::Down => self.first + 1,
            Key::PageUp => self.first.saturating_sub(page),
            Key::PageDown => self.first + page,
            Key::Home => 0,
            Key::End => self.most,
            _ => return false,
        };
        self.first = first.min(self.most);
        self.follows = self.follows && self.first == self.most;
        true
    }

    /// The visible rows of `rows` in `height` rows.
    fn window(&mut self, rows: usize, height: usize) -> std::ops::Range<usize> {
        self.page = height;
        self.most = rows.saturating_sub(height);
        self.first = if self.follows { self.most } else { self.first.min(self.most) };
        self.first..(self.first + height).min(rows)
    }
}

/// Draws `rows`, each with its style, as far as they fit; marks at the right edge that there is more.
pub fn draw(frame: &mut Frame<'_>, area: Rect, rows: &[(String, Style)], scroll: &mut Scroll) {
    let area = area.intersection(frame.area());
    let window = scroll.window(rows.len(), usize::from(area.height));
    let (above, below) = (window.start > 0, window.end < rows.len());
    for (y, (row, style)) in rows[window].iter().enumerate() {
        let y = area.y.saturating_add(u16::try_from(y).unwrap_or(u16::MAX));
        let place = Rect { y, height: 1, ..area }.intersection(area);
        frame.render_widget(Line::styled(row.clone(), *style), place);
    }
    let more = |frame: &mut Frame<'_>, y: u16| {
        let mark = Rect { x: area.right().saturating_sub(6), y, width: 6, height: 1 }.intersection(area);
        frame.render_widget(Line::raw("(more)").style(Style::new().reversed()), mark);
    };
    if above && area.height > 2 {
        more(frame, area.y);
    }
    if below && area.height > 0 {
        more(frame, area.bottom() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::shown;
    use super::*;
    use proptest::prelude::*;
    use ratatui::layout::Size;

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        assert_eq!(wrapped("  next: free some space there", 14), ["  next: free", "  some space", "  there"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("a\n\nb", 3), ["a", "", "b"]);
    }

    proptest! {
        #[test]
        fn nothing_but_spaces_is_lost_and_no_line_is_too_long(text in "[a-z \n]{0,200}", width in 1usize..40) {
            let rows = wrapped(&text, width);
            prop_assert!(rows.iter().all(|row| row.chars().count() <= width));
            let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(bare(&rows.concat()), bare(&text));
        }
    }

    #[test]
    fn a_long_text_is_scrolled_and_its_end_can_be_followed() {
        let rows: Vec<_> = (0..9).map(|n| (format!("row {n}"), Style::new())).collect();
        let mut scroll = Scroll::default();
        let see =
            |scroll: &mut Scroll| shown(Size::new(14, 3), |frame| draw(frame, frame.area(), &rows, scroll));
        assert_eq!(see(&mut scroll), "row 0\nrow 1\nrow 2   (more)\n");
        assert!(scroll.key(Key::PageDown) && !scroll.key(Key::Enter));
        assert_eq!(see(&mut scroll), "row 2   (more)\nrow 3\nrow 4   (more)\n");
        let mut end = Scroll::at_end();
        assert_eq!(see(&mut end), "row 6   (more)\nrow 7\nrow 8\n");
    }
}
