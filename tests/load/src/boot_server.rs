//! A process of `iso-builder serve` for tests and measurements, which can be killed and started again.

use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::fleet_check;

/// A server reads and checks all configurations before it listens.
const START: Duration = Duration::from_secs(300);

/// A server on a port of its own, with a directory of its own. It ends when this is dropped.
#[derive(Debug)]
pub struct BootServer {
    program: PathBuf,
    words: Vec<String>,
    /// On the loopback interface.
    pub address: SocketAddr,
    directory: PathBuf,
    running: Option<Child>,
}

/// What a server serves, and how.
#[derive(Clone, Copy, Debug)]
pub struct BootServerPlan<'a> {
    /// The program `iso-builder`.
    pub program: &'a Path,
    pub medium: &'a Path,
    pub nodes: &'a Path,
    /// A database that servers share; none for a file of its own.
    pub database: Option<&'a str>,
    /// More arguments of `iso-builder serve`.
    pub further: &'a [&'a str],
}

impl BootServer {
    /// Starts a server with its state and its log in `directory`, which is made.
    pub fn start(directory: &Path, plan: BootServerPlan<'_>) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        let address = free_address()?;
        let state = directory.join("state");
        let mut words: Vec<String> =
            ["serve", "--allow-unsigned", "--progress", "plain"].map(str::to_owned).into();
        let mut add = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        add("--configs", &text(plan.nodes));
        // No loaders are looked for.
        add("--loaders", &text(plan.nodes));
        add("--listen", &address.to_string());
        match plan.database {
            Some(database) => {
                add("--state", database);
                add("--state-directory", &text(&state));
            }
            None => add("--state", &text(&state)),
        }
        words.extend(plan.further.iter().map(|&word| word.to_owned()));
        words.push(text(plan.medium));
        let program = plan.program.to_owned();
        let mut server = Self { program, words, address, directory: directory.to_owned(), running: None };
        server.start_again()?;
        Ok(server)
    }

    /// Starts the server that was killed.
    pub fn start_again(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join("log"));
        let mut command = Command::new(&self.program);
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.context("opening the log of a server")?);
        let child = self.running.insert(command.spawn().context("starting iso-builder serve")?);
        let since = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = child.try_wait()?;
            if ended.is_some() || since.elapsed() > START {
                bail!("the server does not start: {}", self.log()?);
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the server without any preparation of its own (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut running) = self.running.take() {
            running.kill().context("killing a server")?;
            running.wait().context("waiting for a server that was killed")?;
        }
        Ok(())
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The number of its process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Child::id)
    }

    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.directory.join("log")).context("reading the log of a server")
    }

    /// The token of the fleet page.
    pub fn token(&self) -> Result<String> {
        let file = self.directory.join("state/fleet-url");
        let url = fs::read_to_string(file).context("reading the address of the fleet page")?;
        fleet_check::token(&url).map(str::to_owned)
    }
}

impl Drop for BootServer {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let pid = Pid::from_raw(i32::try_from(running.id()).unwrap_or(i32::MAX));
            let _ = kill(pid, Signal::SIGTERM);
            let _ = running.wait();
        }
    }
}

/// An address on the loopback interface at which nothing listens.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
    listener.local_addr().context("finding a free port")
}
