//! A real containerd, started for one import and stopped again.
//!
//! It runs with directories and a socket of its own, without CRI, without runtimes and with the one snapshotter
//! that its metadata store insists on, so it needs neither root nor mounts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use installer::failure::{Class, Failure};
use installer::files::read_at_most;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::image::StoredImage;
use super::metadata::NAMESPACE;
use super::store::Store;

/// The largest metadata database that is read; one image takes some kilobytes.
const MAX_DATABASE: u64 = 256 << 20;
/// The longest path of a socket (`sun_path` of unix(7), less the final zero).
const MAX_SOCKET_PATH: usize = 107;
/// How long one look at a process that has not ended is worth.
const POLL: Duration = Duration::from_millis(10);

/// Everything that an import does not need, and that would want privileges or touch the machine.
const CONFIG: &str = r#"version = 2
required_plugins = ["io.containerd.metadata.v1.bolt"]
disabled_plugins = [
  "io.containerd.differ.v1.walking",
  "io.containerd.grpc.v1.cri",
  "io.containerd.grpc.v1.diff",
  "io.containerd.grpc.v1.tasks",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.monitor.v1.cgroups",
  "io.containerd.runtime.v1.linux",
  "io.containerd.runtime.v2.task",
  "io.containerd.service.v1.diff-service",
  "io.containerd.service.v1.tasks-service",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.overlayfs",
  "io.containerd.snapshotter.v1.zfs",
]
"#;

/// Lets a containerd import images. The seam between the database's preparation and the program.
pub trait Importer {
    /// Imports `images` from the finished `store` into an empty containerd, and returns the metadata database
    /// that it leaves.
    fn import(&self, store: &Store, images: &[StoredImage]) -> Result<Vec<u8>>;
}

/// Where containerd is and how to start it.
#[derive(Clone, Debug)]
pub struct Containerd {
    /// Words in front of every command: none for root or inside a user namespace; or for instance
    /// `unshare --user --map-root-user --mount`, followed by `chroot DIR` for the containerd of another tree.
    /// The last of them must become the program (exec), for it is stopped by a signal.
    pub prefix: Vec<OsString>,
    /// The program `containerd` as it is called behind the prefix.
    pub containerd: PathBuf,
    /// The program `ctr` as it is called behind the prefix.
    pub ctr: PathBuf,
    /// An existing directory for containerd's files. It takes a copy of all blobs during the import.
    pub scratch: PathBuf,
    /// The same directory as it is called behind the prefix. A socket is made below it: keep it short.
    pub scratch_inside: PathBuf,
    /// Each of start, import and stop must end within this time.
    pub limit: Duration,
}

impl Containerd {
    /// The host's containerd, from `PATH`, with files below `scratch`. Runs in a user namespace of its own
    /// unless this process is root.
    #[must_use]
    pub fn of_host(scratch: &Path) -> Self {
        let namespace = ["unshare", "--user", "--map-root-user", "--mount"].map(OsString::from);
        Self {
            prefix: if nix::unistd::geteuid().is_root() { Vec::new() } else { namespace.into() },
            containerd: "containerd".into(),
            ctr: "ctr".into(),
            scratch: scratch.into(),
            scratch_inside: scratch.into(),
            limit: Duration::from_secs(600),
        }
    }
}

impl Importer for Containerd {
    fn import(&self, store: &Store, images: &[StoredImage]) -> Result<Vec<u8>> {
        let making = || format!("making a directory for containerd in {}", self.scratch.display());
        let directory =
            tempfile::Builder::new().prefix("c").tempdir_in(&self.scratch).with_context(making)?;
        let inside = self.scratch_inside.join(directory.path().file_name().unwrap_or_default());
        let config = directory.path().join("config.toml");
        fs::write(&config, CONFIG).with_context(|| format!("writing {}", config.display()))?;
        let session = Session { host: self, outside: directory.path().to_owned(), inside };
        let mut daemon = session.start()?;
        session.wait_until_it_answers(&mut daemon)?;
        session.import(store, images)?;
        session.stop(daemon)?;
        let database = directory.path().join("root/io.containerd.metadata.v1.bolt/meta.db");
        let bytes = read_at_most(&database, MAX_DATABASE)?;
        let path = directory.path().to_owned();
        directory.close().with_context(|| format!("removing {}", path.display()))?;
        Ok(bytes)
    }
}

/// One containerd with its directory, under its two names.
struct Session<'a> {
    host: &'a Containerd,
    outside: PathBuf,
    inside: PathBuf,
}

impl Session<'_> {
    fn command(&self, program: &Path) -> Command {
        let mut words = self.host.prefix.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn ctr<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(&self.host.ctr);
        command.arg("--address").arg(self.inside.join("s")).args(args);
        command
    }

    /// Starts `command` with standard error in the file `log`, which the error of a failure quotes.
    fn spawn(&self, mut command: Command, log: &str) -> Result<Process> {
        let log = self.outside.join(log);
        let writing = || format!("writing {}", log.display());
        command.stderr(File::create(&log).with_context(writing)?);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| {
            Failure::new(Class::Hardware, format!("starting {name}"))
                .because(error)
                .hint("Install the packages containerd and util-linux.")
        })?;
        Ok(Process { child, log })
    }

    fn start(&self) -> Result<Process> {
        let socket = self.inside.join("s");
        let length = socket.as_os_str().as_bytes().len() + ".ttrpc".len();
        ensure!(
            length <= MAX_SOCKET_PATH,
            "the path {} is too long for containerd's socket; at most {MAX_SOCKET_PATH} bytes",
            socket.display()
        );
        let mut command = self.command(&self.host.containerd);
        for (flag, name) in
            [("--config", "config.toml"), ("--root", "root"), ("--state", "state"), ("--address", "s")]
        {
            command.arg(flag).arg(self.inside.join(name));
        }
        self.spawn(command, "containerd.log")
    }

    fn wait_until_it_answers(&self, daemon: &mut Process) -> Result<()> {
        let deadline = Instant::now() + self.host.limit;
        loop {
            let mut asked = self.spawn(self.ctr(["--connect-timeout", "1s", "version"]), "ctr.log")?;
            let answer = asked.wait(deadline)?;
            if answer.is_some_and(|status| status.success()) {
                return Ok(());
            }
            if let Some(status) = daemon.child.try_wait().context("waiting for containerd")? {
                return Err(daemon.failure(&format!("containerd ended with {status} before it answered")));
            }
            if Instant::now() >= deadline {
                return Err(
                    daemon.failure(&format!("containerd did not answer within {:?}", self.host.limit))
                );
            }
            thread::sleep(POLL);
        }
    }

    /// Feeds the store to `ctr images import` through a pipe, so no archive is written.
    fn import(&self, store: &Store, images: &[StoredImage]) -> Result<()> {
        let flags = ["--namespace", NAMESPACE, "images", "import", "--no-unpack", "--all-platforms", "-"];
        let mut command = self.ctr(flags);
        command.stdin(Stdio::piped());
        let mut process = self.spawn(command, "import.log")?;
        let pipe = process.child.stdin.take();
        let deadline = Instant::now() + self.host.limit;
        let (status, sent) = thread::scope(|scope| {
            let sender = scope.spawn(|| match pipe {
                Some(pipe) => store.write_archive(images, std::io::BufWriter::with_capacity(1 << 16, pipe)),
                None => Err(anyhow!("ctr has no standard input")),
            });
            let status = process.wait(deadline);
            if !matches!(status, Ok(Some(_))) {
                process.end();
            }
            (status, sender.join().unwrap_or_else(|_| Err(anyhow!("sending the images to containerd"))))
        });
        match status? {
            Some(status) if status.success() => sent,
            Some(status) => Err(process.failure(&format!("importing the images into containerd: {status}"))),
            None => {
                Err(process.failure(&format!("importing the images took more than {:?}", self.host.limit)))
            }
        }
    }

    /// Lets containerd close its database.
    fn stop(&self, mut daemon: Process) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(daemon.child.id())?);
        kill(pid, Signal::SIGTERM).context("stopping containerd")?;
        match daemon.wait(Instant::now() + self.host.limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(daemon.failure(&format!("containerd ended with {status}"))),
            None => Err(daemon.failure(&format!("containerd did not stop within {:?}", self.host.limit))),
        }
    }
}

/// A child that does not outlive its handle.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Waits for the end; `None` when `deadline` comes first.
    fn wait(&mut self, deadline: Instant) -> Result<Option<ExitStatus>> {
        loop {
            let status = self.child.try_wait().context("waiting for a program")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }

    /// `what` went wrong; the end of the log says why.
    fn failure(&self, what: &str) -> anyhow::Error {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = log.get(log.len().saturating_sub(2048)..).unwrap_or_default();
        let tail = String::from_utf8_lossy(tail).trim().to_owned();
        let said = if tail.is_empty() { "it said nothing".to_owned() } else { tail };
        Failure::new(Class::Unexpected, what).because(anyhow!(said)).into()
    }

    fn end(&mut self) {
        // Both fail only for a process that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}
