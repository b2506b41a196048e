//! Events as JSON lines, for programs.

use std::io::Write;

use super::event::{Event, Sink};

#[allow(missing_debug_implementations)]
pub struct JsonLines<W>(W);

impl<W: Write> JsonLines<W> {
    pub fn new(out: W) -> Self {
        Self(out)
    }
}

impl<W: Write + Send> Sink for JsonLines<W> {
    fn show(&mut self, event: &Event) {
        if let Ok(mut line) = serde_json::to_vec(event) {
            line.push(b'\n');
            let _ = self.0.write_all(&line).and_then(|()| self.0.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_an_object_with_the_fields_of_the_contract() {
        let out = SharedBuffer::default();
        let progress = Progress::new(vec![Box::new(JsonLines::new(out.clone()))]);
        progress.step("check", "checking", Some(5)).done();
        progress.finish("complete", 0);
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["v"], 1);
        assert_eq!(lines[0]["state"], "started");
        assert_eq!(lines[0]["total"], 5);
        assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'));
        assert_eq!(lines[2]["step"], "run");
        assert_eq!(lines[2]["result"], "done");
        assert_eq!(lines[2]["exit_code"], 0);
    }
}
