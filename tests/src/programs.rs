//! Runs programs of the host to their end, successful or not: tests check exit codes.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::deadline::Deadline;
use crate::paths;

/// The environment variable that names the directory with the keys of the builder's user.
pub(crate) const KEYS: &str = "NQRUST_KEYS";

/// How often a program is asked whether it has ended: the benchmarks measure some that take few milliseconds.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// The exit code and the output of a program.
#[derive(Clone, Debug)]
pub struct ProgramOutput {
    /// The exit code; -1 after a signal.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl ProgramOutput {
    /// Standard output and standard error, one after the other.
    #[must_use]
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Standard output; an error unless the program succeeded.
    pub fn success(self, what: &str) -> Result<String> {
        if self.code != 0 {
            bail!("{what} ended with exit code {}:\n{}", self.code, self.said());
        }
        Ok(self.stdout)
    }
}

/// A run of the `iso-builder` under test, whose user has the development key of the tests, and no other.
pub fn iso_builder() -> Result<Command> {
    let mut command = Command::new(paths::iso_builder()?);
    command.env(KEYS, paths::keys());
    Ok(command)
}

/// Runs `command` with empty input until it ends. After `limit` it is killed, which is an error.
pub fn run(command: &mut Command, limit: Duration) -> Result<ProgramOutput> {
    run_with_input(command, b"", limit)
}

/// [`run`] with `input` on standard input.
pub fn run_with_input(command: &mut Command, input: &[u8], limit: Duration) -> Result<ProgramOutput> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Files instead of pipes: a child process that the program leaves behind would keep a pipe open.
    let out = tempfile::tempfile()?;
    let err = tempfile::tempfile()?;
    let mut given = tempfile::tempfile()?;
    given.write_all(input)?;
    given.rewind()?;
    command.stdin(given).stdout(duplicate(&out)?).stderr(duplicate(&err)?);
    let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
    let ended = Deadline::after(limit)
        .every(END_INTERVAL)
        .poll(&format!("the end of {name}"), || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill().and_then(|()| child.wait().map(drop)).context("stopping a program past its limit")?;
    }
    let (stdout, stderr) = (read_back(out)?, read_back(err)?);
    let status = ended.with_context(|| format!("its last words: {stdout}{stderr}"))?;
    Ok(ProgramOutput { code: status.code().unwrap_or(-1), stdout, stderr })
}

fn duplicate(file: &File) -> Result<Stdio> {
    Ok(Stdio::from(file.as_fd().try_clone_to_owned()?))
}

fn read_back(mut file: File) -> Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs `xorriso` on the medium `iso` with further arguments; it has to succeed.
pub fn xorriso(iso: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("xorriso");
    command.args(["-report_about", "WARNING", "-osirrox", "on", "-indev"]).arg(iso).args(args);
    run(&mut command, Duration::from_secs(600))?.success("xorriso")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_and_both_outputs_come_back() {
        let mut command = Command::new("sh");
        command.args(["-c", "cat; echo err >&2; exit 3"]);
        let ended = run_with_input(&mut command, b"out\n", Duration::from_secs(10)).unwrap();
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (3, "out\n", "err\n"));
    }

    #[test]
    fn a_program_past_its_time_limit_is_killed_and_its_output_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 60"]);
        let error = run(&mut command, Duration::from_millis(300)).unwrap_err();
        assert!(format!("{error:#}").contains("begun"), "{error:#}");
    }
}
