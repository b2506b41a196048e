//! The running install, from its events.

use std::time::Duration;

use base::progress::measure::{per_second, percent};
use base::progress::{Event, StepState};
use base::size::ByteSize;

const LOG_LINES_MAX: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    pub id: String,
    pub message: String,
    /// `None` before it begins.
    pub state: Option<StepState>,
    /// Bytes done and to do.
    pub bytes: Option<(u64, u64)>,
    since: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct InstallProgress {
    /// The steps that have begun, in order.
    pub rows: Vec<StepRow>,
    /// The number of steps of the plan, and of those that are done.
    pub steps: (usize, usize),
    planned: Vec<String>,
    pub log: Vec<String>,
    /// When it began, and the present moment.
    pub times: (Duration, Duration),
}

impl InstallProgress {
    /// Nothing has happened yet; the plan has these steps.
    #[must_use]
    pub fn of(planned: Vec<String>, now: Duration) -> Self {
        Self { steps: (planned.len(), 0), planned, times: (now, now), ..Self::default() }
    }

    pub fn event(&mut self, event: &Event, now: Duration) {
        self.times.1 = now;
        let bytes = event.bytes.zip(event.total);
        let open = |row: &&mut StepRow| row.id == event.step && row.state != Some(StepState::Done);
        match event.state {
            StepState::Started => {
                self.log_line(&format!("[....] {}", event.message));
                let (id, message) = (event.step.clone(), event.message.clone());
                self.rows.push(StepRow { id, message, state: Some(StepState::Started), bytes, since: now });
            }
            StepState::Progress => match self.rows.iter_mut().rev().find(open).filter(|_| bytes.is_some()) {
                Some(row) => (row.state, row.bytes) = (Some(StepState::Progress), bytes),
                None => self.log_line(&format!("       {}", event.message)),
            },
            StepState::Done | StepState::Failed => {
                let mark = if event.state == StepState::Done { "[ ok ]" } else { "[FAIL]" };
                self.log_line(&format!("{mark} {}", event.message));
                if let Some(row) = self.rows.iter_mut().rev().find(open) {
                    (row.state, row.bytes) = (Some(event.state), bytes.or(row.bytes));
                }
                if event.state == StepState::Done && self.planned.contains(&event.step) {
                    self.steps.1 = (self.steps.1 + 1).min(self.steps.0);
                }
            }
        }
    }

    fn log_line(&mut self, text: &str) {
        self.log.extend(text.lines().map(str::to_owned));
        let more = self.log.len().saturating_sub(LOG_LINES_MAX);
        self.log.drain(..more);
    }

    pub fn tick(&mut self, now: Duration) {
        self.times.1 = now;
    }

    #[must_use]
    pub fn current(&self) -> Option<&StepRow> {
        self.rows.iter().rev().find(|row| matches!(row.state, Some(StepState::Started | StepState::Progress)))
    }

    #[must_use]
    pub fn elapsed(&self) -> String {
        clock(self.times.1.saturating_sub(self.times.0))
    }

    /// Percent, amount, rate and time left of a step, as far as they are known.
    #[must_use]
    pub fn measure(&self, row: &StepRow) -> String {
        let Some((bytes, total)) = row.bytes.filter(|(_, total)| *total > 0) else { return String::new() };
        let elapsed = self.times.1.saturating_sub(row.since);
        let percent = percent(bytes, total);
        let amount = format!("{percent:3} %  {} of {}", ByteSize::bytes(bytes), ByteSize::bytes(total));
        let known = elapsed >= Duration::from_secs(1) && bytes < total;
        let Some(rate) = per_second(bytes, elapsed).filter(|_| known) else { return amount };
        let left = Duration::from_secs((total - bytes) / rate.max(1));
        format!("{amount}, {}/s, {} left", ByteSize::bytes(rate), clock(left))
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::progress::Progress;
    use testing::progress::Recorder;

    fn told(work: &mut InstallProgress, tell: impl FnOnce(&Progress), at: u64) {
        let recorder = Recorder::default();
        tell(&Progress::new(vec![Box::new(recorder.clone())]));
        for event in recorder.0.lock().unwrap().iter() {
            work.event(event, Duration::from_secs(at));
        }
    }

    #[test]
    fn steps_of_the_plan_are_counted_and_others_are_only_shown() {
        let mut work = InstallProgress::of(vec!["wipe".into(), "image".into()], Duration::ZERO);
        told(&mut work, |progress| progress.step("network", "Setting up", None).done(), 1);
        told(&mut work, |progress| progress.step("wipe", "Erasing", None).done(), 2);
        told(&mut work, |progress| drop(progress.step("image", "Writing", Some(10))), 3);
        assert_eq!(work.steps, (2, 1));
        assert_eq!(work.rows.len(), 3);
        assert_eq!(work.log.last().map(String::as_str), Some("[FAIL] Writing"));
        assert!(work.current().is_none());
    }

    #[test]
    fn a_step_with_bytes_tells_percent_rate_and_time_left() {
        let row = StepRow {
            id: "image".into(),
            message: "Writing".into(),
            state: Some(StepState::Progress),
            bytes: Some((1 << 30, 4 << 30)),
            since: Duration::from_secs(10),
        };
        let mut work = InstallProgress::of(Vec::new(), Duration::ZERO);
        work.tick(Duration::from_secs(20));
        assert_eq!(work.measure(&row), " 25 %  1 GiB of 4 GiB, 102.4 MiB/s, 0:30 left");
        assert_eq!(work.elapsed(), "0:20");
        assert_eq!(clock(Duration::from_secs(3725)), "1:02:05");
    }
}
