//! Kernel arguments of a customized medium, and the file from which GRUB reads them.
//!
//! GRUB's script splits what a variable holds at blanks and puts backslashes before quotes when it writes the kernel's
//! command line (GRUB 2.06, `grub_create_loader_cmdline`), so that an argument with blanks, quotes or backslashes
//! would not arrive as it was meant. A word that begins like a path is expanded to the names of files
//! (`wildcard_expand` there). Such arguments are refused; a configuration has room for any text.

use std::fmt;
use std::str::FromStr;

use model::boot::parameter;
use model::config::BootPassword;
use model::config::boot_password::PROTECT;

/// Length in bytes of the file that GRUB reads.
pub const GRUB_LENGTH: usize = 8192;
/// The variable at the end of the boot menu's kernel lines.
pub const VARIABLE: &str = "nqrust_arguments";
/// The most characters of all arguments together. A kernel accepts 2048 on x86, and the menu needs some.
const MOST: usize = 1024;

const HEAD: &str = "# Kernel arguments from `iso-builder customize`. This file keeps its length.\n";
/// Set by the boot menu; another value would boot something else.
const OWN: [&str; 5] = ["root", parameter::MODE, parameter::RELEASE, "initrd", "BOOT_IMAGE"];

/// One word of a kernel command line with the same meaning for GRUB, iPXE and the kernel.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Argument(String);

/// Why a word is not valid as a kernel argument of a medium, a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// Empty, or it does not begin like the name of a parameter.
    #[error("is not a kernel argument: it does not begin with a letter or a digit")]
    Beginning,
    /// It has characters that boot loaders change.
    #[error("has blanks, quotes, backslashes or other characters that boot loaders do not pass on unchanged")]
    Characters,
    /// The boot menu sets it.
    #[error("is set by the boot menu")]
    Own,
}

/// Longer than a kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel arguments have {0} characters together, and there is room for {MOST}")]
pub struct ArgumentsTooLong(usize);

impl Argument {
    /// The part before the `=`. Values may be secrets.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.split('=').next().unwrap_or_default()
    }

    #[must_use]
    pub fn has_value(&self) -> bool {
        self.0.contains('=')
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Argument {
    type Err = ArgumentError;

    fn from_str(word: &str) -> Result<Self, ArgumentError> {
        let argument = Self(word.to_owned());
        let key = argument.key();
        if !key.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return Err(ArgumentError::Beginning);
        }
        if !word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte)) {
            return Err(ArgumentError::Characters);
        }
        if OWN.contains(&key) || key.starts_with("rd.live.") {
            return Err(ArgumentError::Own);
        }
        Ok(argument)
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The arguments as they stand on a command line.
#[must_use]
pub fn line(arguments: &[Argument]) -> String {
    arguments.iter().map(Argument::as_str).collect::<Vec<_>>().join(" ")
}

/// The file that GRUB reads: always [`GRUB_LENGTH`] bytes, and without arguments and password the one that media are
/// built with.
pub fn grub(arguments: &[Argument], password: Option<&BootPassword>) -> Result<Vec<u8>, ArgumentsTooLong> {
    let line = line(arguments);
    if line.len() > MOST {
        return Err(ArgumentsTooLong(line.len()));
    }
    let mut text = HEAD.to_owned();
    if !line.is_empty() {
        // No argument has an apostrophe, and between two of them nothing else means anything to GRUB.
        text.push_str(&format!("set {VARIABLE}='{line}'\n"));
    }
    if let Some(password) = password {
        text.push_str(&format!("{PROTECT}{}", password.grub_command()));
    }
    // Lines of comments: GRUB passes over them faster than over empty lines.
    let mut bytes = text.into_bytes();
    while bytes.len() < GRUB_LENGTH {
        let end = (bytes.len() + 64).min(GRUB_LENGTH);
        bytes.resize(end - 1, b'#');
        bytes.push(b'\n');
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};
    use model::kernel_line::words;
    use testing::documents::HASH;

    fn arguments(words: &[&str]) -> Vec<Argument> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn arguments_that_a_boot_loader_would_change_are_refused() {
        for (word, why) in [
            ("", ArgumentError::Beginning),
            ("=x", ArgumentError::Beginning),
            ("--", ArgumentError::Beginning),
            ("/boot/*", ArgumentError::Beginning),
            ("(hd0)/x", ArgumentError::Beginning),
            ("a b", ArgumentError::Characters),
            ("a='b'", ArgumentError::Characters),
            ("a=\"b\"", ArgumentError::Characters),
            ("a\\b", ArgumentError::Characters),
            ("a\nset", ArgumentError::Characters),
            ("a=\u{e9}", ArgumentError::Characters),
            ("nqrust.release=sha256:00", ArgumentError::Own),
            ("rd.live.overlay", ArgumentError::Own),
            ("root=/dev/sda", ArgumentError::Own),
        ] {
            assert_eq!(word.parse::<Argument>(), Err(why), "{word:?}");
        }
        for word in [
            "quiet",
            "console=ttyS1,115200n8",
            "a=$b;c",
            "nqrust.install.wipe_disks_list=[/dev/sdb,/dev/sdc]",
        ] {
            assert_eq!(word.parse::<Argument>().unwrap().to_string(), word);
        }
    }

    #[test]
    fn the_file_for_grub_has_one_length_and_one_statement() {
        let empty = String::from_utf8(grub(&[], None).unwrap()).unwrap();
        assert!(empty.lines().all(|line| line.starts_with('#')), "{empty}");
        let long = format!("x={}", "y".repeat(MOST - 2));
        for words in [&["quiet", "a=$(b);c&d|e>f"][..], &[&long]] {
            let text = String::from_utf8(grub(&arguments(words), None).unwrap()).unwrap();
            assert_eq!(text.len(), GRUB_LENGTH);
            assert!(text.ends_with('\n'));
            let said: Vec<_> =
                text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            assert_eq!(said, [format!("set {VARIABLE}='{}'", words.join(" "))]);
        }
        assert_eq!(grub(&arguments(&[&long, "z"]), None), Err(ArgumentsTooLong(MOST + 2)));
    }

    #[test]
    fn a_boot_password_keeps_the_length_of_the_file_and_follows_the_arguments() {
        let text = grub(&arguments(&["quiet"]), Some(&HASH.parse().unwrap())).unwrap();
        assert_eq!(text.len(), GRUB_LENGTH);
        let text = String::from_utf8(text).unwrap();
        let said: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let password = format!("password_pbkdf2 root {HASH}");
        assert_eq!(
            said,
            ["set nqrust_arguments='quiet'", "set superusers=\"root\"", "export superusers", &password]
        );
    }

    /// The program comes with GRUB itself; where it is not, the test above says most of it.
    #[test]
    fn grub_itself_reads_the_file_as_script() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("custom.cfg");
        let words = arguments(&["a=$(b);c{d}", "e=[f]<g>"]);
        std::fs::write(&path, grub(&words, Some(&HASH.parse().unwrap())).unwrap()).unwrap();
        let check = Invocation::new("grub-script-check").arg(&path);
        match SystemRunner.run(&check) {
            Err(error) if format!("{error:#}").contains("No such file") => {}
            result => drop(result.unwrap()),
        }
    }

    proptest::proptest! {
        #[test]
        fn no_argument_breaks_out_of_its_quotes_or_becomes_two(word in "\\PC{0,20}") {
            let Ok(argument) = word.parse::<Argument>() else { return Ok(()) };
            let text = String::from_utf8(grub(&[argument], None).unwrap()).unwrap();
            let said: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            proptest::prop_assert_eq!(&said, &[format!("set {VARIABLE}='{word}'")]);
            proptest::prop_assert_eq!(word.matches('\'').count(), 0);
            proptest::prop_assert_eq!(words(&word).len(), 1);
        }
    }
}
