//! Ending on a signal, in order: what this process has started ends, what it has not finished is removed, and the exit code
//! is 128 and the number of the signal, as shells have it (130 for SIGINT, 143 for SIGTERM). It does so as process 1 of a
//! container too, whose kernel ignores every signal that has no handler.
//!
//! [`watch`] is called once, by the command line of a program. A thread then waits for a signal and ends the process while
//! the others run on, so work need not poll anything. Work registers what has to be cleaned up ([`on_end`]) and marks what
//! must not be interrupted ([`hold`]). Work that must stop at a point of its own choice takes the signals over
//! ([`take_over`]) and polls a flag. A second signal, half a second later or more, ends the process without cleanup.
//!
//! What a killed process (SIGKILL, power loss) leaves behind is removed by the next run, see [`crate::files`].

mod children;
mod handlers;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::failure::{Class, Failure};
use crate::parallel::locked;

/// Signals within this time count as one: a terminal and a process manager may both send one.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Held for reading by work that must not be interrupted, and for writing once the process ends.
static HELD: RwLock<()> = RwLock::new(());
static TAKEN_OVER: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(0);
static CLEANUPS: Mutex<BTreeMap<u64, Box<dyn FnOnce() + Send>>> = Mutex::new(BTreeMap::new());

/// Tells the user about a cancellation.
pub trait CancellationReporter: Send + 'static {
    /// Called first. Later reports of other threads are consequences of the cancellation and should not be shown.
    fn begin(&mut self, request: EndRequest);
    /// Called last, after the cleanup.
    fn end(&mut self, request: EndRequest);
}

/// A signal that asked this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRequest(Signal);

impl EndRequest {
    /// 128 and the number of the signal.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        u8::try_from(self.0 as i32).map_or(Class::Cancelled.exit_code(), |number| number.saturating_add(128))
    }
}

impl fmt::Display for EndRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP end this process as the module describes. A SIGHUP that is ignored, as under `nohup`,
/// stays ignored.
pub fn watch(farewell: impl CancellationReporter) -> io::Result<()> {
    let mut wake = handlers::install()?;
    let begin = move || {
        let mut farewell = Some(farewell);
        let mut begun: Option<Instant> = None;
        while wake.wait().is_ok() {
            if TAKEN_OVER.load(Ordering::SeqCst) {
                continue;
            }
            let Some(request) = requested() else { continue };
            match (begun, farewell.take()) {
                (None, Some(farewell)) => {
                    begun = Some(Instant::now());
                    thread::Builder::new().name("end".into()).spawn(move || end(request, farewell)).ok();
                }
                (Some(begun), _) if begun.elapsed() > SAME_SIGNAL => {
                    process::exit(request.exit_code().into())
                }
                _ => {}
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(begin)?;
    Ok(())
}

/// The first signal that this process received.
#[must_use]
pub fn requested() -> Option<EndRequest> {
    handlers::first().and_then(|number| Signal::try_from(number).ok()).map(EndRequest)
}

/// The exit code of a failure of `class`: that of the signal if a signal caused it.
#[must_use]
pub fn exit_code(class: Class) -> u8 {
    match (class, requested()) {
        (Class::Cancelled, Some(request)) => request.exit_code(),
        (class, _) => class.exit_code(),
    }
}

/// Signals no longer end the process until the returned value is dropped: for work that stops at a safe point of its own.
#[must_use]
pub fn take_over() -> SignalClaim {
    // Blocks for good if the process is ending already.
    let _before_the_end = hold();
    TAKEN_OVER.store(true, Ordering::SeqCst);
    SignalClaim(())
}

/// While this exists, signals only set a flag. A signal that arrived meanwhile ends the process when it is dropped.
#[derive(Debug)]
pub struct SignalClaim(());

impl SignalClaim {
    /// Becomes true when a signal arrives.
    #[must_use]
    pub fn flag(&self) -> &'static AtomicBool {
        handlers::flag()
    }

    /// Keeps the signals for the rest of the process, which then ends by returning from `main`.
    #[must_use]
    pub fn for_good(self) -> &'static AtomicBool {
        let flag = self.flag();
        std::mem::forget(self);
        flag
    }
}

impl Drop for SignalClaim {
    fn drop(&mut self) {
        TAKEN_OVER.store(false, Ordering::SeqCst);
        if requested().is_some() {
            handlers::wake();
        }
    }
}

/// Blocks if a signal is ending this process. Called by a thread that would otherwise end the process itself.
pub fn give_way() {
    while requested().is_some() && !TAKEN_OVER.load(Ordering::SeqCst) && handlers::installed() {
        thread::park();
    }
}

/// Fails if a signal has arrived, so that no further work is started.
pub fn check() -> Result<(), Failure> {
    match requested() {
        Some(request) => Err(Failure::new(Class::Cancelled, format!("cancelled by {request}"))),
        None => Ok(()),
    }
}

/// Delays the end of this process while the guard is held: for a few renames that belong together, not for long work.
/// A thread that holds it must not call this again.
pub fn hold() -> RwLockReadGuard<'static, ()> {
    HELD.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `action` when a signal ends this process, unless the returned value has been dropped. The last registered action
/// runs first, while the threads of the work may still run.
pub fn on_end(action: impl FnOnce() + Send + 'static) -> Cleanup {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    locked(&CLEANUPS).insert(number, Box::new(action));
    Cleanup(number)
}

/// A registered action; dropping it unregisters the action.
#[derive(Debug)]
pub struct Cleanup(u64);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let action = locked(&CLEANUPS).remove(&self.0);
        drop(action);
    }
}

fn end(request: EndRequest, mut farewell: impl CancellationReporter) -> ! {
    let _for_ever = HELD.write().unwrap_or_else(PoisonError::into_inner);
    farewell.begin(request);
    children::end_all();
    let cleanups = std::mem::take(&mut *locked(&CLEANUPS));
    cleanups.into_values().rev().for_each(|action| action());
    farewell.end(request);
    process::exit(request.exit_code().into())
}
