//! One machine from its first request to its node in the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base::digest::Digest;
use hyper::StatusCode;
use model::fleet::ReportLine;
use model::release::{MANIFEST, Payload, Purpose, Release, SIGNATURES};
use tokio::time::sleep;

use crate::boot_script::{BootScript, InstallScript, boot_request};
use crate::http_client::{ClientRequest, HttpClient};
use crate::install_reports::{self, InstallReports};
use crate::measurements::{Measurements, RequestKind};
use crate::patience::{MachineFailure, PatientClient, RetryLimits, WantedFile, refused};
use crate::servers::Servers;
use crate::virtual_machine::VirtualMachine;

/// The length of each part of a file that is only sampled, in bytes.
const SAMPLE: u64 = 64 << 10;
/// The stages of a node before it is ready.
const NODE_STAGES: [&str; 3] = ["containerd", "kubelet", "control-plane"];
/// What the loader of a machine is told whose configuration was given before.
const TAKEN_BEFORE: &str = "its install was started before";

/// How far machines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goal {
    /// To their boot script.
    Boot,
    /// To an install that fails while it partitions the disk.
    Failed,
    /// To the end of the install.
    Installed,
    /// To a node that is ready in its cluster.
    Joined,
}

/// How the bytes of OS image and blobs are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// All of them; `digests` says whether they are checked against their digests, and not only by their number.
    Whole { digests: bool },
    /// Begin, middle and end of each file.
    Sampled,
}

/// What every machine of a run does.
#[derive(Clone, Copy, Debug)]
pub struct InstallPlan {
    pub goal: Goal,
    pub content: Content,
    pub cluster_size: u32,
    /// How long an install lasts at least; it reports every second.
    pub duration: Duration,
    pub retry: RetryLimits,
    /// Whether each machine has an address of its own on the loopback interface. Servers limit the connections of an address.
    pub own_addresses: bool,
    /// Whether each machine asks again for a configuration that it was given.
    pub asks_again: bool,
}

/// What became of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineOutcome {
    /// It has reached the goal.
    Reached,
    /// Its configuration counts as taken, and it never got it: the answer was lost with its server. An operator has to decide.
    ConfigurationLost,
    Failed(String),
}

/// One machine after its run.
#[derive(Clone, Debug)]
pub struct MachineResult {
    pub machine: VirtualMachine,
    pub outcome: MachineOutcome,
    /// How often it got a configuration.
    pub given: u32,
    /// What servers gave it that they must not give.
    pub violations: Vec<String>,
    pub time: Duration,
}

/// What machines of a run know of each other: which creators of clusters are ready.
#[derive(Debug)]
pub(crate) struct ReadyCreators(Vec<AtomicBool>);

impl ReadyCreators {
    pub(crate) fn new(first: u32, machines: u32) -> Self {
        let all = (0..first + machines).map(|number| AtomicBool::new(number < first));
        Self(all.collect())
    }

    fn is_ready(&self, machine: VirtualMachine) -> bool {
        self.0.get(machine.creator as usize).is_none_or(|ready| ready.load(Ordering::Relaxed))
    }

    fn set(&self, machine: VirtualMachine) {
        if let Some(ready) = self.0.get(machine.number as usize) {
            ready.store(true, Ordering::Relaxed);
        }
    }
}

/// A machine that runs.
pub(crate) struct RunningMachine<'a> {
    pub(crate) machine: VirtualMachine,
    pub(crate) plan: InstallPlan,
    pub(crate) servers: Arc<Servers>,
    pub(crate) measured: &'a Measurements,
    pub(crate) creators: &'a ReadyCreators,
    given: AtomicU32,
}

impl<'a> RunningMachine<'a> {
    pub(crate) fn new(
        machine: VirtualMachine,
        plan: InstallPlan,
        servers: Arc<Servers>,
        measured: &'a Measurements,
        creators: &'a ReadyCreators,
    ) -> Self {
        Self { machine, plan, servers, measured, creators, given: AtomicU32::new(0) }
    }

    /// Runs it to its goal.
    pub(crate) async fn run(self) -> MachineResult {
        let begun = Instant::now();
        let mut violations = Vec::new();
        let outcome = match self.boot_and_install().await {
            Ok(outcome) => outcome,
            Err(failure) => {
                if let MachineFailure::Wrong(what) = &failure {
                    violations.push(format!("{}: {what}", self.machine.hostname()));
                }
                MachineOutcome::Failed(failure.to_string())
            }
        };
        let given = self.given.load(Ordering::Relaxed);
        MachineResult { machine: self.machine, outcome, given, violations, time: begun.elapsed() }
    }

    /// A client with a connection of its own.
    fn client(&self) -> PatientClient<'a> {
        let from = self.plan.own_addresses.then(|| self.machine.address());
        PatientClient::new(HttpClient::new(Arc::clone(&self.servers), from), self.plan.retry, self.measured)
    }

    async fn boot_and_install(&self) -> Result<MachineOutcome, MachineFailure> {
        let since = Instant::now();
        loop {
            let mut loader = self.client();
            let script = match self.boot_script(&mut loader).await? {
                BootScript::Install(script) => script,
                BootScript::Disk(why) if why.contains(TAKEN_BEFORE) => {
                    return Ok(MachineOutcome::ConfigurationLost);
                }
                BootScript::Disk(why) => {
                    let what = format!("it has to start from its disk before its install: {why}");
                    return Err(MachineFailure::Wrong(what));
                }
                // `boot_script` asks until there is a decision.
                BootScript::AskAgain => continue,
            };
            if self.plan.goal == Goal::Boot {
                return Ok(MachineOutcome::Reached);
            }
            for (kind, path) in [(RequestKind::Kernel, &script.kernel), (RequestKind::Initrd, &script.initrd)]
            {
                self.content(&mut loader, WantedFile { kind, path, size: None, digest: None }).await?;
            }
            drop(loader);
            let mut installer = self.client();
            let digest = digest(&script.os_image_digest);
            let image = WantedFile { kind: RequestKind::OsImage, path: &script.os_image, size: None, digest };
            self.content(&mut installer, image).await?;
            if self.take_configuration(&mut installer, &script).await? {
                return self.install(installer, &script).await;
            }
            // The token has become void; a loader asks again.
            if since.elapsed() > self.plan.retry.patience {
                let path = "/v1/config/".to_owned();
                return Err(MachineFailure::Status { kind: RequestKind::Configuration, path, status: 410 });
            }
            sleep(self.plan.retry.pause).await;
        }
    }

    /// Asks for the script of every machine and its own, until the server can decide.
    async fn boot_script(&self, loader: &mut PatientClient<'a>) -> Result<BootScript, MachineFailure> {
        let since = Instant::now();
        loop {
            let start = loader.text(RequestKind::StartScript, "/boot.ipxe").await?;
            let path = boot_request(&start, self.machine);
            let path =
                path.ok_or_else(|| MachineFailure::Wrong(format!("/boot.ipxe asks for nothing: {start}")))?;
            let script = loader.text(RequestKind::BootScript, &path).await?;
            match BootScript::parse(&script) {
                Some(BootScript::AskAgain) if since.elapsed() < self.plan.retry.patience => {
                    self.measured.failed(RequestKind::BootScript, "the server cannot decide now");
                    sleep(self.plan.retry.pause).await;
                }
                None | Some(BootScript::AskAgain) => {
                    let what =
                        format!("the boot script is neither an install nor a start from disk: {script}");
                    return Err(MachineFailure::Wrong(what));
                }
                Some(script) => return Ok(script),
            }
        }
    }

    /// Fetches a file, or samples of it.
    async fn content(
        &self,
        client: &mut PatientClient<'a>,
        wanted: WantedFile<'_>,
    ) -> Result<(), MachineFailure> {
        let WantedFile { kind, path, size, digest } = wanted;
        match (self.plan.content, size) {
            (Content::Sampled, Some(size)) if size > 3 * SAMPLE => {
                for start in [0, size / 2, size - SAMPLE] {
                    client.part((kind, path, size), start, start + SAMPLE).await?;
                }
                Ok(())
            }
            (content, _) => {
                let digest = digest.filter(|_| content == Content::Whole { digests: true });
                client.file(WantedFile { kind, path, size, digest }).await
            }
        }
    }

    /// Takes the configuration; false if the token is void.
    async fn take_configuration(
        &self,
        installer: &mut PatientClient<'a>,
        script: &InstallScript,
    ) -> Result<bool, MachineFailure> {
        let (kind, path) = (RequestKind::Configuration, &script.configuration);
        let (status, body) = installer.ask(kind, &ClientRequest::get(path)).await?;
        match status {
            StatusCode::GONE => return Ok(false),
            StatusCode::OK => {}
            status => return Err(refused(kind, path, status)),
        }
        self.given.fetch_add(1, Ordering::Relaxed);
        if !self.machine.is_its_configuration(&String::from_utf8_lossy(&body)) {
            return Err(MachineFailure::Wrong("it got the configuration of another machine".into()));
        }
        if self.plan.asks_again {
            let (status, _) = installer.ask(RequestKind::UsedToken, &ClientRequest::get(path)).await?;
            // The machine that waits for its cluster may get it again, but none does here at this moment.
            if status != StatusCode::GONE {
                let what = format!("the server answered {status} to a token that was used");
                return Err(MachineFailure::Wrong(what));
            }
        }
        Ok(true)
    }

    /// The release manifest, which the kernel's arguments name.
    async fn release(
        &self,
        installer: &mut PatientClient<'a>,
        script: &InstallScript,
    ) -> Result<Release, MachineFailure> {
        let path = format!("{}/{MANIFEST}", script.medium);
        let (status, manifest) =
            installer.ask(RequestKind::ReleaseManifest, &ClientRequest::get(&path)).await?;
        if status != StatusCode::OK {
            return Err(refused(RequestKind::ReleaseManifest, &path, status));
        }
        if Digest::of(&manifest).oci() != script.release {
            return Err(MachineFailure::Wrong(format!("{path} has another digest")));
        }
        let release = Release::parse(&manifest);
        let release =
            release.map_err(|error| MachineFailure::Wrong(format!("{path} is not valid: {error:#}")))?;
        let path = format!("{}/{SIGNATURES}", script.medium);
        // A release need not be signed.
        let (status, _) = installer.ask(RequestKind::Signatures, &ClientRequest::get(&path)).await?;
        match status {
            StatusCode::OK | StatusCode::NOT_FOUND => Ok(release),
            status => Err(refused(RequestKind::Signatures, &path, status)),
        }
    }

    async fn install(
        &self,
        mut installer: PatientClient<'a>,
        script: &InstallScript,
    ) -> Result<MachineOutcome, MachineFailure> {
        let begun = Instant::now();
        let mut reports = InstallReports::new(self.machine);
        let mut reporter = self.client();
        let release = self.release(&mut installer, script).await?;
        let first = [reports.begins("network", None), reports.begins("preflight", None)];
        self.report(&mut reporter, script, &reports, &first).await?;
        if !self.machine.creates() {
            self.wait_for_creator(&mut reporter, script, &mut reports).await?;
        }
        let mut lines = vec![reports.ends("preflight"), reports.begins("partition", None)];
        let is_to_fail = self.plan.goal == Goal::Failed;
        match is_to_fail {
            true => lines.extend(reports.fails("partition")),
            false => lines.push(reports.ends("partition")),
        }
        self.report(&mut reporter, script, &reports, &lines).await?;
        if is_to_fail {
            return Ok(MachineOutcome::Reached);
        }
        for (step, purposes) in [("image", [Purpose::Rootfs].as_slice()), ("images", &[Purpose::ImageBlob])] {
            let wanted: Vec<_> =
                release.payloads.iter().filter(|payload| purposes.contains(&payload.purpose)).collect();
            let total = wanted.iter().map(|payload| payload.size).sum();
            let begins = reports.begins(step, Some(total));
            self.report(&mut reporter, script, &reports, &[begins]).await?;
            self.payloads(&mut installer, script, &wanted).await?;
            let ends = [reports.progresses(step, total, total), reports.ends(step)];
            self.report(&mut reporter, script, &reports, &ends).await?;
        }
        drop(installer);
        let (mut second, all) = (0, self.plan.duration.as_secs());
        while begun.elapsed() < self.plan.duration {
            sleep(Duration::from_secs(1)).await;
            second += 1;
            let progresses = reports.progresses("read-back", second.min(all), all);
            self.report(&mut reporter, script, &reports, &[progresses]).await?;
        }
        let ends = [reports.begins("commit", None), reports.ends("commit"), reports.completes()];
        self.report(&mut reporter, script, &reports, &ends).await?;
        drop(reporter);
        match self.plan.goal {
            Goal::Boot | Goal::Failed | Goal::Installed => Ok(MachineOutcome::Reached),
            Goal::Joined => self.start_node(script, &reports).await,
        }
    }

    async fn payloads(
        &self,
        installer: &mut PatientClient<'a>,
        script: &InstallScript,
        payloads: &[&Payload],
    ) -> Result<(), MachineFailure> {
        for payload in payloads {
            let kind =
                if payload.purpose == Purpose::Rootfs { RequestKind::OsImage } else { RequestKind::Blob };
            let path = format!("{}/{}", script.medium, payload.path);
            let (size, digest) = (Some(payload.size), Some(payload.sha256));
            self.content(installer, WantedFile { kind, path: &path, size, digest }).await?;
        }
        Ok(())
    }

    /// Reports every second that it waits, until the machine that creates its cluster is ready.
    async fn wait_for_creator(
        &self,
        reporter: &mut PatientClient<'a>,
        script: &InstallScript,
        reports: &mut InstallReports,
    ) -> Result<(), MachineFailure> {
        let since = Instant::now();
        let begins = reports.begins("cluster-wait", None);
        let mut lines = vec![begins, ReportLine::Wait {}];
        loop {
            self.report(reporter, script, reports, &lines).await?;
            if self.creators.is_ready(self.machine) {
                return Ok(());
            }
            if since.elapsed() > self.plan.retry.patience + self.plan.duration {
                let why = "the machine that creates the cluster is not ready".to_owned();
                let path = "/v1/report/".to_owned();
                return Err(MachineFailure::NoAnswer { kind: RequestKind::Report, path, why });
            }
            sleep(Duration::from_secs(1)).await;
            lines = vec![ReportLine::Wait {}];
        }
    }

    async fn report(
        &self,
        reporter: &mut PatientClient<'a>,
        script: &InstallScript,
        reports: &InstallReports,
        lines: &[ReportLine],
    ) -> Result<(), MachineFailure> {
        self.send(RequestKind::Report, reporter, script, reports.body(lines)).await
    }

    async fn send(
        &self,
        kind: RequestKind,
        reporter: &mut PatientClient<'a>,
        script: &InstallScript,
        body: Vec<u8>,
    ) -> Result<(), MachineFailure> {
        let (status, _) = reporter.ask(kind, &ClientRequest::post(&script.report, body)).await?;
        if status.is_success() { Ok(()) } else { Err(refused(kind, &script.report, status)) }
    }

    /// The first start from the disk: the loader asks again and is sent there, and the node reports until it is ready.
    async fn start_node(
        &self,
        script: &InstallScript,
        reports: &InstallReports,
    ) -> Result<MachineOutcome, MachineFailure> {
        let mut loader = self.client();
        match self.boot_script(&mut loader).await? {
            BootScript::Disk(_) => {}
            other => {
                let what = format!("it is installed and has to start from its disk, and got {other:?}");
                return Err(MachineFailure::Wrong(what));
            }
        }
        drop(loader);
        let mut node = self.client();
        for stage in NODE_STAGES {
            let body = reports.body(&[install_reports::node(stage, false)]);
            self.send(RequestKind::NodeReport, &mut node, script, body).await?;
        }
        for line in [install_reports::node("ready", true), install_reports::idle()] {
            self.send(RequestKind::NodeReport, &mut node, script, reports.body(&[line])).await?;
        }
        self.creators.set(self.machine);
        Ok(MachineOutcome::Reached)
    }
}

/// The digest of a kernel's argument, `sha256:HEX`.
fn digest(text: &str) -> Option<Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}
