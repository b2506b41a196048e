//! What the run and the thread that sends have in common: what is known of the run, and what waits to be sent.

use std::sync::{Condvar, Mutex, MutexGuard};

use super::queue::Queue;
use super::retry::ReportRetry;
use base::parallel::locked;
use base::progress::Progress;
use model::config::redact::Secrets;
use model::config::text::HttpUrl;
use model::fleet::{Hello, Line};

/// One run, as the thread that sends has it in common with those that tell.
pub(super) struct SharedRun {
    pub(super) url: HttpUrl,
    pub(super) retry: ReportRetry,
    pub(super) progress: Progress,
    pub(super) known: Mutex<KnownOfRun>,
    pub(super) queue: Mutex<WaitingLines>,
    pub(super) changed: Condvar,
    /// Whether trouble may still be told: not after the last event of the run.
    pub(super) may_tell: Mutex<bool>,
}

/// What is learned on the way.
pub(super) struct KnownOfRun {
    pub(super) hello: Hello,
    pub(super) authorities: Vec<String>,
    pub(super) secrets: Secrets,
}

/// What is still to be sent.
#[derive(Default)]
pub(super) struct WaitingLines {
    pub(super) lines: Queue,
    /// Whether a request is under way.
    pub(super) busy: bool,
    /// Nothing more comes.
    pub(super) closed: bool,
    /// Nobody waits any longer.
    pub(super) over: bool,
    /// The server wants to hear nothing more.
    pub(super) refused: bool,
}

impl SharedRun {
    pub(super) fn known(&self) -> MutexGuard<'_, KnownOfRun> {
        locked(&self.known)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, WaitingLines> {
        locked(&self.queue)
    }

    /// Never waits: this is called from the middle of an install.
    pub(super) fn push(&self, line: Line) {
        let mut queue = self.queue();
        if !queue.closed {
            queue.lines.push(line);
            self.changed.notify_all();
        }
    }

    /// Tells the run of trouble, unless its last event has been told.
    pub(super) fn warn(&self, why: &str) {
        let may_tell = locked(&self.may_tell);
        if *may_tell {
            self.progress.note("report", format!("warning: reporting to {}: {why}", origin(&self.url)));
        }
    }
}

/// Where a URL leads, without its path, which may be a secret.
fn origin(url: &str) -> String {
    reqwest::Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}
