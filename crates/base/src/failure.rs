//! Errors that a person can act on, and the exit code that each class of error has.
//!
//! Inside the library errors are `anyhow::Error`s whose context says what was being done. Where a case has a
//! class of its own (the exit codes of the command line) or a next step to suggest, it is a [`Failure`].
//! [`render`] gives any error the one form that people see, [`document`] the one for programs.

use std::error::Error;
use std::fmt;

use clap::builder::Styles;
use serde::Serialize;
use serde_json::{Value, json};

/// The class of a failure; the discriminant is the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Class {
    /// A defect of this program, or an error without a class of its own.
    Unexpected = 1,
    /// Invalid configuration or usage.
    Invalid = 2,
    /// The hardware does not fit, or a check before the work found a reason not to begin.
    Hardware = 3,
    /// A payload is not what the release manifest says.
    Verification = 4,
    /// Network, registry or download.
    Network = 5,
    /// Reading from or writing to a disk or a file system, a full one included.
    DiskIo = 6,
    /// The cluster to join refused or did not answer.
    Join = 7,
    /// Another run is doing this already.
    Busy = 8,
    /// The update was tried and taken back, now or before.
    RolledBack = 9,
    /// The user cancelled, or a signal did.
    Cancelled = 130,
}

impl Class {
    /// The exit code of a process that ends with this class of failure.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        self as u8
    }

    /// The class that has this exit code; [`Class::Unexpected`] for any other number. Of the codes of signals, which are
    /// [`Class::Cancelled`], the command line gives the one of the signal that came.
    #[must_use]
    pub fn from_exit_code(code: u8) -> Self {
        let all = [Self::Invalid, Self::Hardware, Self::Verification, Self::Network, Self::DiskIo];
        let mut all = all.into_iter().chain([Self::Join, Self::Busy, Self::RolledBack, Self::Cancelled]);
        let signal = (129..=143).contains(&code).then_some(Self::Cancelled);
        all.find(|class| class.exit_code() == code).or(signal).unwrap_or(Self::Unexpected)
    }
}

/// One failure: what failed and on what, its class, why (the source), and what to do next.
#[derive(Debug)]
pub struct Failure {
    class: Class,
    what: String,
    hint: Option<String>,
    places: Vec<Value>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure of `class`; `what` names the operation and the thing it was done to.
    pub fn new(class: Class, what: impl Into<String>) -> Self {
        Self { class, what: what.into(), hint: None, places: Vec::new(), source: None }
    }

    /// Adds the next step for the user, a whole sentence.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the places of a text that are wrong, for programs; the first line of `what` is then the summary.
    #[must_use]
    pub fn places(mut self, places: impl IntoIterator<Item = impl Serialize>) -> Self {
        self.places = places.into_iter().filter_map(|place| serde_json::to_value(place).ok()).collect();
        self
    }

    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The class, and with it the exit code.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Gives the error of a `Result` a class and says what was being done.
pub trait Classify<T> {
    /// Turns the error into a [`Failure`] of `class` that says `what` was being done; the error is its cause.
    /// A cause that already has a class keeps it: the innermost failure knows best.
    fn class(self, class: Class, what: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Classify<T> for Result<T, E> {
    fn class(self, class: Class, what: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error: anyhow::Error = error.into();
            let class = innermost(&error).map_or(class, Failure::class);
            // Keep the concrete type, so that a failure inside it can be found by downcasting.
            let source = error.reallocate_into_boxed_dyn_error_without_backtrace();
            Failure { class, what: what(), hint: None, places: Vec::new(), source: Some(source) }.into()
        })
    }
}

/// The innermost failure that has a class of its own.
fn innermost(error: &anyhow::Error) -> Option<&Failure> {
    let known = |failure: &&Failure| failure.class != Class::Unexpected;
    error.chain().filter_map(as_failure).filter(known).last()
}

/// The failure that `cause` is, or that it carries: an I/O error made from a failure, as readers must make
/// them, shows the failure's text but leaves it out of the chain of causes.
fn as_failure<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a Failure> {
    let carried = || cause.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref::<Failure>();
    cause.downcast_ref::<Failure>().or_else(carried)
}

/// The class of any error: that of the innermost [`Failure`] in its chain; a bare I/O error about space
/// or the device is [`Class::DiskIo`].
#[must_use]
pub fn class_of(error: &anyhow::Error) -> Class {
    if let Some(failure) = innermost(error) {
        return failure.class;
    }
    match os_error(error) {
        Some(
            nix::libc::ENOSPC | nix::libc::EIO | nix::libc::EDQUOT | nix::libc::EROFS | nix::libc::EFBIG,
        ) => Class::DiskIo,
        _ => Class::Unexpected,
    }
}

fn os_error(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error())
}

/// Every hint of the chain, outermost first; a full disk without one gets a hint.
pub fn hints(error: &anyhow::Error) -> impl Iterator<Item = &str> {
    let given = |error| anyhow::Error::chain(error).filter_map(|cause| as_failure(cause)?.hint.as_deref());
    let full = matches!(os_error(error), Some(nix::libc::ENOSPC | nix::libc::EDQUOT));
    let own = (full && given(error).next().is_none()).then_some("Free space on that disk, then start again.");
    given(error).chain(own)
}

/// The messages of the chain, outermost first, each once.
#[must_use]
pub fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !told.iter().any(|before| before.ends_with(&text)) {
            told.push(text);
        }
    }
    told
}

/// The error as text: what failed, why, what next.
#[must_use]
pub fn render(error: &anyhow::Error) -> String {
    render_in(error, &Styles::plain())
}

/// The error as text, styled like clap's usage errors.
#[must_use]
pub fn render_in(error: &anyhow::Error, styles: &Styles) -> String {
    let (wrong, right) = (styles.get_error(), styles.get_valid());
    let mut text = format!("{wrong}error:{wrong:#} {}\n", causes(error).join("\n  because: "));
    for hint in hints(error) {
        text.push_str(&format!("  {right}next:{right:#} {hint}\n"));
    }
    text
}

/// The error as a document for programs: `{"error": {...}}`. `docs/reference/output.md` tells the fields.
#[must_use]
pub fn document(error: &anyhow::Error, exit_code: u8) -> Value {
    let places: Vec<_> = error.chain().filter_map(as_failure).flat_map(|failure| &failure.places).collect();
    // The places are in the text too, for people.
    let brief = |text: String| match text.split_once('\n') {
        Some((first, _)) if !places.is_empty() => first.to_owned(),
        _ => text,
    };
    let mut told = causes(error).into_iter().map(brief);
    let message = told.next().unwrap_or_default();
    let hints: Vec<_> = hints(error).collect();
    json!({ "error": {
        "class": class_of(error),
        "exit_code": exit_code,
        "message": message,
        "causes": told.collect::<Vec<_>>(),
        "hint": (!hints.is_empty()).then(|| hints.join(" ")),
        "places": places,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_innermost_class_decides_the_exit_code() {
        let inner: anyhow::Result<()> = Err(Failure::new(Class::Verification, "rootfs differs").into());
        let outer = inner.context("checking the medium").class(Class::DiskIo, || "installing".into());
        assert_eq!(class_of(&outer.unwrap_err()), Class::Verification);
    }

    #[test]
    fn a_failure_that_knows_no_class_leaves_it_to_those_around_it() {
        let inner: anyhow::Result<()> = Err(Failure::new(Class::Unexpected, "a program ended").into());
        let outer = inner.class(Class::Network, || "asking the mirror".into());
        assert_eq!(class_of(&outer.unwrap_err()), Class::Network);
    }

    #[test]
    fn a_report_tells_each_cause_once_and_ends_with_the_hint() {
        let error = Failure::new(Class::Hardware, "no disk fits")
            .because(anyhow::anyhow!("/dev/sda is too small"))
            .hint("Choose another disk.");
        let text = render(&anyhow::Error::from(error).context("planning the install"));
        assert_eq!(
            text,
            "error: planning the install\n  because: no disk fits\n  because: /dev/sda is too small\n  next: Choose another disk.\n"
        );
    }

    #[test]
    fn a_document_has_the_parts_of_a_report_and_the_places_of_mistakes_one_by_one() {
        let places = [json!({ "file": "a.yaml", "line": 3 })];
        let error = Failure::new(Class::Invalid, "a.yaml has a mistake\na.yaml:3:1: unknown key")
            .because(anyhow::anyhow!("a.yaml:3:1: unknown key"))
            .places(&places)
            .hint("Correct it.");
        let error = anyhow::Error::from(error).context("reading the definition");
        assert_eq!(
            document(&error, 2),
            json!({ "error": {
                "class": "invalid",
                "exit_code": 2,
                "message": "reading the definition",
                "causes": ["a.yaml has a mistake"],
                "hint": "Correct it.",
                "places": places,
            }})
        );
        let bare = document(&anyhow::anyhow!("two\nlines"), 1);
        assert_eq!(bare["error"]["message"], "two\nlines");
        assert_eq!((&bare["error"]["hint"], &bare["error"]["places"]), (&Value::Null, &json!([])));
    }

    #[test]
    fn only_the_words_that_lead_are_styled() {
        let error =
            anyhow::Error::from(Failure::new(Class::Hardware, "no disk fits").hint("Choose another."));
        let text = render_in(&error, &Styles::styled());
        assert!(text.starts_with("\u{1b}[") && text.contains("error:\u{1b}[0m no disk fits\n"), "{text:?}");
        assert!(text.contains("next:\u{1b}[0m Choose another.\n"), "{text:?}");
    }

    #[test]
    fn a_failure_inside_an_io_error_keeps_its_class_and_hint() {
        let failure = Failure::new(Class::Network, "no answer").hint("Check the cable.");
        let error = anyhow::Error::from(std::io::Error::other(failure)).context("reading");
        assert_eq!(class_of(&error), Class::Network);
        assert!(render(&error).ends_with("because: no answer\n  next: Check the cable.\n"));
        let around = Err::<(), _>(error).class(Class::DiskIo, || "copying".into()).unwrap_err();
        assert!(render(&around).ends_with("because: no answer\n  next: Check the cable.\n"));
        let failure =
            std::io::Error::other(Failure::new(Class::Network, "no answer").hint("Check the cable."));
        let around = Err::<(), _>(failure).class(Class::DiskIo, || "copying".into()).unwrap_err();
        assert!(render(&around).ends_with("because: no answer\n  next: Check the cable.\n"));
    }

    #[test]
    fn a_full_disk_is_disk_io_without_anyone_saying_so() {
        let error = anyhow::Error::from(std::io::Error::from_raw_os_error(nix::libc::ENOSPC));
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(
            render(&error.context("writing a file"))
                .ends_with("  next: Free space on that disk, then start again.\n")
        );
    }
}
