//! Reports of an install to the server of its fleet: `nqrust.report=URL`.
//!
//! [`Reporter`] sends the progress of one run, a few lines at a time and at most once a second, on a thread of its own.
//! Neither a slow nor a missing server delays an install or makes it fail; the consoles show that reports did not arrive.
//! The lines are those of [`model::fleet`], which the server reads too. After the install the node's own reporter goes on
//! until the node is ready in its cluster, with the file that the install leaves ([`handover`]).

pub mod handover;
mod post;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use uuid::Uuid;

use base::failure::{Class, Failure};
use base::parallel::locked;
use base::progress::{Event, Progress, Sink};
use model::boot::parameter;
use model::config::redact::Secrets;
use model::config::text::HttpUrl;
use model::fleet::{NodeReport, ReportLine, RunFailure, StreamHeader, UpdateReport};
use model::kernel_line::words;
use model::machine::Identity;
use post::{FleetServer, RunFacts, SharedRun};
use transfer::outbox::{DeliveryWarnings, Outbox, OutboxPolicy, OutboxResult};

/// Kernel parameters whose URLs may carry tokens.
const URLS: [&str; 5] = [
    parameter::REPORT,
    "nqrust.install.config_url",
    "nqrust.install.configUrl",
    "harvester.install.config_url",
    "harvester.install.configUrl",
];

#[derive(Debug)]
pub struct ReporterSetup {
    /// Where to send to. Its path may be a secret.
    pub url: HttpUrl,
    pub machine: Identity,
    /// Limits; those of [`policy`] in an install.
    pub policy: OutboxPolicy,
    /// The progress of the run; gets warnings too.
    pub progress: Progress,
}

/// Reports one run. Dropped without [`Reporter::conclude`], it goes on sending while the process lives.
pub struct Reporter {
    run: Arc<SharedRun>,
    outbox: Outbox<FleetServer>,
}

/// The limits of an install's reports. If the server is away for long, progress is lost, but never the result.
#[must_use]
pub fn policy() -> OutboxPolicy {
    let seconds = Duration::from_secs;
    OutboxPolicy {
        capacity: 4096,
        batch: 100,
        timeout: seconds(10),
        rate: seconds(1),
        attempts: None,
        pause: seconds(1),
        longest_pause: seconds(15),
        closing_pause: Duration::from_millis(300),
        flush: seconds(5),
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reporter")
    }
}

impl Reporter {
    /// Reports the progress of a new run from now on.
    #[must_use]
    pub fn begin(setup: ReporterSetup) -> Self {
        let progress = setup.progress.clone();
        let reporter = Self::resume(setup, Uuid::new_v4());
        progress.add(Box::new(Listener(reporter.outbox.clone())));
        reporter
    }

    /// Goes on reporting the run `run`, but not its progress.
    pub fn resume(setup: ReporterSetup, run: Uuid) -> Self {
        let ReporterSetup { url, machine, policy, progress } = setup;
        let hello = StreamHeader { v: model::fleet::VERSION, run, machine, hostname: None, product: None };
        let known = RunFacts { hello, authorities: Vec::new(), secrets: Secrets::default() };
        let run = Arc::new(SharedRun {
            url,
            timeout: policy.timeout,
            known: Mutex::new(known),
            creator: Mutex::default(),
            warnings: DeliveryWarnings::new(progress, "report"),
        });
        let outbox = Outbox::new(FleetServer::new(run.clone()), policy);
        Self { run, outbox }
    }

    /// Authorities (PEM) to trust beside the usual ones, as soon as they are known.
    pub fn trust(&self, authorities: &[String]) {
        self.run.known().authorities = authorities.to_vec();
    }

    /// Removes these from everything that is sent from now on.
    pub fn hide(&self, secrets: &Secrets) {
        self.run.known().secrets = secrets.clone();
    }

    pub fn hostname(&self, hostname: Option<&str>) {
        self.run.known().hello.hostname = hostname.map(str::to_owned);
    }

    pub fn product(&self, product: &str) {
        self.run.known().hello.product = Some(product.to_owned());
    }

    /// Reports how far the installed node has come, in place of an earlier report that still waits.
    pub fn tell(&self, node: NodeReport) {
        self.outbox.push(ReportLine::Node(node));
    }

    pub fn tell_update(&self, update: UpdateReport) {
        self.outbox.push(ReportLine::Update(update));
    }

    /// Tells the server that this run waits for its cluster. Returns what the server last said of the machine that creates the
    /// cluster, without waiting for its answer to this.
    pub fn wait_for_creator(&self) -> Option<String> {
        self.outbox.push(ReportLine::Wait {});
        locked(&self.run.creator).clone()
    }

    /// Ends all warnings: the next event is the last one.
    pub fn fall_silent(&self) {
        self.run.warnings.fall_silent();
    }

    /// Reports why the run failed, if it did, and waits as long as the policy says for what is not sent yet.
    pub fn conclude(self, failure: Option<(RunFailure, String)>) -> OutboxResult {
        if let Some((failed, log)) = failure {
            self.outbox.push(ReportLine::Failure(failed));
            self.outbox.push(ReportLine::Log(log));
        }
        self.outbox.close()
    }
}

struct Listener(Outbox<FleetServer>);

impl Sink for Listener {
    fn show(&mut self, event: &Event) {
        self.0.push(ReportLine::Event(event.clone()));
    }
}

/// The URL to report to: `given` on the command line of the program, or else that on the kernel's.
///
/// # Errors
/// `Class::Invalid` where it is not an `http` or `https` URL, or is given twice.
pub fn destination(given: Option<&str>, command_line: &str) -> Result<Option<HttpUrl>> {
    let words = words(command_line);
    let mut values = words.iter().filter(|word| word.key == parameter::REPORT);
    let (name, text) = match (given, values.next()) {
        (Some(given), _) => ("--report", given),
        (None, None) => return Ok(None),
        (None, Some(word)) => (parameter::REPORT, word.value.as_ref().map_or("", |(text, _)| text)),
    };
    let wrong = |why: String| {
        Failure::new(Class::Invalid, format!("reading {name}"))
            .because(anyhow::anyhow!("{why}"))
            .hint(format!("Give {name} the URL that the server of the fleet prints, or leave it out."))
    };
    if given.is_none() && values.next().is_some() {
        return Err(wrong("it is given twice".into()).into());
    }
    // The value is not shown: it may hold a token.
    let url = text.parse::<HttpUrl>().map_err(|_| wrong("it is not an http or https URL".into()))?;
    Ok(Some(url))
}

/// The parts of URLs in kernel parameters that may be tokens. Kernel messages and errors show them.
#[must_use]
pub fn tokens(command_line: &str) -> Vec<String> {
    let words = words(command_line);
    let urls = words.iter().filter(|word| URLS.contains(&&*word.key));
    let urls = urls.filter_map(|word| word.value.as_ref().map(|(text, _)| text));
    urls.filter_map(|url| Some(token(url)?.to_owned())).collect()
}

/// The path of a URL, if it is long enough to be a token.
#[must_use]
pub fn token(url: &str) -> Option<&str> {
    let rest = &url[url.find("://")? + 3..];
    Some(&rest[rest.find(['/', '?'])? + 1..]).filter(|path| path.len() >= 8)
}
