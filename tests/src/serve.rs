//! `iso-builder serve` as a process that a test starts, kills and starts again.

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::deadline::Deadline;
use crate::paths;
use crate::programs::run_with_input;
use crate::segment::Segment;

/// From the start of the server to its first answer.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Printed once the server listens.
const SERVING: &str = "Machines boot from ";

/// A server that can be stopped and restarted. It ends when dropped.
#[derive(Debug)]
pub struct Server {
    words: Vec<String>,
    listen: SocketAddr,
    state: PathBuf,
    log: PathBuf,
    running: Option<Child>,
}

impl Server {
    /// Serves `medium` and the configurations in `nodes` to machines of QEMU's user network, keeps its state in
    /// `state`, and writes its output to `log`.
    pub fn start(medium: &Path, nodes: &Path, state: &Path, log: &Path) -> Result<Self> {
        // A port that is free now; the server has to have the same one after each start.
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        // Machines reach it through QEMU's network, by an address that this host does not have.
        let base = format!("http://10.0.2.2:{}", listen.port());
        Self::begin(Vec::new(), listen, &["--base-url", &base], "--configs", [medium, nodes, state, log])
    }

    /// [`Server::start`] with the machines of a cluster file.
    pub fn of_cluster(medium: &Path, file: &Path, state: &Path, log: &Path) -> Result<Self> {
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let base = format!("http://10.0.2.2:{}", listen.port());
        Self::begin(Vec::new(), listen, &["--base-url", &base], "--cluster", [medium, file, state, log])
    }

    /// [`Server::start`] on `segment`, as its only DHCP server, with the loaders in a directory or those of this host.
    pub fn on_segment(
        segment: &Segment,
        loaders: Option<&Path>,
        [medium, nodes, state, log]: [&Path; 4],
    ) -> Result<Self> {
        let listen = SocketAddr::new(IpAddr::V4(Segment::SERVER), 8080);
        let mut further =
            vec!["--dnsmasq", "full", "--interface", Segment::TAP, "--range", "192.0.2.100,192.0.2.199"];
        if let Some(directory) = loaders {
            further.extend(["--loaders", directory.to_str().context("a path that is not UTF-8")?]);
        }
        Self::begin(segment.enter(), listen, &further, "--configs", [medium, nodes, state, log])
    }

    fn begin(
        enter: Vec<String>,
        listen: SocketAddr,
        further: &[&str],
        source: &str,
        [medium, configurations, state, log]: [&Path; 4],
    ) -> Result<Self> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
        let mut words = enter;
        words.extend([text(&paths::iso_builder()?)?, "serve".into(), text(medium)?]);
        words.extend(["--progress".into(), "plain".into(), "--listen".into(), listen.to_string()]);
        words.extend([source.into(), text(configurations)?, "--state".into(), text(state)?]);
        words.extend(["--keys".into(), text(&paths::keys())?]);
        words.extend(further.iter().map(|&word| word.to_owned()));
        let (state, log) = (state.to_owned(), log.to_owned());
        let mut server = Self { words, listen, state, log, running: None };
        server.again()?;
        Ok(server)
    }

    /// The URL of the script that iPXE in a virtual machine of QEMU's user network starts from.
    #[must_use]
    pub fn script(&self) -> String {
        format!("http://10.0.2.2:{}/boot.ipxe", self.listen.port())
    }

    /// Starts a server that was killed.
    pub fn again(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let before = self.said()?.matches(SERVING).count();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.running = Some(command.spawn().context("starting iso-builder serve")?);
        Deadline::after(START_LIMIT).poll("the server's first words", || {
            if let Some(child) = &mut self.running
                && let Some(status) = child.try_wait()?
            {
                bail!("the server ended with {status}:\n{}", fs::read_to_string(&self.log)?);
            }
            Ok((self.said()?.matches(SERVING).count() > before).then_some(()))
        })
    }

    /// The answer to a request of a machine, which the server has to grant; `body` is posted.
    pub fn ask(&self, path: &str, body: Option<&str>) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail"]);
        if body.is_some() {
            curl.args(["--data-binary", "@-"]);
        }
        curl.arg(format!("http://{}{path}", self.listen));
        run_with_input(&mut curl, body.unwrap_or_default().as_bytes(), START_LIMIT)?
            .success("asking the server")
    }

    /// The fleet as JSON, as an operator on this host gets it.
    pub fn fleet(&self) -> Result<Value> {
        let address =
            fs::read_to_string(self.state.join("fleet-url")).context("reading the fleet's address")?;
        let (_, token) = address.trim().split_once("token=").context("an address without a token")?;
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--header", "@-"]);
        curl.arg(format!("http://{}/v1/fleet", self.listen));
        let header = format!("Authorization: Bearer {token}\n");
        let answer =
            run_with_input(&mut curl, header.as_bytes(), START_LIMIT)?.success("asking for the fleet")?;
        serde_json::from_str(&answer).context("reading the fleet")
    }

    /// Kills the server, as a power cut would.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.running.take() {
            child.kill().context("killing the server")?;
            child.wait().context("waiting for the server's end")?;
        }
        Ok(())
    }

    /// The output so far.
    pub fn said(&self) -> Result<String> {
        fs::read_to_string(&self.log).context("reading what the server said")
    }

    /// Waits until the output contains `words`.
    pub fn wait_for(&self, words: &str, limit: Duration) -> Result<()> {
        Deadline::after(limit)
            .poll(&format!("{words:?} from the server"), || Ok(self.said()?.contains(words).then_some(())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test has reported its own error.
        let _ = self.kill();
    }
}
