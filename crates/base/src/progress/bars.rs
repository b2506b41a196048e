//! Events as bars on a terminal.

use std::collections::HashMap;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::event::{Event, RATE, Sink, StepState};

/// One bar for each step with a length, a spinner for the others; ended steps stay as lines.
#[derive(Debug, Default)]
pub struct Bars {
    area: MultiProgress,
    running: HashMap<String, ProgressBar>,
}

const BYTES: &str = "{spinner} {msg} {percent:>3}% [{bar:28}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const PLAIN: &str = "{spinner} {msg} {elapsed}";

impl Bars {
    fn begin(&mut self, event: &Event) {
        let bar = self.area.add(event.total.map_or_else(ProgressBar::new_spinner, ProgressBar::new));
        let template = if event.total.is_some() { BYTES } else { PLAIN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(event.told());
        bar.enable_steady_tick(RATE);
        self.running.insert(event.key(), bar);
    }

    fn line(&self, text: &str) {
        let _ = self.area.println(text);
    }
}

impl Sink for Bars {
    fn show(&mut self, event: &Event) {
        match event.state {
            StepState::Started => self.begin(event),
            StepState::Progress => match (self.running.get(&event.key()), event.bytes) {
                (Some(bar), Some(bytes)) => bar.set_position(bytes),
                _ => self.line(&format!("  {}", event.line())),
            },
            StepState::Done | StepState::Failed if event.only_ends() => {
                // The next output begins on a line of its own, also after interrupted steps.
                self.running.drain().for_each(|(_, bar)| bar.finish_and_clear());
                let _ = self.area.clear();
            }
            StepState::Done | StepState::Failed => {
                let mark = if event.state == StepState::Done { "ok  " } else { "FAIL" };
                let seconds = self.running.remove(&event.key()).map(|bar| {
                    bar.finish_and_clear();
                    format!("  {:.1} s", bar.elapsed().as_secs_f64())
                });
                self.line(&format!("{mark} {}{}", event.told(), seconds.unwrap_or_default()));
            }
        }
    }
}
