//! Ending on a signal, in order: what this process has started ends, what it has not finished is removed, and the exit code
//! is 128 and the number of the signal, as shells have it (130 for SIGINT, 143 for SIGTERM). It does so as process 1 of a
//! container too, whose kernel ignores every signal that has no handler.
//!
//! [`watch`] is called once, by the command line of a program. A thread then waits for the signal and ends the process,
//! whatever the others are doing: work needs to check nothing. It only says what has to be cleaned up ([`on_end`]) and what
//! must not be cut in two ([`hold`]). Work that knows better when to stop takes over ([`take_over`]); it then has a flag to
//! look at. A second signal, later than a moment, ends the process without cleaning up.
//!
//! What is killed without a chance to clean up is [`crate::unfinished`]'s to remove.

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

/// A second signal within this time is the same one: a terminal and a process manager can both send it.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Held for reading by what must not be cut, and for writing from the moment on at which the process ends.
static HELD: RwLock<()> = RwLock::new(());
static TAKEN_OVER: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(0);
static CLEANUPS: Mutex<BTreeMap<u64, Box<dyn FnOnce() + Send>>> = Mutex::new(BTreeMap::new());

/// What the command line shows of an end.
pub trait CancellationReporter: Send + 'static {
    /// Called first: what other threads report from now on is a consequence of the end, and not worth telling.
    fn begin(&mut self, request: EndRequest);
    /// Called last, after everything is cleaned up.
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

/// From now on SIGINT, SIGTERM and SIGHUP end this process as the module says. SIGHUP stays ignored where it is, as below
/// `nohup`.
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

/// The first signal that asked for the end of this process.
#[must_use]
pub fn requested() -> Option<EndRequest> {
    handlers::first().and_then(|number| Signal::try_from(number).ok()).map(EndRequest)
}

/// The exit code of a failure of `class`: where a signal was its reason, that of the signal.
#[must_use]
pub fn exit_code(class: Class) -> u8 {
    match (class, requested()) {
        (Class::Cancelled, Some(request)) => request.exit_code(),
        (class, _) => class.exit_code(),
    }
}

/// From now on a signal ends nothing, for work that stops where that is safe: until what is returned is dropped.
#[must_use]
pub fn take_over() -> TakenOver {
    // Where the end has begun already, this waits for it.
    let _before_the_end = hold();
    TAKEN_OVER.store(true, Ordering::SeqCst);
    TakenOver(())
}

/// Signals only set a flag while it exists. If one came meanwhile, it ends the process then.
#[derive(Debug)]
pub struct TakenOver(());

impl TakenOver {
    /// Whether a signal has asked for the end.
    #[must_use]
    pub fn flag(&self) -> &'static AtomicBool {
        handlers::flag()
    }

    /// Lets the work have the signals for the rest of this process, which then ends by returning from `main`.
    #[must_use]
    pub fn for_good(self) -> &'static AtomicBool {
        let flag = self.flag();
        std::mem::forget(self);
        flag
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        TAKEN_OVER.store(false, Ordering::SeqCst);
        if requested().is_some() {
            handlers::wake();
        }
    }
}

/// Returns unless a signal is ending this process; then it waits for that. Called by a thread that would end it otherwise.
pub fn give_way() {
    while requested().is_some() && !TAKEN_OVER.load(Ordering::SeqCst) && handlers::installed() {
        thread::park();
    }
}

/// Fails when a signal has asked for the end: nothing more is to be started.
pub fn check() -> Result<(), Failure> {
    match requested() {
        Some(request) => Err(Failure::new(Class::Cancelled, format!("cancelled by {request}"))),
        None => Ok(()),
    }
}

/// Keeps this process from ending while it is held: for a few renames that belong together, not for work that takes time.
/// Must not be asked for again by a thread that has it.
pub fn hold() -> RwLockReadGuard<'static, ()> {
    HELD.read().unwrap_or_else(PoisonError::into_inner)
}

/// Has `action` done when a signal ends this process, unless what is returned has been dropped. Later actions are done
/// first. The work may be going on meanwhile, in threads that are not stopped.
pub fn on_end(action: impl FnOnce() + Send + 'static) -> Cleanup {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    locked(&CLEANUPS).insert(number, Box::new(action));
    Cleanup(number)
}

/// An action for the end; dropped, it is forgotten.
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
