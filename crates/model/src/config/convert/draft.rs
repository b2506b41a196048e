//! A document that is being written: keys with notes above them, and the comments of the document that it is made from, each
//! where it stood.

use std::collections::VecDeque;

use document::accepted_spellings::truth;

/// How wide a line with a note may be.
const WIDTH: usize = 110;
/// How far a group is indented inside another.
const STEP: usize = 2;

#[derive(Clone, Debug)]
pub(super) enum Draft {
    /// `plain` where it may stand without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    /// A list or group on one line, as it was written.
    Verbatim(String),
    List(Vec<DraftEntry>),
    Map(Vec<DraftEntry>),
}

/// One key of a group, or one element of a list.
#[derive(Clone, Debug)]
pub(super) struct DraftEntry {
    /// The line that it comes from; from 1.
    pub(super) line: usize,
    /// The comments above it.
    pub(super) notes: Vec<String>,
    /// Empty in a list.
    pub(super) key: String,
    /// The comment behind the key.
    pub(super) remark: Option<String>,
    /// `None` if only its comments are left.
    pub(super) value: Option<Draft>,
}

impl DraftEntry {
    pub(super) fn new(line: usize, key: impl Into<String>, value: Draft) -> Self {
        Self { line, notes: Vec::new(), key: key.into(), remark: None, value: Some(value) }
    }

    /// The comment that stays for an entry that is left out.
    pub(super) fn left_out(line: usize, notes: Vec<String>) -> Self {
        Self { line, notes, key: String::new(), remark: None, value: None }
    }
}

/// A comment of the document that another is made from.
#[derive(Clone, Debug)]
pub(super) struct Comment {
    pub(super) line: usize,
    /// From 0.
    pub(super) column: usize,
    /// With its `#`.
    pub(super) text: String,
}

/// Text, and for each of its lines the line that it comes from.
#[derive(Debug, Default)]
pub(super) struct RenderedDraft {
    pub(super) text: String,
    pub(super) origins: Vec<usize>,
}

/// The document of the keys `entries`, with `comments` in the order of their lines.
pub(super) fn write(entries: &[DraftEntry], comments: Vec<Comment>) -> RenderedDraft {
    let mut writer = DraftWriter { lines: Vec::new(), comments: comments.into() };
    writer.group(entries, 0, false, usize::MAX);
    writer.flush(usize::MAX, 0);
    let mut written = RenderedDraft::default();
    for line in writer.lines {
        let text = format!("{}{}{}", " ".repeat(line.indent), line.text, line.tail);
        written.text.push_str(text.trim_end());
        written.text.push('\n');
        written.origins.push(line.source);
    }
    written
}

#[derive(Debug)]
struct Line {
    indent: usize,
    text: String,
    /// The comment behind it.
    tail: String,
    source: usize,
    is_comment: bool,
}

struct DraftWriter {
    lines: Vec<Line>,
    comments: VecDeque<Comment>,
}

impl DraftWriter {
    fn push(&mut self, indent: usize, text: String, tail: String, source: usize) {
        self.lines.push(Line { indent, text, tail, source, is_comment: false });
    }

    fn comment(&mut self, indent: usize, text: String, source: usize) {
        self.lines.push(Line { indent, text, tail: String::new(), source, is_comment: true });
    }

    /// Takes the next comment, if it is such a one.
    fn next_comment(&mut self, is_meant: impl Fn(&Comment) -> bool) -> Option<Comment> {
        let next = self.comments.front().is_some_and(is_meant);
        if next { self.comments.pop_front() } else { None }
    }

    /// The comments that stood above `line`.
    fn flush(&mut self, line: usize, indent: usize) {
        while let Some(comment) = self.next_comment(|comment| comment.line < line) {
            self.comment(indent, comment.text, comment.line);
        }
    }

    /// The rest of a key's line: a remark, and the comments of that line.
    fn tail(&mut self, entry: &DraftEntry) -> String {
        let mut tail = entry.remark.as_ref().map(|remark| format!(" # {remark}")).unwrap_or_default();
        while let Some(comment) = self.next_comment(|comment| comment.line == entry.line) {
            tail = format!("{tail} {}", comment.text);
        }
        tail
    }

    /// The `entries`, with the comments that stood among them, all above the line `end`.
    fn group(&mut self, entries: &[DraftEntry], indent: usize, is_list: bool, end: usize) {
        for (index, entry) in entries.iter().enumerate() {
            self.flush(entry.line, indent);
            for note in &entry.notes {
                for line in wrapped(note, WIDTH.saturating_sub(indent)) {
                    self.comment(indent, line, entry.line);
                }
            }
            if let Some(value) = &entry.value {
                let head = if is_list { "-".to_owned() } else { format!("{}:", word(&entry.key)) };
                let end = entries.get(index + 1).map_or(end, |next| next.line);
                self.value(entry, value, (head, is_list), indent, end);
            }
        }
        while let Some(comment) = self.next_comment(|comment| comment.line < end && comment.column >= indent)
        {
            self.comment(indent, comment.text, comment.line);
        }
    }

    fn value(
        &mut self,
        entry: &DraftEntry,
        value: &Draft,
        (head, is_list): (String, bool),
        indent: usize,
        end: usize,
    ) {
        let line = entry.line;
        match value {
            Draft::Scalar { text, plain } => {
                let (first, rest) = scalar(text, *plain);
                let tail = self.tail(entry);
                let blank = if first.is_empty() { "" } else { " " };
                self.push(indent, format!("{head}{blank}{first}"), tail, line);
                for text in rest {
                    self.push(if text.is_empty() { 0 } else { indent + STEP }, text, String::new(), line);
                }
            }
            Draft::Verbatim(text) => {
                let tail = self.tail(entry);
                self.push(indent, format!("{head} {text}"), tail, line);
            }
            Draft::List(entries) | Draft::Map(entries) => {
                let below = matches!(value, Draft::List(_));
                if !is_list {
                    let tail = self.tail(entry);
                    self.push(indent, head.clone(), tail, line);
                }
                let from = self.lines.len();
                self.group(entries, indent + STEP, below, end);
                let first = self.lines[from..].iter_mut().find(|line| !line.is_comment);
                let empty = if below { "[]" } else { "{}" };
                match (first, is_list) {
                    // The first line of an element has the dash.
                    (Some(first), true) => {
                        first.indent = indent;
                        first.text = format!("{head} {}", first.text);
                    }
                    (Some(_), false) => {}
                    (None, true) => self.push(indent, format!("{head} {empty}"), String::new(), line),
                    (None, false) => self.lines[from - 1].text = format!("{head} {empty}"),
                }
            }
        }
    }
}

/// The lines of a note as comments, the second and further ones indented.
fn wrapped(note: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for text in note.lines() {
        // Text that is copied keeps its form.
        if text.starts_with(' ') {
            lines.push(format!("# {text}"));
            continue;
        }
        let mut line = String::from("#");
        for word in text.split(' ') {
            if line.len() > 3 && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut line, "#  ".to_owned()));
            }
            line.push(' ');
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

fn word(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_plain = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(plain)
        && truth(key).is_none()
        && !key.eq_ignore_ascii_case("null");
    if is_plain { key.to_owned() } else { quoted(key) }
}

/// A single value as YAML: what follows the key, and the lines of a text of several.
fn scalar(text: &str, plain: bool) -> (String, Vec<String>) {
    if plain && !text.contains('\n') && !is_sexagesimal(text) && !is_hardware_address(text) {
        return (text.to_owned(), Vec::new());
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    let odd = |c: char| c != '\n' && (c.is_control() || "\u{feff}\u{2028}\u{2029}".contains(c));
    let is_block = body.contains('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with(['\n', ' ', '\t'])
        && !text.contains(odd)
        && !body.split('\n').any(|line| line.ends_with([' ', '\t']));
    if !is_block {
        return (quoted(text), Vec::new());
    }
    let head = if text.ends_with('\n') { "|" } else { "|-" };
    (head.to_owned(), body.split('\n').map(str::to_owned).collect())
}

/// True if a text needs no quotes.
pub(super) fn is_plain(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(letter)
        && truth(text).is_none()
        && !text.eq_ignore_ascii_case("null")
}

/// In double quotes, with the escapes of JSON, which YAML has too.
fn quoted(text: &str) -> String {
    let text = serde_json::Value::from(text).to_string();
    // JSON leaves these as they are, YAML does not have them.
    text.replace('\u{7f}', "\\u007f").replace('\u{feff}', "\\ufeff")
}

/// True if YAML 1.1 takes the text for a number with the base 60, as it does hardware addresses that have no letters.
pub(super) fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut rest = parts.peekable();
    rest.peek().is_some()
        && number(first)
        && rest.all(|part| number(part) && part.len() <= 2 && part.parse::<u8>().is_ok_and(|part| part < 60))
}

/// True if it is six pairs of hexadecimal digits, which all are quoted if some have to be.
fn is_hardware_address(text: &str) -> bool {
    let pair = |pair: &str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Draft {
        Draft::Scalar { text: text.into(), plain: true }
    }

    #[test]
    fn notes_and_comments_stand_where_they_belong() {
        let mut cards =
            DraftEntry::new(3, "hw_addr", Draft::Scalar { text: "52:54:00:12:34:56".into(), plain: true });
        cards.remark = Some("was `hwaddr`".into());
        let dropped = DraftEntry::left_out(3, vec!["dropped: it says what is so".into()]);
        let item = DraftEntry::new(3, "", Draft::Map(vec![dropped, cards]));
        let empty = DraftEntry::new(5, "b", Draft::Map(vec![DraftEntry::left_out(6, vec!["gone".into()])]));
        let entries =
            [DraftEntry::new(2, "a", Draft::List(vec![item])), empty, DraftEntry::new(7, "yes", plain("on"))];
        let comment = |line, text: &str| Comment { line, column: 0, text: text.into() };
        let comments = vec![comment(1, "# first"), comment(3, "# card"), comment(9, "# last")];
        let written = write(&entries, comments);
        assert_eq!(
            written.text,
            "# first\na:\n    # dropped: it says what is so\n  - hw_addr: \"52:54:00:12:34:56\" # was `hwaddr` # card\n\
             b: {}\n  # gone\n\"yes\": on\n# last\n"
        );
        assert_eq!(written.origins, [1, 2, 3, 3, 5, 6, 7, 9]);
    }

    proptest::proptest! {
        #[test]
        fn every_text_is_read_back(text in "[ -~\t\n\u{7f}\u{85}\u{e9}\u{feff}]{0,40}", key in "[ -~]{1,12}") {
            let value = Draft::Scalar { text: text.clone(), plain: false };
            let item = Draft::Map(vec![DraftEntry::new(1, key.clone(), value)]);
            let written = write(&[DraftEntry::new(1, "a", Draft::List(vec![DraftEntry::new(1, "", item)]))], vec![]);
            let read: serde_json::Value = serde_saphyr::from_str(&written.text).unwrap();
            proptest::prop_assert_eq!(&read["a"][0][key], &serde_json::Value::from(text));
        }
    }
}
