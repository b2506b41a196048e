//! `iso-builder serve` as a process that a test starts, kills and starts again.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::deadline::Deadline;
use crate::paths;

/// From its start to its first answer.
const START: Duration = Duration::from_secs(60);

/// A server, which may be running. It ends when dropped.
#[derive(Debug)]
pub struct Server {
    medium: PathBuf,
    nodes: PathBuf,
    state: PathBuf,
    port: u16,
    log: PathBuf,
    running: Option<Child>,
}

impl Server {
    /// Serves `medium` and the configurations in `nodes`, keeps its state in `state`, and says what it says into `log`.
    pub fn start(medium: &Path, nodes: &Path, state: &Path, log: &Path) -> Result<Self> {
        // A port that is free now; the server has to have the same one each time.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let [medium, nodes, state, log] = [medium, nodes, state, log].map(Path::to_owned);
        let mut server = Self { medium, nodes, state, port, log, running: None };
        server.again()?;
        Ok(server)
    }

    /// The URL of the script that iPXE in a virtual machine begins with.
    #[must_use]
    pub fn script(&self) -> String {
        format!("http://10.0.2.2:{}/boot.ipxe", self.port)
    }

    /// Starts a server that was killed.
    pub fn again(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(paths::iso_builder()?);
        command.arg("serve").arg(&self.medium).args(["--progress", "plain", "--listen"]);
        command.arg(format!("127.0.0.1:{}", self.port));
        command.arg("--nodes").arg(&self.nodes).arg("--state").arg(&self.state);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.running = Some(command.spawn().context("starting iso-builder serve")?);
        Deadline::after(START).poll("the server's first answer", || {
            if let Some(child) = &mut self.running
                && let Some(status) = child.try_wait()?
            {
                bail!("the server ended with {status}:\n{}", fs::read_to_string(&self.log)?);
            }
            Ok(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok().map(drop))
        })
    }

    /// Kills the server, as a power cut would.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.running.take() {
            child.kill().context("killing the server")?;
            child.wait().context("waiting for the server's end")?;
        }
        Ok(())
    }

    /// What it has said so far.
    pub fn said(&self) -> Result<String> {
        fs::read_to_string(&self.log).context("reading what the server said")
    }

    /// Waits until it has said `words`.
    pub fn wait_for(&self, words: &str, limit: Duration) -> Result<()> {
        Deadline::after(limit)
            .poll(&format!("{words:?} from the server"), || Ok(self.said()?.contains(words).then_some(())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed says so itself.
        let _ = self.kill();
    }
}
