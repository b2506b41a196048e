//! Keyboard layouts of a machine's screen: the names that people know, and the keymaps that a system has for them.
//!
//! A keymap is loaded into the kernel by loadkeys(1) and holds for every keyboard and every virtual terminal. Serial consoles have
//! none: the terminal at their other end has a keyboard of its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use walkdir::WalkDir;

use base::command::{Invocation, Runner};
use base::failure::{Class, Classify, Failure};

/// Where systems have their keymaps (localed, loadkeys(1)). Debian's package `console-data` uses the first.
const DIRECTORIES: [&str; 3] = ["usr/share/keymaps", "usr/share/kbd/keymaps", "usr/lib/kbd/keymaps"];
/// Directories of keymaps for other machines, and of parts of keymaps.
const OTHERS: [&str; 5] = ["amiga", "atari", "include", "mac", "sun"];
/// Between the name of a keymap and the suffix of its compression.
const SUFFIXES: [&str; 2] = [".kmap", ".map"];
/// The device of the screen, whichever virtual terminal it shows.
const SCREEN: &str = "/dev/tty0";
/// The layout of the kernel by default.
pub const DEFAULT: &str = "us";

/// A layout with its name in XKB (a variant in parentheses), its name for people, and keymaps that have it where none is named
/// like it, the best first.
struct Layout(&'static str, &'static str, &'static [&'static str]);

/// In the order in which they are offered.
static LAYOUTS: &[Layout] = &[
    Layout("be", "Belgian", &["be-latin1", "be2-latin1"]),
    Layout("br", "Brazilian", &["br-abnt2"]),
    Layout("ca", "Canadian French", &["cf"]),
    Layout("hr", "Croatian", &["croat"]),
    Layout("cz", "Czech", &["cz-us-qwertz"]),
    Layout("cz(qwerty)", "Czech (QWERTY)", &["cz-lat2", "cz-qwerty"]),
    Layout("dk", "Danish", &["dk-latin1"]),
    Layout("nl", "Dutch", &[]),
    Layout("gb", "English (United Kingdom)", &["uk"]),
    Layout("us", "English (United States)", &[]),
    Layout("us(dvorak)", "English (Dvorak)", &["dvorak"]),
    Layout("us(intl)", "English (United States, with dead keys)", &["us-intl.iso15", "us-acentos"]),
    Layout("ee", "Estonian", &["et"]),
    Layout("fi", "Finnish", &["fi-latin1"]),
    Layout("fr", "French", &["fr-latin9"]),
    Layout("fr(bepo)", "French (Bepo)", &["dvorak-fr-bepo", "fr-bepo"]),
    Layout("de", "German", &["de-latin1"]),
    Layout("de(nodeadkeys)", "German (without dead keys)", &["de-latin1-nodeadkeys"]),
    Layout("gr", "Greek", &[]),
    Layout("hu", "Hungarian", &[]),
    Layout("is", "Icelandic", &["is-latin1"]),
    Layout("it", "Italian", &[]),
    Layout("jp", "Japanese", &["jp106"]),
    Layout("lv", "Latvian", &["lv-latin7"]),
    Layout("lt", "Lithuanian", &[]),
    Layout("no", "Norwegian", &["no-latin1"]),
    Layout("pl", "Polish", &["pl2"]),
    Layout("pt", "Portuguese", &["pt-latin1"]),
    Layout("ro", "Romanian", &[]),
    Layout("ru", "Russian", &[]),
    Layout("rs", "Serbian", &["sr-cy"]),
    Layout("rs(latin)", "Serbian (Latin)", &["sr", "sr-latin"]),
    Layout("sk", "Slovak", &["sk-qwertz"]),
    Layout("sk(qwerty)", "Slovak (QWERTY)", &["sk-qwerty"]),
    Layout("si", "Slovenian", &["slovene"]),
    Layout("es", "Spanish", &[]),
    Layout("latam", "Spanish (Latin America)", &["la-latin1"]),
    Layout("se", "Swedish", &["se-latin1", "sv-latin1"]),
    Layout("ch(fr)", "Swiss French", &["fr_CH-latin1", "fr_CH"]),
    Layout("ch", "Swiss German", &["sg-latin1", "de_CH-latin1"]),
    Layout("tr", "Turkish", &["trqu", "trq"]),
    Layout("tr(f)", "Turkish (F)", &["trfu", "trf"]),
    Layout("ua", "Ukrainian", &["ua-utf"]),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyboardLayout {
    /// The value of `os.keyboard`.
    pub name: String,
    /// Its name for people; that of the keymap where it has no other.
    pub label: String,
}

#[derive(Clone, Debug, Default)]
pub struct Keymaps(BTreeSet<String>);

impl Keymaps {
    /// The keymaps below the root of a system; none if it has no package with keymaps.
    #[must_use]
    pub fn of(root: &Path) -> Self {
        let ours = |entry: &walkdir::DirEntry| {
            !entry.file_type().is_dir() || !OTHERS.iter().any(|other| entry.file_name() == *other)
        };
        let files = DIRECTORIES.iter().flat_map(|directory| {
            WalkDir::new(root.join(directory)).into_iter().filter_entry(ours).filter_map(Result::ok)
        });
        let names = files.filter_map(|file| {
            let name = file.file_name().to_str()?;
            let end = SUFFIXES.iter().find_map(|suffix| {
                let (name, compression) = name.rsplit_once(suffix)?;
                (compression.is_empty() || compression.starts_with('.')).then_some(name)
            })?;
            Some(end.to_owned())
        });
        Self(names.collect())
    }

    /// The keymap of a layout: the one of this name, or one that has the layout of this name in XKB.
    #[must_use]
    pub fn find(&self, keyboard: &str) -> Option<&str> {
        let name: String = keyboard.chars().filter(|c| !c.is_whitespace()).collect();
        let like = |wanted: &str| self.0.iter().find(|known| known.eq_ignore_ascii_case(wanted));
        let other = || LAYOUTS.iter().find(|layout| layout.0.eq_ignore_ascii_case(&name));
        let exact = self.0.get(&name).or_else(|| like(&name));
        let found = exact.or_else(|| other()?.2.iter().find_map(|keymap| self.0.get(*keymap)));
        // Keymaps join a variant by a hyphen.
        let joined = || like(&name.strip_suffix(')')?.replacen('(', "-", 1));
        found.or_else(joined).map(String::as_str)
    }

    /// The layouts that this system has: those with a name for people, then the rest of its keymaps.
    #[must_use]
    pub fn keyboards(&self) -> Vec<KeyboardLayout> {
        let known: Vec<_> =
            LAYOUTS.iter().filter_map(|layout| Some((layout, self.find(layout.0)?))).collect();
        let named = known.iter().map(|(Layout(name, label, _), _)| KeyboardLayout {
            name: (*name).to_owned(),
            label: format!("{label}, {name}"),
        });
        let taken = |keymap: &String| known.iter().any(|(_, used)| used == keymap);
        let rest = self.0.iter().filter(|keymap| !taken(keymap));
        named.chain(rest.map(|name| KeyboardLayout { name: name.clone(), label: name.clone() })).collect()
    }

    /// Loads the keymap of a layout into the running kernel; returns its name.
    ///
    /// # Errors
    /// [`Class::Invalid`] if this system has no keymap for it.
    pub fn load(&self, keyboard: &str, runner: &dyn Runner) -> Result<String> {
        let Some(keymap) = self.find(keyboard) else {
            let hint = match self.0.is_empty() {
                true => "It has no keymaps at all: an image gets them from Debian's package console-data.",
                false => "F2 shows the layouts that it has.",
            };
            return Err(Failure::new(Class::Invalid, missing(keyboard)).hint(hint).into());
        };
        let loadkeys = Invocation::new("loadkeys").args(["--quiet", "--console", SCREEN, keymap]);
        runner
            .run(&loadkeys.limit(Duration::from_secs(30)))
            .class(Class::Unexpected, || format!("loading the keymap {keymap}"))?;
        Ok(keymap.to_owned())
    }
}

/// The error of a system without a keymap for a layout.
pub fn missing(keyboard: &str) -> String {
    format!("this system has no keymap for the keyboard layout {keyboard}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::SystemRunner;
    use base::failure::{class_of, render};
    use std::process::Command;
    use testing::machine::put_keymaps as put;
    use testing::runner::ScriptedRunner;

    fn some() -> Keymaps {
        let root = tempfile::tempdir().unwrap();
        put(
            root.path(),
            &[
                "i386/qwertz/de.kmap.gz",
                "i386/qwertz/de-latin1-nodeadkeys.kmap.gz",
                "i386/qwertz/sg-latin1.kmap.gz",
                "i386/qwertz/fr_CH.map",
                "i386/qwerty/uk.kmap.gz",
                "i386/qwerty/us.map.zst",
                "i386/qwerty/lt.l4.kmap.gz",
                "i386/qwerty/sk-prog.kmap.gz",
                "i386/include/compose.inc.gz",
                "i386/include/part.map",
                "mac/mac-de.kmap.gz",
                "README",
            ],
        );
        Keymaps::of(root.path())
    }

    #[test]
    fn a_layout_is_found_by_the_name_of_its_keymap_and_by_that_in_xkb() {
        let keymaps = some();
        for (name, keymap) in [
            ("de", "de"),
            ("DE", "de"),
            ("de-latin1-nodeadkeys", "de-latin1-nodeadkeys"),
            ("de(nodeadkeys)", "de-latin1-nodeadkeys"),
            ("de (nodeadkeys)", "de-latin1-nodeadkeys"),
            ("sk(prog)", "sk-prog"),
            ("gb", "uk"),
            ("uk", "uk"),
            ("ch", "sg-latin1"),
            ("ch(fr)", "fr_CH"),
            ("fr_ch", "fr_CH"),
            ("lt.l4", "lt.l4"),
            ("us", "us"),
        ] {
            assert_eq!(keymaps.find(name), Some(keymap), "{name}");
        }
        for name in ["mac-de", "part", "compose", "README", "german", "de(neo)", ""] {
            assert_eq!(keymaps.find(name), None, "{name}");
        }
    }

    #[test]
    fn a_choice_has_each_keymap_once_and_first_those_with_a_name_for_people() {
        let keyboards = some().keyboards();
        let labels: Vec<_> = keyboards.iter().map(|keyboard| keyboard.label.as_str()).collect();
        assert_eq!(labels[..2], ["English (United Kingdom), gb", "English (United States), us"]);
        assert_eq!(labels[labels.len() - 2..], ["lt.l4", "sk-prog"]);
        assert_eq!(keyboards.len(), 8);
        assert!(Keymaps::default().keyboards().is_empty());
    }

    #[test]
    fn a_keymap_is_loaded_for_the_screen_and_a_layout_without_one_is_refused() {
        let runner = ScriptedRunner::silent();
        assert_eq!(some().load("gb", &runner).unwrap(), "uk");
        assert_eq!(runner.commands(), ["loadkeys --quiet --console /dev/tty0 uk"]);
        let error = some().load("german", &runner).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("no keymap for the keyboard layout german"), "{}", render(&error));
        let error = Keymaps::default().load("de", &runner).unwrap_err();
        assert!(render(&error).contains("package console-data"), "{}", render(&error));
    }

    #[test]
    fn loadkeys_reads_every_keymap_that_is_offered_where_it_has_them() {
        let keymaps = Keymaps::of(Path::new("/"));
        let there = Command::new("loadkeys").arg("--version").output().is_ok();
        if !there || keymaps.0.is_empty() {
            eprintln!("skipped: no loadkeys or no keymaps (packages kbd and console-data)");
            return;
        }
        for Layout(name, ..) in LAYOUTS {
            let keymap = keymaps.find(name).unwrap_or_else(|| panic!("no keymap for {name}"));
            let compile = Invocation::new("loadkeys").args(["--unicode", "--mktable", keymap]);
            SystemRunner.run(&compile).unwrap_or_else(|error| panic!("{name}, {keymap}: {error:#}"));
        }
    }
}
