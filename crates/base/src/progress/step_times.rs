//! Where the time of a run went.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::event::{Event, Sink, StepState};

/// Measures the steps of a run. Clones share what is measured: one is a sink, another is asked at the end.
#[derive(Clone, Debug, Default)]
pub struct StepTimes(Arc<Mutex<Measured>>);

#[derive(Debug, Default)]
struct Measured {
    running: HashMap<String, Instant>,
    ended: Vec<(String, Duration)>,
}

impl StepTimes {
    /// The `count` longest of the ended steps that took at least `least`, the longest first: message and time.
    #[must_use]
    pub fn longest(&self, count: usize, least: Duration) -> Vec<(String, Duration)> {
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut steps: Vec<_> = measured.ended.iter().filter(|(_, time)| *time >= least).cloned().collect();
        steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        steps.truncate(count);
        steps
    }
}

impl Sink for StepTimes {
    fn show(&mut self, event: &Event) {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event.state {
            StepState::Started => drop(measured.running.insert(event.step.clone(), Instant::now())),
            StepState::Progress => {}
            StepState::Done | StepState::Failed => {
                if let Some(begin) = measured.running.remove(&event.step) {
                    measured.ended.push((event.message.clone(), begin.elapsed()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Progress;
    use super::*;

    #[test]
    fn the_longest_steps_come_first_and_short_ones_not_at_all() {
        let times = StepTimes::default();
        let progress = Progress::new(vec![Box::new(times.clone())]);
        let long = progress.step("long", "Making the OS image", None);
        std::thread::sleep(Duration::from_millis(30));
        let short = progress.step("short", "Making the initrd", None);
        std::thread::sleep(Duration::from_millis(20));
        short.done();
        long.done();
        progress.step("none", "Reading", None).done();
        drop(progress.step("open", "Hashing", None));
        let names = |count, least| -> Vec<_> {
            times.longest(count, Duration::from_millis(least)).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(9, 20), ["Making the OS image", "Making the initrd"]);
        assert_eq!(names(1, 20), ["Making the OS image"]);
        assert_eq!(names(9, 0).len(), 4);
    }
}
