//! Webhooks: calls to other systems when an install starts, ends a step, succeeds or fails.
//!
//! [`Hooks`] belongs to one run. What happens meanwhile waits in a short [outbox](transfer::outbox), so that
//! a slow server never holds up an install; the end is told before the run ends, within a limit of time.
//! Hooks of one event are called side by side, events one after the other. Trouble is told as a note of the
//! progress that names the event and the server only, and never fails an install.

mod call;
mod event_calls;
mod facts;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use base::parallel::locked;
use base::progress::{self, Progress, Sink, StepState};
use event_calls::{EventCalls, HookCaller, Occurrence};
pub use event_calls::{FLUSH_END, WebhookSetup, policy};
pub use facts::WebhookFacts;
use model::config::webhook::Event;
use transfer::outbox::{Outbox, OutboxPolicy};

/// The webhooks of one run. Ending it with [`Hooks::conclude`] tells of its end exactly once.
pub struct Hooks(Arc<HookRun>);

struct HookRun {
    setup: Arc<WebhookSetup>,
    calls: Arc<EventCalls>,
    outbox: Outbox<HookCaller>,
    failed: Mutex<String>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl Hooks {
    /// Sends nothing yet.
    #[must_use]
    pub fn new(setup: WebhookSetup) -> Self {
        let policy = setup.policy;
        Self(Arc::new(HookRun::new(Arc::new(setup), policy)))
    }

    pub fn started(&self) {
        self.0.push(Event::Started, "", "");
    }

    /// Calls the webhooks whenever the progress shows that a step of `ids` is done.
    pub fn follow(&self, progress: &Progress, ids: impl IntoIterator<Item = &'static str>) {
        progress.add(Box::new(Follower { run: self.0.clone(), ids: ids.into_iter().collect() }));
    }

    /// Tells of the end: success, or why not. Waits for the calls of earlier events, then for its own.
    pub fn conclude(self, failure: Option<&str>) {
        let HookRun { setup, calls, outbox, failed } = &*self.0;
        let result = outbox.close();
        calls.abandon();
        let missed = result.unsent + result.dropped;
        if missed > 0 {
            let message = format!("warning: no time was left to tell webhooks of {missed} events");
            setup.progress.note("webhook", message);
        }
        // A call that hangs may hold the first outbox.
        let policy = OutboxPolicy { flush: setup.flush_end, ..setup.policy };
        let end = HookRun::new(setup.clone(), policy);
        match failure {
            Some(error) => end.push(Event::Failed, &locked(failed), error),
            None => end.push(Event::Succeeded, "", ""),
        }
        end.outbox.close();
        for call in end.calls.abandon() {
            let message = format!("warning: {call}: the server did not answer in time");
            setup.progress.note("webhook", message);
        }
    }
}

impl HookRun {
    fn new(setup: Arc<WebhookSetup>, policy: OutboxPolicy) -> Self {
        let calls = Arc::new(EventCalls::new(setup.clone()));
        let outbox = Outbox::new(HookCaller(calls.clone()), policy);
        Self { setup, calls, outbox, failed: Mutex::default() }
    }

    /// Queues the event without waiting: the install goes on meanwhile.
    fn push(&self, event: Event, step: &str, error: &str) {
        if self.setup.hooks.iter().any(|hook| hook.event == event) {
            self.outbox.push(Occurrence { event, step: step.to_owned(), error: error.to_owned() });
        }
    }
}

struct Follower {
    run: Arc<HookRun>,
    ids: BTreeSet<&'static str>,
}

impl Sink for Follower {
    fn show(&mut self, event: &progress::Event) {
        match event.state {
            StepState::Done if self.ids.contains(&*event.step) => self.run.push(Event::Step, &event.step, ""),
            StepState::Failed if event.step != "run" => (*locked(&self.run.failed)).clone_from(&event.step),
            _ => {}
        }
    }
}
