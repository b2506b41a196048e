//! Events as lines of text, for pipes, logs and serial consoles: begin, every few seconds, end.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};

use super::event::{Event, Sink, StepState};
use super::measure::{per_second, percent};
use crate::size::ByteSize;

/// The shortest time between two lines about a running step.
const EVERY: Duration = Duration::from_secs(5);

#[allow(missing_debug_implementations)]
pub struct PlainLines<W> {
    out: W,
    running: HashMap<String, RunningStep>,
    /// Consoles in raw mode need a carriage return too.
    end: &'static str,
}

struct RunningStep {
    since: Instant,
    told: Instant,
}

impl<W: Write> PlainLines<W> {
    pub fn new(out: W) -> Self {
        Self { out, running: HashMap::new(), end: "\n" }
    }

    /// For a console whose terminal may be in raw mode.
    pub fn console(out: W) -> Self {
        Self { end: "\r\n", ..Self::new(out) }
    }

    fn line(&mut self, text: &str) {
        let _ = write!(self.out, "{text}{}", self.end).and_then(|()| self.out.flush());
    }
}

impl<W: Write + Send> Sink for PlainLines<W> {
    fn show(&mut self, event: &Event) {
        let now = Instant::now();
        match event.state {
            StepState::Started => {
                self.running.insert(event.key(), RunningStep { since: now, told: now });
                let total = event.total.map(|total| format!(" ({})", ByteSize::bytes(total)));
                self.line(&format!("[....] {}{}", event.told(), total.unwrap_or_default()));
            }
            StepState::Progress => match self.running.get_mut(&event.key()) {
                Some(running) if event.total.is_some() => {
                    if now - running.told >= EVERY {
                        running.told = now;
                        let text = describe(event, now - running.since);
                        self.line(&text);
                    }
                }
                _ => self.line(&format!("       {}", event.line())),
            },
            StepState::Done | StepState::Failed if event.only_ends() => {}
            StepState::Done | StepState::Failed => {
                let mark = if event.state == StepState::Done { "[ ok ]" } else { "[FAIL]" };
                let running = self.running.remove(&event.key());
                let rate = running.map(|running| rate(event, now - running.since)).unwrap_or_default();
                self.line(&format!("{mark} {}{rate}", event.told()));
            }
        }
    }
}

fn describe(event: &Event, elapsed: Duration) -> String {
    let (bytes, total) = (event.bytes.unwrap_or(0), event.total.unwrap_or(0));
    let percent = percent(bytes, total);
    let left = left(bytes, total, elapsed).map(|left| format!(", {} s left", left.as_secs()));
    let (done, all) = (ByteSize::bytes(bytes), ByteSize::bytes(total));
    format!("       {percent:3} %  {done} of {all}{}{}", rate(event, elapsed), left.unwrap_or_default())
}

fn rate(event: &Event, elapsed: Duration) -> String {
    let rate = event.bytes.and_then(|bytes| per_second(bytes, elapsed));
    rate.map(|rate| format!(", {}/s", ByteSize::bytes(rate))).unwrap_or_default()
}

/// The time left at the average rate so far.
fn left(bytes: u64, total: u64, elapsed: Duration) -> Option<Duration> {
    let rest = total.checked_sub(bytes)?;
    let millis = elapsed.as_millis().checked_mul(u128::from(rest))?.checked_div(u128::from(bytes))?;
    Some(Duration::from_millis(u64::try_from(millis).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_rate_so_far() {
        assert_eq!(left(25, 100, Duration::from_secs(10)), Some(Duration::from_secs(30)));
        assert_eq!(left(0, 100, Duration::from_secs(10)), None, "no rate is known yet");
    }

    #[test]
    fn an_end_that_has_nothing_to_say_is_not_told() {
        use crate::progress::Progress;
        use crate::progress::shared_bytes::SharedBytes;
        for (code, message, told) in
            [(0, None, ""), (4, None, ""), (0, Some("The medium is good"), "[ ok ] The medium is good\n")]
        {
            let book = SharedBytes::default();
            let progress = Progress::new(vec![Box::new(PlainLines::new(book.clone()))]);
            progress.note("verify", "x");
            match message {
                Some(message) => progress.finish(message, code),
                None => progress.conclude(code),
            }
            assert_eq!(String::from_utf8(book.bytes()).unwrap(), format!("       x\n{told}"));
        }
    }

    #[test]
    fn a_step_is_told_at_its_begin_and_its_end() {
        let mut out = Vec::new();
        let mut lines = PlainLines::new(&mut out);
        let mut event = Event {
            v: 1,
            seq: 1,
            time: String::new(),
            step: "write".into(),
            part: None,
            state: StepState::Started,
            bytes: Some(0),
            total: Some(2 << 20),
            message: "Writing the OS image".into(),
            details: None,
            result: None,
            exit_code: None,
        };
        lines.show(&event);
        event.state = StepState::Progress;
        lines.show(&event);
        event.state = StepState::Failed;
        lines.show(&event);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "[....] Writing the OS image (2 MiB)\n[FAIL] Writing the OS image\n");
    }
}
