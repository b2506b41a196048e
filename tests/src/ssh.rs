//! Commands on a node over SSH, through the system's own `ssh`.
//!
//! One connection is kept open and shared: under emulation a key exchange costs seconds.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::artifacts::{Artifacts, append};
use crate::deadline::{Deadline, MACHINE_INTERVAL};
use crate::identity::Identity;
use crate::programs::{self, ProgramOutput};

const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at the connection of a forwarded port.
const FORWARD_INTERVAL: Duration = Duration::from_millis(200);

/// A connection as a user of a node.
#[derive(Debug)]
pub struct Ssh {
    port: u16,
    user: String,
    key: PathBuf,
    log: PathBuf,
    /// Holds the socket of the shared connection.
    control: tempfile::TempDir,
}

impl Ssh {
    /// Waits until `user` can run a command through the port `port` of this host.
    pub fn connect(
        port: u16,
        user: &str,
        identity: &Identity,
        artifacts: &Artifacts,
        limit: Duration,
    ) -> Result<Self> {
        let ssh = Self {
            port,
            user: user.to_owned(),
            key: identity.private_key(),
            log: artifacts.path("ssh.log"),
            control: tempfile::Builder::new().prefix("nqrust-ssh").tempdir()?,
        };
        let mut last = String::new();
        let answered =
            Deadline::after(limit).every(MACHINE_INTERVAL).poll("an answer of the node over SSH", || {
                let ended = ssh.attempt("true", Duration::from_secs(60))?;
                last.clone_from(&ended.stderr);
                Ok((ended.code == 0).then_some(()))
            });
        answered.with_context(|| format!("the last attempt said: {}", last.trim()))?;
        Ok(ssh)
    }

    /// Runs a shell command and returns its exit code and output.
    pub fn attempt(&self, command: &str, limit: Duration) -> Result<ProgramOutput> {
        let mut ssh = self.program();
        ssh.arg("--").arg(command);
        let ended = programs::run(&mut ssh, limit).with_context(|| format!("running `{command}`"))?;
        append(&self.log, &format!("$ {command}\n{}[exit code {}]\n", ended.said(), ended.code))?;
        Ok(ended)
    }

    /// Trimmed standard output of a command that has to succeed.
    pub fn run(&self, command: &str) -> Result<String> {
        let output = self.attempt(command, COMMAND_LIMIT)?.success(&format!("`{command}`"))?;
        Ok(output.trim().to_owned())
    }

    /// Replaces a file of root's. The content goes through standard input and into no log.
    pub fn write_as_root(&self, path: &str, content: &[u8]) -> Result<()> {
        let mut ssh = self.program();
        ssh.arg("--").arg(format!("sudo -n tee {path} > /dev/null"));
        let ended = programs::run_with_input(&mut ssh, content, COMMAND_LIMIT)?;
        append(&self.log, &format!("writing {path}: exit code {}\n", ended.code))?;
        ended.success(&format!("writing {path}")).map(drop)
    }

    /// The content of a file of root's, which goes into no log.
    pub fn read_as_root(&self, path: &str) -> Result<String> {
        let mut ssh = self.program();
        ssh.arg("--").arg(format!("sudo -n cat {path}"));
        let ended = programs::run(&mut ssh, COMMAND_LIMIT)?;
        append(&self.log, &format!("reading {path}: exit code {}\n", ended.code))?;
        ended.success(&format!("reading {path}"))
    }

    /// Forwards a port of this host to `HOST:PORT` as the node reaches it.
    pub fn forward(&self, to: &str) -> Result<ForwardedPort> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut ssh = self.connection();
        ssh.args(["-N", "-o", "ExitOnForwardFailure=yes", "-L", &format!("127.0.0.1:{port}:{to}")]);
        ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let forwarded = ForwardedPort::open(port, ssh);
        Deadline::after(COMMAND_LIMIT)
            .every(MACHINE_INTERVAL)
            .poll(&format!("a port that is forwarded to {to}"), || {
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop))
            })?;
        Ok(forwarded)
    }

    pub fn succeeds(&self, command: &str) -> Result<bool> {
        Ok(self.attempt(command, COMMAND_LIMIT)?.code == 0)
    }

    /// Runs a shell command as `user` with a password, which goes through the environment of `ssh`, and into no log.
    pub fn by_password(port: u16, user: &str, password: &str, command: &str) -> Result<ProgramOutput> {
        let directory = tempfile::tempdir()?;
        let ask = directory.path().join("ask");
        fs::write(&ask, "#!/bin/sh\nprintf '%s\\n' \"$E2E_PASSWORD\"\n")?;
        fs::set_permissions(&ask, fs::Permissions::from_mode(0o700))?;
        let options = [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "ConnectTimeout=60",
            "PreferredAuthentications=password",
            "NumberOfPasswordPrompts=1",
        ];
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-p", &port.to_string()]);
        ssh.args(options.iter().flat_map(|option| ["-o", option]));
        ssh.arg(format!("{user}@127.0.0.1")).arg("--").arg(command);
        ssh.env("SSH_ASKPASS", &ask).env("SSH_ASKPASS_REQUIRE", "force").env("E2E_PASSWORD", password);
        programs::run(&mut ssh, COMMAND_LIMIT).with_context(|| format!("running `{command}` as {user}"))
    }

    /// A command by the shared connection.
    fn program(&self) -> Command {
        let mut command = self.connection();
        command.args(["-o", "ControlMaster=auto", "-o", "ControlPersist=300"]);
        command.arg("-o").arg(format!("ControlPath={}", self.control.path().join("master").display()));
        command
    }

    fn connection(&self) -> Command {
        let options = [
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "LogLevel=ERROR",
            "ConnectTimeout=20",
            "ServerAliveInterval=15",
            "ServerAliveCountMax=4",
        ];
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-p", &self.port.to_string(), "-i"]).arg(&self.key);
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command.arg(format!("{}@127.0.0.1", self.user));
        command
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // Without this the master would stay until ControlPersist ends; if there is none, nothing is lost.
        let mut command = self.program();
        command.args(["-O", "exit"]);
        let _ = programs::run(&mut command, Duration::from_secs(10));
    }
}

/// A port of this host, on 127.0.0.1, that is forwarded for as long as this exists. Its connection is opened again when it ends, as it
/// does when the node has not answered for a minute.
#[derive(Debug)]
pub struct ForwardedPort {
    port: u16,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ForwardedPort {
    fn open(port: u16, mut ssh: Command) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let work = move || {
            while !seen.load(Ordering::Relaxed) {
                let Ok(mut connection) = ssh.spawn() else { return };
                while matches!(connection.try_wait(), Ok(None)) {
                    if seen.load(Ordering::Relaxed) {
                        let _ = connection.kill();
                    }
                    thread::sleep(FORWARD_INTERVAL);
                }
                thread::sleep(FORWARD_INTERVAL);
            }
        };
        Self { port, over, thread: Some(thread::spawn(work)) }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for ForwardedPort {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
