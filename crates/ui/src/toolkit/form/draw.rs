//! Drawing a form.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::text::wrapped;
use super::super::{Theme, line::TypedLine};
use super::{Choice, Field, FieldKind, Form};

const LABEL_COLUMNS: usize = 20;
/// The least and the most columns of a text field.
const LINE_COLUMNS: (usize, usize) = (8, 54);

/// The rows of a form, and the focus in them.
struct Rows<'t> {
    rows: Vec<Line<'t>>,
    width: usize,
    theme: Theme,
    focus: (usize, usize),
    /// Column and row of the cursor of a text field.
    cursor: Option<(usize, usize)>,
}

impl Form {
    /// Draws the form; scrolls it so that the focus is visible.
    pub fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, theme: Theme) {
        let area = area.intersection(frame.area());
        let mut rows =
            Rows { rows: Vec::new(), width: usize::from(area.width), theme, focus: (0, 0), cursor: None };
        for (at, field) in self.fields.iter().enumerate() {
            let focused = at == self.focus && field.takes_focus();
            rows.field(field, focused, self.shows_secrets);
        }
        let height = usize::from(area.height);
        let (top, bottom) = rows.focus;
        let most = rows.rows.len().saturating_sub(height);
        let first = self.first.max((bottom + 1).saturating_sub(height)).min(top).min(most);
        self.first = first;
        for (y, row) in rows.rows.iter().skip(first).take(height).enumerate() {
            let y = area.y.saturating_add(u16::try_from(y).unwrap_or(u16::MAX));
            frame.render_widget(row, Rect { y, height: 1, ..area }.intersection(area));
        }
        if let Some((x, y)) = rows.cursor.filter(|(_, y)| (first..first + height).contains(y)) {
            let at = |base: u16, more: usize| base.saturating_add(u16::try_from(more).unwrap_or(u16::MAX));
            frame.set_cursor_position((at(area.x, x), at(area.y, y - first)));
        }
        let below = rows.rows.len() > first + height;
        for (there, y) in [(first > 0, area.y), (below, area.bottom().saturating_sub(1))] {
            let mark = Rect { x: area.right().saturating_sub(6), y, width: 6, height: 1 }.intersection(area);
            if there && area.height > 3 {
                frame.render_widget(Line::styled("(more)", theme.remark()), mark);
            }
        }
    }
}

impl Rows<'_> {
    fn field(&mut self, field: &Field, focused: bool, shows_secrets: bool) {
        let first = self.rows.len();
        match &field.kind {
            FieldKind::Line(line) => self.line(field, line, focused, None),
            FieldKind::Secret(line) => {
                self.line(field, line, focused, (!shows_secrets).then_some('*'));
                // A secret is read to be written down: one that does not fit into its field is shown in full below.
                if shows_secrets && line.text().chars().count() >= LINE_COLUMNS.1 {
                    self.wrapped(&line.text(), self.labels(), self.theme.heading());
                }
            }
            FieldKind::Choice { options, chosen, cursor, .. } => {
                self.heading(field);
                for (at, option) in options.iter().enumerate() {
                    let mark = if *chosen == Some(at) { "(*)" } else { "( )" };
                    self.option(option, mark, focused && at == *cursor);
                }
            }
            FieldKind::Marks { options, cursor } => {
                self.heading(field);
                for (at, (option, marked)) in options.iter().enumerate() {
                    self.option(option, if *marked { "[x]" } else { "[ ]" }, focused && at == *cursor);
                }
            }
            FieldKind::Text => {
                self.heading(field);
                let text = field.remark.clone().unwrap_or_default();
                self.wrapped(&text, 0, Style::new());
            }
        }
        let deep =
            if matches!(field.kind, FieldKind::Line(_) | FieldKind::Secret(_)) { self.labels() } else { 4 };
        for error in &field.errors {
            self.wrapped(&format!("! {error}"), deep, self.theme.error());
        }
        for warning in &field.warnings {
            self.wrapped(&format!("Note: {warning}"), deep, self.theme.warning());
        }
        if focused && self.focus.0 < first {
            self.focus.0 = first;
        }
        if focused {
            self.focus.1 = self.focus.1.max(self.rows.len().saturating_sub(1).min(self.focus.0 + 4));
        }
        if !matches!(field.kind, FieldKind::Line(_) | FieldKind::Secret(_)) {
            self.rows.push(Line::default());
        }
    }

    fn labels(&self) -> usize {
        LABEL_COLUMNS.min(self.width / 3)
    }

    fn heading(&mut self, field: &Field) {
        if field.label.is_empty() {
            return;
        }
        let mut spans = vec![Span::styled(field.label.clone(), self.theme.heading())];
        if let (Some(remark), false) = (&field.remark, matches!(field.kind, FieldKind::Text)) {
            spans.push(Span::styled(format!("  {remark}"), self.theme.remark()));
        }
        self.rows.push(Line::from(spans));
    }

    fn line(&mut self, field: &Field, line: &TypedLine, focused: bool, mask: Option<char>) {
        let label = self.labels();
        let remark = field.remark.as_deref().map(|remark| format!("  {remark}")).unwrap_or_default();
        let free = self.width.saturating_sub(label + remark.chars().count());
        // A remark that leaves no room for the text field goes below it.
        let (width, below) = if free < 24 { (self.width.saturating_sub(label), true) } else { (free, false) };
        let width = width.clamp(LINE_COLUMNS.0, LINE_COLUMNS.1);
        let (text, column) = line.window(width, mask);
        let style = if focused { self.theme.focus() } else { Style::new() };
        let padding = if focused { ' ' } else { '_' };
        let fill: String = std::iter::repeat_n(padding, width.saturating_sub(text.chars().count())).collect();
        let mut name: String = field.label.chars().take(label.saturating_sub(1)).collect();
        name.extend(std::iter::repeat_n(' ', label.saturating_sub(name.chars().count())));
        let mut spans =
            vec![Span::styled(name, self.theme.heading()), Span::styled(format!("{text}{fill}"), style)];
        if focused {
            self.focus.0 = self.rows.len();
            self.cursor = Some((label + column, self.rows.len()));
        }
        if !below {
            spans.push(Span::styled(remark.clone(), self.theme.remark()));
        }
        self.rows.push(Line::from(spans));
        if below {
            self.wrapped(remark.trim_start(), label, self.theme.remark());
        }
    }

    fn option(&mut self, option: &Choice, mark: &str, focused: bool) {
        let row = self.rows.len();
        let style = if focused { self.theme.focus() } else { Style::new() };
        let (first, rest) = {
            let mut lines = wrapped(&option.text, self.width.saturating_sub(6)).into_iter();
            (lines.next().unwrap_or_default(), lines.collect::<Vec<_>>())
        };
        self.rows.push(Line::from(vec![Span::raw("  "), Span::styled(format!("{mark} {first}"), style)]));
        for line in rest {
            self.rows.push(Line::raw(format!("      {line}")));
        }
        for detail in &option.details {
            self.wrapped(detail, 6, self.theme.remark());
        }
        if let Some(why) = &option.barred {
            self.wrapped(&format!("cannot be used: {why}"), 6, self.theme.warning());
        }
        if focused {
            self.focus = (row, self.rows.len().saturating_sub(1));
        }
    }

    fn wrapped(&mut self, text: &str, deep: usize, style: Style) {
        let deep = if deep * 2 > self.width { 0 } else { deep };
        for line in wrapped(text, self.width.saturating_sub(deep)) {
            self.rows.push(Line::styled(format!("{}{line}", " ".repeat(deep)), style));
        }
    }
}
