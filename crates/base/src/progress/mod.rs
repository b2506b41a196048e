//! Progress of long work: one stream of events, several ways to show it.
//!
//! Work calls [`Progress::step`] and reports bytes on the [`Step`]. A [`Sink`] shows events: [`plain`] lines
//! for logs, pipes and consoles, [`json`] lines for programs, [`bars`] for a terminal. [`Progress`] fans out
//! to any number of sinks and limits the rate of byte counts to [`RATE`].
//!
//! The fields of an event are a contract (`--progress json`), which `docs/reference/output.md` tells: `v`, `seq`, `time`, `step`,
//! `state`, `bytes`, `total`, `message`; the last event has the step `run`, a `result` and the `exit_code`.

pub mod bars;
mod event;
pub mod json;
pub mod measure;
pub mod plain;
pub mod shared_bytes;

use event::RUN;
pub use event::{Event, RATE, Sink, StepState};

use std::fmt;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::Value;

/// How `--progress` is to be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressStyle {
    /// Bars on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// One line now and then.
    Plain,
    /// One JSON object a line.
    Json,
}

impl ProgressStyle {
    #[must_use]
    pub fn sink(self) -> Box<dyn Sink> {
        use std::io::IsTerminal;
        match self {
            Self::Json => Box::new(json::JsonLines::new(io::stderr())),
            Self::Auto if io::stderr().is_terminal() => Box::new(bars::Bars::default()),
            Self::Auto | Self::Plain => Box::new(plain::PlainLines::new(io::stderr())),
        }
    }
}

/// Receives the progress of one run, or of a part of it, and passes it to the sinks. Clones share both.
#[derive(Clone)]
pub struct Progress {
    state: Arc<ProgressState>,
    part: Option<Arc<RunPart>>,
}

/// One of several pieces of work that a run does side by side.
struct RunPart {
    name: String,
    /// Those that see its events alone.
    sinks: Mutex<Vec<Box<dyn Sink>>>,
}

struct ProgressState {
    /// Set once events are no longer shown.
    closed: AtomicBool,
    run: Mutex<SinkState>,
}

/// The number of sinks at some moment, see [`Progress::back_to`].
#[derive(Clone, Copy, Debug)]
pub struct SinkMark(usize);

struct SinkState {
    sinks: Vec<Box<dyn Sink>>,
    seq: u64,
    finished: bool,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl Progress {
    #[must_use]
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let run = Mutex::new(SinkState { sinks, seq: 0, finished: false });
        Self { state: Arc::new(ProgressState { closed: AtomicBool::new(false), run }), part: None }
    }

    /// The progress of one of several pieces of work that the run does side by side: its events have this name, and sinks that are added
    /// to it see no others.
    #[must_use]
    pub fn part(&self, name: impl Into<String>) -> Self {
        let part = RunPart { name: name.into(), sinks: Mutex::default() };
        Self { state: Arc::clone(&self.state), part: Some(Arc::new(part)) }
    }

    #[must_use]
    pub fn silent() -> Self {
        Self::new(Vec::new())
    }

    /// Adds a sink; it sees events from now on.
    pub fn add(&self, sink: Box<dyn Sink>) {
        self.with_sinks(|sinks| sinks.push(sink));
    }

    /// Marks the sinks that there are now, for [`Self::back_to`].
    #[must_use]
    pub fn mark(&self) -> SinkMark {
        SinkMark(self.with_sinks(|sinks| sinks.len()))
    }

    /// Removes the sinks that were added since `mark`, before the run begins anew.
    pub fn back_to(&self, mark: SinkMark) {
        self.with_sinks(|sinks| sinks.truncate(mark.0));
    }

    /// The sinks of this part, or of the run.
    fn with_sinks<T>(&self, work: impl FnOnce(&mut Vec<Box<dyn Sink>>) -> T) -> T {
        match &self.part {
            Some(part) => work(&mut part.sinks.lock().unwrap_or_else(PoisonError::into_inner)),
            None => work(&mut self.lock().sinks),
        }
    }

    /// Begins the step `id` of `total` bytes (`None` where bytes mean nothing).
    #[must_use]
    pub fn step(&self, id: &str, message: impl Into<String>, total: Option<u64>) -> Step {
        let step = Step {
            progress: self.clone(),
            id: id.to_owned(),
            message: message.into(),
            bytes: 0,
            total,
            shown: Instant::now(),
            open: true,
        };
        step.emit(StepState::Started);
        step
    }

    /// Begins a step, does `work`, and ends the step as the work ended.
    pub fn within<T>(
        &self,
        id: &str,
        message: impl Into<String>,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let step = self.step(id, message, None);
        let value = work()?;
        step.done();
        Ok(value)
    }

    /// Reports a message about `step` that is not a step of its own.
    pub fn note(&self, step: &str, message: impl Into<String>) {
        self.emit(step, StepState::Progress, None, None, message.into(), None);
    }

    /// Reports an entry of a server's journal, which is shown with its time. `details` say the same for programs.
    pub fn journal(&self, step: &str, message: impl Into<String>, details: Value) {
        let event = |event: Event| Event { details: Some(details), ..event };
        self.emit_with(step, StepState::Progress, (None, None), message.into(), None, event);
    }

    /// Reports a warning. A warning with a place in a document already has the word after the place; it is not repeated.
    pub fn warn(&self, step: &str, warning: &str) {
        let plain = warning.replacen(": warning: ", ": ", 1);
        self.note(step, format!("warning: {}", plain.strip_prefix("warning: ").unwrap_or(&plain)));
    }

    /// Ends a run that has reported steps but no end, so that every stream of events has a last one.
    pub fn conclude(&self, exit_code: u8) {
        let open = {
            let run = self.lock();
            run.seq > 0 && !run.finished
        };
        if open {
            self.finish(if exit_code == 0 { event::DONE } else { "Failed" }, exit_code);
        }
    }

    /// Hides all further events except the end of the run.
    pub fn close(&self) {
        self.state.closed.store(true, Ordering::SeqCst);
    }

    /// The last event of a run.
    pub fn finish(&self, message: impl Into<String>, exit_code: u8) {
        self.lock().finished = true;
        let state = if exit_code == 0 { StepState::Done } else { StepState::Failed };
        self.emit(RUN, state, None, None, message.into(), Some(exit_code));
    }

    fn emit(
        &self,
        step: &str,
        state: StepState,
        bytes: Option<u64>,
        total: Option<u64>,
        message: String,
        exit_code: Option<u8>,
    ) {
        self.emit_with(step, state, (bytes, total), message, exit_code, |event| event);
    }

    /// The same with what `complete` adds.
    fn emit_with(
        &self,
        step: &str,
        state: StepState,
        (bytes, total): (Option<u64>, Option<u64>),
        message: String,
        exit_code: Option<u8>,
        complete: impl FnOnce(Event) -> Event,
    ) {
        let mut run = self.lock();
        if self.state.closed.load(Ordering::SeqCst) && exit_code.is_none() {
            return;
        }
        run.seq += 1;
        let event = complete(Event {
            v: 1,
            seq: run.seq,
            time: now(),
            step: step.to_owned(),
            part: self.part.as_ref().map(|part| part.name.clone()),
            state,
            bytes,
            total,
            message,
            details: None,
            result: exit_code.map(|_| state),
            exit_code,
        });
        run.sinks.iter_mut().for_each(|sink| sink.show(&event));
        if let Some(part) = &self.part {
            let mut own = part.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            own.iter_mut().for_each(|sink| sink.show(&event));
        }
    }

    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The present moment in RFC 3339, UTC, to the millisecond.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(since.as_millis()).unwrap_or_default();
    jiff::Timestamp::from_millisecond(millis).map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// One step under way. Dropped before [`Step::done`], it has failed.
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    id: String,
    message: String,
    bytes: u64,
    total: Option<u64>,
    shown: Instant,
    open: bool,
}

impl Step {
    /// Adds to the bytes that are done.
    pub fn advance(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.shown.elapsed() >= RATE {
            self.shown = Instant::now();
            self.emit(StepState::Progress);
        }
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Resets the count to `bytes`: the rest has to be done again.
    pub fn back_to(&mut self, bytes: u64) {
        self.bytes = self.bytes.min(bytes);
    }

    pub fn done(mut self) {
        self.open = false;
        self.emit(StepState::Done);
    }

    /// Counts what is read through `inner` on this step.
    pub fn reader<'a, R: Read + 'a>(&'a mut self, inner: R) -> impl Read + 'a {
        struct CountingReader<'a, R>(&'a mut Step, R);
        impl<R: Read> Read for CountingReader<'_, R> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.1.read(buffer)?;
                self.0.advance(count as u64);
                Ok(count)
            }
        }
        CountingReader(self, inner)
    }

    fn emit(&self, state: StepState) {
        let bytes = self.total.map(|_| self.bytes);
        self.progress.emit(&self.id, state, bytes, self.total, self.message.clone(), None);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.open {
            self.emit(StepState::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps events for a test to look at.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<Event>>>);

    impl Sink for Recorder {
        fn show(&mut self, event: &Event) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    #[test]
    fn a_run_with_steps_has_one_end_and_one_without_has_none() {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        progress.conclude(0);
        assert!(recorder.0.lock().unwrap().is_empty());
        progress.step("copy", "copying", None).done();
        progress.conclude(4);
        progress.conclude(4);
        let events = recorder.0.lock().unwrap();
        assert_eq!(events.iter().filter(|event| event.step == "run").count(), 1);
        assert_eq!(events.last().unwrap().exit_code, Some(4));
    }

    #[test]
    fn what_was_added_for_one_run_does_not_see_the_next() {
        let (kept, added) = (Recorder::default(), Recorder::default());
        let progress = Progress::new(vec![Box::new(kept.clone())]);
        let mark = progress.mark();
        for _ in 0..2 {
            progress.add(Box::new(added.clone()));
            progress.note("copy", "copying");
            progress.back_to(mark);
        }
        progress.note("copy", "copied");
        assert_eq!((kept.0.lock().unwrap().len(), added.0.lock().unwrap().len()), (3, 2));
    }

    #[test]
    fn parts_of_a_run_are_told_apart_and_see_only_their_own_events() {
        let lines = shared_bytes::SharedBytes::default();
        let progress = Progress::new(vec![Box::new(plain::PlainLines::new(lines.clone()))]);
        let (one, other) = (progress.part("one"), progress.part("other"));
        let own = Recorder::default();
        let mark = one.mark();
        one.add(Box::new(own.clone()));
        let (first, second) = (one.step("copy", "Copying", None), other.step("copy", "Copying", None));
        second.done();
        drop(first);
        one.back_to(mark);
        one.note("copy", "Copied");
        progress.note("copy", "All");
        let told = String::from_utf8(lines.bytes()).unwrap();
        let expected = "[....] one: Copying\n[....] other: Copying\n[ ok ] other: Copying\n[FAIL] one: Copying\n       one: Copied\n       All\n";
        assert_eq!(told, expected);
        let own = own.0.lock().unwrap();
        let seen: Vec<_> = own.iter().map(|event| (event.part.as_deref(), event.state)).collect();
        assert_eq!(seen, [(Some("one"), StepState::Started), (Some("one"), StepState::Failed)]);
    }

    #[test]
    fn a_warning_is_called_one_once() {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        for warning in ["it is old", "warning: it is old", "a.yaml:4:13: warning: it is old"] {
            progress.warn("check", warning);
        }
        let told: Vec<_> = recorder.0.lock().unwrap().iter().map(|event| event.message.clone()).collect();
        assert_eq!(told, ["warning: it is old", "warning: it is old", "warning: a.yaml:4:13: it is old"]);
    }

    #[test]
    fn a_closed_run_tells_only_its_end() {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        let step = progress.step("copy", "copying", None);
        progress.close();
        drop(step);
        progress.note("copy", "more");
        progress.conclude(130);
        let events = recorder.0.lock().unwrap();
        let told: Vec<_> = events.iter().map(|event| (event.step.as_str(), event.exit_code)).collect();
        assert_eq!(told, [("copy", None), ("run", Some(130))]);
    }

    #[test]
    fn events_are_numbered_and_a_dropped_step_has_failed() {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        let mut copy = progress.step("copy", "copying", Some(10));
        copy.advance(10);
        copy.done();
        drop(progress.step("format", "formatting", None));
        progress.finish("stopped", 6);
        let events = recorder.0.lock().unwrap();
        let told: Vec<_> = events.iter().map(|e| (e.seq, e.step.as_str(), e.state, e.bytes)).collect();
        assert_eq!(
            told,
            [
                (1, "copy", StepState::Started, Some(0)),
                (2, "copy", StepState::Done, Some(10)),
                (3, "format", StepState::Started, None),
                (4, "format", StepState::Failed, None),
                (5, "run", StepState::Failed, None),
            ]
        );
        assert_eq!(events.last().unwrap().exit_code, Some(6));
    }
}
