//! An isolated network with a server: a network namespace with one address, and a tap device for a machine's card. DHCP
//! and TFTP servers of this host reach only machines on it.

use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use crate::deadline::Deadline;
use crate::programs;

/// The time limit of one command in the namespace.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// A network segment; it is removed when dropped, with its last process.
#[derive(Debug)]
pub struct Segment {
    holder: Child,
}

impl Segment {
    /// The address of the server, in a /24 network.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    /// The tap device, for one machine at a time.
    pub const TAP: &'static str = "tap0";

    pub fn lay() -> Result<Self> {
        let mut unshare = Command::new("setpriv");
        unshare.args(["--pdeathsig", "KILL", "unshare", "--net"]);
        if !geteuid().is_root() {
            // dnsmasq changes to another user.
            unshare.args(["--user", "--map-root-user", "--map-auto"]);
        }
        unshare.args(["sleep", "infinity"]).stdin(Stdio::null());
        let segment = Self { holder: unshare.spawn().context("making a network namespace")? };
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let theirs = format!("/proc/{}/ns/net", segment.holder.id());
        Deadline::after(COMMAND_LIMIT).poll("a network namespace", || {
            Ok(std::fs::read_link(&theirs).is_ok_and(|link| link != own).then_some(()))
        })?;
        let (address, tap) = (format!("{}/24", Self::SERVER), Self::TAP);
        for words in [
            "ip link set lo up".to_owned(),
            format!("ip tuntap add dev {tap} mode tap"),
            format!("ip address add {address} dev {tap}"),
            format!("ip link set {tap} up"),
        ] {
            let mut command = segment.command(&words.split(' ').collect::<Vec<_>>());
            programs::run(&mut command, COMMAND_LIMIT)?.success(&words)?;
        }
        Ok(segment)
    }

    /// The command to put before a program so that it runs on the segment.
    #[must_use]
    pub fn enter(&self) -> Vec<String> {
        let mut words = vec![format!("--target={}", self.holder.id()), "--net".into()];
        if !geteuid().is_root() {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words.insert(0, "nsenter".into());
        words
    }

    fn command(&self, words: &[&str]) -> Command {
        let enter = self.enter();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args(words);
        command
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Both fail only if the child has ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_of_a_segment_stays_on_it() {
        let (one, other) = (Segment::lay().unwrap(), Segment::lay().unwrap());
        for segment in [&one, &other] {
            let mut show = segment.command(&["ip", "-brief", "address"]);
            let said = programs::run(&mut show, COMMAND_LIMIT).unwrap().success("ip").unwrap();
            assert_eq!(said.lines().count(), 2, "{said}");
            assert!(said.contains("192.0.2.1/24"), "{said}");
        }
    }
}
