//! The webhooks of a run as the destination of an outbox: their calls, retries and warnings.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::call::{WebhookCall, name};
use super::facts::WebhookFacts;
use base::parallel::locked;
use base::progress::Progress;
use model::config::formats::webhook::WebhookValues;
use model::config::webhook::{Event, Webhook};
use transfer::outbox::{DeliveryWarnings, Destination, FailureAction, OutboxPolicy, SendError};

#[allow(missing_debug_implementations)]
pub struct WebhookSetup {
    pub hooks: Vec<Webhook>,
    /// Authorities to trust beside the usual ones, each as PEM.
    pub authorities: Vec<String>,
    /// Limits; those of [`policy`] in an install.
    pub policy: OutboxPolicy,
    /// How long the end of an install waits for its own calls, after those of the events before.
    pub flush_end: Duration,
    pub facts: Box<dyn Fn() -> WebhookFacts + Send + Sync>,
    /// Name and version of what is installed.
    pub product: String,
    pub progress: Progress,
}

/// The time for the calls of the end: four attempts of 15 seconds with pauses of 5, and a little more.
pub const FLUSH_END: Duration = Duration::from_secs(80);

/// The limits of an install's webhooks. An install has about a dozen steps, so that the queue is never full unless a
/// server hangs.
#[must_use]
pub fn policy() -> OutboxPolicy {
    let pause = Duration::from_secs(5);
    OutboxPolicy {
        capacity: 64,
        batch: 1,
        timeout: Duration::from_secs(15),
        rate: Duration::ZERO,
        attempts: Some(4),
        pause,
        longest_pause: pause,
        closing_pause: pause,
        flush: Duration::from_secs(30),
    }
}

/// An event for webhooks.
#[derive(Clone, Debug)]
pub(super) struct Occurrence {
    pub(super) event: Event,
    /// The step that is done or that failed, or nothing.
    pub(super) step: String,
    /// Why the install failed, or nothing.
    pub(super) error: String,
}

pub(super) struct EventCalls {
    setup: Arc<WebhookSetup>,
    warnings: DeliveryWarnings,
    /// The calls that have not arrived and are still tried.
    open: Mutex<Vec<Arc<WebhookCall>>>,
}

/// Calls all webhooks of an event at the same time, so that one that hangs delays no other, and retries those that failed.
pub(super) struct HookCaller(pub(super) Arc<EventCalls>);

impl EventCalls {
    pub(super) fn new(setup: Arc<WebhookSetup>) -> Self {
        let warnings = DeliveryWarnings::new(setup.progress.clone(), "webhook");
        Self { setup, warnings, open: Mutex::default() }
    }

    /// Ends all warnings. Returns which calls are still open.
    pub(super) fn abandon(&self) -> Vec<String> {
        self.warnings.fall_silent();
        self.open().iter().map(|call| call.shown()).collect()
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<WebhookCall>>> {
        locked(&self.open)
    }

    fn prepare(&self, occurrence: &Occurrence) {
        let Occurrence { event, step, error } = occurrence.clone();
        let WebhookFacts { hostname, mac, ipv4, ipv6 } = (self.setup.facts)();
        let (product, event_name) = (self.setup.product.clone(), name(event).to_owned());
        let values = WebhookValues { hostname, mac, ipv4, ipv6, step, error, event: event_name, product };
        let (timeout, authorities) = (self.setup.policy.timeout, &self.setup.authorities);
        let hooks = self.setup.hooks.iter().filter(|hook| hook.event == event);
        let calls = hooks.map(|hook| Arc::new(WebhookCall::new(hook, &values, timeout, authorities)));
        *self.open() = calls.collect();
    }

    fn attempt(&self, call: &Arc<WebhookCall>) {
        let result = call.send();
        if !result.as_ref().is_err_and(SendError::is_temporary) {
            self.open().retain(|open| !Arc::ptr_eq(open, call));
        }
        if let Err(SendError::Refused(why) | SendError::Distrusted(why)) = result {
            self.warnings.warn(&format!("{}: {why}", call.shown()));
        }
    }
}

impl Destination for HookCaller {
    type Message = Occurrence;

    fn send(&mut self, occurrences: &[Occurrence]) -> Result<(), SendError> {
        // Calls that are open are of the same event, at another attempt.
        if self.0.open().is_empty() {
            occurrences.iter().for_each(|occurrence| self.0.prepare(occurrence));
        }
        let open = self.0.open().clone();
        std::thread::scope(|scope| {
            for call in &open {
                scope.spawn(|| self.0.attempt(call));
            }
        });
        // The calls are made together, so the longest pause that a server asks for is that of all.
        let trouble = self.0.open().iter().filter_map(|call| call.trouble()).max_by_key(SendError::wait);
        trouble.map_or(Ok(()), Err)
    }

    fn failed(&mut self, _: &str, failed: u32, next: FailureAction) {
        if next != FailureAction::Retry {
            for call in std::mem::take(&mut *self.0.open()) {
                let (shown, trouble) = (call.shown(), call.trouble());
                let trouble = trouble.as_ref().map_or("it was not tried", SendError::why);
                self.0.warnings.warn(&format!("{shown}: {trouble}; gave up after {failed} attempts"));
            }
        }
    }
}
