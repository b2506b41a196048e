//! A console: opening it, raw mode and restoring it, its size, waiting for keys.
//!
//! The terminal is restored when the [`Screen`] is dropped, also while a panic unwinds, and when a signal ends the process.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{self, ControlFlags, SetArg, Termios};
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};

use super::keys::{Decoder, ESCAPE_TIMEOUT, Key};
use super::outlet::{self, Outlet};
use super::output::{Output, ending};
use super::{Capabilities, Theme};
use base::cancellation::{self, Cleanup};
use base::failure::{Class, Classify, Failure};

/// How long a terminal may take for the sequences that restore it.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// A terminal that is open and unchanged.
#[derive(Debug)]
pub struct Console {
    name: PathBuf,
    input: File,
    output: File,
    capabilities: Capabilities,
}

impl Console {
    /// The console of a device such as `/dev/tty1` or `/dev/ttyS0`.
    pub fn open(path: &Path) -> Result<Self> {
        // Opening a serial line that waits for a carrier would block; later calls should block.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
        let open = || -> Result<File> {
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
            fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
            Ok(file)
        };
        let input = open().class(Class::Unexpected, || format!("opening the console {}", path.display()))?;
        let output = input.try_clone()?;
        Ok(Self { name: path.to_owned(), input, output, capabilities: Capabilities::of_device(path) })
    }

    /// The terminal that this process was started on.
    pub fn standard() -> Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Err(Failure::new(Class::Invalid, "this is not a terminal").into());
        }
        let copy = |fd: BorrowedFd<'_>| Ok::<_, io::Error>(File::from(fd.try_clone_to_owned()?));
        let (input, output) = (copy(io::stdin().as_fd())?, copy(io::stdout().as_fd())?);
        let capabilities = Capabilities::of_environment(&|name| std::env::var(name).ok());
        Ok(Self { name: PathBuf::from("terminal"), input, output, capabilities })
    }

    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Takes the whole screen, and every key.
    pub fn take(self) -> Result<(Screen, Keyboard)> {
        let Self { name, input, output, capabilities } = self;
        let what = || format!("setting up the terminal {}", name.display());
        let found = termios::tcgetattr(&input).class(Class::Unexpected, what)?;
        let measured = output.try_clone()?;
        let measure = move || {
            let (width, height) = terminal_size::terminal_size_of(measured.as_fd())?;
            Some(Size::new(width.0, height.0))
        };
        let outlet = Outlet::new(output);
        let output = outlet.file().try_clone()?;
        let restore = TerminalRestore { output, found, capabilities, taken: Arc::default() };
        let mut at_the_end = restore.shared()?;
        let cleanup = cancellation::on_end(move || at_the_end.now());
        let terminal = Terminal::new(Output::new(outlet, capabilities, measure))?;
        let theme = Theme::of(capabilities);
        let mut screen = Screen { terminal, restore, _cleanup: cleanup, theme, stale: false };
        screen.enter().class(Class::Unexpected, what)?;
        Ok((screen, Keyboard { input, decoder: Decoder::default(), touched: Instant::now() }))
    }
}

/// Restores a terminal, once.
#[derive(Debug)]
struct TerminalRestore {
    output: File,
    found: Termios,
    capabilities: Capabilities,
    taken: Arc<AtomicBool>,
}

impl TerminalRestore {
    /// Another hand on the same: whoever is first restores the terminal.
    fn shared(&self) -> io::Result<Self> {
        let Self { output, found, capabilities, taken } = self;
        Ok(Self {
            output: output.try_clone()?,
            found: found.clone(),
            capabilities: *capabilities,
            taken: Arc::clone(taken),
        })
    }

    fn now(&mut self) {
        if self.taken.swap(false, Ordering::Relaxed) {
            // An error here cannot be reported. Pending output is not waited for: a stuck line would never be restored.
            let _ = outlet::push(&self.output, ending(self.capabilities).as_bytes(), RESTORE_TIMEOUT);
            let _ = termios::tcsetattr(&self.output, SetArg::TCSANOW, &self.found);
        }
    }
}

impl Drop for TerminalRestore {
    fn drop(&mut self) {
        self.now();
    }
}

#[allow(missing_debug_implementations)]
pub struct Screen {
    terminal: Terminal<Output<Outlet>>,
    restore: TerminalRestore,
    _cleanup: Cleanup,
    theme: Theme,
    /// Whether something else has written on it.
    stale: bool,
}

impl Screen {
    #[must_use]
    pub fn theme(&self) -> Theme {
        self.theme
    }

    /// Draws a picture; only differences from the last one are sent. A terminal of another size is drawn again. If it has not
    /// taken the last picture yet, this one is skipped.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let outlet = self.terminal.backend_mut().out();
        outlet.flush()?;
        let recovered = outlet.has_recovered();
        self.stale |= recovered;
        if outlet.is_waiting() {
            return Ok(());
        }
        if std::mem::take(&mut self.stale) {
            self.terminal.clear()?;
        }
        self.terminal.draw(picture).map(drop)
    }

    /// Whether it is still taking the last picture, so that it is worth drawing again soon.
    #[must_use]
    pub fn is_behind(&mut self) -> bool {
        let outlet = self.terminal.backend_mut().out();
        outlet.is_waiting() && !outlet.is_stuck()
    }

    /// Whether it has to be drawn although the picture is the same: it has another size now, or did not get all of the last one.
    pub fn is_outdated(&mut self) -> bool {
        let drawn = self.terminal.current_buffer_mut().area.as_size();
        let resized = self.terminal.size().is_ok_and(|size| size != drawn);
        self.stale || resized || self.terminal.backend_mut().out().is_waiting()
    }

    /// Sends the next picture as a whole: something else has written on the screen.
    pub fn forget(&mut self) {
        self.stale = true;
    }

    /// Releases the terminal for a while, to a shell for example.
    pub fn leave(&mut self) {
        self.terminal.backend_mut().out().discard();
        self.restore.now();
    }

    /// Takes it again.
    pub fn enter(&mut self) -> Result<()> {
        let mut raw = self.restore.found.clone();
        termios::cfmakeraw(&mut raw);
        // A serial line without a carrier is used too.
        raw.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
        termios::tcsetattr(&self.restore.output, SetArg::TCSANOW, &raw)?;
        self.restore.taken.store(true, Ordering::Relaxed);
        self.terminal.backend_mut().begin()?;
        self.terminal.clear()?;
        Ok(())
    }
}

#[derive(Debug)]
pub struct Keyboard {
    input: File,
    decoder: Decoder,
    /// When the last bytes came.
    touched: Instant,
}

/// Waits for a key of any keyboard, until `wake` can be read, or for `timeout`, whichever is first; returns the keys of each
/// keyboard, or the error of a terminal that is gone.
///
/// # Errors
/// Of poll(2).
pub fn wait_for_keys(
    keyboards: &mut [&mut Keyboard],
    wake: BorrowedFd<'_>,
    timeout: Duration,
) -> io::Result<Vec<io::Result<Vec<Key>>>> {
    let timeout =
        keyboards.iter().filter_map(|keyboard| keyboard.escape_timeout()).fold(timeout, Duration::min);
    let mut polled = vec![PollFd::new(wake, PollFlags::POLLIN)];
    polled.extend(keyboards.iter().map(|keyboard| PollFd::new(keyboard.input.as_fd(), PollFlags::POLLIN)));
    // poll(2) counts whole milliseconds: a fraction less would be too early for the escape timeout.
    let timeout = PollTimeout::try_from(timeout + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready: Vec<_> = polled[1..].iter().map(|polled| polled.any().unwrap_or(true)).collect();
    Ok(keyboards.iter_mut().zip(ready).map(|(keyboard, ready)| keyboard.read(ready)).collect())
}

impl Keyboard {
    /// The terminal, for a program that borrows it.
    #[must_use]
    pub fn into_terminal(self) -> File {
        self.input
    }

    /// How long to wait for the rest of a key; `None` if none has begun.
    fn escape_timeout(&self) -> Option<Duration> {
        self.decoder.is_waiting().then(|| ESCAPE_TIMEOUT.saturating_sub(self.touched.elapsed()))
    }

    fn read(&mut self, ready: bool) -> io::Result<Vec<Key>> {
        if !ready {
            let late = self.escape_timeout() == Some(Duration::ZERO);
            return Ok(if late { self.decoder.give_up() } else { Vec::new() });
        }
        let mut bytes = [0; 1024];
        match self.input.read(&mut bytes) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(count) => {
                self.touched = Instant::now();
                Ok(self.decoder.feed(&bytes[..count]))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use nix::sys::termios::LocalFlags;
    use std::os::unix::net::UnixStream;

    /// A terminal and the file at its other end.
    fn terminal() -> (Console, File, File) {
        let pty = openpty(None, None).unwrap();
        let end = File::from(pty.slave);
        let (input, output) = (end.try_clone().unwrap(), end.try_clone().unwrap());
        let console = Console { name: "pty".into(), input, output, capabilities: Capabilities::LEAST };
        (console, File::from(pty.master), end)
    }

    fn echoes(terminal: &File) -> bool {
        termios::tcgetattr(terminal).unwrap().local_flags.contains(LocalFlags::ECHO)
    }

    fn seen(other: &mut File) -> String {
        let mut bytes = [0; 4096];
        let count = other.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn a_console_is_put_back_as_it_was_even_by_a_panic() {
        let (console, mut other, end) = terminal();
        let work = std::thread::spawn(move || {
            let (mut screen, _keyboard) = console.take().unwrap();
            screen.draw(|frame| frame.render_widget("hello", frame.area())).unwrap();
            screen.leave();
            screen.enter().unwrap();
            panic!("in the middle");
        });
        assert!(work.join().is_err());
        assert!(echoes(&end));
        let seen = seen(&mut other);
        assert!(seen.contains("hello") && seen.ends_with("\x1b[0m\x1b[2J\x1b[H"), "{seen:?}");
    }

    #[test]
    fn a_terminal_that_nobody_reads_holds_up_nobody_and_is_drawn_anew_when_somebody_does() {
        let (console, mut other, _end) = terminal();
        let (mut screen, _keyboard) = console.take().unwrap();
        let picture = |number: usize| {
            let letter = char::from(b'a' + u8::try_from(number % 20).unwrap());
            std::iter::repeat_n(letter, 80 * 24).collect::<String>()
        };
        let wrap = ratatui::widgets::Wrap { trim: false };
        let draw = |screen: &mut Screen, number| {
            let text = ratatui::widgets::Paragraph::new(picture(number)).wrap(wrap);
            screen.draw(|frame| frame.render_widget(text, frame.area())).unwrap();
        };
        let begun = Instant::now();
        for number in 0..2000 {
            draw(&mut screen, number);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        assert!(!screen.is_behind(), "it is stuck, and nobody waits for it");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut bytes = [0; 4096];
            while let Ok(count) = other.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
                let text = String::from_utf8_lossy(&all);
                if text.rsplit("\x1b[2J").next().is_some_and(|last| last.matches('z').count() == 80 * 24) {
                    return (all.len(), other);
                }
            }
            panic!("the last picture did not come as a whole");
        });
        let last = ratatui::widgets::Paragraph::new("z".repeat(80 * 24)).wrap(wrap);
        let until = Instant::now() + Duration::from_secs(60);
        while !reader.is_finished() && Instant::now() < until {
            screen.draw(|frame| frame.render_widget(last.clone(), frame.area())).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(reader.is_finished());
        reader.join().unwrap();
    }

    #[test]
    fn keys_come_as_they_are_pressed_and_a_lone_escape_after_its_timeout() {
        let (console, mut other, end) = terminal();
        let (screen, mut keyboard) = console.take().unwrap();
        assert!(!echoes(&end));
        let (wake, other_wake) = UnixStream::pair().unwrap();
        let mut wait = |timeout| {
            let keys = wait_for_keys(&mut [&mut keyboard], wake.as_fd(), timeout).unwrap();
            keys.into_iter().next().unwrap().unwrap()
        };
        assert_eq!(wait(Duration::from_millis(1)), []);
        other.write_all(b"a\x1b[A").unwrap();
        assert_eq!(wait(Duration::from_secs(20)), [Key::Char('a'), Key::Up]);
        other.write_all(b"\x1b").unwrap();
        assert_eq!(wait(Duration::from_secs(20)), [], "it can be the beginning of another key");
        assert_eq!(wait(Duration::from_secs(20)), [Key::Escape]);
        (&other_wake).write_all(b"x").unwrap();
        assert_eq!(wait(Duration::from_secs(3600)), []);
        drop(screen);
        assert!(echoes(&end));
    }

    #[test]
    fn a_terminal_that_tells_no_size_is_drawn_as_the_usual_one() {
        let (console, _other, _end) = terminal();
        let (mut screen, _keyboard) = console.take().unwrap();
        let mut size = None;
        screen.draw(|frame| size = Some(frame.area().as_size())).unwrap();
        assert_eq!(size, Some(super::super::output::USUAL));
    }
}
