//! Messages that the kernel writes over a picture on its consoles, such as those about a damaged disk.
//!
//! They are kept from nowhere: the level of the kernel's consoles belongs to the whole machine and would stay changed after a program
//! that was killed. Whoever draws learns of a message here, and draws again.
//!
//! Sources: the kernel's `Documentation/ABI/testing/dev-kmsg`, and `Documentation/admin-guide/sysctl/kernel.rst` (`printk`).

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::O_NONBLOCK;

const RECORDS: &str = "/dev/kmsg";
const LEVELS: &str = "/proc/sys/kernel/printk";
/// No record is longer, in bytes (`PRINTKRB_RECORD_MAX` is 1024, and control characters are written with four).
const RECORD_BYTES_MAX: usize = 8192;
/// How many records are read at a time: a kernel that does not stop must not hold up the page.
const RECORDS_MAX: usize = 1000;
/// The bits of a record's number that are its level; the others are its facility (syslog(2)).
const LEVEL_BITS: u32 = 7;
/// The level below which messages are shown where the kernel does not tell.
const DEFAULT_LEVEL: u32 = 4;

/// The messages from the beginning on.
#[derive(Debug)]
pub(super) struct KernelMessages<R = File>(R);

impl KernelMessages {
    /// Begins after the messages that there are. `None` if the kernel does not give any to this program.
    pub(super) fn begin() -> Option<Self> {
        let mut records = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(RECORDS).ok()?;
        records.seek(SeekFrom::End(0)).ok()?;
        Some(Self(records))
    }

    /// Whether the kernel has shown one on its consoles since the last call.
    pub(super) fn were_shown(&mut self) -> bool {
        let levels = fs::read_to_string(LEVELS).unwrap_or_default();
        self.were_shown_below(console_level(&levels))
    }
}

impl<R: Read> KernelMessages<R> {
    fn were_shown_below(&mut self, level: u32) -> bool {
        let (mut shown, mut record) = (false, [0; RECORD_BYTES_MAX]);
        for _ in 0..RECORDS_MAX {
            match self.0.read(&mut record) {
                Ok(0) => break,
                Ok(count) => shown |= level_of(&record[..count]).is_some_and(|of| of < level),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Newer ones have taken the place of some.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => shown = true,
                Err(_) => break,
            }
        }
        shown
    }
}

/// The level of a record, `PRIORITY,NUMBER,TIME,FLAGS;TEXT`.
fn level_of(record: &[u8]) -> Option<u32> {
    let priority = record.split(|byte| *byte == b',').next()?;
    Some(str::from_utf8(priority).ok()?.parse::<u32>().ok()? & LEVEL_BITS)
}

/// The first number: messages below this level are shown on the consoles.
fn console_level(levels: &str) -> u32 {
    levels.split_whitespace().next().and_then(|level| level.parse().ok()).unwrap_or(DEFAULT_LEVEL)
}

/// Whether the kernel may write on this console: a pseudo terminal belongs to another program.
pub(super) fn writes_on(console: &Path) -> bool {
    console.starts_with("/dev") && !console.starts_with("/dev/pts")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;

    use super::*;

    /// Gives one record at each read, as the kernel does.
    struct Records(VecDeque<Result<&'static str, ErrorKind>>);

    impl Read for Records {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(ErrorKind::WouldBlock))?;
            buffer[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    fn shown(records: &[Result<&'static str, ErrorKind>], level: u32) -> bool {
        let mut messages = KernelMessages(Records(records.iter().copied().collect()));
        let shown = messages.were_shown_below(level);
        assert!(messages.0.0.is_empty(), "some were left");
        assert!(!messages.were_shown_below(level), "a message counts once");
        shown
    }

    #[test]
    fn a_message_that_the_kernel_shows_is_told_once_and_one_that_it_keeps_is_not() {
        let damage = "3,1417,9001,-;device-mapper: verity: 254:0: data block 7 is corrupted\n";
        // Facility 3 (daemons), level 6.
        let quiet = "30,1418,9002,-;systemd[1]: Started it.\n SUBSYSTEM=x\n";
        for (records, level, expected) in [
            (&[][..], 4, false),
            (&[Ok(damage)], 4, true),
            (&[Ok(damage)], 3, false),
            (&[Ok(quiet), Ok(quiet)], 4, false),
            (&[Ok(quiet)], 7, true),
            (&[Ok(quiet), Err(ErrorKind::Interrupted), Ok(damage), Ok(quiet)], 4, true),
            (&[Err(ErrorKind::BrokenPipe), Ok(quiet)], 4, true),
            (&[Ok("no record"), Ok("")], 4, false),
        ] {
            assert_eq!(shown(records, level), expected, "{records:?} {level}");
        }
    }

    #[test]
    fn the_level_is_that_of_the_consoles() {
        assert_eq!((console_level("4\t4\t1\t7\n"), console_level("7 4 1 7")), (4, 7));
        assert_eq!(console_level(""), DEFAULT_LEVEL);
    }

    #[test]
    fn the_kernel_writes_on_consoles_and_on_no_pseudo_terminal() {
        for (console, expected) in [
            ("/dev/tty1", true),
            ("/dev/ttyS0", true),
            ("/dev/hvc0", true),
            ("/dev/pts/3", false),
            ("terminal", false),
        ] {
            assert_eq!(writes_on(Path::new(console)), expected, "{console}");
        }
    }
}
