//! Pictures of screens as text, and the files that they are compared with.

use std::fs;
use std::path::Path;

use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};

use super::{Capabilities, Theme};

/// The theme of a terminal without colors and characters.
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

/// Compares the pictures of one screen, each with the name of its form, with the files `NAME-FORM.txt` in `folder`, which
/// is below `src`. With `UPDATE_GOLDEN` set, writes them.
///
/// The first picture has a file always, a further one only where it says something else: what has been cut, or has other
/// words because there is more room. So a changed word is a change of one file.
pub(crate) fn compare(folder: &str, name: &str, pictures: &[(&str, String)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let (_, first) = &pictures[0];
    for (index, (form, picture)) in pictures.iter().enumerate() {
        let path = folder.join(format!("{name}-{form}.txt"));
        if index > 0 && says_the_same(picture, first) {
            if update && path.exists() {
                fs::remove_file(&path).unwrap();
            }
            assert!(!path.exists(), "{} says what the first form says, and can go", path.display());
            continue;
        }
        if update {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, picture).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        assert!(wanted == *picture, "{} is not what is drawn now:\n{picture}", path.display());
    }
}

/// Whether a picture has all words of another in their order, no others, and at least the keys of the other in its last
/// line. Where lines break and how long fields are may differ.
fn says_the_same(picture: &str, other: &str) -> bool {
    let split = |text: &str| {
        let (text, keys) = text.trim_end_matches('\n').rsplit_once('\n').unwrap_or_default();
        let words = text.split_whitespace().map(|word| word.trim_end_matches('_').to_owned());
        (words.filter(|word| !word.is_empty()).collect::<Vec<_>>(), keys.to_owned())
    };
    let ((words, keys), (other_words, other_keys)) = (split(picture), split(other));
    words == other_words && keys.starts_with(&other_keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_form_may_break_lines_elsewhere_and_no_word_may_be_cut() {
        let small = " Title   1 of 2\n\n Name __________\n One two\n three\n\n F1 help\n";
        for (other, same) in [
            (" Title        1 of 2\n\n Name ______________\n One two three\n\n\n F1 help  F2 more\n", true),
            (" Title        1 of 2\n\n Name ______________\n One two thre\n\n\n F1 help  F2 more\n", false),
            (" Title        1 of 2\n\n Name ______________\n One two three (more)\n\n F1 help\n", false),
            (" Title        1 of 2\n\n Name ______________\n One three two\n\n\n F1 help\n", false),
            (" Title\n\n Name ______________\n One two three\n\n\n F1 help\n", false),
            (" Title        1 of 2\n\n Name ______________\n One two three\n\n\n F2 more\n", false),
        ] {
            assert_eq!(says_the_same(other, small), same, "{other}");
        }
    }
}
