//! Whoever waits for a transfer is told what it waits for, before it is given up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The first line of a pull from a port where nobody listens, which is given up after a minute.
fn first_line(options: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    command.current_dir(directory.path()).args(["pull", "127.0.0.1:1/release:1", "out"]).args(options);
    let mut pull = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(pull.stderr.take().unwrap()).read_line(&mut line).unwrap();
    pull.kill().unwrap();
    pull.wait().unwrap();
    line
}

#[test]
fn a_pause_between_attempts_is_told_and_a_short_one_to_those_who_ask() {
    for (options, told) in [
        (&["--progress", "plain"][..], "; attempt 3 of 7 in 2 s"),
        (&["--progress", "plain", "--verbose"], "; attempt 2 of 7 in 1 s"),
        (&["--progress", "json"], "; attempt 3 of 7 in 2 s"),
    ] {
        let line = first_line(options);
        let named = line.contains("127.0.0.1:1: ") && line.contains("Connection refused");
        assert!(named && line.contains(told), "{options:?}: {line}");
    }
}
