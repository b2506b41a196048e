//! Compares the clocks of the node and of its cluster before the node begins to join.
//!
//! The install has compared them too, but a clock can be lost before the first boot. A node with a wrong clock joins half way: its
//! certificates and tokens are not valid for the others.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use model::config::InstallConfig;

use crate::configuration::ClusterMember;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use machine::clock::{CLUSTER_TOLERANCE, ClockOffset, http_date};

const LIMIT: Duration = Duration::from_secs(10);
const SECONDS: &str = "5";
const NEXT: &str = "Set the clock that is wrong, here or there: see `os.ntp_servers`, `timedatectl` and the firmware's setup. The join \
                    goes on by itself.";

/// Fails if the clocks are too far apart. A cluster that does not answer yet is ignored.
///
/// # Errors
/// [`Class::Join`].
pub(super) fn check(config: &InstallConfig, runner: &dyn Runner) -> Result<()> {
    let Some(member) = ClusterMember::of(config).filter(|member| !member.first) else { return Ok(()) };
    let Some(place) = member.host.as_deref().map(|host| member.supervisor(host)) else { return Ok(()) };
    // The certificate is not checked: no secret is sent, and a false server can only keep the node waiting.
    let ask = Invocation::new("curl").args(["--disable", "--silent", "--insecure", "--noproxy", "*"]);
    let ask = ask.args(["--max-time", SECONDS, "--output", "/dev/null", "--dump-header", "-"]);
    let ask = ask.arg(format!("{place}/version")).limit(LIMIT);
    let Ok(head) = runner.run(&ask) else { return Ok(()) };
    match date(&head).map(|date| ClockOffset::between(SystemTime::now(), date)) {
        Some(offset) if offset.by > CLUSTER_TOLERANCE => {
            let what = format!("{}: too far to join its cluster", offset.text(&place));
            Err(Failure::new(Class::Join, what).hint(NEXT).into())
        }
        _ => Ok(()),
    }
}

/// The server's time in the head of its answer.
fn date(head: &[u8]) -> Option<SystemTime> {
    let head = String::from_utf8_lossy(head);
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("date").then(|| value.to_owned())
    };
    http_date(&head.lines().find_map(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    /// With a cluster whose clock is ahead by so many seconds, or one that does not answer.
    fn checked(document: &str, ahead: Option<i64>) -> Result<()> {
        let answer = move |ahead| {
            let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
            let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT");
            format!("HTTP/2 200 \r\ncontent-type: text/plain\r\ndate: {date}\r\n\r\n")
        };
        let version = "https://192.0.2.10:6443/version";
        let server = match ahead {
            Some(ahead) => ScriptedRunner::new().answer(version, answer(ahead)),
            None => ScriptedRunner::new().fail(version, "curl ended with 7"),
        };
        check(&model::config::parse(document, "f").unwrap(), &server)
    }

    const JOIN: &str = "server_url: https://192.0.2.10\ninstall: {mode: join, role: worker}\nkubernetes: {distribution: kubeadm}\n";

    #[test]
    fn a_clock_that_is_off_is_told_with_the_server_and_what_to_do() {
        for (ahead, part) in [(3610, "the clock is 60 min behind"), (-3610, "the clock is 60 min ahead of")] {
            let told = base::failure::render(&checked(JOIN, Some(ahead)).unwrap_err());
            assert!(
                told.contains(&format!("{part} https://192.0.2.10:6443: too far to join its cluster"))
                    && told.contains("next: Set the clock"),
                "{told}"
            );
        }
    }

    #[test]
    fn a_clock_that_is_right_or_that_nothing_is_known_of_keeps_no_node_away() {
        for ahead in [Some(0), Some(20), Some(-20), None] {
            checked(JOIN, ahead).unwrap();
        }
        checked("install: {mode: create}\nkubernetes: {distribution: kubeadm}\n", Some(3600)).unwrap();
        for head in ["", "HTTP/2 200", "HTTP/2 200\r\ndate: now\r\n"] {
            assert_eq!(date(head.as_bytes()), None, "{head}");
        }
    }
}
