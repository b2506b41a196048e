//! The handlers of the signals that end a process: each notes the signal and writes one byte to a pipe, on which a thread
//! waits.
//!
//! Handlers and not a mask: a mask is inherited by every program that is started, a handler is not.
//!
//! Why the unsafe code is sound: a handler may do only what is safe at any moment (signal-safety(7)). This one stores to
//! atomics, calls write(2) on a descriptor that stays open as long as the process runs, with one byte of its own, and
//! leaves `errno` as it found it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::{self, c_int};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::pipe2;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static FIRST: AtomicI32 = AtomicI32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(signal: c_int) {
    let errno = Errno::last_raw();
    let _ = FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
    REQUESTED.store(true, Ordering::SeqCst);
    wake();
    Errno::set_raw(errno);
}

/// Wakes the waiting thread; async-signal-safe.
pub(super) fn wake() {
    // SAFETY: see the module. A full pipe wakes the thread as well.
    unsafe { libc::write(WAKE.load(Ordering::SeqCst), [0_u8].as_ptr().cast(), 1) };
}

/// The read end of the pipe into which the handlers write.
pub(super) struct WakePipe(File);

impl WakePipe {
    /// Blocks until a signal arrives.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.0.read_exact(&mut [0])
    }
}

pub(super) fn install() -> io::Result<WakePipe> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // A write in a handler must never block.
    nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    WAKE.store(write.into_raw_fd(), Ordering::SeqCst);
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: see the module comment.
        let before = unsafe { sigaction(signal, &action) }?;
        if signal == Signal::SIGHUP && matches!(before.handler(), SigHandler::SigIgn) {
            // SAFETY: what was there before is put back.
            unsafe { sigaction(signal, &before) }?;
        }
    }
    Ok(WakePipe(read.into()))
}

pub(super) fn installed() -> bool {
    WAKE.load(Ordering::SeqCst) >= 0
}

/// Set by the first signal.
pub(super) fn flag() -> &'static AtomicBool {
    &REQUESTED
}

/// The number of the first signal.
pub(super) fn first() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|number| *number != 0)
}
