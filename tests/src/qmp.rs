//! A small client of QMP, QEMU's machine protocol: JSON objects, one a line, over a Unix socket.
//! <https://www.qemu.org/docs/master/interop/qmp-spec.html>

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::deadline::Deadline;

/// How long QEMU may take to answer a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A connection in command mode.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    /// The beginning of a line that is not complete yet.
    partial: Vec<u8>,
    events: Vec<Value>,
    commands: u64,
}

impl Qmp {
    /// Negotiates capabilities with QEMU at the other end of `stream`.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let reader = BufReader::new(stream);
        let mut qmp = Self { reader, partial: Vec::new(), events: Vec::new(), commands: 0 };
        let greeting = qmp.line(Deadline::after(ANSWER_LIMIT))?.context("QEMU did not greet")?;
        if greeting.get("QMP").is_none() {
            bail!("QEMU greeted with {greeting}");
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Executes a command and returns its result. Events that arrive meanwhile are kept.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.commands += 1;
        let id = self.commands;
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string();
        line.push('\n');
        let context = || format!("the QMP command {command}");
        self.reader.get_mut().write_all(line.as_bytes()).with_context(context)?;
        let deadline = Deadline::after(ANSWER_LIMIT);
        loop {
            let mut answer = self.line(deadline).with_context(context)?.with_context(context)?;
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else if answer["id"] == id {
                if let Some(error) = answer.get("error") {
                    bail!("{} was refused: {}", context(), error["desc"]);
                }
                return Ok(answer["return"].take());
            }
        }
    }

    /// Waits for the event `name`, or takes an earlier one.
    pub fn wait_for_event(&mut self, name: &str, limit: Duration) -> Result<Value> {
        let deadline = Deadline::after(limit);
        loop {
            if let Some(index) = self.events.iter().position(|event| event["event"] == name) {
                return Ok(self.events.remove(index));
            }
            match self.line(deadline)? {
                Some(line) if line.get("event").is_some() => self.events.push(line),
                Some(_) => {}
                None => bail!("the event {name} did not come within {} seconds", limit.as_secs()),
            }
        }
    }

    pub fn system_powerdown(&mut self) -> Result<()> {
        self.execute("system_powerdown", json!({})).map(drop)
    }

    /// Connects or disconnects the cable of a network card.
    pub fn set_link(&mut self, nic: &str, up: bool) -> Result<()> {
        self.execute("set_link", json!({ "name": nic, "up": up })).map(drop)
    }

    /// Saves a screenshot as PNG.
    pub fn screendump(&mut self, path: &Path) -> Result<()> {
        self.execute("screendump", json!({ "filename": path, "format": "png" })).map(drop)
    }

    /// Presses keys together, by their QEMU names (`ret`, `down`, `ctrl`).
    pub fn send_key(&mut self, keys: &[&str]) -> Result<()> {
        let keys: Vec<_> = keys.iter().map(|key| json!({ "type": "qcode", "data": key })).collect();
        self.execute("send-key", json!({ "keys": keys })).map(drop)
    }

    /// Runs a command of the human monitor, for what QMP does not offer.
    pub fn human(&mut self, command: &str) -> Result<String> {
        let text = self.execute("human-monitor-command", json!({ "command-line": command }))?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Ends QEMU at once; the guest is not told.
    pub fn quit(&mut self) -> Result<()> {
        self.execute("quit", json!({})).map(drop)
    }

    /// The next line; `None` at the deadline.
    fn line(&mut self, deadline: Deadline) -> Result<Option<Value>> {
        let Some(left) = deadline.left() else { return Ok(None) };
        self.reader.get_ref().set_read_timeout(Some(left))?;
        match self.reader.read_until(b'\n', &mut self.partial) {
            Ok(_) if self.partial.ends_with(b"\n") => {
                let line = std::mem::take(&mut self.partial);
                Ok(Some(serde_json::from_slice(&line).context("reading a QMP line")?))
            }
            Ok(_) => bail!("QEMU closed its QMP connection"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error).context("reading from QMP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A fake QEMU that sends `lines`, one batch for each command it receives.
    fn monitor(lines: &'static [&'static str]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let mut reader = BufReader::new(theirs);
            for line in lines {
                reader.get_mut().write_all(line.as_bytes()).unwrap();
                let mut command = String::new();
                let _ = reader.read_line(&mut command);
            }
        });
        ours
    }

    #[test]
    fn events_between_a_command_and_its_answer_are_kept() {
        let mut qmp = Qmp::new(monitor(&[
            "{\"QMP\": {}}\n",
            "{\"return\": {}, \"id\": 1}\n",
            "{\"event\": \"SHUTDOWN\", \"data\": {}}\n{\"return\": 7, \"id\": 2}\n",
        ]))
        .unwrap();
        assert_eq!(qmp.execute("query-seven", json!({})).unwrap(), 7);
        qmp.wait_for_event("SHUTDOWN", Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn a_refusal_says_why() {
        let mut qmp = Qmp::new(monitor(&[
            "{\"QMP\": {}}\n",
            "{\"return\": {}, \"id\": 1}\n",
            "{\"error\": {\"desc\": \"no such device\"}, \"id\": 2}\n",
        ]))
        .unwrap();
        let error = qmp.set_link("nic9", false).unwrap_err().to_string();
        assert!(error.contains("set_link") && error.contains("no such device"), "{error}");
    }
}
