//! What a terminal can show. There is no terminfo on small systems, and the few kinds of consoles are known.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colors {
    /// Bold and reverse video only.
    None,
    /// Eight; bold makes the foreground bright.
    Eight,
    /// Eight and their bright forms.
    Sixteen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Characters {
    Ascii,
    /// Those of the font of firmware and kernel (code page 437): lines and blocks among them.
    Lines,
    Unicode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub colors: Colors,
    pub characters: Characters,
    /// Whether it knows DEC's private modes of the VT220 and later: the cursor can be hidden.
    pub hides_cursor: bool,
    /// Whether it has a second screen to draw on, so that the first one can be restored.
    pub alternate_screen: bool,
}

/// `TERM` of the kernel's virtual terminals.
const LINUX: &str = "linux";

/// `TERM` of a console, by the name of its device: a virtual terminal of the kernel, or a line with an unknown terminal at its
/// other end.
#[must_use]
pub fn term_of_device(path: &Path) -> &'static str {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_virtual = name.strip_prefix("tty").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    if is_virtual { LINUX } else { "vt220" }
}

impl Capabilities {
    pub const LEAST: Self = Self {
        colors: Colors::None,
        characters: Characters::Ascii,
        hides_cursor: false,
        alternate_screen: false,
    };

    /// By the value of `TERM`; `utf8`: the locale's characters are those of Unicode.
    #[must_use]
    pub fn of_term(term: &str, utf8: bool) -> Self {
        let kinds =
            ["xterm", "screen", "tmux", "rxvt", "alacritty", "foot", "kitty", "konsole", "vte", "putty"];
        let characters = |best| if utf8 { best } else { Characters::Ascii };
        match term {
            "linux" => Self {
                colors: Colors::Eight,
                characters: characters(Characters::Lines),
                hides_cursor: true,
                alternate_screen: false,
            },
            "vt220" => Self { hides_cursor: true, ..Self::LEAST },
            _ if kinds.iter().any(|kind| term.starts_with(kind)) => Self {
                colors: Colors::Sixteen,
                characters: characters(Characters::Unicode),
                hides_cursor: true,
                alternate_screen: true,
            },
            _ => Self::LEAST,
        }
    }

    #[must_use]
    pub fn of_device(path: &Path) -> Self {
        let term = term_of_device(path);
        // The kernel's terminals begin in UTF-8 mode unless its command line says otherwise.
        Self::of_term(term, term == LINUX)
    }

    /// By the environment of this process, for the terminal that it was started on. `NO_COLOR` removes the colors.
    #[must_use]
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(given).unwrap_or_default();
        let locale = locale.to_ascii_uppercase().replace('-', "");
        let found = Self::of_term(&given("TERM").unwrap_or_default(), locale.contains("UTF8"));
        match given("NO_COLOR") {
            Some(_) => Self { colors: Colors::None, ..found },
            None => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_what_it_is_known_to_have_and_an_unknown_one_the_least() {
        for (term, utf8, colors, characters) in [
            ("linux", true, Colors::Eight, Characters::Lines),
            ("linux", false, Colors::Eight, Characters::Ascii),
            ("xterm-256color", true, Colors::Sixteen, Characters::Unicode),
            ("tmux-256color", false, Colors::Sixteen, Characters::Ascii),
            ("vt100", true, Colors::None, Characters::Ascii),
            ("vt220", true, Colors::None, Characters::Ascii),
            ("dumb", true, Colors::None, Characters::Ascii),
            ("", true, Colors::None, Characters::Ascii),
        ] {
            let found = Capabilities::of_term(term, utf8);
            assert_eq!((found.colors, found.characters), (colors, characters), "{term}");
        }
    }

    #[test]
    fn the_first_locale_that_is_set_decides_and_no_color_is_heard() {
        let of = |pairs: &[(&str, &str)]| {
            let find =
                |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            Capabilities::of_environment(&find)
        };
        let unicode = of(&[("TERM", "xterm"), ("LC_ALL", ""), ("LANG", "de_DE.utf8")]);
        assert_eq!((unicode.colors, unicode.characters), (Colors::Sixteen, Characters::Unicode));
        let plain = of(&[("TERM", "xterm"), ("LC_ALL", "C"), ("LANG", "C.UTF-8"), ("NO_COLOR", "1")]);
        assert_eq!((plain.colors, plain.characters), (Colors::None, Characters::Ascii));
    }

    #[test]
    fn the_kernels_terminals_have_lines_and_colors_and_serial_lines_the_least() {
        for (path, colors) in
            [("/dev/tty1", Colors::Eight), ("/dev/ttyS0", Colors::None), ("/dev/hvc0", Colors::None)]
        {
            assert_eq!(Capabilities::of_device(Path::new(path)).colors, colors, "{path}");
        }
    }
}
