//! A serial console: its output goes to a file and into memory; tests wait for words and type lines.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::deadline::Deadline;

/// How many characters of the console an error shows.
const TAIL_CHARACTERS: usize = 2000;

/// How long the console must be silent before a password is typed; see [`Serial::login`].
const SILENCE: Duration = Duration::from_millis(700);

/// The machine's end of the console and its output.
#[derive(Debug)]
pub struct Serial {
    log: Arc<ConsoleLog>,
    line: UnixStream,
    /// The length of the output that was waited for.
    mark: usize,
    commands: u32,
}

#[derive(Default)]
struct ConsoleLog {
    state: Mutex<ConsoleState>,
    grown: Condvar,
}

impl std::fmt::Debug for ConsoleLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct ConsoleState {
    text: Vec<u8>,
    filter: ControlFilter,
    /// The screen of a terminal of 80 columns and 24 rows.
    screen: vt100::Parser,
    closed: bool,
    last: Option<Instant>,
}

/// Removes terminal control sequences (ECMA-48) and carriage returns, also those that are split between two reads.
#[derive(Clone, Copy, Debug, Default)]
enum ControlFilter {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and one of `( ) #`: one more byte belongs to it.
    Skip,
    /// After ESC `[`: ends with a byte from `@` to `~`.
    Control,
    /// After ESC `]`: ends with BEL or ESC `\`.
    Command,
}

impl ControlFilter {
    /// Takes one byte; returns it if it is text.
    fn pass(&mut self, byte: u8) -> Option<u8> {
        let (next, text) = match (*self, byte) {
            (Self::Text | Self::Escape | Self::Command, 0x1b) => (Self::Escape, None),
            (Self::Text, b'\r' | 0) => (Self::Text, None),
            (Self::Text, byte) => (Self::Text, Some(byte)),
            (Self::Escape, b'[') => (Self::Control, None),
            (Self::Escape, b']') => (Self::Command, None),
            (Self::Escape, b'(' | b')' | b'#') => (Self::Skip, None),
            (Self::Control, byte) if !(0x40..=0x7e).contains(&byte) => (Self::Control, None),
            (Self::Command, byte) if byte != 7 => (Self::Command, None),
            _ => (Self::Text, None),
        };
        *self = next;
        text
    }
}

/// The output and the exit code of a command on the console.
#[derive(Clone, Debug)]
pub struct ConsoleAnswer {
    pub code: i32,
    /// Standard output and standard error, as the terminal showed them.
    pub text: String,
}

impl Serial {
    /// Reads `line` in the background; every byte is also written to `raw`.
    pub fn new(line: UnixStream, raw: &Path) -> Result<Self> {
        let log = Arc::new(ConsoleLog::default());
        let reader = line.try_clone().context("opening the console for reading")?;
        let file = File::create(raw).with_context(|| format!("making {}", raw.display()))?;
        let shared = Arc::clone(&log);
        thread::spawn(move || shared.fill(reader, file));
        Ok(Self { log, line, mark: 0, commands: 0 })
    }

    /// The output so far, without control sequences.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.log.lock().text).into_owned()
    }

    /// The end of the output so far, for errors.
    #[must_use]
    pub fn last_words(&self) -> String {
        tail(&self.log.lock().text)
    }

    /// The 24 lines that a terminal shows now.
    #[must_use]
    pub fn screen(&self) -> String {
        self.log.lock().screen.screen().contents()
    }

    /// Waits until the terminal shows one of several `words`; returns the index of the first of them.
    pub fn wait_for_screen(&mut self, words: &[&str], limit: Duration) -> Result<usize> {
        let deadline = Deadline::after(limit);
        let mut state = self.log.lock();
        loop {
            let shown = state.screen.screen().contents();
            if let Some(index) = words.iter().position(|words| shown.contains(words)) {
                self.mark = state.text.len();
                return Ok(index);
            }
            let Some(left) = deadline.left().filter(|_| !state.closed) else {
                bail!(
                    "within {} seconds the screen did not show {}:\n{shown}",
                    limit.as_secs(),
                    quoted(words)
                );
            };
            state = self.log.grown.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for `pattern` behind the last one that was waited for; returns the text up to its end.
    pub fn wait_for(&mut self, pattern: &str, limit: Duration) -> Result<String> {
        Ok(self.wait_for_any(&[pattern], limit)?.1)
    }

    /// Waits for the first of several patterns; returns its index and the text up to its end.
    pub fn wait_for_any(&mut self, patterns: &[&str], limit: Duration) -> Result<(usize, String)> {
        let deadline = Deadline::after(limit);
        // Only new output is searched, and as much before it as a pattern may have begun in.
        let overlap = patterns.iter().map(|pattern| pattern.len()).max().unwrap_or(0);
        let mut from = self.mark;
        let mut state = self.log.lock();
        loop {
            if let Some((index, end)) = first(&state.text[from..], patterns) {
                let text = String::from_utf8_lossy(&state.text[self.mark..from + end]).into_owned();
                self.mark = from + end;
                return Ok((index, text));
            }
            from = self.mark.max(state.text.len().saturating_sub(overlap));
            let why = match deadline.left() {
                _ if state.closed => "the machine ended before the console said".to_owned(),
                Some(left) => {
                    let waited = self.log.grown.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                None => format!("for {} seconds the console did not say", limit.as_secs()),
            };
            bail!("{why} {}; its last words:\n{}", quoted(patterns), tail(&state.text[self.mark..]));
        }
    }

    /// The output that was not waited for, once the console is silent or `limit` is over.
    pub fn rest(&mut self, limit: Duration) -> String {
        // A console that does not become silent is read as far as it got.
        let _ = self.settle(limit);
        let state = self.log.lock();
        let text = String::from_utf8_lossy(&state.text[self.mark..]).into_owned();
        self.mark = state.text.len();
        text
    }

    pub fn send(&mut self, line: &str) -> Result<()> {
        self.line.write_all(format!("{line}\r").as_bytes()).context("typing on the console")
    }

    /// Types keys without a line end, for menus.
    pub fn keys(&mut self, keys: &str) -> Result<()> {
        self.line.write_all(keys.as_bytes()).context("typing on the console")
    }

    /// Logs in and prepares the shell for [`Serial::run`]. The password is typed only when the console has been silent
    /// for a while after its prompt: the prompt comes before the terminal stops echoing, and an echoed password would
    /// be in the log that is searched for it.
    pub fn login(&mut self, user: &str, password: &str, limit: Duration) -> Result<()> {
        let deadline = Deadline::after(limit);
        let left = || deadline.left().unwrap_or_default();
        self.send("")?;
        self.wait_for("login: ", left())?;
        self.send(user)?;
        self.wait_for("assword: ", left())?;
        self.settle(left())?;
        self.send(password)?;
        let prompts = ["$ ", "# ", "Login incorrect"];
        if self.wait_for_any(&prompts, left()).context("logging in on the console")?.0 == 2 {
            bail!("the console refused the password of {user}");
        }
        // Wide lines, so that the shell's line editor does not wrap what is typed.
        self.run("stty -echo cols 500; export TERM=dumb PAGER=cat SYSTEMD_PAGER=", left())?;
        Ok(())
    }

    /// Runs a command in the logged-in shell.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<ConsoleAnswer> {
        self.commands += 1;
        let id = self.commands;
        // Input may be echoed; the marks come only from the output of printf.
        self.send(&format!("printf '%s-{id}\\n' begin; {command}; printf '%s-{id} %d;\\n' end $?"))?;
        self.wait_for(&format!("begin-{id}\n"), limit)?;
        let end = format!("end-{id} ");
        let text = self.wait_for(&end, limit).with_context(|| format!("running `{command}`"))?;
        let code = self.wait_for(";", limit)?;
        Ok(ConsoleAnswer {
            code: code.trim_end_matches(';').parse().context("reading an exit code off the console")?,
            text: text.trim_end_matches(&end).to_owned(),
        })
    }

    /// Waits until the console has been silent for [`SILENCE`].
    fn settle(&self, limit: Duration) -> Result<()> {
        Deadline::after(limit).poll("silence on the console", || {
            let last = self.log.lock().last;
            Ok(last.is_none_or(|last| last.elapsed() >= SILENCE).then_some(()))
        })
    }
}

impl ConsoleLog {
    fn lock(&self) -> MutexGuard<'_, ConsoleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, mut line: UnixStream, mut raw: File) {
        let mut buffer = [0; 4096];
        loop {
            // An error counts as the end: the other side is gone.
            let count = line.read(&mut buffer).unwrap_or(0);
            let _ = raw.write_all(&buffer[..count]);
            let mut state = self.lock();
            let ConsoleState { text, filter, screen, .. } = &mut *state;
            screen.process(&buffer[..count]);
            text.extend(buffer[..count].iter().filter_map(|byte| filter.pass(*byte)));
            state.closed = count == 0;
            state.last = Some(Instant::now());
            self.grown.notify_all();
            if count == 0 {
                return;
            }
        }
    }
}

/// Which pattern comes first in `text`, and where it ends.
fn first(text: &[u8], patterns: &[&str]) -> Option<(usize, usize)> {
    let found = patterns.iter().enumerate().filter_map(|(index, pattern)| {
        let at = text.windows(pattern.len()).position(|window| window == pattern.as_bytes())?;
        Some((at, index, at + pattern.len()))
    });
    found.min().map(|(_, index, end)| (index, end))
}

fn quoted(patterns: &[&str]) -> String {
    patterns.iter().map(|pattern| format!("{pattern:?}")).collect::<Vec<_>>().join(" or ")
}

fn tail(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_CHARACTERS)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Serial, UnixStream, tempfile::TempDir) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let serial = Serial::new(ours, &directory.path().join("serial.log")).unwrap();
        (serial, theirs, directory)
    }

    #[test]
    fn finds_words_that_control_sequences_and_reads_cut_apart() {
        let (mut serial, mut machine, directory) = pair();
        machine.write_all(b"Installation \x1b[1;3").unwrap();
        machine.write_all(b"2mcom\x1b]0;title\x07ple\x1b(Bte\r\nnode login: ").unwrap();
        let text = serial.wait_for("complete", Duration::from_secs(5)).unwrap();
        assert_eq!(text, "Installation complete");
        serial.wait_for("login: ", Duration::from_secs(5)).unwrap();
        let raw = std::fs::read(directory.path().join("serial.log")).unwrap();
        assert!(raw.windows(4).any(|bytes| bytes == b"\x1b[1;"), "the file keeps every byte");
    }

    #[test]
    fn the_earliest_of_several_patterns_wins_and_is_not_found_twice() {
        let (mut serial, mut machine, _directory) = pair();
        machine.write_all(b"error: one\nInstallation complete\nerror: two\n").unwrap();
        let limit = Duration::from_secs(5);
        let patterns = ["Installation complete", "error: "];
        assert_eq!(serial.wait_for_any(&patterns, limit).unwrap().0, 1);
        assert_eq!(serial.wait_for_any(&patterns, limit).unwrap().0, 0);
        assert_eq!(serial.wait_for_any(&patterns, limit).unwrap().0, 1);
    }

    #[test]
    fn a_screen_is_read_as_it_looks_however_it_was_drawn() {
        let (mut serial, mut machine, _directory) = pair();
        machine.write_all(b"\x1b[2J\x1b[2;5Hdisks\x1b[1;1HInstall: _____").unwrap();
        machine.write_all(b"\x1b[1;10Hnames").unwrap();
        let index = serial.wait_for_screen(&["Install: disks", "Install: names"], Duration::from_secs(5));
        assert_eq!(index.unwrap(), 1);
        assert_eq!(serial.screen(), "Install: names\n    disks");
        let error = serial.wait_for_screen(&["nothing"], Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("Install: names"), "{error}");
    }

    #[test]
    fn a_machine_that_exits_is_reported_at_once_with_its_last_output() {
        let (mut serial, mut machine, _directory) = pair();
        machine.write_all(b"Kernel panic").unwrap();
        drop(machine);
        let error = serial.wait_for("login: ", Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("the machine ended") && error.contains("Kernel panic"), "{error}");
    }

    #[test]
    fn a_command_that_is_echoed_still_gives_its_own_output_and_exit_code() {
        let (mut serial, mut machine, _directory) = pair();
        let shell = thread::spawn(move || {
            let mut typed = [0; 512];
            let count = machine.read(&mut typed).unwrap();
            machine.write_all(&typed[..count]).unwrap();
            machine.write_all(b"\nbegin-1\nit-runs\nend-1 3;\n").unwrap();
            machine
        });
        let answer = serial.run("false", Duration::from_secs(5)).unwrap();
        assert_eq!((answer.code, answer.text.as_str()), (3, "it-runs\n"));
        drop(shell.join());
    }
}
