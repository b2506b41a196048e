//! The context of every command of both programs: how to print, where progress goes, and how the program ends.
//!
//! [`parse`] reads the command line and adds the options of all commands ([`GlobalOptions`]); these make one [`Context`],
//! which is passed down. Everything for standard output goes through [`print()`]; with `--format json` that is one document.
//! [`Context::conclude`] ends the program.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Command, CommandFactory, FromArgMatches, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::json;

use crate::cancellation::{self, CancellationReporter, EndRequest};
use crate::completions;
use crate::failure::{self, Class, Failure};
use crate::manual;
use crate::notes;
use crate::progress::json::JsonLines;
use crate::progress::{Progress, ProgressStyle, Sink};
use crate::standard_output;

/// The format of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document on standard output, errors included.
    Json,
}

/// The options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct GlobalOptions {
    /// The format of results and errors on standard output.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub format: Format,
    /// How to show progress on standard error.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub progress: ProgressStyle,
    /// Write the progress there as JSON lines: to a file, a FIFO, or /dev/fd/N.
    #[arg(long, global = true, value_name = "FILE")]
    pub progress_file: Option<PathBuf>,
    /// Show no progress, only results and errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show more: programs that are started, what comes from the cache, every attempt at a transfer.
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// The commands that print or write what the command line of their program is.
#[derive(Clone, Debug, Subcommand)]
pub enum CommandLineExport {
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages of this program and its commands.
    #[command(hide = true)]
    Man {
        /// The directory for the pages.
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
    },
}

impl CommandLineExport {
    /// `program` is the command line of the whole program.
    pub fn run(self, program: Command, context: &Context) -> Result<()> {
        match self {
            Self::Completions { shell } => {
                let script = completions::script(&program, shell);
                context.show(&json!({ "shell": shell.to_string(), "script": script }), || script.clone())
            }
            Self::Man { output } => manual::write(&told_once(program), &output),
        }
    }
}

/// Output format and progress of a command.
#[derive(Debug)]
pub struct Context {
    pub format: Format,
    pub progress: Progress,
    /// True if standard error has only JSON.
    pub(crate) machine: bool,
}

/// Parses the arguments of this process. For a mistake in them, and for help and version, which are printed here, the
/// result is the exit code.
pub fn parse<P: CommandFactory + FromArgMatches>() -> Result<P, u8> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mut command = told_once(P::command());
    let parsed = command.try_get_matches_from_mut(&arguments);
    parsed.and_then(|matches| P::from_arg_matches(&matches)).map_err(|error| {
        if wants_json(&arguments) {
            let _ = print_document(&as_document(&error));
            if !error.use_stderr() {
                return 0;
            }
        }
        let _ = error.print();
        if error.use_stderr() { Class::Invalid.exit_code() } else { 0 }
    })
}

/// The output of clap as one document: a mistake, the version, or the help.
fn as_document(error: &clap::Error) -> serde_json::Value {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayVersion => {
            let (name, version) = text.trim().split_once(' ').unwrap_or(("", text.trim()));
            json!({ "name": name, "version": version })
        }
        _ if !error.use_stderr() => json!({ "help": text }),
        _ => failure::document(&usage(error).into(), Class::Invalid.exit_code()),
    }
}

/// Shows the global options in the help of the program only; the help of its subcommands refers to it.
#[must_use]
pub fn told_once(command: Command) -> Command {
    let hidden: Vec<_> = GlobalOptions::augment_args(Command::new(""))
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .map(|argument| argument.clone().hide(true))
        .collect();
    let told = format!(
        "Options of every command (--format, --quiet and others): see `{} --help`.",
        command.get_name()
    );
    command.mut_subcommands(|below| hide_global(below, &hidden, &told))
}

fn hide_global(command: Command, hidden: &[clap::Arg], told: &str) -> Command {
    let after = match command.get_after_help() {
        Some(own) => format!("{own}\n\n{told}"),
        None => told.to_owned(),
    };
    command.args(hidden).after_help(after).mut_subcommands(|below| hide_global(below, hidden, told))
}

/// True if arguments that could not be parsed ask for JSON.
fn wants_json(arguments: &[OsString]) -> bool {
    let words: Vec<_> =
        arguments.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--").collect();
    words.iter().any(|word| word == "--format=json")
        || words.windows(2).any(|two| two == ["--format", "json"])
}

/// A usage error as a failure: clap's text is made for terminals.
fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = first.strip_prefix("error: ").unwrap_or(first).split_whitespace().collect();
    let what = words.join(" ");
    let suggested = error.context().find_map(|(kind, value)| match (kind, value) {
        (
            ContextKind::SuggestedArg | ContextKind::SuggestedSubcommand | ContextKind::SuggestedValue,
            ContextValue::String(word),
        ) => Some(format!("Did you mean {word}?")),
        (
            ContextKind::SuggestedArg | ContextKind::SuggestedSubcommand | ContextKind::SuggestedValue,
            ContextValue::Strings(words),
        ) => Some(format!("Did you mean {}?", words.first()?)),
        _ => None,
    });
    Failure::new(Class::Invalid, what).hint(suggested.unwrap_or_else(|| "See --help.".to_owned()))
}

impl GlobalOptions {
    /// Makes the context of a command, and has signals end this process as [`cancellation`] says. An option that cannot be
    /// kept is reported; the result is then the exit code.
    pub fn begin(&self) -> Result<Context, u8> {
        if self.format == Format::Json {
            standard_output::keep_for_document();
        }
        let file = self.progress_file.as_ref().map(|path| {
            // A FIFO cannot be truncated, and a descriptor may have been written to already.
            OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(|error| {
                let failure =
                    Failure::new(Class::Invalid, format!("opening the progress file {}", path.display()));
                failure.because(error).hint("Name a file, a FIFO or /dev/fd/N for --progress-file.")
            })
        });
        let alone = self.progress == ProgressStyle::Json;
        let machine = alone && file.is_none() && self.format == Format::Json;
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if !(self.quiet || alone && file.is_some()) {
            sinks.push(self.progress.sink());
        }
        let context = |sinks| Context { format: self.format, progress: Progress::new(sinks), machine };
        match file {
            Some(Err(failure)) => return Err(context(Vec::new()).conclude(Err(failure.into()))),
            Some(Ok(file)) => sinks.push(Box::new(JsonLines::new(file))),
            None => {}
        }
        let context = context(sinks);
        if !self.quiet {
            notes::show_on(&context.progress, self.verbose);
        }
        let farewell = context.sharing();
        match cancellation::watch(farewell) {
            Ok(()) => Ok(context),
            Err(error) => Err(context.conclude(Err(error.into()))),
        }
    }
}

impl Context {
    /// A context for `format` that shows no progress.
    #[must_use]
    pub fn silent(format: Format) -> Self {
        Self { format, progress: Progress::silent(), machine: false }
    }

    /// Prints a result in the format that was asked for.
    pub fn show(&self, result: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        match self.format {
            Format::Text => print(&text()),
            Format::Json => print(&serde_json::to_string_pretty(result)?),
        }
    }

    /// With `--format json` writes every event to standard output from here on, each as a line. For a command whose result is what
    /// happens while it runs; an error is a line too.
    pub fn stream_events(&self) {
        if self.format == Format::Json {
            self.progress.add(Box::new(JsonLines::new(standard_output::lines())));
        }
    }

    /// Prints a line about running work to standard output; with `--format json`, as progress of `step`. A closed pipe is not
    /// an error.
    pub fn tell(&self, step: &str, line: &str) {
        match self.format {
            Format::Text => drop(print(line)),
            Format::Json => self.progress.note(step, line),
        }
    }

    fn sharing(&self) -> Self {
        Self { format: self.format, progress: self.progress.clone(), machine: self.machine }
    }

    /// Ends a command: the last event of its progress, the report of a failure. Returns the exit code. Where a signal is
    /// ending the process, it does not return.
    #[must_use]
    pub fn conclude(&self, result: Result<()>) -> u8 {
        cancellation::give_way();
        let code = result.as_ref().err().map_or(0, |error| cancellation::exit_code(failure::class_of(error)));
        self.progress.conclude(code);
        let told = match result {
            Ok(()) if self.format == Format::Json && !standard_output::is_written() => {
                print_document(&json!({ "result": "done" }))
            }
            Ok(()) => Ok(()),
            Err(error) => {
                self.report(&error, code);
                return code;
            }
        };
        match told {
            Ok(()) => code,
            Err(error) => {
                self.report(&error, Class::Unexpected.exit_code());
                Class::Unexpected.exit_code()
            }
        }
    }

    /// Prints a failure: for people to standard error, and for programs to standard output, unless that has a result
    /// already, which says what failed.
    fn report(&self, error: &anyhow::Error, code: u8) {
        if self.format == Format::Json && is_document_due() {
            let _ = print_document(&failure::document(error, code));
        }
        if !self.machine {
            to_standard_error(&failure::render_in(error, &Styles::styled()));
        }
    }
}

impl CancellationReporter for Context {
    fn begin(&mut self, request: EndRequest) {
        self.progress.conclude(request.exit_code());
        self.progress.close();
        if !self.machine {
            // A terminal has just shown ^C.
            let line = if io::stderr().is_terminal() { "\n" } else { "" };
            to_standard_error(&format!("{line}cancelled by {request}; cleaning up\n"));
        }
    }

    fn end(&mut self, request: EndRequest) {
        if self.format == Format::Json && is_document_due() {
            let failure = Failure::new(Class::Cancelled, format!("cancelled by {request}"));
            let _ = print_document(&failure::document(&failure.into(), request.exit_code()));
        }
    }
}

/// Styles are left out where standard error is no terminal that shows them, or `NO_COLOR` is set, as clap does. Nobody is
/// left to tell when standard error itself is gone.
fn to_standard_error(text: &str) {
    let _ = anstream::stderr().write_all(text.as_bytes());
}

/// True if an error is still to be printed for programs: one document has no second beside it, lines have one more.
fn is_document_due() -> bool {
    standard_output::is_lines() || !standard_output::is_written()
}

fn print_document(document: &serde_json::Value) -> Result<()> {
    match standard_output::is_lines() {
        true => print(&document.to_string()),
        false => print(&serde_json::to_string_pretty(document)?),
    }
}

/// Prints text to standard output with a final newline. A reader that has gone away is not an error.
pub fn print(text: &str) -> Result<()> {
    standard_output::note();
    let mut out = io::stdout();
    let result = out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n"));
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, Subcommand};

    #[derive(Debug, Parser)]
    #[command(name = "sample")]
    struct Sample {
        #[command(flatten)]
        global: GlobalOptions,
        #[command(subcommand)]
        command: SampleCommand,
    }

    #[derive(Debug, Subcommand)]
    enum SampleCommand {
        /// Makes.
        #[command(after_help = "Examples: none.")]
        Make {
            #[arg(long)]
            colour: Option<String>,
        },
        Net {
            #[command(subcommand)]
            command: NetCommand,
        },
    }

    #[derive(Debug, Subcommand)]
    enum NetCommand {
        Show,
    }

    fn parsed(words: &str) -> Result<Sample, clap::Error> {
        let matches = told_once(Sample::command()).try_get_matches_from(words.split(' '))?;
        Sample::from_arg_matches(&matches)
    }

    #[test]
    fn options_of_every_command_are_taken_anywhere_and_told_at_the_top_only() {
        told_once(Sample::command()).debug_assert();
        for words in [
            "sample --format json -v net show",
            "sample net --format json show -v",
            "sample net show -v --format json",
        ] {
            let sample = parsed(words).unwrap();
            assert!(sample.global.format == Format::Json && sample.global.verbose, "{words}: {sample:?}");
        }
        let help = |words: &str| parsed(words).unwrap_err().to_string();
        assert!(help("sample --help").contains("--progress-file"));
        for words in ["sample make --help", "sample net show --help", "sample net --help"] {
            let help = help(words);
            assert!(
                !help.contains("--progress-file") && help.contains("see `sample --help`"),
                "{words}: {help}"
            );
        }
        assert!(help("sample make --help").contains("Examples: none.\n\nOptions of every command"));
    }

    #[test]
    fn a_mistake_in_the_arguments_is_a_failure_with_a_hint() {
        let told = |words: &str| failure::document(&usage(&parsed(words).unwrap_err()).into(), 2);
        let told = told("sample make --color x")["error"].clone();
        assert_eq!((&told["class"], &told["hint"]), (&json!("invalid"), &json!("Did you mean --colour?")));
        assert_eq!(told["message"], "unexpected argument '--color' found");
        assert!(!usage(&parsed("sample").unwrap_err()).to_string().contains('\n'));
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&words("x --format json --color")) && wants_json(&words("x --format=json")));
        let shown = |words: &str| as_document(&parsed(words).unwrap_err());
        assert!(shown("sample --help")["help"].as_str().unwrap().contains("Usage"));
        let version = Sample::command().version("1.2.3").try_get_matches_from(["sample", "--version"]);
        assert_eq!(as_document(&version.unwrap_err()), json!({ "name": "sample", "version": "1.2.3" }));
        assert!(!wants_json(&words("x --format text")) && !wants_json(&words("x -- --format json")));
    }
}
