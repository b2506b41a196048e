//! Webhooks: other systems are told when an install starts, ends a step, succeeds or fails.
//!
//! [`Hooks`] belongs to one run. What happens meanwhile waits in a short queue for a thread of its own, so that
//! a slow server never holds up an install; the end is told before the run ends, within a limit of time.
//! Hooks of one event are called side by side, events one after the other. Trouble is told as a note of the
//! progress that names the event and the server only, and never fails an install.

mod call;
mod facts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

pub use call::WebhookRetry;
use call::{Call, name};
pub use facts::WebhookFacts;
use model::config::formats::webhook::Values;

use base::parallel::locked;
use base::progress::{self, Progress, Sink, State};
use model::config::webhook::{Event, Webhook};

/// So many events wait for their delivery; an install has about a dozen steps.
const WAITING: usize = 64;

/// What to call, and how.
#[allow(missing_debug_implementations)]
pub struct WebhookSetup {
    /// The webhooks of the document.
    pub hooks: Vec<Webhook>,
    /// Authorities to trust beside the usual ones, each as PEM.
    pub authorities: Vec<String>,
    /// Limits.
    pub retry: WebhookRetry,
    /// Looks at the machine.
    pub facts: Box<dyn Fn() -> WebhookFacts + Send + Sync>,
    /// What is installed.
    pub product: String,
    /// Hears of trouble.
    pub progress: Progress,
}

/// The webhooks of one run. Ending it with [`Hooks::conclude`] tells of its end exactly once.
pub struct Hooks(Arc<Shared>);

struct Shared {
    setup: WebhookSetup,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Set when those that are on their way have had their time.
    stop: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Event, String)>,
    busy: bool,
    closed: bool,
    dropped: usize,
    /// The step that failed last.
    failed: String,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl Hooks {
    /// Gets ready; nothing is sent yet.
    #[must_use]
    pub fn new(setup: WebhookSetup) -> Self {
        let (queue, changed, stop) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { setup, queue, changed, stop });
        let worker = shared.clone();
        std::thread::spawn(move || worker.work());
        Self(shared)
    }

    /// Tells that the install begins.
    pub fn started(&self) {
        self.0.push(Event::Started, "");
    }

    /// Tells of every step of `ids` that the progress says is done.
    pub fn follow(&self, progress: &Progress, ids: impl IntoIterator<Item = &'static str>) {
        progress.add(Box::new(Follower { shared: self.0.clone(), ids: ids.into_iter().collect() }));
    }

    /// Tells of the end: success, or why not. Waits for what is still on its way, and for its own calls.
    pub fn conclude(self, failure: Option<&str>) {
        let Shared { setup, .. } = &*self.0;
        let (failed, dropped) = self.0.close(setup.retry.flush);
        if dropped > 0 {
            let message = format!("warning: no time was left to tell webhooks of {dropped} events");
            setup.progress.note("webhook", message);
        }
        let event = if failure.is_some() { Event::Failed } else { Event::Succeeded };
        let step = if failure.is_some() { failed } else { String::new() };
        let stop = Arc::new(AtomicBool::new(false));
        self.0.deliver(event, &step, failure.unwrap_or_default(), Some(setup.retry.last), &stop);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }

    /// Never waits: this is called from the middle of an install.
    fn push(&self, event: Event, step: &str) {
        let mut queue = self.lock();
        if queue.closed || !self.setup.hooks.iter().any(|hook| hook.event == event) {
            return;
        }
        if queue.waiting.len() >= WAITING {
            queue.dropped += 1;
            return;
        }
        queue.waiting.push_back((event, step.to_owned()));
        self.changed.notify_all();
    }

    fn work(self: Arc<Self>) {
        let never = Arc::new(AtomicBool::new(false));
        loop {
            let mut queue = self.lock();
            let (event, step) = loop {
                match queue.waiting.pop_front() {
                    Some(next) => break next,
                    None if queue.closed => return,
                    None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            queue.busy = true;
            drop(queue);
            self.deliver(event, &step, "", None, &never);
            self.lock().busy = false;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is delivered, `limit` at most. Returns the step that failed, and how many
    /// events have not been delivered.
    fn close(&self, limit: Duration) -> (String, usize) {
        let end = Instant::now() + limit;
        let mut queue = self.lock();
        while queue.busy || !queue.waiting.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.closed = true;
        self.stop.store(true, Ordering::Relaxed);
        let undone = queue.waiting.len() + usize::from(queue.busy) + queue.dropped;
        queue.waiting.clear();
        self.changed.notify_all();
        (std::mem::take(&mut queue.failed), undone)
    }

    /// Calls every hook of the event, each on a thread of its own, so that one that fails or hangs is nothing
    /// to the others. A thread that is still at it after `limit` is left alone.
    fn deliver(&self, event: Event, step: &str, error: &str, limit: Option<Duration>, own: &Arc<AtomicBool>) {
        let setup = &self.setup;
        let hooks: Vec<_> = setup.hooks.iter().filter(|hook| hook.event == event).collect();
        if hooks.is_empty() {
            return;
        }
        let WebhookFacts { hostname, mac, ipv4, ipv6 } = (setup.facts)();
        let values = Values {
            hostname,
            mac,
            ipv4,
            ipv6,
            step: step.to_owned(),
            error: error.to_owned(),
            event: name(event).to_owned(),
            product: setup.product.clone(),
        };
        let end = limit.map(|limit| Instant::now() + limit);
        let (tell, told) = mpsc::channel();
        let mut open: Vec<String> = Vec::new();
        for hook in hooks {
            let (call, authorities) = (Call::new(hook, &values), setup.authorities.clone());
            let retry = setup.retry;
            let (tell, own) = (tell.clone(), own.clone());
            let number = open.len();
            open.push(call.shown());
            std::thread::spawn(move || {
                let _ = tell.send((number, call.deliver(&authorities, &retry, &own)));
            });
        }
        drop(tell);
        self.collect(open, &told, end, own);
    }

    fn collect(
        &self,
        open: Vec<String>,
        told: &mpsc::Receiver<(usize, Result<(), String>)>,
        end: Option<Instant>,
        own: &AtomicBool,
    ) {
        let warn = |shown: &str, why: &str| {
            self.setup.progress.note("webhook", format!("warning: {shown}: {why}"));
        };
        let mut open: Vec<Option<String>> = open.into_iter().map(Some).collect();
        while open.iter().any(Option::is_some) {
            if end.is_none() && self.stop.load(Ordering::Relaxed) {
                // The end has told of it already, and nothing may be told after the end.
                own.store(true, Ordering::Relaxed);
                return;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                own.store(true, Ordering::Relaxed);
                open.iter().flatten().for_each(|shown| warn(shown, "the server did not answer in time"));
                return;
            }
            match told.recv_timeout(Duration::from_millis(50)) {
                Ok((number, result)) => {
                    let shown = open[number].take().unwrap_or_default();
                    if let Err(why) = result {
                        warn(&shown, &why);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Turns the events of steps into calls.
struct Follower {
    shared: Arc<Shared>,
    ids: BTreeSet<&'static str>,
}

impl Sink for Follower {
    fn show(&mut self, event: &progress::Event) {
        match event.state {
            State::Done if self.ids.contains(&*event.step) => self.shared.push(Event::Step, &event.step),
            State::Failed if event.step != "run" => self.shared.lock().failed = event.step.clone(),
            _ => {}
        }
    }
}
