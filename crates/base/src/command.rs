//! Running other programs, behind a seam that tests replace.
//!
//! An [`Invocation`] says everything about one run; a [`Runner`] performs it. Standard input is empty unless
//! given, standard output is captured, standard error is captured and its end goes into the error. The locale
//! is always `C.UTF-8`. A run has a time limit; past it the program is killed.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Class, Failure};
use crate::notes;

/// How much of standard error an error message carries, in bytes.
pub(crate) const STDERR_TAIL: usize = 2048;

#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program, looked up in `PATH`.
    pub program: OsString,
    /// Its arguments. Never secrets: every user of the machine can read them.
    pub args: Vec<OsString>,
    /// Environment variables on top of this process's own.
    pub env: Vec<(OsString, OsString)>,
    /// Bytes for standard input.
    pub stdin: Vec<u8>,
    /// The working directory, if not this process's own.
    pub directory: Option<PathBuf>,
    /// After this long the program is killed.
    pub limit: Duration,
    /// More standard output than this, in bytes, is an error.
    pub output: usize,
}

impl Invocation {
    /// A run of `program` with no arguments and a limit of two minutes.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            stdin: Vec::new(),
            directory: None,
            limit: Duration::from_secs(120),
            output: usize::MAX,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Disables the caller's proxies, for programs that talk to the node and its cluster only. curl and Go programs take an
    /// empty value for no proxy.
    #[must_use]
    pub fn without_proxies(self) -> Self {
        let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
        names.into_iter().fold(self, |invocation, name| invocation.env(name, ""))
    }

    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets how much standard output there may be, in bytes.
    #[must_use]
    pub fn output(mut self, most: usize) -> Self {
        self.output = most;
        self
    }

    /// The command line as a person would read it, for messages and for tests.
    #[must_use]
    pub fn display(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }
}

pub trait Runner: Send + Sync {
    /// Runs to the end and returns standard output. An exit status other than 0, a signal, a missing program
    /// and an exceeded limit are errors that carry the end of standard error.
    fn run(&self, invocation: &Invocation) -> anyhow::Result<Vec<u8>>;
}

/// Runs programs on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRunner;

impl Runner for SystemRunner {
    fn run(&self, invocation: &Invocation) -> anyhow::Result<Vec<u8>> {
        let name = invocation.program.to_string_lossy().into_owned();
        let mut command = Command::new(&invocation.program);
        command
            .args(&invocation.args)
            .env("LC_ALL", "C.UTF-8")
            .envs(invocation.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &invocation.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn().map_err(|error| missing(&invocation.program, error))?;
        let feeder = feed(child.stdin.take(), invocation.stdin.clone());
        let stdout = collect(child.stdout.take(), invocation.output);
        let stderr = drain(child.stderr.take(), STDERR_TAIL);
        let begun = Instant::now();
        let deadline = begun + invocation.limit;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if Instant::now() >= deadline {
                child.kill()?;
                child.wait()?;
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        notes::detail(&name, || {
            let ended = status.map_or("stopped".to_owned(), |status| status.to_string());
            format!("{}: {ended}, {:.1} s", invocation.display(), begun.elapsed().as_secs_f64())
        });
        let _ = feeder.join();
        let read = stdout
            .join()
            .map_err(|_| anyhow::anyhow!("internal error while reading the output of {name}"))?;
        let Some(stdout) = read else {
            let what = format!("{name} printed more than {} bytes", invocation.output);
            return Err(Failure::new(Class::Unexpected, what).into());
        };
        let stderr = String::from_utf8_lossy(&stderr.join().unwrap_or_default()).trim().to_owned();
        match status {
            Some(status) if status.success() => Ok(stdout),
            Some(status) => Err(Failure::new(class_by(&stderr), format!("{name} ended with {status}"))
                .because(anyhow::anyhow!(
                    "{}",
                    if stderr.is_empty() { "it printed no error" } else { &stderr }
                ))
                .into()),
            None => Err(Failure::new(
                Class::Unexpected,
                format!("{name} was stopped after {} seconds", invocation.limit.as_secs()),
            )
            .into()),
        }
    }
}

/// The class of a failed program by its standard error: a full disk is [`Class::DiskIo`], whatever the program did.
fn class_by(stderr: &str) -> Class {
    // strerror(3) of ENOSPC and EDQUOT in the C.UTF-8 locale, in which programs run.
    let full = ["No space left on device", "Disk quota exceeded"];
    if full.iter().any(|words| stderr.contains(words)) { Class::DiskIo } else { Class::Unexpected }
}

fn missing(program: &OsStr, error: std::io::Error) -> anyhow::Error {
    let name = program.to_string_lossy();
    let failure = Failure::new(Class::Hardware, format!("starting {name}")).because(error);
    failure.hint(format!("Install the package that provides {name}, or put it in PATH.")).into()
}

fn feed(pipe: Option<impl Write + Send + 'static>, bytes: Vec<u8>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        if let Some(mut pipe) = pipe {
            // A program that does not read its input closes the pipe; its exit status decides.
            let _ = pipe.write_all(&bytes);
        }
    })
}

/// Reads to the end; `None` if there are more than `most` bytes. The pipe is then closed, so that the program stops writing.
fn collect(pipe: Option<impl Read + Send + 'static>, most: usize) -> thread::JoinHandle<Option<Vec<u8>>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
            // After a failed read, the output so far is used.
            let _ = pipe.take(limit).read_to_end(&mut bytes);
        }
        (bytes.len() <= most).then_some(bytes)
    })
}

/// Reads to the end and keeps the last `keep` bytes.
fn drain(pipe: Option<impl Read + Send + 'static>, keep: usize) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = [0; 8192];
        if let Some(mut pipe) = pipe {
            while let Ok(count) = pipe.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                kept.extend_from_slice(&buffer[..count]);
                if kept.len() > keep.saturating_mul(2) {
                    kept.drain(..kept.len() - keep);
                }
            }
        }
        let surplus = kept.len().saturating_sub(keep);
        kept.split_off(surplus)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{class_of, render};

    fn sh(script: &str) -> Invocation {
        Invocation::new("sh").args(["-c", script])
    }

    #[test]
    fn a_program_that_finds_the_disk_full_fails_as_the_disk_does() {
        let told = |words: &str| {
            let script = format!("echo 'tar: x: Cannot write: {words}' >&2; exit 2");
            class_of(&SystemRunner.run(&sh(&script)).unwrap_err())
        };
        assert_eq!(told("No space left on device"), Class::DiskIo);
        assert_eq!(told("Disk quota exceeded"), Class::DiskIo);
        assert_eq!(told("Permission denied"), Class::Unexpected);
        let real = sh("cat /etc/passwd > /dev/full");
        assert_eq!(class_of(&SystemRunner.run(&real).unwrap_err()), Class::DiskIo);
    }

    #[test]
    fn returns_standard_output_and_feeds_standard_input() {
        let output = SystemRunner.run(&Invocation::new("cat").stdin("through")).unwrap();
        assert_eq!(output, b"through");
    }

    #[test]
    fn a_failure_carries_status_and_the_end_of_standard_error() {
        let error = SystemRunner.run(&sh("echo the reason >&2; exit 3")).unwrap_err();
        let text = render(&error);
        assert!(text.contains("exit status: 3") && text.contains("the reason"), "{text}");
    }

    #[test]
    fn a_missing_program_is_named_with_what_to_do() {
        let error = SystemRunner.run(&Invocation::new("no-such-program")).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(render(&error).contains("Install the package that provides no-such-program"));
    }

    #[test]
    fn a_program_that_prints_without_end_is_stopped() {
        let endless = sh("exec yes").output(10_000);
        assert!(render(&SystemRunner.run(&endless).unwrap_err()).contains("more than 10000 bytes"));
        assert_eq!(SystemRunner.run(&sh("printf 12345").output(5)).unwrap(), b"12345");
    }

    #[test]
    fn a_program_past_its_limit_is_killed() {
        let slow = Invocation::new("sleep").arg("30").limit(Duration::from_millis(50));
        assert!(render(&SystemRunner.run(&slow).unwrap_err()).contains("was stopped"));
    }
}
