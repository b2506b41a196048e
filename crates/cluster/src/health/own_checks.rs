//! Checks of the administrator: the programs in [`OWN_CHECKS`].
//!
//! `/oem` is mounted so that programs on it have no effect. So each is copied to `/run` and started there, and only if nobody but
//! root can have written it: a check that others can change would run their programs as root.

use std::fs;
use std::io::{PipeReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, Uid};

use super::check::{CheckResult, Finding, HealthCheck, OWN_REQUIRED, OWN_WANTED};
use base::files;
use machine::paths::below;

/// With a directory for each class.
pub const OWN_CHECKS: &str = "/oem/health.d";
const COPIES: &str = "/run/nqrust/health.d";
const LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for the last output of a program that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);
/// The largest program, and what is kept of its output.
const PROGRAM_BYTES_MAX: u64 = 16 << 20;
const OUTPUT_BYTES: usize = 4096;
const REASON_CHARS: usize = 300;
/// Their whole environment.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("LC_ALL", "C.UTF-8"),
    ("HOME", "/root"),
];

/// A program ready to be started, or why it is not.
type Prepared = (&'static HealthCheck, String, Result<PathBuf, String>);

/// Runs the checks of the system at `root` beside each other.
pub(super) fn results(root: &Path) -> Vec<CheckResult> {
    run_all(root, Uid::effective(), LIMIT)
}

/// `owner` is the user that the programs have to belong to.
fn run_all(root: &Path, owner: Uid, limit: Duration) -> Vec<CheckResult> {
    let mut results = Vec::new();
    let mut prepared = Vec::new();
    for (check, class) in [(&OWN_REQUIRED, "required"), (&OWN_WANTED, "wanted")] {
        let found = found(root, check, class, owner);
        if found.is_empty() {
            results.push(check.found(Finding::NotApplicable));
        }
        prepared.extend(found);
    }
    // All copies are closed before the first program is started: one that is open for writing cannot be.
    thread::scope(|scope| {
        let running: Vec<_> = prepared
            .into_iter()
            .map(|(check, name, copy)| {
                let run = scope.spawn(move || match copy {
                    Ok(copy) => run(&copy, limit),
                    Err(why) => Finding::cannot_say(why),
                });
                (check, name, run)
            })
            .collect();
        let ended = |run: thread::ScopedJoinHandle<'_, Finding>| {
            run.join().unwrap_or_else(|_| Finding::cannot_say("internal error: the check ended early"))
        };
        results.extend(running.into_iter().map(|(check, name, run)| check.found_at(name, ended(run))));
    });
    let order = |result: &CheckResult| result.check.id != OWN_REQUIRED.id;
    results.sort_by_key(order);
    results
}

fn found(root: &Path, check: &'static HealthCheck, class: &str, owner: Uid) -> Vec<Prepared> {
    let directory = below(root, OWN_CHECKS).join(class);
    let mut names: Vec<_> = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        // What editors leave, and files that are being copied.
        .filter(|name| !name.starts_with('.') && !name.ends_with('~'))
        .collect();
    names.sort();
    let copy = |name: &str| {
        let directories = [below(root, OWN_CHECKS), directory.clone()];
        directories.iter().try_for_each(|directory| trusted(directory, owner))?;
        copied(&directory.join(name), &below(root, COPIES).join(class).join(name), owner)
    };
    names.into_iter().map(|name| (check, name.clone(), copy(&name))).collect()
}

/// A directory that only its owner can write to.
fn trusted(directory: &Path, owner: Uid) -> Result<(), String> {
    let metadata = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    let what = directory.file_name().unwrap_or_default().to_string_lossy();
    allowed(&metadata, owner).map_err(|why| format!("it is not run: the directory {what} {why}"))
}

fn allowed(metadata: &fs::Metadata, owner: Uid) -> Result<(), String> {
    if metadata.uid() != owner.as_raw() {
        return Err("does not belong to root".into());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("can be written by others than root".into());
    }
    Ok(())
}

/// Copies the program, from the file that was looked at.
fn copied(from: &Path, to: &Path, owner: Uid) -> Result<PathBuf, String> {
    let refused = |why: &str| format!("it is not run: it {why}");
    let mut options = fs::OpenOptions::new();
    // A FIFO would keep the reader waiting.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), flags.bits());
    let file = options.open(from).map_err(|error| refused(&format!("cannot be opened: {error}")))?;
    let metadata = file.metadata().map_err(|error| refused(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(refused("is not a file"));
    }
    allowed(&metadata, owner).map_err(|why| refused(&why))?;
    if metadata.mode() & 0o111 == 0 {
        return Err(refused("is not executable"));
    }
    let mut bytes = Vec::new();
    let read = file.take(PROGRAM_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| refused(&format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > PROGRAM_BYTES_MAX {
        return Err(refused("is too large"));
    }
    files::write_atomically(to, &bytes, 0o700)
        .map_err(|error| refused(&format!("cannot be copied: {error:#}")))?;
    Ok(to.to_owned())
}

/// Runs a program to its end, or ends it and what it has started.
fn run(program: &Path, limit: Duration) -> Finding {
    let (mut child, output) = match start(program) {
        Ok(started) => started,
        Err(error) => return Finding::cannot_say(format!("it cannot be started: {error}")),
    };
    let said = Arc::new(Mutex::new(Vec::new()));
    let listener = listen(output, &said);
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
            Ok(ended) => break ended,
            Err(_) => break None,
        }
    };
    // Its group: programs that it has left behind would keep the pipes open, and add up from look to look.
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    if status.is_none() {
        let _ = child.wait();
    }
    let heard = Instant::now() + LAST_WORDS;
    while Instant::now() < heard && !listener.is_finished() {
        thread::sleep(POLL);
    }
    let last = last_line(&said.lock().map(|said| said.clone()).unwrap_or_default());
    match status {
        Some(status) if status.success() => Finding::Healthy,
        Some(status) => Finding::failing(last.unwrap_or_else(|| format!("it ended with {status}"))),
        None => {
            let last = last.map(|last| format!("; it said: {last}")).unwrap_or_default();
            Finding::failing(format!("it did not end within {} s{last}", limit.as_secs()))
        }
    }
}

/// The program, and what it says: one pipe for both of its outputs, so that the last line is the last.
fn start(program: &Path) -> std::io::Result<(Child, PipeReader)> {
    let (output, input) = std::io::pipe()?;
    let mut command = Command::new(program);
    command.env_clear().envs(ENVIRONMENT).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        match command.spawn() {
            // A child of another thread had the copy open for a moment, between fork and exec.
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline =>
            {
                thread::sleep(POLL);
            }
            started => return Ok((started?, output)),
        }
    }
}

/// Keeps the end of what comes through the pipe.
fn listen(mut pipe: impl Read + Send + 'static, said: &Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
    let said = Arc::clone(said);
    thread::spawn(move || {
        let mut buffer = [0; OUTPUT_BYTES];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let Ok(mut said) = said.lock() else { return };
            said.extend_from_slice(&buffer[..count]);
            let surplus = said.len().saturating_sub(OUTPUT_BYTES);
            said.drain(..surplus);
        }
    })
}

/// The last line that says something, without what would move a terminal's cursor.
fn last_line(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|sign| !sign.is_control()).take(REASON_CHARS).collect())
}

#[cfg(test)]
mod tests;
