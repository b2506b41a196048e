//! The reports of one install and of its node, in the lines that installer and node send.

use base::encode::json_line;
use base::failure::Class;
use base::progress::{Event, StepState};
use jiff::Timestamp;
use model::fleet::{NodeReport, ReportLine, SlotReport, StreamHeader, UpdateReport, VERSION};
use uuid::Uuid;

use crate::virtual_machine::VirtualMachine;

/// The product that the virtual machines install.
const PRODUCT: &str = "Load 1";

/// The reports of one run, which count up.
pub(crate) struct InstallReports {
    header: StreamHeader,
    seq: u64,
}

impl InstallReports {
    pub(crate) fn new(machine: VirtualMachine) -> Self {
        let header = StreamHeader {
            v: VERSION,
            run: Uuid::new_v4(),
            machine: machine.identity(),
            hostname: Some(machine.hostname()),
            product: Some(PRODUCT.into()),
        };
        Self { header, seq: 0 }
    }

    /// The body of a request with these lines.
    pub(crate) fn body(&self, lines: &[ReportLine]) -> Vec<u8> {
        let mut body = json_line(&ReportLine::Hello(self.header.clone()));
        for line in lines {
            body.push(b'\n');
            body.extend(json_line(line));
        }
        body.push(b'\n');
        body
    }

    fn event(&mut self, step: &str, state: StepState, message: &str) -> Event {
        self.seq += 1;
        Event {
            v: 1,
            seq: self.seq,
            time: Timestamp::now().to_string(),
            step: step.into(),
            state,
            bytes: None,
            total: None,
            message: message.into(),
            details: None,
            result: None,
            part: None,
            exit_code: None,
        }
    }

    /// A step begins; `total` is the number of bytes that it handles.
    pub(crate) fn begins(&mut self, step: &str, total: Option<u64>) -> ReportLine {
        let event = self.event(step, StepState::Started, &format!("Step {step}"));
        ReportLine::Event(Event { bytes: total.map(|_| 0), total, ..event })
    }

    pub(crate) fn progresses(&mut self, step: &str, bytes: u64, total: u64) -> ReportLine {
        let event = self.event(step, StepState::Progress, "");
        ReportLine::Event(Event { bytes: Some(bytes), total: Some(total), ..event })
    }

    pub(crate) fn ends(&mut self, step: &str) -> ReportLine {
        ReportLine::Event(self.event(step, StepState::Done, &format!("Step {step}")))
    }

    /// A step fails, and with it the install.
    pub(crate) fn fails(&mut self, step: &str) -> [ReportLine; 2] {
        let step = self.event(step, StepState::Failed, "The disk does not answer");
        let run = self.event("run", StepState::Failed, "Failed");
        let run =
            Event { result: Some(StepState::Failed), exit_code: Some(Class::DiskIo.exit_code()), ..run };
        [step, run].map(ReportLine::Event)
    }

    /// The install is complete.
    pub(crate) fn completes(&mut self) -> ReportLine {
        let event = self.event("run", StepState::Done, "Done");
        ReportLine::Event(Event { result: Some(StepState::Done), exit_code: Some(0), ..event })
    }
}

/// The node joins its cluster and is in this stage; it is `ready` in the last one.
pub(crate) fn node(stage: &str, ready: bool) -> ReportLine {
    let detail = if ready { "the node is ready" } else { "not ready yet" };
    ReportLine::Node(NodeReport {
        ready,
        stage: stage.into(),
        detail: detail.into(),
        ..NodeReport::default()
    })
}

/// The node runs the release that was installed.
pub(crate) fn idle() -> ReportLine {
    let slot = |slot: &str, version: Option<&str>| SlotReport {
        slot: slot.into(),
        state: Some(if version.is_some() { "good" } else { "empty" }.into()),
        version: version.map(str::to_owned),
    };
    ReportLine::Update(UpdateReport {
        state: "idle".into(),
        running: "a".into(),
        slots: vec![slot("a", Some("1")), slot("b", None)],
        ..UpdateReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_begins_with_the_machine_and_its_events_count_up() {
        let mut reports = InstallReports::new(VirtualMachine::new(3, 1));
        let lines = [reports.begins("image", Some(9)), reports.ends("image"), reports.completes()];
        let text = String::from_utf8(reports.body(&lines)).unwrap();
        let read: Vec<ReportLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ReportLine::Hello(hello) = &read[0] else { panic!("{text}") };
        assert_eq!((hello.v, hello.machine.clone()), (1, VirtualMachine::new(3, 1).identity()));
        assert_eq!(read[1..], lines);
        let seqs: Vec<_> = lines
            .iter()
            .map(|line| if let ReportLine::Event(event) = line { event.seq } else { 0 })
            .collect();
        assert_eq!(seqs, [1, 2, 3]);
    }
}
