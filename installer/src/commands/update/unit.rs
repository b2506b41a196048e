//! The unit in which an update runs, so that it survives the end of the terminal, the SSH session or the pod that started it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Classify, Failure};
use base::files::write_atomically;

/// No `nqrust-` before it: a unit of the product that fails is a fault of the node, and a refused update is none.
const UNIT: &str = "installer-update";
/// Its weights leave processors and disks to the pods of the node.
const SLICE: &str = "nqrust.slice";
const DIRECTORY: &str = "/run/nqrust/update";
/// Each look starts a program.
const POLL: Duration = Duration::from_secs(1);
/// What the unit runs. The arguments of a unit are in the journal, and a URL among them may have a password.
const SCRIPT: &str = "run";

/// Does `work` in a unit if this machine has a service manager, and in this process if not. Waits up to `wait` for another update.
pub(crate) fn in_unit(wait: Duration, work: impl FnOnce() -> Result<()>) -> Result<()> {
    match Path::new("/run/systemd/system").is_dir() {
        true => run_in_unit(&SystemRunner, wait),
        false => work(),
    }
}

fn run_in_unit(runner: &dyn Runner, wait: Duration) -> Result<()> {
    let deadline = Instant::now() + wait;
    while at_work(runner) {
        if Instant::now() < deadline {
            std::thread::sleep(POLL);
            continue;
        }
        let what = "another update of this node is at work";
        return Err(Failure::new(Class::Busy, what)
            .hint(format!("See `installer update status` and `journalctl --unit {UNIT}`."))
            .into());
    }
    let directory = Path::new(DIRECTORY);
    let _ = fs::remove_dir_all(directory);
    base::files::make_directory(directory, 0o755)?;
    let output = |name: &str| directory.join(name);
    let property = |name: &str| format!("--property=Standard{name}=append:{}", output(name).display());
    let start = Invocation::new("systemd-run")
        .args([
            "--quiet",
            "--collect",
            "--unit",
            UNIT,
            "--slice",
            SLICE,
            "--property=IOSchedulingClass=idle",
            "--property=SuccessExitStatus=1 2 3 4 5 6 7 8 9 130 143",
        ])
        .args([property("Output"), property("Error")])
        .args(["--", "/bin/sh"])
        .arg(output(SCRIPT));
    let program = std::env::current_exe().class(Class::Unexpected, || "finding this program".to_owned())?;
    let words = [program.into_os_string()].into_iter().chain(std::env::args_os().skip(1));
    let script = script(words.chain(["--foreground".into()]), &output("exit"))?;
    write_atomically(&output(SCRIPT), script.as_bytes(), 0o600)?;
    runner.run(&start).map_err(|error| {
        Failure::new(Class::Unexpected, format!("starting the unit {UNIT}"))
            .because(anyhow::anyhow!("{error:#}"))
    })?;
    follow(runner, &output)?;
    let code = fs::read_to_string(output("exit")).ok().and_then(|code| code.trim().parse().ok());
    match code {
        Some(0) => Ok(()),
        // The unit has printed its error.
        Some(code) => std::process::exit(code),
        None => Err(Failure::new(Class::Unexpected, "the update ended without a result")
            .hint(format!(
                "See `journalctl --unit {UNIT}` and `installer update status`; then start it again."
            ))
            .into()),
    }
}

/// Runs a command and writes its exit code to a file, as a script for sh(1).
fn script(words: impl Iterator<Item = OsString>, exit: &Path) -> Result<String> {
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let command = shlex::try_join(words.iter().map(String::as_str))
        .class(Class::Invalid, || "passing the arguments of this command to a unit".to_owned())?;
    Ok(format!("{command}\necho $? > {}\n", exit.display()))
}

pub(crate) fn at_work(runner: &dyn Runner) -> bool {
    runner.run(&Invocation::new("systemctl").args(["is-active", "--quiet", UNIT])).is_ok()
}

/// Copies the output of the unit until it ends.
fn follow(runner: &dyn Runner, output: &dyn Fn(&str) -> std::path::PathBuf) -> Result<()> {
    let mut files = [None, None];
    loop {
        let ended = output("exit").exists() || !at_work(runner);
        for (file, name) in files.iter_mut().zip(["Output", "Error"]) {
            if file.is_none() {
                *file = File::open(output(name)).ok();
            }
            let Some(file) = file else { continue };
            let mut said = Vec::new();
            let _ = file.read_to_end(&mut said);
            let _ = match name {
                "Output" => io::stdout().write_all(&said).and_then(|()| io::stdout().flush()),
                _ => io::stderr().write_all(&said),
            };
        }
        if ended {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_gets_the_arguments_as_they_are_and_tells_the_exit_code() {
        let directory = tempfile::tempdir().unwrap();
        let exit = directory.path().join("exit");
        let words =
            ["sh", "-c", "printf '<%s>' \"$@\"; exit 9", "x", "https://a:b'$(c)@d/e f.iso", "", "--é"];
        let text = script(words.into_iter().map(OsString::from), &exit).unwrap();
        let shell = Invocation::new("sh").args(["-c", &text]);
        let said = SystemRunner.run(&shell).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "<https://a:b'$(c)@d/e f.iso><><--é>");
        assert_eq!(fs::read_to_string(exit).unwrap(), "9\n");
        assert!(script(["a\0b".into()].into_iter(), directory.path()).is_err());
    }
}
