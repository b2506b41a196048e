//! bash completes the commands of the installer on a node, with and without bash-completion.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

use std::path::Path;
use std::process::Command;

use testing::programs;

/// What bash says to `script`, which finds the overlay's root as `$overlay`.
fn bash(script: &str) -> Option<String> {
    if programs::find("bash").is_none() {
        programs::leave_out("completion on a node", "bash is missing");
        return None;
    }
    let overlay = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays/rootfs");
    let program = Path::new(env!("CARGO_BIN_EXE_installer")).parent().unwrap().to_owned();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    let said =
        bash.args(["--norc", "-c", script]).env("PATH", path).env("overlay", overlay).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Some(String::from_utf8(said.stdout).unwrap())
}

/// Asks what stands behind `installer pre`.
const ASK: &str =
    "COMP_WORDS=(installer pre); COMP_CWORD=1; _installer installer pre installer; echo \"${COMPREPLY[@]}\"";

#[test]
fn bash_completion_finds_the_file_of_the_image() {
    let script = format!(". $overlay/usr/share/bash-completion/completions/installer; {ASK}");
    let Some(said) = bash(&script) else { return };
    assert_eq!(said, "preflight\n");
}

#[test]
fn a_login_without_bash_completion_loads_it_at_the_first_tab() {
    let login = "PS1='$ '; sed \"s|/usr/share|$overlay/usr/share|\" $overlay/etc/profile.d/nqrust-completion.sh >$0.sh; . $0.sh; rm $0.sh";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile");
    let login = login.replace("$0", file.to_str().unwrap());
    let script = format!(
        "{login}; complete -p installer; _nqrust_load_completion; echo $?; complete -p installer; {ASK}"
    );
    let Some(said) = bash(&script) else { return };
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], "complete -F _nqrust_load_completion installer");
    assert_eq!(lines[1], "124", "bash asks again");
    assert!(lines[2].contains("_installer"), "{said}");
    assert_eq!(lines[3], "preflight");
}

#[test]
fn a_shell_that_nobody_types_into_gets_none() {
    let Some(said) =
        bash(". $overlay/etc/profile.d/nqrust-completion.sh; complete -p installer || echo none")
    else {
        return;
    };
    assert_eq!(said, "none\n");
}
