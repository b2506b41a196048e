//! Fields that are filled in: their kinds, and the effects of keys. [`draw`](mod@draw) shows them.
//!
//! Up, Down, Tab and Shift+Tab move; Space marks; Enter takes the current value and goes on, after the last field to the next
//! screen. An option is taken by Space or Enter. If the cursor was moved to it, the keys that leave the field or the screen take
//! it too: Tab, Shift+Tab, and what calls [`Form::take_highlighted`]. Up and Down only pass through.

mod draw;
#[cfg(test)]
mod tests;

use super::Key;
use super::line::TypedLine;

#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    Line(TypedLine),
    /// A text that is not shown.
    Secret(TypedLine),
    Choice {
        options: Vec<Choice>,
        chosen: Option<usize>,
        cursor: usize,
        /// Whether the user moved the cursor inside this field, and took nothing since.
        moved: bool,
    },
    Marks {
        /// The options, and whether they are marked.
        options: Vec<(Choice, bool)>,
        cursor: usize,
    },
    /// Text to read; never in focus.
    Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    pub text: String,
    /// Explanations, on lines of their own.
    pub details: Vec<String>,
    pub barred: Option<String>,
}

impl Choice {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    #[must_use]
    pub fn with(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub id: String,
    pub label: String,
    pub kind: FieldKind,
    /// The origin of its value, or the default.
    pub remark: Option<String>,
    /// Mistakes; the field can be left anyway.
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Field {
    fn new(id: &str, label: &str, kind: FieldKind) -> Self {
        let (errors, warnings) = (Vec::new(), Vec::new());
        Self { id: id.to_owned(), label: label.to_owned(), kind, remark: None, errors, warnings }
    }

    #[must_use]
    pub fn line(id: &str, label: &str, text: &str) -> Self {
        Self::new(id, label, FieldKind::Line(TypedLine::new(text)))
    }

    #[must_use]
    pub fn secret(id: &str, label: &str, text: &str) -> Self {
        Self::new(id, label, FieldKind::Secret(TypedLine::new(text)))
    }

    #[must_use]
    pub fn choice(id: &str, label: &str, options: Vec<Choice>, chosen: Option<usize>) -> Self {
        let chosen = chosen.filter(|chosen| *chosen < options.len());
        Self::new(id, label, FieldKind::Choice { cursor: chosen.unwrap_or(0), options, chosen, moved: false })
    }

    #[must_use]
    pub fn marks(id: &str, label: &str, options: Vec<(Choice, bool)>) -> Self {
        Self::new(id, label, FieldKind::Marks { options, cursor: 0 })
    }

    #[must_use]
    pub fn text(label: &str, text: &str) -> Self {
        Self { remark: Some(text.to_owned()), ..Self::new("", label, FieldKind::Text) }
    }

    #[must_use]
    pub fn remark(self, remark: Option<String>) -> Self {
        Self { remark, ..self }
    }

    fn takes_focus(&self) -> bool {
        match &self.kind {
            FieldKind::Text => false,
            FieldKind::Choice { options, .. } => !options.is_empty(),
            FieldKind::Marks { options, .. } => !options.is_empty(),
            FieldKind::Line(_) | FieldKind::Secret(_) => true,
        }
    }

    #[must_use]
    pub fn typed(&self) -> Option<String> {
        match &self.kind {
            FieldKind::Line(line) | FieldKind::Secret(line) => Some(line.text()),
            _ => None,
        }
    }

    #[must_use]
    pub fn chosen(&self) -> Option<usize> {
        match &self.kind {
            FieldKind::Choice { chosen, .. } => *chosen,
            _ => None,
        }
    }

    #[must_use]
    pub fn marked(&self) -> Vec<usize> {
        match &self.kind {
            FieldKind::Marks { options, .. } => {
                options.iter().enumerate().filter(|(_, (_, marked))| *marked).map(|(at, _)| at).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// The effect of a key on a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    /// The key is not for forms.
    Nothing,
    /// At most the cursor has moved inside the field.
    Stayed,
    Changed,
    Left(usize),
    Accepted,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Form {
    pub fields: Vec<Field>,
    focus: usize,
    pub shows_secrets: bool,
    /// The first visible row of the last picture.
    first: usize,
}

impl Form {
    #[must_use]
    pub fn new(fields: Vec<Field>) -> Self {
        let focus = fields.iter().position(Field::takes_focus).unwrap_or(0);
        Self { fields, focus, shows_secrets: false, first: 0 }
    }

    #[must_use]
    pub fn focused(&self) -> Option<&Field> {
        self.fields.get(self.focus).filter(|field| field.takes_focus())
    }

    #[must_use]
    pub fn focus(&self) -> usize {
        self.focus
    }

    #[must_use]
    pub fn field(&self, id: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.id == id)
    }

    /// Puts the field of this id in focus, if there is one.
    pub fn focus_on(&mut self, id: &str) {
        let wanted = |field: &Field| field.id == id && field.takes_focus();
        self.focus = self.fields.iter().position(wanted).unwrap_or(self.focus);
    }

    /// Takes the fields of a new form and keeps the focus of fields that stay, and cursors at the options where they were.
    pub fn replace(&mut self, mut fields: Vec<Field>) {
        let id = self.focused().map(|field| field.id.clone()).unwrap_or_default();
        for field in &mut fields {
            if let Some(old) = self.field(&field.id) {
                field.keep_cursor(old);
            }
        }
        self.fields = fields;
        self.focus = self.focus.min(self.fields.len().saturating_sub(1));
        if !self.fields.get(self.focus).is_some_and(Field::takes_focus) {
            self.focus = self.fields.iter().position(Field::takes_focus).unwrap_or(0);
        }
        self.focus_on(&id);
    }

    pub fn key(&mut self, key: Key) -> KeyEffect {
        let Some(field) = self.fields.get_mut(self.focus).filter(|field| field.takes_focus()) else {
            return if key == Key::Enter { KeyEffect::Accepted } else { KeyEffect::Nothing };
        };
        match field.key(key) {
            FieldEffect::No => {}
            FieldEffect::Moved => return KeyEffect::Stayed,
            FieldEffect::Changed => return KeyEffect::Changed,
        }
        let took = matches!(key, Key::Tab | Key::BackTab) && self.take_highlighted();
        match key {
            Key::Tab | Key::Down => self.go(1, took),
            Key::BackTab | Key::Up => self.go(-1, took),
            Key::Enter if self.is_last() => KeyEffect::Accepted,
            Key::Enter => self.go(1, false),
            _ => KeyEffect::Nothing,
        }
    }

    /// Takes a key in a form with one choice; returns the option that Enter has taken.
    pub fn decide(&mut self, key: Key) -> Option<usize> {
        let effect = self.key(key);
        let took = effect == KeyEffect::Accepted || (effect == KeyEffect::Changed && key == Key::Enter);
        self.fields.iter().find_map(Field::chosen).filter(|_| took)
    }

    /// Whether the focus is on a text field, whose value is taken when it is left.
    #[must_use]
    pub fn is_typing(&self) -> bool {
        matches!(self.focused().map(|field| &field.kind), Some(FieldKind::Line(_) | FieldKind::Secret(_)))
    }

    /// Takes the option in focus if the user moved the cursor to it and it can be taken; returns whether it did.
    pub fn take_highlighted(&mut self) -> bool {
        self.fields.get_mut(self.focus).is_some_and(Field::take_highlighted)
    }

    fn is_last(&self) -> bool {
        !self.fields.iter().skip(self.focus + 1).any(Field::takes_focus)
    }

    /// Moves to the next field, or to the one before; at an end the focus stays. `took`: the field has a new value.
    fn go(&mut self, step: isize, took: bool) -> KeyEffect {
        let left = self.focus;
        let mut at = left;
        while let Some(next) = at.checked_add_signed(step).filter(|next| *next < self.fields.len()) {
            at = next;
            if self.fields[at].takes_focus() {
                self.focus = at;
                self.fields[at].enter(step);
                return KeyEffect::Left(left);
            }
        }
        if took { KeyEffect::Changed } else { KeyEffect::Stayed }
    }
}

enum FieldEffect {
    No,
    Moved,
    Changed,
}

impl Field {
    fn key(&mut self, key: Key) -> FieldEffect {
        match &mut self.kind {
            FieldKind::Line(line) | FieldKind::Secret(line) => {
                let before = line.clone();
                match line.key(key) {
                    false => FieldEffect::No,
                    true if line.text() == before.text() => FieldEffect::Moved,
                    true => FieldEffect::Changed,
                }
            }
            FieldKind::Choice { options, chosen, cursor, moved } => match key {
                Key::Up | Key::Down | Key::Home | Key::End => {
                    let effect = move_cursor(cursor, options.len(), key);
                    *moved |= matches!(effect, FieldEffect::Moved);
                    effect
                }
                Key::Char(' ') | Key::Enter => {
                    let usable = options.get(*cursor).is_some_and(|option| option.barred.is_none());
                    let changed = usable && *chosen != Some(*cursor);
                    *moved = false;
                    if changed {
                        *chosen = Some(*cursor);
                    }
                    match (key, usable, changed) {
                        // Enter goes on with the option that is taken already.
                        (Key::Enter, true, false) => FieldEffect::No,
                        (_, _, true) => FieldEffect::Changed,
                        _ => FieldEffect::Moved,
                    }
                }
                _ => FieldEffect::No,
            },
            FieldKind::Marks { options, cursor } => match key {
                Key::Up | Key::Down | Key::Home | Key::End => move_cursor(cursor, options.len(), key),
                Key::Char(' ') => match options.get_mut(*cursor) {
                    Some((option, marked)) if option.barred.is_none() => {
                        *marked = !*marked;
                        FieldEffect::Changed
                    }
                    _ => FieldEffect::Moved,
                },
                _ => FieldEffect::No,
            },
            FieldKind::Text => FieldEffect::No,
        }
    }

    fn take_highlighted(&mut self) -> bool {
        let FieldKind::Choice { options, chosen, cursor, moved } = &mut self.kind else { return false };
        let usable = options.get(*cursor).is_some_and(|option| option.barred.is_none());
        let takes = std::mem::take(moved) && usable;
        if takes {
            *chosen = Some(*cursor);
        }
        takes
    }

    /// The position of the cursor when the focus comes from above or from below.
    fn enter(&mut self, step: isize) {
        let (cursor, count, chosen) = match &mut self.kind {
            FieldKind::Choice { options, chosen, cursor, moved } => {
                *moved = false;
                (cursor, options.len(), *chosen)
            }
            FieldKind::Marks { options, cursor } => (cursor, options.len(), None),
            _ => return,
        };
        let end = if step > 0 { 0 } else { count.saturating_sub(1) };
        *cursor = chosen.unwrap_or(end);
    }

    fn keep_cursor(&mut self, old: &Self) {
        match (&mut self.kind, &old.kind) {
            (
                FieldKind::Choice { options, cursor, moved, chosen },
                FieldKind::Choice { options: old, cursor: at, moved: before, .. },
            ) => {
                // Where the user has not moved it, Enter takes what is chosen now.
                if !*before && chosen.is_some() {
                    return;
                }
                let text = old.get(*at).map(|option| &option.text);
                let same = options.iter().position(|option| Some(&option.text) == text);
                *cursor = same.unwrap_or((*at).min(options.len().saturating_sub(1)));
                // Another option in the place of one that is gone was not meant.
                *moved = *before && same.is_some();
            }
            (FieldKind::Marks { options, cursor }, FieldKind::Marks { options: old, cursor: at }) => {
                let text = old.get(*at).map(|(option, _)| &option.text);
                let same = options.iter().position(|(option, _)| Some(&option.text) == text);
                *cursor = same.unwrap_or((*at).min(options.len().saturating_sub(1)));
            }
            (FieldKind::Line(line), FieldKind::Line(at))
            | (FieldKind::Secret(line), FieldKind::Secret(at))
                if line.text() == at.text() =>
            {
                *line = at.clone();
            }
            _ => {}
        }
    }
}

/// Moves a cursor among options; at their ends the key is for the form.
fn move_cursor(cursor: &mut usize, count: usize, key: Key) -> FieldEffect {
    let next = match key {
        Key::Up => cursor.checked_sub(1),
        Key::Down => Some(*cursor + 1),
        Key::Home => Some(0),
        _ => count.checked_sub(1),
    };
    match next.filter(|next| *next < count) {
        Some(next) => {
            *cursor = next;
            FieldEffect::Moved
        }
        None => FieldEffect::No,
    }
}
