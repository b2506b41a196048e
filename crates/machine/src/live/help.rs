//! Help access: a way into the live system for a helper, and none before it is asked for.
//!
//! The live system has no account that a password opens, and starts no SSH server. [`open`] gives its root account a password
//! that is made for this one time and starts an SSH server with a host key of its own; [`close`] removes both. Everything is in
//! memory: nothing of it is on the installed node, and nothing is left after a restart.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use super::is_live;
use crate::network::addresses::addresses;
use crate::readable_secret::readable_secret;
use base::command::{Invocation, Runner};
use base::failure::{Class, Classify, Failure, causes};
use model::config::Secret;

/// The account: what a helper needs to look at belongs to root.
pub const ACCOUNT: &str = "root";
/// The SSH server of the live system; it is started nowhere else.
const UNIT: &str = "nqrust-help.service";
/// The public part of its host key.
const HOST_KEY: &str = "/run/nqrust-help/ssh_host_ed25519_key.pub";
/// The limit for one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);
/// No password opens the account (crypt(5): no hash has these characters).
const NO_PASSWORD: &str = "!*";
/// Letters of a password: 70 bits.
const PASSWORD_LETTERS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpAccess {
    pub password: Secret,
    /// Where the SSH server answers: a device and its addresses, one device a text.
    pub addresses: Vec<String>,
    pub host_key: Option<String>,
    /// Why there is no SSH server, if there is none. Logins on the consoles work anyway.
    pub trouble: Option<String>,
}

/// Opens the system that has this kernel command line.
///
/// # Errors
/// It is no live system, or the password cannot be set. A server that does not start is reported in [`HelpAccess::trouble`].
pub fn open(command_line: &str, runner: &dyn Runner) -> Result<HelpAccess> {
    if !is_live(command_line) {
        return Err(Failure::new(Class::Invalid, "help access is only possible on a live system")
            .hint("Log in to an installed node as its administrator.")
            .into());
    }
    let password = readable_secret(PASSWORD_LETTERS)?;
    let line = format!("{ACCOUNT}:{}\n", password.expose());
    // Standard input: everyone can read the arguments of a program.
    runner
        .run(&Invocation::new("chpasswd").stdin(line).limit(PROGRAM_TIMEOUT))
        .class(Class::Unexpected, || format!("giving {ACCOUNT} a password"))?;
    let started = runner.run(&systemctl("restart"));
    let trouble =
        started.err().map(|error| format!("the SSH server did not start: {}", causes(&error).join(": ")));
    let addresses = addresses(None, runner);
    let host_key =
        runner.run(&Invocation::new("ssh-keygen").args(["-l", "-f", HOST_KEY]).limit(PROGRAM_TIMEOUT));
    let host_key = host_key.ok().filter(|_| trouble.is_none());
    // Its second word: `256 SHA256:... root@host (ED25519)`.
    let host_key =
        host_key.and_then(|text| String::from_utf8_lossy(&text).split_whitespace().nth(1).map(str::to_owned));
    Ok(HelpAccess { password, addresses, host_key, trouble })
}

/// Removes the password and the server, and ends the sessions of users who have logged in.
///
/// # Errors
/// One of them stays; the others are removed anyway.
pub fn close(runner: &dyn Runner) -> Result<()> {
    let locked = runner.run(
        &Invocation::new("chpasswd")
            .arg("--encrypted")
            .stdin(format!("{ACCOUNT}:{NO_PASSWORD}\n"))
            .limit(PROGRAM_TIMEOUT),
    );
    let stopped = runner.run(&systemctl("stop"));
    // An error means that nobody is logged in.
    let _ = runner.run(&Invocation::new("loginctl").args(["terminate-user", ACCOUNT]).limit(PROGRAM_TIMEOUT));
    locked.class(Class::Unexpected, || format!("removing the password of {ACCOUNT}"))?;
    stopped.class(Class::Unexpected, || "stopping the SSH server".into()).map(drop)
}

fn systemctl(verb: &str) -> Invocation {
    Invocation::new("systemctl").args([verb, UNIT]).limit(PROGRAM_TIMEOUT)
}

/// Runs a login on a terminal, and returns after the logout, or if there was no login for a minute (login(1)). `term` is the type
/// of the terminal (`TERM`); the password is shown again, because the screen is cleared. When the session ends, the kernel hangs
/// up the terminal for every process that has it open (credentials(7)): it has to be opened again.
pub fn shell(mut terminal: File, term: &str, password: &Secret) -> Result<()> {
    let what = || "starting a shell on the console".to_owned();
    let password = password.expose();
    write!(terminal, "The password is {password}. `exit` goes back to the installer.\r\n")
        .class(Class::Unexpected, what)?;
    let copy = || terminal.try_clone().map(Stdio::from).class(Class::Unexpected, what);
    // setsid(1) makes the terminal the session's own, without which a shell has no job control.
    let status = Command::new("setsid")
        .args(["--ctty", "--wait", "/bin/login", ACCOUNT])
        .env("TERM", term)
        .stdin(copy()?)
        .stdout(copy()?)
        .stderr(copy()?)
        .status();
    // login(1) ends with an error after too many wrong passwords: its own message is enough.
    status.map(drop).class(Class::Unexpected, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use testing::node::ADDRESS_OF_ENS3;
    use testing::runner::ScriptedRunner;

    const LIVE: &str = "quiet nqrust.mode=install";

    fn system() -> ScriptedRunner {
        ScriptedRunner::silent()
            .answer("ip ", ADDRESS_OF_ENS3)
            .answer("ssh-keygen", "256 SHA256:abc root@live (ED25519)\n")
    }

    fn without_server() -> ScriptedRunner {
        system().fail("systemctl", "there is none").fail("loginctl", "there is none")
    }

    fn inputs(system: &ScriptedRunner) -> Vec<String> {
        let input = |invocation: Invocation| String::from_utf8(invocation.stdin).unwrap();
        system.invocations().into_iter().map(input).collect()
    }

    #[test]
    fn the_password_goes_to_standard_input_and_the_server_is_started() {
        let system = system();
        let access = open(LIVE, &system).unwrap();
        assert_eq!(access.host_key.as_deref(), Some("SHA256:abc"));
        assert_eq!(access.addresses, ["ens3 192.0.2.7/24"]);
        assert!(access.trouble.is_none());
        let (commands, password) = (system.commands(), access.password.expose());
        assert_eq!(commands[..2], ["chpasswd", "systemctl restart nqrust-help.service"]);
        assert_eq!(inputs(&system)[0], format!("root:{password}\n"));
        assert!(commands.iter().all(|line| !line.contains(password)));
        assert!(!format!("{access:?}").contains(password));
    }

    #[test]
    fn an_installed_node_is_not_opened() {
        let system = system();
        for line in ["nqrust.slot=a", "nqrust.mode=check", ""] {
            let error = open(line, &system).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid);
        }
        assert!(system.commands().is_empty());
    }

    #[test]
    fn a_server_that_does_not_start_leaves_the_consoles() {
        let access = open(LIVE, &without_server()).unwrap();
        assert_eq!(access.trouble.as_deref(), Some("the SSH server did not start: there is none"));
        assert_eq!(access.host_key, None);
    }

    #[test]
    fn closing_takes_password_server_and_sessions_and_tells_what_stays() {
        let system = system();
        close(&system).unwrap();
        assert_eq!(
            system.commands(),
            ["chpasswd --encrypted", "systemctl stop nqrust-help.service", "loginctl terminate-user root"]
        );
        assert_eq!(inputs(&system)[0], "root:!*\n");
        let error = close(&without_server()).unwrap_err();
        assert!(render(&error).contains("stopping the SSH server"));
    }
}
