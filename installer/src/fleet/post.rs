//! The thread that sends.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::blocking::Client;
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;

use super::shared::{KnownOfRun, SharedRun};
use base::failure::causes;
use model::config::redact::Secrets;
use model::fleet::{self, Failed, Line, Node, beginning, end};
use transfer::backoff::backoff;
use transfer::download::{client, is_passing, reason};

/// So many lines go into one request.
const LINES: usize = 100;
/// After so many failures in a row the consoles are told, once.
const PATIENT: u32 = 3;
/// Between two attempts when the run is at its end.
const HURRY: Duration = Duration::from_millis(300);

/// Why a request did not succeed.
enum Trouble {
    /// It may be over soon.
    Passing(String),
    /// The server does not want what is sent.
    Refused(String),
}

/// Sends until the run is over.
pub(super) fn work(shared: &SharedRun) {
    let mut failed = 0;
    let mut connection = Connection::default();
    while let Some(batch) = next(shared) {
        let begun = Instant::now();
        let body = body(&shared.known(), &batch);
        let result = connection.post(shared, body);
        let mut queue = shared.queue();
        queue.busy = false;
        let pause = match &result {
            Ok(()) => shared.retry.rate.saturating_sub(begun.elapsed()),
            Err(Trouble::Passing(_)) => {
                queue.lines.put_back(batch);
                failed += 1;
                backoff(shared.retry.pause, failed, shared.retry.longest)
            }
            Err(Trouble::Refused(_)) => {
                queue.closed = true;
                queue.refused = true;
                queue.lines.clear();
                Duration::ZERO
            }
        };
        shared.changed.notify_all();
        drop(queue);
        match result {
            Ok(()) => failed = 0,
            Err(Trouble::Passing(why)) if failed == PATIENT => {
                shared.warn(&format!("{why}; the install goes on, and so do the attempts"));
            }
            Err(Trouble::Passing(_)) => {}
            Err(Trouble::Refused(why)) => return shared.warn(&format!("{why}; nothing more is sent there")),
        }
        rest(shared, pause, failed > 0);
    }
}

/// The next lines, as soon as there are any; none when the run is over.
fn next(shared: &SharedRun) -> Option<Vec<Line>> {
    let mut queue = shared.queue();
    loop {
        if queue.over || queue.closed && queue.lines.is_empty() {
            return None;
        }
        if !queue.lines.is_empty() {
            queue.busy = true;
            return Some(queue.lines.take(LINES));
        }
        queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits; at the end of the run no longer than it must.
fn rest(shared: &SharedRun, pause: Duration, failed: bool) {
    let begun = Instant::now();
    let mut queue = shared.queue();
    loop {
        let pause = match (queue.closed, failed) {
            (false, _) => pause,
            (true, true) => pause.min(HURRY),
            (true, false) => Duration::ZERO,
        };
        let left = pause.saturating_sub(begun.elapsed());
        if left.is_zero() || queue.over {
            return;
        }
        queue = shared.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// The lines as they are sent: after a greeting, without secrets, no longer than the server takes them.
fn body(known: &KnownOfRun, batch: &[Line]) -> Vec<u8> {
    let mut body = Vec::new();
    let hello = Line::Hello(known.hello.clone());
    for line in [hello].into_iter().chain(batch.iter().map(|line| presentable(line, &known.secrets))) {
        let bytes = base::encode::json_line(&line);
        if body.len() + bytes.len() < fleet::BODY {
            body.extend(bytes);
            body.push(b'\n');
        }
    }
    body
}

fn presentable(line: &Line, secrets: &Secrets) -> Line {
    let short = |text: &str| beginning(&printable(&secrets.hide(text)), fleet::MESSAGE);
    match line {
        Line::Hello(hello) => Line::Hello(hello.clone()),
        Line::Event(event) => {
            let mut event = event.clone();
            event.message = short(&event.message);
            Line::Event(event)
        }
        Line::Failure(Failed { causes, hints, exit_code }) => Line::Failure(Failed {
            causes: causes.iter().map(|cause| short(cause)).collect(),
            hints: hints.iter().map(|hint| short(hint)).collect(),
            exit_code: *exit_code,
        }),
        Line::Node(node) => Line::Node(Node {
            detail: short(&node.detail),
            next: node.next.as_deref().map(short),
            ..node.clone()
        }),
        Line::Log(log) => Line::Log(end(&secrets.hide(log), fleet::LOG).to_owned()),
    }
}

/// Words of other programs may hold what a terminal would obey; a server refuses such text.
fn printable(text: &str) -> String {
    let plain =
        |c: char| if c.is_control() && !"\n\r\t".contains(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(plain).collect()
}

/// The client, made anew when other authorities are trusted.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    authorities: Vec<String>,
}

impl Connection {
    fn post(&mut self, shared: &SharedRun, body: Vec<u8>) -> Result<(), Trouble> {
        let client = self.client(shared).map_err(|error| {
            // What is trusted may change when the configuration is known.
            Trouble::Passing(causes(&error).pop().unwrap_or_default())
        })?;
        let request = client.post(&*shared.url).header(CONTENT_TYPE, fleet::CONTENT_TYPE).body(body);
        let status = match request.send() {
            Ok(answer) => answer.status(),
            Err(error) if error.is_timeout() => {
                return Err(Trouble::Passing("the server did not answer in time".into()));
            }
            Err(error) => return Err(Trouble::Passing(reason(&error))),
        };
        let why = || format!("the server answered {status}");
        match status {
            _ if status.is_success() => Ok(()),
            _ if is_passing(status) => Err(Trouble::Passing(why())),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::GONE => {
                Err(Trouble::Refused(format!("{}: it does not expect this machine", why())))
            }
            _ => Err(Trouble::Refused(why())),
        }
    }

    fn client(&mut self, shared: &SharedRun) -> anyhow::Result<&Client> {
        let authorities = shared.known().authorities.clone();
        if authorities != self.authorities {
            (self.client, self.authorities) = (None, authorities);
        }
        if self.client.is_none() {
            let timeout = shared.retry.timeout;
            // What is told is for the server that was named, and for no other.
            let builder = || {
                Client::builder()
                    .timeout(timeout)
                    .redirect(Policy::none())
                    .user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")))
            };
            self.client = Some(client(&shared.url, &self.authorities, builder)?);
        }
        self.client.as_ref().ok_or_else(|| anyhow::anyhow!("there is no client"))
    }
}
