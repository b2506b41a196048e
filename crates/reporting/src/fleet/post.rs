//! The server of a fleet as the destination of an outbox: what a request holds, which answers are final, and which lines
//! give way to newer ones.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};
use reqwest::header::CONTENT_TYPE;

use base::parallel::locked;
use base::progress::StepState;
use model::config::redact::Secrets;
use model::config::text::HttpUrl;
use model::fleet::{
    self, CreatorStatus, NodeReport, ReportLine, RunFailure, StreamHeader, UpdateReport, beginning, end,
};
use transfer::download::is_temporary;
use transfer::outbox::{DeliveryWarnings, Destination, FailureAction, SendError, request};

/// The longest answer that is read, in bytes.
const ANSWER: u64 = 16 << 10;
/// After how many failures in a row there is a warning.
const PATIENT: u32 = 3;

/// Shared by the `Reporter` of a run and the thread that sends.
pub(super) struct SharedRun {
    pub(super) url: HttpUrl,
    pub(super) timeout: Duration,
    pub(super) known: Mutex<RunFacts>,
    /// The server's last message about the machine that creates the cluster.
    pub(super) creator: Mutex<Option<String>>,
    pub(super) warnings: DeliveryWarnings,
}

/// Facts that become known during the run.
pub(super) struct RunFacts {
    pub(super) hello: StreamHeader,
    pub(super) authorities: Vec<String>,
    pub(super) secrets: Secrets,
}

impl SharedRun {
    pub(super) fn known(&self) -> MutexGuard<'_, RunFacts> {
        locked(&self.known)
    }

    fn warn(&self, why: &str) {
        self.warnings.warn(&format!("reporting to {}: {why}", request::origin(&self.url)));
    }
}

/// Sends the lines of a run to its server.
pub(super) struct FleetServer {
    run: Arc<SharedRun>,
    client: Option<Client>,
    /// The authorities that the client trusts.
    authorities: Vec<String>,
}

impl Destination for FleetServer {
    type Message = ReportLine;

    fn send(&mut self, lines: &[ReportLine]) -> Result<(), SendError> {
        // The configuration may bring other authorities.
        let client = self.client().map_err(SendError::Temporary)?;
        let body = body(&self.run.known(), lines);
        let request = client.post(&*self.run.url).header(CONTENT_TYPE, fleet::CONTENT_TYPE).body(body);
        let answer = request::send(request).map_err(|error| match error {
            // Until then.
            SendError::Distrusted(why) => SendError::Temporary(why),
            error => error,
        })?;
        let status = answer.status();
        let why = format!("the server answered {status}");
        match status {
            _ if status.is_success() => {
                if lines.contains(&(ReportLine::Wait {})) {
                    *locked(&self.run.creator) = creator_status(answer);
                }
                Ok(())
            }
            _ if is_temporary(status) => Err(request::busy(&answer)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => {
                Err(SendError::Refused(format!("{why}: it does not expect this machine")))
            }
            _ => Err(SendError::Refused(why)),
        }
    }

    fn failed(&mut self, why: &str, failed: u32, next: FailureAction) {
        match next {
            FailureAction::Close => {
                *locked(&self.run.creator) = None;
                self.run.warn(&format!("{why}; nothing more is sent there"));
            }
            _ if failed == PATIENT => {
                self.run.warn(&format!("{why}; the install goes on, and so do the attempts"));
            }
            _ => {}
        }
    }

    /// The newest count of a step's bytes takes the place of the one before, and so do the newest report of a node and the newest
    /// word of a wait.
    fn replaces(newer: &ReportLine, waiting: &ReportLine) -> bool {
        match (newer, waiting) {
            (ReportLine::Node(_), ReportLine::Node(_))
            | (ReportLine::Update(_), ReportLine::Update(_))
            | (ReportLine::Wait {}, ReportLine::Wait {}) => true,
            _ => count(newer).is_some() && count(newer) == count(waiting),
        }
    }

    /// Drops progress within steps; the beginnings and ends of steps stay.
    fn make_room(newer: &ReportLine, waiting: &mut VecDeque<ReportLine>) -> bool {
        match waiting.iter().position(is_progress) {
            Some(at) => waiting.remove(at).is_some(),
            None => !is_progress(newer),
        }
    }
}

/// The step whose bytes a line counts, if it does.
fn count(line: &ReportLine) -> Option<&str> {
    match line {
        ReportLine::Event(event) if event.state == StepState::Progress && event.bytes.is_some() => {
            Some(&event.step)
        }
        _ => None,
    }
}

fn is_progress(line: &ReportLine) -> bool {
    match line {
        ReportLine::Event(event) => event.state == StepState::Progress,
        ReportLine::Wait {} => true,
        _ => false,
    }
}

/// The answer's message about the machine that creates the cluster. Servers of earlier versions send no body.
fn creator_status(answer: Response) -> Option<String> {
    let mut body = Vec::new();
    answer.take(ANSWER).read_to_end(&mut body).ok()?;
    let status: CreatorStatus = serde_json::from_slice(&body).ok()?;
    // A terminal shows it on one line.
    let line = printable(&status.text).split_whitespace().collect::<Vec<_>>().join(" ");
    let line = beginning(&line, fleet::MESSAGE);
    Some(line).filter(|line| status.v == fleet::VERSION && !line.is_empty())
}

impl FleetServer {
    pub(super) fn new(run: Arc<SharedRun>) -> Self {
        Self { run, client: None, authorities: Vec::new() }
    }

    /// The client, made anew when other authorities are trusted.
    fn client(&mut self) -> Result<Client, String> {
        let authorities = self.run.known().authorities.clone();
        if let Some(client) = self.client.as_ref().filter(|_| authorities == self.authorities) {
            return Ok(client.clone());
        }
        let builder = || Client::builder().timeout(self.run.timeout);
        let client = request::client(&self.run.url, &authorities, builder)?;
        (self.client, self.authorities) = (Some(client.clone()), authorities);
        Ok(client)
    }
}

/// The lines as they are sent: after a `hello`, without secrets, no longer than servers accept.
fn body(known: &RunFacts, batch: &[ReportLine]) -> Vec<u8> {
    let mut body = Vec::new();
    let hello = ReportLine::Hello(known.hello.clone());
    for line in [hello].into_iter().chain(batch.iter().map(|line| presentable(line, &known.secrets))) {
        let bytes = base::encode::json_line(&line);
        if body.len() + bytes.len() < fleet::BODY {
            body.extend(bytes);
            body.push(b'\n');
        }
    }
    body
}

fn presentable(line: &ReportLine, secrets: &Secrets) -> ReportLine {
    let short = |text: &str| beginning(&printable(&secrets.hide(text)), fleet::MESSAGE);
    match line {
        ReportLine::Hello(hello) => ReportLine::Hello(hello.clone()),
        ReportLine::Event(event) => {
            let mut event = event.clone();
            event.message = short(&event.message);
            ReportLine::Event(event)
        }
        ReportLine::Failure(RunFailure { causes, hints, exit_code }) => ReportLine::Failure(RunFailure {
            causes: causes.iter().map(|cause| short(cause)).collect(),
            hints: hints.iter().map(|hint| short(hint)).collect(),
            exit_code: *exit_code,
        }),
        ReportLine::Node(node) => ReportLine::Node(NodeReport {
            detail: short(&node.detail),
            next: node.next.as_deref().map(short),
            ..node.clone()
        }),
        ReportLine::Update(update) => ReportLine::Update(UpdateReport {
            reason: update.reason.as_deref().map(short),
            trust: update.trust.as_deref().map(short),
            warnings: update.warnings.iter().map(|warning| short(warning)).collect(),
            ..update.clone()
        }),
        ReportLine::Wait {} => ReportLine::Wait {},
        ReportLine::Log(log) => ReportLine::Log(end(&secrets.hide(log), fleet::LOG).to_owned()),
    }
}

/// Output of other programs may hold control characters; a server refuses such text.
fn printable(text: &str) -> String {
    let plain =
        |c: char| if c.is_control() && !"\n\r\t".contains(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use super::super::policy;
    use base::progress::Event;
    use transfer::outbox::{NextAttempt, OutboxPolicy, OutboxQueue};

    fn queue() -> OutboxQueue<FleetServer> {
        OutboxQueue::new(OutboxPolicy { batch: usize::MAX, ..policy() })
    }

    fn take(queue: &mut OutboxQueue<FleetServer>) -> Vec<ReportLine> {
        match queue.next(Instant::now()) {
            NextAttempt::Send(lines) => lines,
            other => panic!("{other:?}"),
        }
    }

    fn line(seq: u64, step: &str, state: StepState, bytes: Option<u64>) -> ReportLine {
        let (time, message) = (String::new(), String::new());
        let step = step.to_owned();
        ReportLine::Event(Event {
            part: None,
            v: 1,
            seq,
            time,
            step,
            state,
            bytes,
            total: bytes,
            message,
            details: None,
            result: None,
            exit_code: None,
        })
    }

    fn numbers(lines: &[ReportLine]) -> Vec<u64> {
        let number = |line: &ReportLine| match line {
            ReportLine::Event(event) => event.seq,
            _ => 0,
        };
        lines.iter().map(number).collect()
    }

    #[test]
    fn only_the_newest_count_of_a_step_waits() {
        let mut queue = queue();
        queue.push(line(1, "a", StepState::Started, Some(0)));
        queue.push(line(2, "a", StepState::Progress, Some(1)));
        queue.push(line(3, "a", StepState::Progress, None));
        queue.push(line(4, "b", StepState::Progress, Some(1)));
        queue.push(line(5, "a", StepState::Progress, Some(2)));
        queue.push(line(6, "a", StepState::Done, Some(3)));
        assert_eq!(numbers(&take(&mut queue)), [1, 3, 4, 5, 6]);
        assert_eq!(queue.result().unsent, 5);
        assert_eq!(queue.next(Instant::now()), NextAttempt::Wait(None));
    }

    #[test]
    fn only_the_newest_word_of_a_node_waits() {
        let node =
            |detail: &str| ReportLine::Node(NodeReport { detail: detail.into(), ..NodeReport::default() });
        let mut queue = queue();
        queue.push(node("before"));
        queue.push(line(1, "a", StepState::Done, None));
        queue.push(node("now"));
        assert_eq!(take(&mut queue), [line(1, "a", StepState::Done, None), node("now")]);
    }

    #[test]
    fn a_full_queue_forgets_what_happened_within_steps_and_nothing_else() {
        let mut queue = queue();
        queue.push(line(0, "a", StepState::Progress, None));
        for seq in 1..=policy().capacity as u64 {
            queue.push(line(seq, "a", StepState::Done, None));
        }
        queue.push(line(1 << 20, "a", StepState::Progress, None));
        queue.push(line(1 << 21, "a", StepState::Failed, None));
        let left = numbers(&take(&mut queue));
        assert_eq!(left.len(), policy().capacity + 1);
        assert_eq!((left[0], left[policy().capacity]), (1, 1 << 21));
    }
}
