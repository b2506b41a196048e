//! A progress sink for tests.

use std::sync::{Arc, Mutex};

use base::progress::{Event, Sink};

/// Keeps events for a test to look at.
#[derive(Clone, Default)]
pub struct Recorder(pub Arc<Mutex<Vec<Event>>>);

impl Sink for Recorder {
    fn show(&mut self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}
