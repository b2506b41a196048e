//! The questions on real terminals: tmux plays one of 80 columns and 24 rows, and somebody presses keys.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use model::release::MANIFEST;

/// How long a picture may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The manifest of a medium, which is all that a rehearsal reads of one.
fn medium(at: &Path) {
    let mut release = testing::release::release();
    release.payloads.retain(|payload| !payload.path.starts_with("images/"));
    release.images.clear();
    fs::write(at.join(MANIFEST), release.to_bytes()).unwrap();
}

/// A rehearsal in a terminal of its own. The terminal goes with it.
struct Rehearsal {
    directory: tempfile::TempDir,
}

impl Rehearsal {
    fn begin(term: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        medium(at);
        let inventory =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/testing/src/inventories/screens.json");
        let line = format!(
            "env TERM={term} LANG=C.UTF-8 LC_ALL= NO_COLOR= '{}' install --rehearse --medium '{}' --inventory '{}'; \
             echo $? > '{}'",
            env!("CARGO_BIN_EXE_installer"),
            at.display(),
            inventory.display(),
            at.join("code").display(),
        );
        let rehearsal = Self { directory };
        let output = rehearsal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &line]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        rehearsal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let socket = self.directory.path().join("tmux");
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(socket).args(arguments).env_remove("TMUX");
        command.output().unwrap_or_else(|error| panic!("tmux: {error}; `make setup` installs it"))
    }

    fn picture(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Waits until the picture is one that will do.
    fn wait(&self, what: &str, will_do: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + TIMEOUT;
        loop {
            let picture = self.picture();
            if will_do(&picture) {
                return picture;
            }
            assert!(Instant::now() < until, "no {what}:\n{picture}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for the screen of this title; nothing may have got onto it that does not belong there.
    fn screen(&self, title: &str) -> String {
        let picture = self.wait(title, |picture| {
            picture.starts_with(&format!(" Install: {title} ")) && picture.contains("F10 leave")
        });
        assert!(!picture.contains('\u{1b}') && !picture.contains("^["), "{picture}");
        picture
    }

    fn keys(&self, keys: &[&str]) {
        let arguments: Vec<_> = ["send-keys"].iter().chain(keys).copied().collect();
        assert!(self.tmux(&arguments).status.success());
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn a_whole_conversation(term: &str) {
    let rehearsal = Rehearsal::begin(term);
    let first = rehearsal.screen("what this machine becomes");
    assert!(first.contains("2 disks (480 GiB, 960 GiB)") && first.contains("REHEARSAL"), "{first}");
    rehearsal.keys(&["F8"]);
    rehearsal.screen("disks");
    rehearsal.keys(&["Down", "Enter", "C-n"]);
    rehearsal.screen("management network");
    rehearsal.keys(&["F8"]);
    rehearsal.screen("names and servers");
    rehearsal.keys(&["-l", "node-1"]);
    rehearsal.keys(&["F8"]);
    rehearsal.screen("the new cluster");
    rehearsal.keys(&["Tab"]);
    rehearsal.keys(&["-l", "192.0.2.1x"]);
    rehearsal.keys(&["BSpace", "0", "F6", "F8"]);
    rehearsal.screen("who may log in");
    rehearsal.keys(&["-l", "a password of many words"]);
    rehearsal.keys(&["Tab"]);
    rehearsal.keys(&["-l", "a password of many words"]);
    let typed = rehearsal.screen("who may log in");
    assert!(!typed.contains("many words"), "{typed}");
    rehearsal.keys(&["F8"]);
    rehearsal.screen("the plan");
    let plan = rehearsal.wait("plan", |picture| picture.contains("Install NQRust Hypervisor 0.1.0"));
    assert!(plan.contains("INTEL SSDSC2KB96"), "{plan}");
    rehearsal.keys(&["Enter"]);
    let question = rehearsal.screen("the last question");
    assert!(question.contains("EVERYTHING on /dev/sdb is erased."), "{question}");
    rehearsal.keys(&["-l", "yes"]);
    rehearsal.keys(&["Enter"]);
    rehearsal.screen("end of the rehearsal");
    rehearsal.keys(&["Enter"]);
    let code = rehearsal.directory.path().join("code");
    let until = Instant::now() + TIMEOUT;
    while fs::read_to_string(&code).unwrap_or_default().trim() != "0" {
        assert!(Instant::now() < until, "{:?}", fs::read_to_string(&code));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_question_is_answered_on_an_old_serial_terminal() {
    a_whole_conversation("vt100");
}

#[test]
fn every_question_is_answered_on_the_kernels_terminal() {
    a_whole_conversation("linux");
}

#[test]
fn a_terminal_that_changes_its_size_is_drawn_anew() {
    let rehearsal = Rehearsal::begin("xterm");
    rehearsal.screen("what this machine becomes");
    rehearsal.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    let large = rehearsal.wait("large picture", |picture| {
        picture.lines().nth(39).is_some_and(|line| line.contains("F10 leave"))
    });
    assert!(large.lines().next().unwrap().trim_end().ends_with("1 of 10"), "{large}");
    assert_eq!(large.matches("F10 leave").count(), 1, "{large}");
    rehearsal.tmux(&["resize-window", "-x", "60", "-y", "16"]);
    // What the terminal itself leaves of the large picture does not count.
    rehearsal.wait("small picture", |picture| {
        picture.starts_with(" Install: what this machine becomes")
            && picture.lines().nth(15).is_some_and(|line| line.trim_end().ends_with("load configuration"))
    });
}
