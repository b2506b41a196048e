//! Bytes on their way to a terminal that may be slow, or take nothing at all: a serial line with flow control, or without a
//! reader. Drawing never waits for such a terminal longer than a moment.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long a flush waits for a slow terminal. A serial line with 115200 baud takes a picture meanwhile.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(250);
/// A terminal that has taken nothing for this long is stuck, and no flush waits for it any more.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// The most bytes that wait for a terminal; more are lost. A picture is far smaller.
const PENDING_BYTES_MAX: usize = 256 << 10;

/// A terminal, and the bytes that it has not taken yet.
#[derive(Debug)]
pub struct Outlet {
    file: File,
    waiting: Vec<u8>,
    /// Since when it takes nothing.
    halted: Option<Instant>,
    /// Whether it was stuck and takes bytes again.
    recovered: bool,
}

impl Outlet {
    #[must_use]
    pub fn new(file: File) -> Self {
        // Only a descriptor of its own can be non-blocking: others of this terminal belong to the process that started this one.
        // If it cannot be opened, because the terminal is another user's, this one must do.
        let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).unwrap_or(file);
        Self { file, waiting: Vec::new(), halted: None, recovered: false }
    }

    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether bytes have not been taken yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether it has taken nothing for a long time.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.halted.is_some_and(|since| since.elapsed() >= STUCK_AFTER)
    }

    /// Whether it was stuck and takes bytes again; returns true once. A reader there now may not have seen the beginning.
    pub fn has_recovered(&mut self) -> bool {
        std::mem::take(&mut self.recovered)
    }

    pub fn discard(&mut self) {
        self.waiting.clear();
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting.len().saturating_add(bytes.len()) <= PENDING_BYTES_MAX {
            self.waiting.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    /// Sends what the terminal takes within a moment; the rest waits for the next flush.
    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let stuck = self.is_stuck();
        let taken = push(&self.file, &self.waiting, if stuck { Duration::ZERO } else { FLUSH_TIMEOUT })?;
        self.waiting.drain(..taken);
        if taken > 0 {
            self.recovered |= stuck;
            self.halted = None;
        }
        if self.is_waiting() {
            self.halted.get_or_insert_with(Instant::now);
        }
        Ok(())
    }
}

/// Writes what a non-blocking terminal takes within `timeout`; returns the number of bytes.
///
/// # Errors
/// The terminal is gone.
pub(super) fn push(mut file: &File, bytes: &[u8], timeout: Duration) -> io::Result<usize> {
    let until = Instant::now() + timeout;
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(count) if count > 0 => taken += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            // It has no room now.
            Ok(_) | Err(_) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let mut wanted = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                // After a signal too, the next write shows whether there is room.
                let _ = poll(&mut wanted, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
            }
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;
    use std::io::Read;

    /// A terminal and its other end.
    fn terminal() -> (Outlet, File) {
        let pty = openpty(None, None).unwrap();
        (Outlet::new(File::from(pty.slave)), File::from(pty.master))
    }

    #[test]
    fn a_terminal_that_nobody_reads_is_waited_for_only_for_a_moment_and_loses_nothing() {
        let (mut outlet, mut other) = terminal();
        let sent: Vec<u8> = (0..200_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
        let begun = Instant::now();
        outlet.write_all(&sent).unwrap();
        outlet.flush().unwrap();
        assert!(outlet.is_waiting() && begun.elapsed() < STUCK_AFTER, "{:?}", begun.elapsed());
        let reader = std::thread::spawn(move || {
            let mut seen = vec![0; 200_000];
            other.read_exact(&mut seen).unwrap();
            (seen, other)
        });
        let until = Instant::now() + Duration::from_secs(60);
        while outlet.is_waiting() && Instant::now() < until {
            outlet.flush().unwrap();
        }
        assert!(reader.join().unwrap().0 == sent);
    }

    #[test]
    fn one_that_is_stuck_is_not_waited_for_and_is_known_to_have_come_back() {
        let (mut outlet, mut other) = terminal();
        outlet.write_all(&[b'x'; 200_000]).unwrap();
        outlet.flush().unwrap();
        outlet.halted = Instant::now().checked_sub(STUCK_AFTER);
        assert!(outlet.is_stuck() && !outlet.has_recovered());
        let begun = Instant::now();
        (0..100).for_each(|_| outlet.flush().unwrap());
        assert!(begun.elapsed() < FLUSH_TIMEOUT * 50, "{:?}", begun.elapsed());
        let mut some = [0; 4096];
        assert!(other.read(&mut some).unwrap() > 0);
        // The room becomes visible at this end after a moment.
        let until = Instant::now() + Duration::from_secs(60);
        while outlet.is_stuck() && Instant::now() < until {
            outlet.flush().unwrap();
        }
        assert!(outlet.has_recovered() && !outlet.has_recovered());
    }

    #[test]
    fn what_waits_for_a_terminal_has_an_end() {
        let (mut outlet, _other) = terminal();
        for _ in 0..1000 {
            outlet.write_all(&[b'x'; 1000]).unwrap();
        }
        assert!(outlet.waiting.len() <= PENDING_BYTES_MAX);
    }

    #[test]
    fn a_terminal_that_is_gone_is_an_error() {
        let (mut outlet, other) = terminal();
        drop(other);
        outlet.write_all(b"x").unwrap();
        assert!(outlet.flush().is_err());
    }
}
