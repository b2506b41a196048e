//! A line of text that is typed.

use std::fmt;

use super::Key;

/// The longest answer in characters; what is pasted beyond is dropped.
const LINE_CHARS_MAX: usize = 4096;

/// A line and the position of the next character. Its `Debug` does not show it: it may be a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TypedLine {
    text: Vec<char>,
    cursor: usize,
}

impl fmt::Debug for TypedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} characters]", self.text.len())
    }
}

impl TypedLine {
    /// A line that holds a text, with the cursor at its end. Control characters are left out.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().filter(|c| !c.is_control()).take(LINE_CHARS_MAX).collect();
        Self { cursor: text.len(), text }
    }

    #[must_use]
    pub fn text(&self) -> String {
        self.text.iter().collect()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes a key; returns whether it was one for a line. Control and A, E, K, U do what they do in shells, for terminals
    /// without the other keys.
    pub fn key(&mut self, key: Key) -> bool {
        match key {
            Key::Char(c) if self.text.len() < LINE_CHARS_MAX => {
                self.text.insert(self.cursor, c);
                self.cursor += 1;
            }
            Key::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            Key::Delete if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            Key::Home | Key::Control('a') => self.cursor = 0,
            Key::End | Key::Control('e') => self.cursor = self.text.len(),
            Key::Control('k') => self.text.truncate(self.cursor),
            Key::Control('u') => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            Key::Char(_) | Key::Backspace | Key::Delete => {}
            _ => return false,
        }
        true
    }

    /// The part of the line that fits into `width` columns, and the column of the cursor in it; `mask` replaces every character
    /// of a hidden text. `<` and `>` at the ends stand for what does not fit.
    #[must_use]
    pub fn window(&self, width: usize, mask: Option<char>) -> (String, usize) {
        // The cursor may be behind the last character, and never stands on a sign of what does not fit.
        let ends = usize::from(self.cursor < self.text.len());
        let room = width.saturating_sub(1 + ends).max(1);
        let first = self.cursor.saturating_sub(room);
        let seen = self.text.iter().skip(first).take(width);
        let mut seen: Vec<_> = seen.map(|c| mask.unwrap_or(*c)).collect();
        if width > 2 && first > 0 {
            seen.first_mut().into_iter().for_each(|end| *end = '<');
        }
        if width > 2 && first + width < self.text.len() {
            seen.last_mut().into_iter().for_each(|end| *end = '>');
        }
        (seen.into_iter().collect(), self.cursor - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(keys: &[Key]) -> String {
        let mut line = TypedLine::new("node");
        for key in keys {
            assert!(line.key(*key), "{key:?}");
        }
        line.text()
    }

    #[test]
    fn keys_change_the_line_where_the_cursor_is() {
        use Key::{Backspace, Char, Control, Delete, End, Home, Left, Right};
        assert_eq!(typed(&[Char('-'), Char('1')]), "node-1");
        assert_eq!(typed(&[Home, Char('a'), Delete, End, Backspace]), "aod");
        assert_eq!(typed(&[Left, Left, Control('k'), Right, Left, Char('x')]), "nxo");
        assert_eq!(typed(&[Left, Control('u'), Backspace, Char('x')]), "xe");
        assert!(!TypedLine::default().key(Key::Enter));
    }

    #[test]
    fn a_long_line_shows_the_part_around_the_cursor() {
        let mut line = TypedLine::new("abcdefgh");
        assert_eq!(line.window(4, None), ("<gh".into(), 3));
        line.key(Key::Home);
        assert_eq!(line.window(4, Some('*')), ("***>".into(), 0));
        line.key(Key::Right);
        line.key(Key::Right);
        line.key(Key::Right);
        assert_eq!(line.window(4, None), ("<cd>".into(), 2));
        assert_eq!(TypedLine::new("abc").window(4, None), ("abc".into(), 3));
    }

    #[test]
    fn what_is_typed_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", TypedLine::new("hunter2")), "[7 characters]");
    }

    proptest! {
        #[test]
        fn the_cursor_is_always_in_the_window(text in ".{0,30}", lefts in 0usize..40, width in 0usize..20) {
            let mut line = TypedLine::new(&text);
            for _ in 0..lefts {
                line.key(Key::Left);
            }
            let (seen, column) = line.window(width, None);
            prop_assert!(column <= width.saturating_sub(1).max(1) && seen.chars().count() <= width);
        }
    }
}
