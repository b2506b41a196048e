//! Whether this server is alive and whether it is ready, for load balancers and supervisors: `/livez` and `/readyz`, named as
//! in Kubernetes. Neither needs a token, and neither says more than who asks may know: why the database does not answer is in
//! the server's log.
//!
//! A server is alive while it answers at all; a restart helps against nothing else. It is ready while its state can be read and
//! changed and the files of its medium can be read. A disk or a database that hangs makes the checks hang, never the answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::failure::causes;
use base::progress::Progress;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::journal;
use crate::machines::registry::MachineRegistry;
use crate::machines::store::StoreUnavailable;
use medium::network_boot::files::MediumFiles;

/// Answers while the process does.
pub const LIVE: &str = "/livez";
/// Answers with the checks; `?exclude=NAME` leaves one out.
pub const READY: &str = "/readyz";

/// How long a result counts. Anybody can ask, and each check costs a transaction and some reads.
const FRESH: Duration = Duration::from_secs(1);
/// How long an answer waits for the checks. Load balancers wait for a few seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something without which a server cannot do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthCheck {
    /// The records of machines can be read and changed.
    State,
    /// The files of the medium can be read.
    Medium,
}

base::names!(HealthCheck { State = "state", Medium = "medium" });

/// A check that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    pub check: HealthCheck,
    /// For everybody.
    pub why: String,
    /// For the log; none where the operator was told already.
    pub logged: Option<String>,
}

/// The checks of one server: at most one round of them runs at a time.
#[derive(Debug, Default)]
pub struct HealthProbe {
    state: Mutex<ProbeState>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct ProbeState {
    /// The failures of the last round, and when it ended.
    last: Option<(Instant, Vec<CheckFailure>)>,
    /// When the round that runs has begun.
    running: Option<Instant>,
    /// How many rounds have begun.
    rounds: u64,
}

/// The answer to [`READY`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthReport {
    pub ready: bool,
    /// `ready` or `not ready`, then a line for each check.
    pub text: String,
}

/// Makes the checks; `round` is another number each time.
#[must_use]
pub fn look(store: &MachineRegistry, files: &MediumFiles, round: u64) -> Vec<CheckFailure> {
    let mut failures = Vec::new();
    match store.check() {
        Ok(()) => {}
        Err(error) if error.is::<StoreUnavailable>() => {
            let why = "the database of the fleet does not answer".to_owned();
            failures.push(CheckFailure { check: HealthCheck::State, why, logged: None });
        }
        Err(error) => {
            let why = "the records of machines cannot be used; the server's log has the reason".to_owned();
            let logged = Some(causes(&error).join(": "));
            failures.push(CheckFailure { check: HealthCheck::State, why, logged });
        }
    }
    if let Err(error) = files.check(round) {
        let why = causes(&error).join(": ");
        failures.push(CheckFailure { check: HealthCheck::Medium, logged: Some(why.clone()), why });
    }
    failures
}

impl HealthProbe {
    /// Answers a request for [`READY`] with this query, from a round of checks, `look`, unless the last one has just ended; the
    /// error says what is wrong with the query. What begins or ends to fail is written to `progress`.
    pub async fn ready(
        self: &Arc<Self>,
        query: &str,
        progress: &Progress,
        look: impl Fn(u64) -> Vec<CheckFailure> + Clone + Send + 'static,
    ) -> Result<HealthReport, String> {
        let checks = selected(query)?;
        Ok(self.answer(&checks, PATIENCE, progress, look).await)
    }

    async fn answer(
        self: &Arc<Self>,
        checks: &[HealthCheck],
        patience: Duration,
        progress: &Progress,
        look: impl Fn(u64) -> Vec<CheckFailure> + Clone + Send + 'static,
    ) -> HealthReport {
        loop {
            // Registered before the state is read, so that no end in between is missed.
            let ended = self.ended.notified();
            let running = {
                let mut state = self.lock();
                if let Some((_, failures)) = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
                    return report(checks, failures);
                }
                if state.running.is_none() {
                    state.rounds += 1;
                    let (probe, progress, look) = (Arc::clone(self), progress.clone(), look.clone());
                    let round = state.rounds;
                    tokio::task::spawn_blocking(move || probe.end(look(round), &progress));
                }
                *state.running.get_or_insert_with(Instant::now)
            };
            if timeout(patience, ended).await.is_err() {
                let seconds = running.elapsed().as_secs();
                let why = format!("no result after {seconds} s: a disk or the database hangs");
                let hangs = |check| CheckFailure { check, why: why.clone(), logged: None };
                return report(checks, &checks.iter().copied().map(hangs).collect::<Vec<_>>());
            }
        }
    }

    /// Ends a round.
    fn end(&self, failures: Vec<CheckFailure>, progress: &Progress) {
        let before = {
            let mut state = self.lock();
            state.running = None;
            state.last.replace((Instant::now(), failures.clone()))
        };
        self.ended.notify_waiters();
        let before = before.map(|(_, failures)| failures).unwrap_or_default();
        let is_in = |failures: &[CheckFailure], check| failures.iter().any(|failure| failure.check == check);
        for failure in failures.iter().filter(|failure| !is_in(&before, failure.check)) {
            if let Some(why) = &failure.logged {
                journal::warn(progress, &format!("not ready: {}: {why}", failure.check.name()));
            }
        }
        for failure in before.iter().filter(|failure| !is_in(&failures, failure.check)) {
            if failure.logged.is_some() {
                journal::write(progress, &format!("ready again: {}", failure.check.name()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProbeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checks that a query leaves.
fn selected(query: &str) -> Result<Vec<HealthCheck>, String> {
    let mut checks = HealthCheck::ALL.to_vec();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.strip_prefix("exclude=");
        let Some(excluded) = name.and_then(HealthCheck::of_name) else {
            let names = HealthCheck::ALL.map(|check| format!("exclude={}", check.name())).join(" and ");
            return Err(format!("{READY} takes {names} only"));
        };
        checks.retain(|check| *check != excluded);
    }
    Ok(checks)
}

fn report(checks: &[HealthCheck], failures: &[CheckFailure]) -> HealthReport {
    let why =
        |check: &HealthCheck| failures.iter().find(|failure| failure.check == *check).map(|one| &*one.why);
    let ready = checks.iter().all(|check| why(check).is_none());
    let mut text = if ready { "ready\n" } else { "not ready\n" }.to_owned();
    for check in checks {
        text += &format!("{}: {}\n", check.name(), why(check).unwrap_or("ok"));
    }
    HealthReport { ready, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    fn failure() -> CheckFailure {
        CheckFailure { check: HealthCheck::State, why: "it is away".into(), logged: Some("its name".into()) }
    }

    #[test]
    fn a_report_has_a_line_for_each_check_that_was_asked_for() {
        for (query, failures, ready, text) in [
            ("", vec![], true, "ready\nstate: ok\nmedium: ok\n"),
            ("", vec![failure()], false, "not ready\nstate: it is away\nmedium: ok\n"),
            ("exclude=state", vec![failure()], true, "ready\nmedium: ok\n"),
            ("exclude=medium", vec![failure()], false, "not ready\nstate: it is away\n"),
            ("exclude=state&exclude=medium&", vec![failure()], true, "ready\n"),
        ] {
            let expected = HealthReport { ready, text: text.to_owned() };
            assert_eq!(report(&selected(query).unwrap(), &failures), expected, "{query}");
        }
        for query in ["verbose", "exclude=", "exclude=odd", "state"] {
            let why = "/readyz takes exclude=state and exclude=medium only";
            assert_eq!(selected(query).unwrap_err(), why, "{query}");
        }
    }

    #[tokio::test]
    async fn many_who_ask_at_once_cost_one_round_and_each_round_has_another_number() {
        let (probe, rounds) = (Arc::new(HealthProbe::default()), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&rounds);
        let look = move |round| {
            counted.fetch_add(1, Ordering::Relaxed);
            if round == 1 { vec![failure()] } else { Vec::new() }
        };
        let ask = || {
            let (probe, look) = (Arc::clone(&probe), look.clone());
            tokio::spawn(async move { probe.ready("", &Progress::silent(), look).await.unwrap().ready })
        };
        let asked: Vec<_> = (0..100).map(|_| ask()).collect();
        for one in asked {
            assert!(!one.await.unwrap());
        }
        assert_eq!(rounds.load(Ordering::Relaxed), 1);
        // As if a second had passed.
        probe.lock().last = None;
        assert!(ask().await.unwrap());
        assert_eq!(rounds.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn checks_that_hang_are_told_and_are_not_begun_again() {
        let probe = Arc::new(HealthProbe::default());
        let (end, waits) = mpsc::channel::<()>();
        let (waits, rounds) = (Arc::new(Mutex::new(waits)), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&rounds);
        let silent = Progress::silent();
        let look = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = waits.lock().unwrap().recv();
            Vec::new()
        };
        for _ in 0..3 {
            let patience = Duration::from_millis(20);
            let report = probe.answer(&HealthCheck::ALL, patience, &silent, look.clone()).await;
            assert!(!report.ready && report.text.contains("state: no result after 0 s"), "{}", report.text);
        }
        assert_eq!(rounds.load(Ordering::Relaxed), 1);
        drop(end);
        while probe.lock().running.is_some() {
            tokio::task::yield_now().await;
        }
        assert!(probe.ready("", &silent, look).await.unwrap().ready);
    }
}
