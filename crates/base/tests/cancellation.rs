//! How a process of ours ends on signals: this test starts itself again, as a program that has children and unfinished
//! files.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base::cancellation::{self, CancellationReporter, EndRequest};
use base::files::UnfinishedFile;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Tells the copy of this test what it is to do, and where.
const ROLE: &str = "NQRUST_TEST_ROLE";
const PLACE: &str = "NQRUST_TEST_PLACE";

struct SpokenReporter;

impl CancellationReporter for SpokenReporter {
    fn begin(&mut self, request: EndRequest) {
        say(&format!("cancelled by {request}\n"));
    }

    fn end(&mut self, _: EndRequest) {
        say("cleaned up\n");
    }
}

/// The harness of tests would keep what is printed.
fn say(text: &str) {
    use std::io::Write;
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

/// Not a test of its own: the program that the others start.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    cancellation::watch(SpokenReporter).unwrap();
    let _file = UnfinishedFile::begin(&place.join("output")).unwrap();
    let mut child = Command::new("sleep").arg("1000").stderr(Stdio::null()).spawn().unwrap();
    fs::write(place.join("child"), child.id().to_string()).unwrap();
    match &*role {
        "work" => {}
        "hold" => {
            let whole = cancellation::hold();
            fs::write(place.join("ready"), "").unwrap();
            while cancellation::requested().is_none() {
                thread::sleep(Duration::from_millis(5));
            }
            // A process that does not wait for what it holds is gone by then.
            thread::sleep(Duration::from_millis(200));
            fs::write(place.join("committed"), "").unwrap();
            drop(whole);
        }
        "own-way" => {
            let signals = cancellation::take_over();
            fs::write(place.join("ready"), "").unwrap();
            while !signals.flag().load(std::sync::atomic::Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            fs::write(place.join("committed"), "").unwrap();
            drop(signals);
        }
        "stuck" => {
            let whole = cancellation::hold();
            fs::write(place.join("ready"), "").unwrap();
            let _ = child.wait();
            drop(whole);
        }
        _ => unreachable!("{role}"),
    }
    fs::write(place.join("ready"), "").unwrap();
    let _ = child.wait();
    // The end of the child is a consequence of the signal and must not be taken for an end of the work.
    cancellation::give_way();
}

fn start(role: &str, place: &Path, before: &[&str]) -> Child {
    let own = std::env::current_exe().unwrap();
    let words =
        [before, &[own.to_str().unwrap(), "program", "--exact", "--nocapture", "--test-threads=1"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(ROLE, role).env(PLACE, place);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place.join("ready"));
    child
}

fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < until, "{} never came", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(process: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process).unwrap()), signal).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn unfinished(place: &Path) -> usize {
    let names = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".unfinished")).count()
}

fn is_code(status: ExitStatus, code: i32) -> bool {
    status.code() == Some(code)
}

#[test]
fn a_signal_ends_children_removes_what_is_unfinished_and_is_the_exit_code() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let place = tempfile::tempdir().unwrap();
        // Below nohup(1) the signal would be ignored, here as by every program.
        let child = start("work", place.path(), &["env", "--default-signal=HUP"]);
        let grandchild = fs::read_to_string(place.path().join("child")).unwrap().parse().unwrap();
        assert!(runs(grandchild) && unfinished(place.path()) == 1);
        send(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        assert!(is_code(output.status, code), "{signal}: {:?} {}", output.status, said(&output));
        assert!(said(&output).contains(&format!("cancelled by {signal}\ncleaned up\n")), "{}", said(&output));
        assert_eq!((runs(grandchild), unfinished(place.path())), (false, 0), "{signal}");
    }
}

#[test]
fn process_1_of_a_container_ends_on_signals_too() {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let possible = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        testing::programs::leave_out("process 1 of a container", "this host allows no user namespaces");
        return;
    }
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let place = tempfile::tempdir().unwrap();
        let child = start("work", place.path(), &unshare);
        let first = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        send(first.trim().parse().unwrap(), signal);
        let output = child.wait_with_output().unwrap();
        assert!(is_code(output.status, code), "{signal}: {:?} {}", output.status, said(&output));
        assert_eq!(unfinished(place.path()), 0, "{signal}");
    }
}

#[test]
fn what_must_not_be_cut_is_done_to_its_end_first() {
    for role in ["hold", "own-way"] {
        let place = tempfile::tempdir().unwrap();
        let child = start(role, place.path(), &[]);
        send(child.id(), Signal::SIGTERM);
        let output = child.wait_with_output().unwrap();
        assert!(is_code(output.status, 143), "{role}: {:?} {}", output.status, said(&output));
        assert!(place.path().join("committed").exists() && unfinished(place.path()) == 0, "{role}");
    }
}

#[test]
fn a_second_signal_ends_a_process_that_is_stuck() {
    let place = tempfile::tempdir().unwrap();
    let child = start("stuck", place.path(), &[]);
    send(child.id(), Signal::SIGINT);
    send(child.id(), Signal::SIGINT);
    thread::sleep(Duration::from_millis(800));
    assert!(runs(child.id()), "two at once are one");
    send(child.id(), Signal::SIGINT);
    assert!(is_code(child.wait_with_output().unwrap().status, 130));
    let grandchild = fs::read_to_string(place.path().join("child")).unwrap();
    send(grandchild.parse().unwrap(), Signal::SIGKILL);
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let child = start("work", place.path(), &[]);
    let grandchild = fs::read_to_string(place.path().join("child")).unwrap();
    send(child.id(), Signal::SIGKILL);
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(9));
    send(grandchild.parse().unwrap(), Signal::SIGKILL);
    assert_eq!(unfinished(place.path()), 1);
    fs::remove_file(place.path().join("ready")).unwrap();
    let next = start("work", place.path(), &[]);
    assert_eq!(unfinished(place.path()), 1, "its own");
    send(next.id(), Signal::SIGTERM);
    next.wait_with_output().unwrap();
    assert_eq!(unfinished(place.path()), 0);
}
