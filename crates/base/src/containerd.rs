//! A real containerd: one that is started for one piece of work and stopped again, or the one that a node runs.
//!
//! `iso-builder` lets one write the metadata of the image store; the installer lets one unpack images on the new
//! node's file system. Each passes its own configuration; this module starts, waits for, calls and stops the daemon.
//! Directories and socket are private, so a containerd that runs on the machine is not touched. That one is called
//! through a [`ContainerdClient`] of its socket.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::STDERR_TAIL;
use crate::failure::{Class, Failure};
use crate::files::read_at_most;

mod version;

pub use version::{ContainerdVersion, ParseVersionError};

/// The blobs of the content store, below containerd's root directory.
pub const BLOBS: &str = "io.containerd.content.v1.content/blobs/sha256";
/// The metadata database, below containerd's root directory.
pub const METADATA: &str = "io.containerd.metadata.v1.bolt/meta.db";
/// containerd's namespace of Kubernetes.
pub const NAMESPACE: &str = "k8s.io";
/// The label of images that a kubelet does not remove when its disk is full (containerd's CRI plug-in, from 1.7.3 on):
/// a node without a registry could not pull them again.
pub const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// The name of the socket of a containerd that is started here.
const SOCKET: &str = "s";
/// The longest path of a socket (`sun_path` of unix(7), less the final zero).
const MAX_SOCKET_PATH: usize = 107;
/// The interval between two checks of whether a process has ended.
const POLL: Duration = Duration::from_millis(10);
/// The output limit of `ctr`, in bytes: a list of thousands of images has some hundred kilobytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// How the programs of a containerd are called.
#[derive(Clone, Debug)]
pub struct ContainerdPrograms {
    /// The words before every command: none for root or inside a user namespace, or for example
    /// `unshare --user --map-root-user --mount`, followed by `chroot DIR` for the containerd of another tree.
    /// The last must exec the program, because the program is stopped by a signal.
    pub prefix: Vec<OsString>,
    /// `containerd`, as named after the prefix.
    pub containerd: PathBuf,
    /// `ctr`, as named after the prefix.
    pub ctr: PathBuf,
    /// The time limit of the start, of each call of `ctr`, and of the stop.
    pub limit: Duration,
}

#[derive(Clone, Debug)]
pub struct ContainerdPaths {
    /// An existing directory for configuration, socket, state and logs.
    pub work: PathBuf,
    /// The same directory as seen after the prefix. It holds a socket, whose path must be short.
    pub work_inside: PathBuf,
    /// The directory of content, metadata and snapshots, as seen after the prefix.
    pub root_inside: PathBuf,
}

impl ContainerdPaths {
    /// Everything in `work`, which has the same path after the prefix; the root is `work/root`.
    #[must_use]
    pub fn within(work: &Path) -> Self {
        Self { work: work.into(), work_inside: work.into(), root_inside: work.join("root") }
    }
}

/// Writes the standard input of `ctr`; the pipe is closed when it returns.
pub type StdinWriter<'f> = dyn FnOnce(ChildStdin) -> Result<()> + Send + 'f;

/// Calls `ctr` for a running containerd; calls may be concurrent.
#[derive(Debug)]
pub struct ContainerdClient {
    /// The command, including `ctr`.
    command: Vec<OsString>,
    /// The path of the socket as that command sees it.
    socket: PathBuf,
    /// The directory of the programs' logs.
    work: PathBuf,
    limit: Duration,
    /// The number of calls so far: concurrent calls use files of their own.
    calls: AtomicU64,
}

impl ContainerdClient {
    /// A client of the containerd behind `socket`. The output of `ctr` goes into files in the existing directory `work`.
    /// `limit` is the time limit of each call.
    #[must_use]
    pub fn new(ctr: &Path, socket: &Path, work: &Path, limit: Duration) -> Self {
        Self {
            command: vec![ctr.into()],
            socket: socket.into(),
            work: work.into(),
            limit,
            calls: AtomicU64::new(0),
        }
    }

    fn of(programs: &ContainerdPrograms, places: &ContainerdPaths) -> Self {
        let socket = places.work_inside.join(SOCKET);
        let command = programs.prefix.iter().cloned().chain([programs.ctr.clone().into()]).collect();
        Self { command, ..Self::new(&programs.ctr, &socket, &places.work, programs.limit) }
    }

    pub fn version(&self) -> Result<ContainerdVersion> {
        let mut command = command(&self.command);
        command.arg("--version");
        let printed = self.call(command, None, &mut || Ok(()))?;
        ContainerdVersion::from_program(&String::from_utf8_lossy(&printed))
            .context("asking ctr for its version")
    }

    /// Runs `ctr` with `args` and returns its output.
    pub fn ctr<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Vec<u8>> {
        self.ctr_while(args, None, &mut || Ok(()))
    }

    /// As [`ContainerdClient::ctr`], with `input` as standard input, which `ctr` can seek.
    pub fn ctr_reading<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: File,
    ) -> Result<Vec<u8>> {
        let mut command = self.command(args);
        command.stdin(input);
        self.call(command, None, &mut || Ok(()))
    }

    /// As [`ContainerdClient::ctr`]; `feed` writes its standard input, and its failure is that of the call. `go_on` is called
    /// many times a second, and its error ends the call.
    pub fn ctr_while<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        feed: Option<Box<StdinWriter<'_>>>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut command = self.command(args);
        if feed.is_some() {
            command.stdin(Stdio::piped());
        }
        self.call(command, feed, go_on)
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = command(&self.command);
        command.arg("--address").arg(&self.socket).args(args);
        command
    }

    fn call(
        &self,
        mut command: Command,
        feed: Option<Box<StdinWriter<'_>>>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let output = self.work.join(format!("ctr-{call}.out"));
        let writing = || format!("writing {}", output.display());
        command.stdout(File::create(&output).with_context(writing)?);
        let what = shown(&command);
        let mut process = spawn(command, self.work.join(format!("ctr-{call}.log")))?;
        let pipe = process.child.stdin.take();
        let deadline = Instant::now() + self.limit;
        let (status, fed) = thread::scope(|scope| {
            let feeder = feed.zip(pipe).map(|(feed, pipe)| scope.spawn(move || feed(pipe)));
            let status = process.wait(deadline, go_on);
            if !matches!(status, Ok(Some(_))) {
                process.end();
            }
            let fed = feeder.map_or(Ok(()), |feeder| {
                feeder.join().unwrap_or_else(|_| Err(anyhow!("internal error while writing to {what}")))
            });
            (status, fed)
        });
        match (status?, fed) {
            (Some(status), Ok(())) if status.success() => {}
            // A broken pipe follows from the end of `ctr` and does not say why it ended.
            (Some(status), fed) if fed.is_ok() || fed.as_ref().is_err_and(is_broken_pipe) => {
                return Err(process.failure(&format!("{what} ended with {status}")));
            }
            (Some(_), fed) => fed?,
            (None, _) => return Err(process.failure(&format!("{what} timed out after {:?}", self.limit))),
        }
        read_at_most(&output, MAX_OUTPUT)
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// A running containerd. Dropped without [`ContainerdDaemon::stop`], it is killed, and its database may need repair.
#[derive(Debug)]
pub struct ContainerdDaemon<'a> {
    programs: &'a ContainerdPrograms,
    process: Process,
    client: ContainerdClient,
}

impl<'a> ContainerdDaemon<'a> {
    /// Starts a containerd with the configuration `config` (TOML, version 2) and waits until it answers.
    pub fn start(programs: &'a ContainerdPrograms, places: ContainerdPaths, config: &str) -> Result<Self> {
        let file = places.work.join("config.toml");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let process = start(programs, &places)?;
        let mut daemon = Self { programs, process, client: ContainerdClient::of(programs, &places) };
        daemon.wait_until_it_answers()?;
        Ok(daemon)
    }

    #[must_use]
    pub fn client(&self) -> &ContainerdClient {
        &self.client
    }

    /// Stops containerd in order, so that it closes its database.
    pub fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.process.child.id())?);
        kill(pid, Signal::SIGTERM).context("stopping containerd")?;
        let limit = self.programs.limit;
        match self.process.wait(Instant::now() + limit, &mut || Ok(()))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.process.failure(&format!("containerd ended with {status}"))),
            None => Err(self.process.failure(&format!("containerd did not stop within {limit:?}"))),
        }
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let limit = self.programs.limit;
        let deadline = Instant::now() + limit;
        loop {
            let command = self.client.command(["--connect-timeout", "1s", "version"]);
            let mut asked = spawn(command, self.client.work.join("ctr.log"))?;
            let answer = asked.wait(deadline, &mut || Ok(()))?;
            if answer.is_some_and(|status| status.success()) {
                return Ok(());
            }
            if let Some(status) = self.process.child.try_wait().context("waiting for containerd")? {
                let what = format!("containerd ended with {status} before it answered");
                return Err(self.process.failure(&what));
            }
            if Instant::now() >= deadline {
                return Err(self.process.failure(&format!("containerd did not answer within {limit:?}")));
            }
            thread::sleep(POLL);
        }
    }
}

/// The command of these words in the locale `C.UTF-8`, without input and output.
fn command(words: &[OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
    command.args(words).env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts `command` with standard error in the file `log`, which error messages quote.
fn spawn(mut command: Command, log: PathBuf) -> Result<Process> {
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

fn start(programs: &ContainerdPrograms, places: &ContainerdPaths) -> Result<Process> {
    let inside = &places.work_inside;
    let socket = inside.join(SOCKET);
    let length = socket.as_os_str().as_bytes().len() + ".ttrpc".len();
    ensure!(
        length <= MAX_SOCKET_PATH,
        "the path {} is too long for containerd's socket; at most {MAX_SOCKET_PATH} bytes",
        socket.display()
    );
    let words: Vec<_> = programs.prefix.iter().cloned().chain([programs.containerd.clone().into()]).collect();
    let mut command = command(&words);
    command.arg("--config").arg(inside.join("config.toml")).arg("--root").arg(&places.root_inside);
    command.arg("--state").arg(inside.join("state")).arg("--address").arg(socket);
    spawn(command, places.work.join("containerd.log"))
}

/// The subcommand of a call for messages, such as `ctr images import`, without flags.
fn shown(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let known = ["images", "snapshots", "content", "version", "namespaces", "leases", "plugins"];
    let begin = words.iter().position(|word| known.contains(&word.as_ref())).unwrap_or_default();
    let words: Vec<_> = words.iter().skip(begin).take(2).map(AsRef::as_ref).collect();
    format!("ctr {}", words.join(" "))
}

/// A child that does not outlive its handle.
#[derive(Debug)]
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Waits for the end; `None` if `deadline` passes first.
    fn wait(
        &mut self,
        deadline: Instant,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<ExitStatus>> {
        loop {
            let status = self.child.try_wait().context("waiting for a program")?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            go_on()?;
            thread::sleep(POLL);
        }
    }

    /// The failure `what`, with the end of the log as its cause.
    fn failure(&self, what: &str) -> anyhow::Error {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = log.get(log.len().saturating_sub(STDERR_TAIL)..).unwrap_or_default();
        let tail = String::from_utf8_lossy(tail).trim().to_owned();
        let said = if tail.is_empty() { "it printed no error".to_owned() } else { tail };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{class_of, render};
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    /// Programs that are shell scripts.
    struct Scripts(tempfile::TempDir);

    impl Scripts {
        fn new(containerd: &str, ctr: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            for (name, script) in [("containerd", containerd), ("ctr", ctr)] {
                let path = directory.path().join(name);
                fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            Self(directory)
        }

        fn programs(&self, limit: Duration) -> ContainerdPrograms {
            let program = |name: &str| self.0.path().join(name);
            // Through a shell: a script that was just written may still be open in another test's child.
            ContainerdPrograms {
                prefix: ["sh".into()].into(),
                containerd: program("containerd"),
                ctr: program("ctr"),
                limit,
            }
        }

        fn places(&self) -> ContainerdPaths {
            ContainerdPaths::within(self.0.path())
        }
    }

    const LONG: Duration = Duration::from_secs(20);
    const RUNS: &str = "trap 'exit 0' TERM; while :; do sleep 0.02; done";

    #[test]
    fn what_ctr_is_fed_and_what_it_prints_go_through() {
        let scripts = Scripts::new(RUNS, "case $* in *import*) cat;; esac");
        let programs = scripts.programs(LONG);
        let daemon = ContainerdDaemon::start(&programs, scripts.places(), "version = 2\n").unwrap();
        let feed: Box<StdinWriter<'_>> = Box::new(|mut pipe| Ok(pipe.write_all(b"archive")?));
        let output =
            daemon.client().ctr_while(["images", "import", "-"], Some(feed), &mut || Ok(())).unwrap();
        assert_eq!(output, b"archive");
        daemon.stop().unwrap();
        assert_eq!(fs::read(scripts.0.path().join("config.toml")).unwrap(), b"version = 2\n");
    }

    #[test]
    fn a_feed_that_fails_says_why_unless_only_the_pipe_is_broken() {
        let scripts = Scripts::new(
            RUNS,
            "case $* in *import*) cat >/dev/null; echo unexpected end >&2; exit 1;; \
             *ingest*) echo disk full >&2; exit 1;; esac",
        );
        let programs = scripts.programs(LONG);
        let daemon = ContainerdDaemon::start(&programs, scripts.places(), "").unwrap();
        let feed: Box<StdinWriter<'_>> = Box::new(|_| Err(Failure::new(Class::Network, "no answer").into()));
        let error = daemon.client().ctr_while(["images", "import"], Some(feed), &mut || Ok(())).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        let feed: Box<StdinWriter<'_>> =
            Box::new(|mut pipe| io::copy(&mut io::repeat(0), &mut pipe).map(drop).context("sending"));
        let error = daemon.client().ctr_while(["content", "ingest"], Some(feed), &mut || Ok(())).unwrap_err();
        assert!(render(&error).contains("disk full"), "{}", render(&error));
        daemon.stop().unwrap();
    }

    #[test]
    fn calls_side_by_side_keep_their_files_apart() {
        let scripts = Scripts::new(RUNS, "case $* in *content*) sleep 0.2; cat;; esac");
        let programs = scripts.programs(LONG);
        let daemon = ContainerdDaemon::start(&programs, scripts.places(), "").unwrap();
        thread::scope(|scope| {
            for text in ["one", "another"] {
                let daemon = &daemon;
                let path = scripts.0.path().join(text);
                fs::write(&path, text).unwrap();
                scope.spawn(move || {
                    let printed =
                        daemon.client().ctr_reading(["content", "ingest"], File::open(path).unwrap());
                    assert_eq!(printed.unwrap(), text.as_bytes());
                });
            }
        });
        daemon.stop().unwrap();
    }

    #[test]
    fn a_failure_names_the_call_and_quotes_what_it_said() {
        let scripts = Scripts::new(RUNS, "case $* in *images*) echo no such thing >&2; exit 3;; esac");
        let programs = scripts.programs(LONG);
        let daemon = ContainerdDaemon::start(&programs, scripts.places(), "").unwrap();
        let text = render(&daemon.client().ctr(["--namespace", "k8s.io", "images", "ls"]).unwrap_err());
        assert!(text.contains("ctr images ls ended with exit status: 3"), "{text}");
        assert!(text.contains("no such thing"), "{text}");
    }

    #[test]
    fn a_daemon_that_ends_early_or_never_answers_is_told_with_its_last_words() {
        for (script, limit, told) in [
            ("echo no room >&2; exit 1", LONG, "before it answered"),
            (RUNS, Duration::from_millis(50), "did not answer within"),
        ] {
            let scripts = Scripts::new(script, "exit 1");
            let programs = scripts.programs(limit);
            let text = render(&ContainerdDaemon::start(&programs, scripts.places(), "").unwrap_err());
            assert!(text.contains(told), "{text}");
        }
    }

    #[test]
    fn a_call_ends_when_its_caller_says_so() {
        let scripts = Scripts::new(RUNS, "case $* in *unpack*) exec sleep 60;; esac");
        let programs = scripts.programs(LONG);
        let daemon = ContainerdDaemon::start(&programs, scripts.places(), "").unwrap();
        let mut stop = || Err(Failure::new(Class::Cancelled, "stopped by a signal").into());
        let error = daemon.client().ctr_while(["snapshots", "unpack"], None, &mut stop).unwrap_err();
        assert_eq!(class_of(&error), Class::Cancelled);
    }
}
